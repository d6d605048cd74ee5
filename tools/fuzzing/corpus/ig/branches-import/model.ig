intaglio-ir 1
model branches stage=import
input x: f32[2,6]
input c: bool[]
const c_1: i64[2] = [0, 5]
logical_not: bool[] = logical_not(c)  # If_0
t: f32[2,6] = relu(x) when c  # If_0
e: f32[2,6] = neg(x) when logical_not  # If_0
y: f32[2,6] = select(c, t, e)  # If_0
g: f32[2,2] = gather(y, c_1, axis=1)  # Gather_1
output y
output g
