"""Depthwise convolutions of bytes with MVE: four channels at a time, in lanes of 32 bits, tap by tap.

    acc = start[c..];   for each tap inside of the image:  acc += (x[c..] - zero) * w[tap][c..];   scale, clip, store four bytes

Scaling is VQRDMULH and VRSHL, with the sign added in between: VRSHL rounds half up, the reference half away from zero.
"""

from __future__ import annotations

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.dsp.scaling import C_TYPES, name_of, parse_variant
from intaglio.kernels.integer_conv import Numbers, constants_of, qgeometry
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import Place, idx
from intaglio.kernels.mve.conv import takes
from intaglio.kernels.routines import Routine, family
from intaglio.ops.fixed_point import scale32
from intaglio.ops.quantised import QConv


@family("taps")
def taps(name: str) -> Routine:
    """`i8_i8`: types of x and y, with a smaller range of y behind it."""
    source, _, rest = name.partition("_")
    _, to, low, high = parse_variant(f"taps_{rest}")
    sign = "s" if source == "i8" else "u"
    stored = "s" if to is DType.I8 else "u"
    load = f"vldrbq_z_{sign}32(from + c, some)"
    load = load if sign == "s" else f"vreinterpretq_s32_u32({load})"
    value = "value" if stored == "s" else "vreinterpretq_u32_s32(value)"
    text = f"""\
/* One pixel of a depthwise convolution, all channels. Weights [tap][channel]; scales: starts, multipliers, shifts left, right. */
IG_ROUTINE void ig_taps_{name}(const {C_TYPES[source]} *x, ptrdiff_t top, ptrdiff_t left, ptrdiff_t height, ptrdiff_t width,
    ptrdiff_t channels, ptrdiff_t rows, ptrdiff_t cols, ptrdiff_t down, ptrdiff_t across, ptrdiff_t zero, const int8_t *w,
    const int32_t *scale, ptrdiff_t y_zero, {C_TYPES[to.value]} *y)
{{
    for (ptrdiff_t c = 0; c < channels; c += 4) {{
#ifdef IG_MVE
        const mve_pred16_t some = vctp32q((uint32_t)(channels - c));
        int32x4_t sum = vldrwq_z_s32(scale + c, some);
        for (ptrdiff_t i = 0; i < rows; i++) {{
            const ptrdiff_t h = top + i * down;
            for (ptrdiff_t j = 0; j < cols; j++) {{
                const ptrdiff_t v = left + j * across;
                const {C_TYPES[source]} *from = x + (h * width + v) * channels;
                if (h < 0 || h >= height || v < 0 || v >= width)
                    continue;
                sum = vaddq_s32(sum, vmulq_s32(vsubq_n_s32({load}, (int32_t)zero),
                    vldrbq_z_s32(w + (i * cols + j) * channels + c, some)));
            }}
        }}
        const int32x4_t multiplier = vldrwq_z_s32(scale + channels + c, some);
        const int32x4_t lift = vldrwq_z_s32(scale + 2 * channels + c, some);
        const int32x4_t right = vldrwq_z_s32(scale + 3 * channels + c, some); /* negative */
        int32x4_t value = vqrdmulhq_s32(vshlq_s32(sum, lift), multiplier);
        value = vqaddq_s32(value, vshrq_n_s32(vandq_s32(value, right), 31));
        value = vaddq_n_s32(vrshlq_s32(value, right), (int32_t)y_zero);
        value = vminq_s32(vmaxq_s32(value, vdupq_n_s32({low})), vdupq_n_s32({high}));
        vstrbq_p_{stored}32(y + c, {value}, some);
#else
        for (ptrdiff_t d = c; d < c + 4 && d < channels; d++) {{
            int32_t sum = scale[d];
            for (ptrdiff_t i = 0; i < rows; i++)
                for (ptrdiff_t j = 0; j < cols; j++) {{
                    const ptrdiff_t h = top + i * down, v = left + j * across;
                    if (h >= 0 && h < height && v >= 0 && v < width)
                        sum += (x[(h * width + v) * channels + d] - (int32_t)zero) * w[(i * cols + j) * channels + d];
                }}
            const int32_t shift = scale[2 * channels + d] + scale[3 * channels + d];
            const int32_t value = ig_scale32_i32(sum, scale[channels + d], shift) + (int32_t)y_zero;
            y[d] = ({C_TYPES[to.value]})(value < {low} ? {low} : value > {high} ? {high} : value);
        }}
#endif
    }}
}}"""

    def meaning(
        x: Array, top: int, left: int, height: int, width: int, channels: int, rows: int, cols: int, down: int, across: int,
        zero: int, w: Array, scale: Array, y_zero: int, y: Array,
    ) -> None:  # fmt: skip
        words = scale[: 4 * channels].reshape(4, channels).astype(np.int64)
        total = words[0].copy()
        for i in range(rows):
            for j in range(cols):
                h, v = top + i * down, left + j * across
                if 0 <= h < height and 0 <= v < width:
                    at, tap = (h * width + v) * channels, (i * cols + j) * channels
                    total += (x[at : at + channels].astype(np.int64) - zero) * w[tap : tap + channels]
        y[:channels] = np.clip(scale32(total, words[1], words[2] + words[3]) + y_zero, low, high).astype(to.numpy)

    return Routine(text, meaning, ("base", "mve"), ("ig_scale32_i32",))


def qdepthwise_mve(job: Job) -> Lowered | None:
    op = job.node.op
    assert isinstance(op, QConv)
    known = constants_of(job) if takes(job, op.to, plain=False) and not op.epilogue and op.scaling == "twice" else None
    if known is None:
        return None
    weights, bias, multiplier, shift = known
    geo, k = qgeometry(job, op), job.k
    centred = weights.astype(np.int64)[:, 0] - op.w_zero  # [c, kh, kw]
    if geo.depth != 1 or geo.columns != 1 or shift is None or bias is None or int(np.abs(centred).max()) > 127:
        return None
    numbers = Numbers(op.x_zero, op.w_zero, op.y_zero, op.low, op.high, op.to, op.scaling)
    right = np.broadcast_to(shift, (geo.channels,)).astype(np.int64)
    reach = np.abs(centred).reshape(geo.channels, -1).sum(axis=1) * 255 + np.abs(bias.astype(np.int64))
    if (reach << np.maximum(right, 0)).max() >= 2**31:
        return None
    x = job.operand(0, "x")
    w = job.packed(np.ascontiguousarray(centred.transpose(1, 2, 0)).reshape(-1).astype(np.int8), "w", DType.I8)
    factors = [bias.astype(np.int64), np.broadcast_to(multiplier, (geo.channels,)), np.maximum(right, 0), np.minimum(right, 0)]
    scale = job.packed(np.stack(factors).astype(np.int32).reshape(-1), "scale", DType.I32)
    y = job.writes()
    name = f"taps_{x.dtype.value}_{name_of(op.to, numbers.low, numbers.high)}"
    (kh, kw), (sh, sw), (dh, dw) = geo.kernel, geo.strides, geo.dilations
    with k.loop("n", 0, geo.batch) as n, k.loop("oh", 0, geo.out_height) as oh, k.loop("ow", 0, geo.out_width) as ow:
        image = k.let("image", n * (geo.height * geo.width * geo.channels))
        k.call(
            name, Place(x, image), oh * sh - geo.pads[0], ow * sw - geo.pads[1], geo.height, geo.width, geo.channels, kh, kw, dh,
            dw, op.x_zero, Place(w, idx(0)), Place(scale, idx(0)), op.y_zero,
            Place(y, ((n * geo.out_height + oh) * geo.out_width + ow) * geo.channels),
        )  # fmt: skip
    about = f"qdepthwise {kh}x{kw}, {geo.channels} channels, {geo.height}x{geo.width} -> {geo.out_height}x{geo.out_width}"
    return job.done(f"qdepthwise{kh}x{kw}_{geo.channels}", about, "qdepthwise_mve")
