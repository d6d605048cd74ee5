intaglio-ir 1
model recurrent stage=import
input x: f32[4,1,2]
const w: f32[1,12,2] sha256:29b9092fadfd9d7e
const r: f32[1,12,3] sha256:2b5d87928f8f2492
const b: f32[1,24] sha256:5a8b6a7e0262c8fd
a: f32[4,1,1,3], h: f32[1,1,3], c: f32[1,1,3] = lstm(x, w, r, b, hidden=3, activations=("Sigmoid","Tanh","Tanh"), alphas=(0.0,0.0,0.0), betas=(0.0,0.0,0.0))  # LSTM_0
output a
output h
