intaglio-ir 1
model moves stage=import
input x: f32[2,6]
a: f32[2,3,2] = reshape(x, shape=(2,3,2))  # Reshape_0
b: f32[3,2,2] = transpose(a, perm=(1,0,2))  # Transpose_1
c: f32[2,2,2] = slice(b, starts=(0,0,0), steps=(1,1,1), shape=(2,2,2))  # Slice_2
d: f32[4,2,2] = concat(c, c)  # Concat_3
e: f32[4,3,3] = pad(d, pads=(0,1,0,0,0,1))  # Pad_4
m: f32[4,1,3] = reduce(e, kind="mean", axes=(1))  # ReduceMean_5
y: f32[4,1,3] = softmax(m, axis=2)  # Softmax_6
output y
