"""Functions of fixed point: their C is in `c/fixed_point.c`, what they mean in numpy is here.

    fn_scale32     ig_scale32_i32(acc, multiplier, shift)

A function that calls another needs its C above its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ops.fixed_point import (
    doubling_high_multiply,
    nearest,
    order,
    rounding_shift,
    scale32,
    scale64,
    scale_float,
    scale_once,
    short_order,
)
from intaglio.ops.gemmlowp import logistic16, one_over_one_plus, tanh16
from intaglio.ops.quantised_functions import inv_sqrt, log_of_sum, quotient


@dataclass(frozen=True, slots=True)
class FixedPointFunction:
    """`fn_NAME` in loop IR, on integers. A part of other functions has no meaning of its own."""

    c: str
    meaning: Callable[..., Array] | None
    needs: tuple[str, ...]


_MEANING: Mapping[str, Callable[..., Array]] = {
    "doubling_high_multiply": doubling_high_multiply,
    "rounding_shift": rounding_shift,
    "scale32": scale32,
    "scale_once": scale_once,
    "scale64": scale64,
    "nearest": nearest,
    "scale_float": scale_float,
    "leading_zeros": lambda x: np.asarray(32 - int(x).bit_length()),
    "softmax_reciprocal": lambda total, zeros: one_over_one_plus((total << zeros) - (1 << 31)),
    "logistic16": lambda a, bits: logistic16(a, int(bits)),
    "tanh16": lambda a, bits: tanh16(a, int(bits)),
    "quotient": quotient,
    "inv_sqrt_shift": lambda x: inv_sqrt(x)[1],
    "inv_sqrt": lambda x: inv_sqrt(x)[0],
    "log_of_sum": log_of_sum,
    "order": order,
    "short_order": short_order,
    "divide_power": lambda x, places: np.ldexp(np.float32(x), -int(places)),
}
_DEFINITION = re.compile(r"(?:/\*(?:(?!\*/).)*\*/\n)?IG_INLINE \w+ ig_(\w+)_[a-z]\d+\(.*?\n\}", re.DOTALL)
_CALL = re.compile(r"\big_(\w+?)_[a-z]\d+\(")


def _read(text: str) -> dict[str, FixedPointFunction]:
    """The functions of a C file, in its order: a function may call those above it."""
    found: dict[str, FixedPointFunction] = {}
    for definition in _DEFINITION.finditer(text):
        c, name = definition[0], definition[1]
        called = {call for call in _CALL.findall(c) if call != name}
        used = called.union(*(found[call].needs for call in called))
        found[name] = FixedPointFunction(c, _MEANING.get(name), tuple(other for other in found if other in used))
    return found


FIXED_POINT = _read(resources.files("intaglio.kernels").joinpath("c/fixed_point.c").read_text(encoding="utf-8"))
