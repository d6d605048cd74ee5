intaglio-ir 1
model branches stage=memory target=generic
input x: f32[2,6] @input+0
input c: bool[] @input+1
const c_1: i64[2] = [0, 5]
logical_not: bool[] @arena+128 = logical_not(c) using elementwise  # If_0
t: f32[2,6] @arena+0 = relu(x) using elementwise when c  # If_0
e: f32[2,6] @arena+64 = neg(x) using elementwise when logical_not  # If_0
y: f32[2,6] @output+0 = select(c, t, e) using select  # If_0
g: f32[2,2] @output+1 = gather(y, c_1, axis=1) using gather  # Gather_1
output y
output g
