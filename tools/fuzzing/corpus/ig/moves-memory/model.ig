intaglio-ir 1
model moves stage=memory target=generic
input x: f32[2,6] @input+0
a: f32[2,3,2] @input+0 = reshape(x, shape=(2,3,2)) using view  # Reshape_0
c_1: f32[2,2,2] @arena+0 = slice(a, starts=(0,0,0), steps=(1,1,1), shape=(2,2,2)) using slice  # Slice_2
d_1: f32[2,4,2] @arena+192 = concat(c_1, c_1, axis=1) using concat  # Concat_3
e_1: f32[3,4,3] @arena+0 = pad(d_1, pads=(1,0,0,0,0,1)) using pad  # Pad_4
m_1: f32[1,4,3] @arena+192 = reduce(e_1, kind="mean", axes=(0)) using reduce  # ReduceMean_5
y_1: f32[1,4,3] @output+0 = softmax(m_1, axis=2) using softmax  # Softmax_6
y: f32[4,1,3] @output+0 = reshape(y_1, shape=(4,1,3)) using view  # Softmax_6
output y
