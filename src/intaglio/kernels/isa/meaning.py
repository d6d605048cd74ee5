"""What each instruction means, in numpy: the definition that the interpreter runs, for hardware that is not here too.

Scaling follows `ops/fixed_point.py` bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ops.fixed_point import rounding_shift, scale_once


def _wrap(x: Array) -> Array:
    return np.asarray(x, np.int64).astype(np.int32)


def _clip(x: Array, dtype: type) -> Array:
    info = np.iinfo(dtype)
    return np.asarray(np.clip(x, info.min, info.max)).astype(dtype)


def _dot(acc: Array, a: Array, w: Array) -> Array:
    products = a.astype(np.int64) * w.astype(np.int64)
    return _wrap(acc.astype(np.int64) + products.reshape(acc.size, -1).sum(axis=1))


def _dot_pairs(acc: Array, a: Array, w: Array) -> Array:
    pairs = _clip((a.astype(np.int64) * w.astype(np.int64)).reshape(-1, 2).sum(axis=1), np.int16)
    return _wrap(acc.astype(np.int64) + pairs.astype(np.int64).reshape(acc.size, -1).sum(axis=1))


def _matrix(acc: Array, a: Array, w: Array) -> Array:
    """Two rows of eight times two columns of eight."""
    products = a.astype(np.int64).reshape(2, -1) @ w.astype(np.int64).reshape(2, -1).T
    return _wrap(acc.astype(np.int64) + products.reshape(-1))


def _zip(a: Array, b: Array, part: int) -> Array:
    """As x86 does it: inside of each 128 bits of the vector, the lower or the upper half of both, interleaved."""
    halves = [v.reshape(-1, 2, 4)[:, part] for v in (a, b)]
    return np.stack(halves, axis=2).reshape(-1)


def _pack_lanes(a: Array, b: Array) -> Array:
    """Two vectors of 32 bits as one of 16, saturated: in each 128 bits, four numbers of `a`, then four of `b`."""
    return _clip(np.stack([a.reshape(-1, 4), b.reshape(-1, 4)], axis=1).reshape(-1), np.int16)


def _half(x: Array, upper: bool) -> Array:
    return x[x.size // 2 :] if upper else x[: x.size // 2]


def _wide(x: Array) -> Array:
    return x.astype(np.int64)


INTEGER_MEANING: Mapping[str, Callable[..., Array]] = {
    "vdot1": _dot,
    "vdot2": _dot,
    "vdot4_pairs": _dot_pairs,
    "vdot4_u8": _dot,
    "vdot4_i8": _dot,
    "vmmla_i8": _matrix,
    "vjoin_bytes": lambda a, b: np.concatenate([a, b]),
    "vjoin_low": lambda a, b: np.concatenate([_half(a, False), _half(b, False)]),
    "vjoin_high": lambda a, b: np.concatenate([_half(a, True), _half(b, True)]),
    "vzip_low": lambda a, b: _zip(a, b, 0),
    "vzip_high": lambda a, b: _zip(a, b, 1),
    "vtap_low": lambda acc, a, w: _dot(acc, _half(a, False), _half(w, False)),
    "vtap_high": lambda acc, a, w: _dot(acc, _half(a, True), _half(w, True)),
    "vswap_middle": lambda a: a.reshape(-1, 4)[:, [0, 2, 1, 3]].reshape(-1),
    "vswap_last": lambda a: a.reshape(-1, 4)[:, [0, 3, 1, 2]].reshape(-1),
    "vwiden_i8": lambda a: a.astype(np.int16),
    "vwiden_u8": lambda a: a.astype(np.int16),
    "vwiden_low": lambda a: _half(a, False).astype(np.int32),
    "vwiden_high": lambda a: _half(a, True).astype(np.int32),
    "vflip_i8": lambda a: a.view(np.uint8) ^ np.uint8(0x80),
    "vflip_u8": lambda a: (a ^ np.uint8(0x80)).view(np.int8),
    "vnarrow": lambda a, b: _clip(np.concatenate([a, b]), np.int16),
    "vnarrow_zipped": _pack_lanes,
    "vadds_i16": lambda a, b: _clip(a.astype(np.int32) + b, np.int16),
    "vadd_i16": lambda a, b: (a.astype(np.int32) + b).astype(np.int16),
    "vsub_i16": lambda a, b: (a.astype(np.int32) - b).astype(np.int16),
    "vmul_i16": lambda a, b: (a.astype(np.int32) * b).astype(np.int16),
    "vmin_i16": np.minimum,
    "vmax_i16": np.maximum,
    "vmax_i8": np.maximum,
    "vmax_u8": np.maximum,
    "vbytes_i8": lambda a: _clip(a, np.int8),
    "vbytes_u8": lambda a: _clip(a, np.uint8),
    "vimul": lambda a, b: _wrap(_wide(a) * b),
    "vishift_left": lambda a, n: _wrap(_wide(a) << n),
    "vishift_right": lambda a, n: a >> n,
    "vhigh": lambda a, b: _wrap((_wide(a) * b + (1 << 30)) >> 31),
    "vshift_away": lambda a, n: _wrap(rounding_shift(_wide(a), _wide(n))),
    "vshift_away_quick": lambda a, n, half: (_wrap(_wide(a) + half + (a >> 31)) >> n).astype(np.int32),
    "vscale_once": lambda a, m, t: _wrap(scale_once(_wide(a), m, 31 - _wide(t))),
    "vtrunc": lambda a: np.trunc(a).astype(np.int32),
}
REPEATS = ("vrepeat", "vrepeat_bytes", "vsplat_i16", "vsplat_i8", "vsplat_u8")  # a short vector (or one number) over and over

F = np.float32


def _round_to_int(x: Array) -> Array:
    result: Array = np.rint(np.clip(x, -2147483648.0, 2147483520.0)).astype(np.int32)
    return result


def _pick(cond: Array, a: Array, b: Array) -> Array:
    return np.asarray(np.where(cond, a, b))


MEANING: Mapping[str, Callable[..., Array]] = {
    "vsplat": lambda x: x,  # the interpreter broadcasts
    "vadd": lambda a, b: (a + b).astype(F),
    "vsub": lambda a, b: (a - b).astype(F),
    "vmul": lambda a, b: (a * b).astype(F),
    "vdiv": lambda a, b: (a / b).astype(F),
    "vfma": lambda a, b, c: (a.astype(np.float64) * b + c).astype(F),
    "vmin": lambda a, b: _pick(a < b, a, b),  # x86's rule: the second operand when one is NaN
    "vmax": lambda a, b: _pick(a > b, a, b),
    "vsqrt": lambda a: np.sqrt(a),
    "vneg": lambda a: -a,
    "vabs": lambda a: np.abs(a),
    "vfloor": lambda a: np.floor(a),
    "vceil": lambda a: np.ceil(a),
    "vround": lambda a: np.rint(a),
    "vlt": lambda a, b: a < b,
    "vle": lambda a, b: a <= b,
    "vgt": lambda a, b: a > b,
    "vge": lambda a, b: a >= b,
    "veq": lambda a, b: a == b,
    "vne": lambda a, b: a != b,
    "vblend": lambda m, a, b: _pick(m, a, b),
    "vtoint": _round_to_int,
    "vtofloat": lambda a: a.astype(F),
    "visplat": lambda x: x,
    "viadd": lambda a, b: a + b,
    "visub": lambda a, b: a - b,
    "viand": lambda a, b: a & b,
    "vior": lambda a, b: a | b,
    "vishl23": lambda a: (a.astype(np.int64) << 23).astype(np.int32),
    "vishr23": lambda a: (a.view(np.uint32) >> 23).view(np.int32),
    "vasfloat": lambda a: a.astype(np.int32).view(F),
    "vasint": lambda a: a.astype(F).view(np.int32),
    "hsum": lambda a: np.asarray(np.sum(a, dtype=F)),
    "hmax": lambda a: np.asarray(np.max(a)),
    "hmin": lambda a: np.asarray(np.min(a)),
    "hprod": lambda a: np.asarray(np.prod(a, dtype=F)),
    **INTEGER_MEANING,
}
