"""LSTM of integers as TFLite computes it: 8-bit input, weights and hidden state, 16-bit gates and cell state.

    gate  = act16(sat16(sat16(scale(x W + bw)) + scale(h R + br)))          x and h as stored: zero points are in bw and br
    cell  = sat16(round(forget * cell / 2^15) + round(input * update / 2^(30 + cell_bits)))
    h     = sat8(scale(output * tanh16(cell)) + h_zero)

Gates stand in the order input, forget, update, output. The cell state has the step 2^cell_bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import BadOperator, Op
from intaglio.ops.fixed_point import clamp, rounding_shift, scale32
from intaglio.ops.gemmlowp import INT16_MAX, INT16_MIN, logistic16, tanh16, wrap16

GATES = ("input", "forget", "update", "output")


def saturate16(x: Array) -> Array:
    return np.clip(x, INT16_MIN, INT16_MAX)


@dataclass(frozen=True, slots=True)
class QLstm(Op):
    """qlstm(x [N,T,I] or [T,N,I], w [4H,I], r [4H,H], bw [4H], br [4H], h [N,H], c [N,H]) -> y, h, c.

    With `coupled` there are three gates: what is not forgotten is let in."""

    NAME: ClassVar[str] = "qlstm"
    w_multipliers: tuple[int, ...] = ()
    w_shifts: tuple[int, ...] = ()
    r_multipliers: tuple[int, ...] = ()
    r_shifts: tuple[int, ...] = ()
    h_multiplier: int = 0
    h_shift: int = 0
    h_zero: int = 0
    cell_bits: int = -12
    cell_clip: int = 0  # 0: none
    coupled: bool = False
    time_major: bool = False

    @property
    def gates(self) -> int:
        return 3 if self.coupled else 4

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        if len(types) != 7 or any(t is None for t in types):
            raise BadOperator("`qlstm` takes x, two weights, two biases and two states")
        x, w, r, bw, br, h, c = (t for t in types if t is not None)
        if x.rank != 3 or w.rank != 2 or r.rank != 2 or c.rank != 2:
            raise BadOperator(f"`qlstm` takes an input of three axes and weights of two, got {x} and {w}")
        time, batch = (x.shape[0], x.shape[1]) if self.time_major else (x.shape[1], x.shape[0])
        hidden, rows = c.shape[1], self.gates * c.shape[1]
        expected = {
            "w": (w, (rows, x.shape[2])), "r": (r, (rows, hidden)), "bw": (bw, (rows,)), "br": (br, (rows,)),
            "h": (h, (batch, hidden)), "c": (c, (batch, hidden)),
        }  # fmt: skip
        for name, (type_, shape) in expected.items():
            if type_.shape != shape:
                raise BadOperator(f"`{name}` of `qlstm` has shape {list(type_.shape)}, expected {list(shape)}")
        if x.dtype is not DType.I8 or h.dtype is not DType.I8 or c.dtype is not DType.I16:
            raise BadOperator(f"`qlstm` of {x.dtype.value}, {h.dtype.value} and {c.dtype.value}")
        if any(len(n) != self.gates for n in (self.w_multipliers, self.w_shifts, self.r_multipliers, self.r_shifts)):
            raise BadOperator(f"`qlstm` needs {self.gates} factors")
        if not -15 <= self.cell_bits <= -9:
            raise BadOperator(f"`qlstm` with a cell state of step 2^{self.cell_bits}: -15 to -9 are possible")
        y = (time, batch, hidden) if self.time_major else (batch, time, hidden)
        return TensorType(DType.I8, y), TensorType(DType.I8, h.shape), TensorType(DType.I16, c.shape)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, w, r, bw, br, h, c = (np.asarray(a).astype(np.int64) for a in arrays)
        steps = x if self.time_major else x.swapaxes(0, 1)
        size = c.shape[1]
        w_factors = [np.repeat(np.asarray(v, np.int64), size) for v in (self.w_multipliers, self.w_shifts)]
        r_factors = [np.repeat(np.asarray(v, np.int64), size) for v in (self.r_multipliers, self.r_shifts)]
        rows = []
        for step in steps:
            gates = saturate16(scale32(step @ w.T + bw, *w_factors))
            gates = saturate16(scale32(h @ r.T + br, *r_factors) + gates)
            parts = [gates[:, n * size : (n + 1) * size] for n in range(self.gates)]
            *first, forget, update, output = parts
            forget, update, output = logistic16(forget), tanh16(update), logistic16(output)
            enter = INT16_MAX - forget if self.coupled else logistic16(first[0])
            kept = wrap16(rounding_shift(forget * c, np.asarray(15)))
            c = saturate16(kept + wrap16(rounding_shift(enter * update, np.asarray(30 + self.cell_bits))))
            if self.cell_clip:
                c = np.clip(c, -self.cell_clip, self.cell_clip)
            squashed = tanh16(c, 15 + self.cell_bits)
            scaled = scale32(output * squashed, np.asarray(self.h_multiplier), np.asarray(self.h_shift))
            h = np.clip(scaled + self.h_zero, -128, 127)
            rows.append(h)
        y = np.stack(rows, 0 if self.time_major else 1) if rows else np.zeros((*x.shape[:2], size))
        return clamp(y, -128, 127, np.dtype(np.int8)), h.astype(np.int8), c.astype(np.int16)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        w, r = types[1], types[2]
        steps = out.elements // max(out.shape[-1], 1)
        return steps * (w.elements + r.elements) if w is not None and r is not None else 0
