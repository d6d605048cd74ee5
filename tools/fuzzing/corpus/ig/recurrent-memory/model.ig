intaglio-ir 1
model recurrent stage=memory target=generic
input x: f32[4,1,2] @input+0
const w: f32[1,12,2] sha256:29b9092fadfd9d7e
const r: f32[1,12,3] sha256:2b5d87928f8f2492
const b: f32[1,24] sha256:5a8b6a7e0262c8fd
a: f32[4,1,1,3] @output+0, h: f32[1,1,3] @output+1, c: f32[1,1,3] @arena+320 = lstm(x, w, r, b, hidden=3, activations=("Sigmoid","Tanh","Tanh"), alphas=(0.0,0.0,0.0), betas=(0.0,0.0,0.0)) using lstm_packed  # LSTM_0
output a
output h
