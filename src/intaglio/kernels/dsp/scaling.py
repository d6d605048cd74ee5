"""From sums to bytes: what each output channel is scaled by, as records of four words, and the C that applies one.

    start        where the sums begin: the bias, with the zero point of x folded into it
    multiplier   31 bits
    offset       2^(right - 1) + (y_zero << right): rounding and zero point in one addition
    right        the shift

`twice` (a convolution of TFLite) is SMMLAR, an addition of the sign, a shift, SSAT; `once` (fully connected) is SMMLA, a shift,
SSAT. Both take the sum doubled. They are exact where every channel shifts right by at least one bit and no sum can overflow or hit
a tie of `once`; where that is not so, `slow` and `slowonce` do what the reference does, step by step; `float` is ONNX Runtime's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.dsp.primitives import no_meaning
from intaglio.kernels.routines import Routine, family
from intaglio.ops.fixed_point import scale32, scale_float, scale_once

WORDS = 4
DOUBLED = ("twice", "once")


@dataclass(frozen=True, slots=True)
class Scales:
    """`records` is [channels, 4]; `starts` are the first words, which a kernel may arrange otherwise."""

    how: str
    records: Array
    low: int
    high: int
    to: DType

    @property
    def variant(self) -> str:
        return f"{self.how}_{name_of(self.to, self.low, self.high)}"


def name_of(to: DType, low: int, high: int) -> str:
    """A type, and the range where it is smaller than the type's."""
    info = np.iinfo(to.numpy)
    return to.value if low <= info.min and high >= info.max else f"{to.value}_{_word(low)}_{_word(high)}"


def _word(n: int) -> str:
    """A number as part of a C name."""
    return str(n) if n >= 0 else f"m{-n}"


def scales_of(
    scaling: str, starts: Array, reach: Array, multiplier: Array, shift: Array | None, y_zero: int, low: int, high: int, to: DType
) -> Scales | None:
    """Records for these channels; `reach` is the largest size of each channel's sum, bias included."""
    count = starts.size
    records = np.zeros((count, WORDS), np.int64)
    records[:, 0] = starts
    if scaling == "float":
        records[:, 1] = np.broadcast_to(multiplier, (count,)).astype(np.float32).view(np.int32)
        records[:, 2] = y_zero
        return Scales("float", records.astype(np.int32), low, high, to)
    if scaling not in DOUBLED or shift is None or int(reach.max(initial=0)) >= 2**31:
        return None
    m = np.broadcast_to(multiplier, (count,)).astype(np.int64)
    right = -np.broadcast_to(shift, (count,)).astype(np.int64)
    records[:, 1] = m
    if not _quick(scaling, m, right, reach, y_zero):
        records[:, 2], records[:, 3] = y_zero, -right
        return Scales("slow" if scaling == "twice" else "slowonce", records.astype(np.int32), low, high, to)
    records[:, 2] = (1 << (right - 1)) + (y_zero << right)
    records[:, 3] = right
    return Scales(scaling, records.astype(np.int32), low, high, to)


def _quick(scaling: str, m: Array, right: Array, reach: Array, y_zero: int) -> bool:
    if (m < 0).any() or (right < 1).any() or (right > 31).any() or (reach >= 2**30).any():
        return False
    top = reach + (1 << (right - 1)) + (abs(y_zero) << right) + 1
    if (top >= 2**31).any():
        return False
    if scaling == "once":  # a tie needs 30 + right zeros at the end of sum * multiplier
        zeros = np.asarray([(int(x) & -int(x)).bit_length() - 1 if x else 64 for x in m])
        return bool((zeros + np.asarray([int(r).bit_length() for r in reach]) < 30 + right).all())
    return True


# Meaning ----------------------------------------------------------------------------------------------------------------


C_TYPES = {"i8": "int8_t", "u8": "uint8_t", "f32": "float"}
REAL = ("real", "realrow")  # results are floats: sum * scale * step + bias, and with scale * step first


def is_real(variant: str) -> bool:
    return variant.split("_")[0] in REAL


def real_results(sums: Array, records: Array, variant: str, step: float) -> Array:
    """Sums [..., channels] as floats; `multiplier` and `offset` are the bits of scale and bias."""
    scale, bias = (records[:, i].astype(np.int32).view(np.float32) for i in (1, 2))
    real = sums.astype(np.float32)
    scaled = real * scale * np.float32(step) if variant.startswith("real_") else real * (np.float32(step) * scale)
    return np.asarray(scaled + bias, np.float32)


def parse_variant(variant: str) -> tuple[str, DType, int, int]:
    """`twice_i8`, or `twice_i8_m100_100` where the range is smaller than the type's."""
    how, kind, *limits = variant.split("_")
    to = DType(kind)
    info = np.iinfo(to.numpy)
    low, high = (int(limits[0].replace("m", "-")), int(limits[1].replace("m", "-"))) if limits else (int(info.min), int(info.max))
    return how, to, low, high


def finished(sums: Array, records: Array, variant: str) -> Array:
    """Sums [..., channels] as bytes, as the C below does it."""
    how, to, low, high = parse_variant(variant)
    multiplier, offset, right = (records[:, i].astype(np.int64) for i in (1, 2, 3))
    if how == "float":
        scaled = scale_float(sums, records[:, 1].astype(np.int32).view(np.float32)) + offset
    elif how in ("slow", "slowonce"):
        scaled = (scale32 if how == "slow" else scale_once)(sums, multiplier, right) + offset
    else:
        wide = 2 * sums.astype(np.int64)
        rounding = (1 << 31) if how == "twice" else 0
        high_word = ((wide * multiplier + rounding) >> 32) + offset + ((wide >> 63) if how == "twice" else 0)
        scaled = high_word >> right
    return np.asarray(np.clip(scaled, low, high)).astype(to.numpy)


# C ----------------------------------------------------------------------------------------------------------------------


@family("finish")
def finish(variant: str) -> Routine:
    """`ig_finish_VARIANT(sum, multiplier, offset, right)`: the sum doubled where the quick ways want it."""
    if is_real(variant):
        return _finish_real(variant)
    how, to, low, high = parse_variant(variant)
    info = np.iinfo(to.numpy)
    scaled = {
        "twice": "(ig_smmlar(sum, multiplier, offset) + (sum >> 31)) >> right",
        "once": "ig_smmla(sum, multiplier, offset) >> right",
        "slow": "ig_scale32_i32(sum, multiplier, right) + offset",
        "slowonce": "ig_scale_once_i32(sum, multiplier, right) + offset",
        "float": "ig_scale_float_i32(sum, ig_as_float(multiplier)) + offset",
    }[how]
    limits = [f"value < {low} ? {low}"] if low > info.min else []
    limits += [f"value > {high} ? {high}"] if high < info.max else []
    lines = [
        f"IG_INLINE int32_t ig_finish_{variant}(int32_t sum, int32_t multiplier, int32_t offset, int32_t right)",
        "{",
        f"    const int32_t value = ig_sat_{to.value}({scaled});",
        *(["    (void)right;"] if how == "float" else []),
        f"    return {' : '.join([*limits, 'value'])};",
        "}",
    ]
    operations = {"twice": ("op_smmlar",), "once": ("op_smmla",), "float": ("as_float",)}.get(how, ())
    functions = {"slow": "ig_scale32_i32", "slowonce": "ig_scale_once_i32", "float": "ig_scale_float_i32"}
    return Routine(
        "\n".join(lines), no_meaning, ("base", *operations, f"op_sat_{to.value}"), (functions[how],) if how in functions else ()
    )


def _finish_real(variant: str) -> Routine:
    factor = "ig_as_float(scale)"
    scaled = f"(float)sum * {factor} * step" if variant.startswith("real_") else f"(float)sum * (step * {factor})"
    text = f"""\
IG_INLINE float ig_finish_{variant}(int32_t sum, int32_t scale, int32_t bias, float step)
{{
    return {scaled} + ig_as_float(bias);
}}"""
    return Routine(text, no_meaning, ("base", "as_float"))
