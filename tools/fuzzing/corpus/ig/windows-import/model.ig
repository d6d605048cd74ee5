intaglio-ir 1
model windows stage=import
input x: f32[1,2,5,5]
const w: f32[3,2,3,3] sha256:ccd48033e5f516bd
const b: f32[3] = [0.3455841839313507, 0.8216181397438049, 0.3304370641708374]
const g: f32[4,12] sha256:1d94e9097c2cd0c6
const h: f32[4] = [0.3455841839313507, 0.8216181397438049, 0.3304370641708374, -1.3031572103500366]
a: f32[1,3,5,5] = conv(x, w, b, pads=(1,1,1,1))  # Conv_0
r: f32[1,3,5,5] = relu(a)  # Relu_1
p: f32[1,3,2,2] = max_pool(r, kernel=(2,2), strides=(2,2))  # MaxPool_2
f: f32[1,12] = reshape(p, shape=(1,12))  # Flatten_3
y: f32[1,4] = matmul(f, g, h, transpose_b=true)  # Gemm_4
output y
