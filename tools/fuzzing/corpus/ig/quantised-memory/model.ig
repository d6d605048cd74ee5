intaglio-ir 1
model quantised stage=memory target=generic
input x: f32[1,6] @input+0
const sc: f32[] = 0.05000000074505806
const z: i8[] = 3
const w: i8[6,4] sha256:1d64add2a6388367
const multiplier: f32[4] = [0.05000000447034836, 0.05000000447034836, 0.05000000447034836, 0.05000000447034836]
q: i8[1,6] @arena+0 = quantize(x, sc, z, to=i8, low=-128, high=127) using elementwise  # QuantizeLinear_0
qm_1 "qm": i8[1,4] q(0.05000000074505806,3) @arena+64 = qmatmul(q, w, _, multiplier, _, a_zero=3, y_zero=3, scaling="float") using qmatmul  # QuantizeLinear_4
y: f32[1,4] @output+0 = dequantize(qm_1, sc, z) using elementwise  # DequantizeLinear_5
output y
