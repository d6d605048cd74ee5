intaglio-ir 1
model windows stage=memory target=generic
input x: f32[1,2,5,5] @input+0
const w: f32[3,2,3,3] sha256:ccd48033e5f516bd
const b: f32[3] = [0.3455841839313507, 0.8216181397438049, 0.3304370641708374]
const g_1: f32[12,4] sha256:7114c25f1a3779f0
const h: f32[4] = [0.3455841839313507, 0.8216181397438049, 0.3304370641708374, -1.3031572103500366]
a_1: f32[1,5,5,2] NHWC @arena+320 = transpose(x, perm=(0,2,3,1)) using transpose  # Conv_0
r_1 "r": f32[1,5,5,3] NHWC @arena+0 = conv(a_1, w, b, pads=(1,1,1,1), layout=NHWC, epilogue=[relu(0)]) using conv_nhwc(tile=3x3)  # Conv_0
p_2 "p": f32[1,2,2,3] NHWC @arena+320 = max_pool(r_1, kernel=(2,2), strides=(2,2), layout=NHWC) using max_pool_nhwc(pixels=2)  # MaxPool_2
y_1: f32[1,12] @arena+320 = reshape(p_2, shape=(1,12)) using view  # Gemm_4
y: f32[1,4] @output+0 = matmul(y_1, g_1, h) using matmul(tile=1x4)  # Gemm_4
output y
