intaglio-ir 1
model elements stage=import
input x: f32[1,6]
const k: f32[1,6] = [0.18905338644981384, -0.5227484703063965, -0.41306355595588684, -2.44146728515625, 1.7997074127197266, 1.1441658735275269]
const g: f32[6] = [0.3455841839313507, 0.8216181397438049, 0.3304370641708374, -1.3031572103500366, 0.9053558707237244, 0.4463745653629303]
a: f32[1,6] = add(x, k)  # Add_0
b: f32[1,6] = sigmoid(a)  # Sigmoid_1
c: f32[1,6] = mul(a, b)  # Mul_2
d: f32[1,6] = clip(c, low=-1.0, high=1.0)  # Clip_3
e: f32[1,6] = layer_norm(d, g, _, axis=1)  # LayerNormalization_4
y: f32[1,2], i_ "i": i64[1,2] = topk(e, k=2, axis=1)  # TopK_5
output y
output i_
