"""LSTM of integers as TFLite computes it: 8-bit input, weights and hidden state, 16-bit gates and cell state.

    gate  = act16(sat16(sat16(scale(x W + bw)) + scale(h R + br)))          x and h as stored: zero points are in bw and br
    cell  = sat16(round(forget * cell / 2^15) + round(input * update / 2^(30 + cell_bits)))
    h     = sat8(scale(output * tanh16(cell)) + h_zero)

Gates stand in the order input, forget, update, output. The cell state has the step 2^cell_bits. Before `act16` a gate may have
a peephole (its weights times the cell state), then a norm over the units. A projection makes h of what is sat8 above.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import BadOperator, Op
from intaglio.ops.fixed_point import clamp, rounding_shift, scale32, wrap32
from intaglio.ops.gemmlowp import INT16_MAX, INT16_MIN, logistic16, tanh16, wrap16
from intaglio.ops.quantised_functions import inv_sqrt

GATES = ("input", "forget", "update", "output")
OPERANDS = 12


@dataclass(frozen=True, slots=True)
class _Extras:
    p: Array | None
    n: Array | None
    nb: Array | None
    q: Array | None
    bq: Array | None


def saturate16(x: Array) -> Array:
    return np.clip(x, INT16_MIN, INT16_MAX)


def divided(a: Array, b: Array | int) -> Array:
    """a / b towards 0, as C divides."""
    return np.asarray(np.sign(a) * (np.abs(a) // b))


def normalised(x: Array, weights: Array, bias: Array, factor: tuple[int, int], guard: int) -> Array:
    """Rows of 16-bit numbers by their mean and deviation, with 10 bits more, as LiteRT does it: the reciprocal of the size is cut,
    so the variance is exact where the size is a power of two."""
    size = x.shape[-1]
    mean = divided(x.sum(axis=-1, keepdims=True) * 1024, size)
    variance = (x * x).sum(axis=-1, keepdims=True) * ((1 << 20) // size) - mean * mean
    whole = divided(variance, 1 << 20)
    multiplier, shift = inv_sqrt(np.where(whole < 1, guard, whole))
    rescaled = scale32(1024 * x - mean, multiplier, shift)
    value = wrap32(wrap32(rescaled * weights) + bias)
    rounded = divided(np.where(value > 0, value + 512, value - 512), 1024)
    return saturate16(scale32(rounded, np.asarray(factor[0]), np.asarray(factor[1] + 12)))


@dataclass(frozen=True, slots=True)
class QLstm(Op):
    """qlstm(x [N,T,I] or [T,N,I], w [4H,I], r [4H,O], bw [4H], br [4H], h [N,O], c [N,H]) -> y, h, c; and at the end, where there
    are any, p [3H] (peepholes of input, forget, output), n [4H] and nb [4H] (norm), q [O,H] and bq [O] (projection).

    With `coupled` there are three gates: what is not forgotten is let in. LiteRT goes through a peephole as if there were as many
    cells as outputs: with a projection the last ones have none, and with `time_major` cells of a batch find weights of others."""

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
    p_multipliers: tuple[int, ...] = ()
    p_shifts: tuple[int, ...] = ()
    n_multipliers: tuple[int, ...] = ()
    n_shifts: tuple[int, ...] = ()
    n_guards: tuple[int, ...] = ()  # the variance of a row that has none
    q_multiplier: int = 0
    q_shift: int = 0
    q_zero: int = 0
    q_clip: int = 0

    @property
    def gates(self) -> int:
        return 3 if self.coupled else 4

    def peephole(self, gate: str) -> int | None:
        """The place of a gate among those with a peephole."""
        return {"input": 0, "forget": self.gates - 3, "output": self.gates - 2}.get(gate) if self.p_multipliers else None

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        if not 7 <= len(types) <= OPERANDS or any(t is None for t in types[:7]):
            raise BadOperator("`qlstm` takes x, two weights, two biases and two states")
        x, w, r, bw, br, h, c = (t for t in types[:7] if t is not None)
        if x.rank != 3 or w.rank != 2 or r.rank != 2 or c.rank != 2 or h.rank != 2:
            raise BadOperator(f"`qlstm` takes an input of three axes and weights of two, got {x} and {w}")
        more: list[TensorType | None] = [*types[7:], *[None] * (OPERANDS - len(types))]
        p, n, nb, q, bq = more
        time, batch = (x.shape[0], x.shape[1]) if self.time_major else (x.shape[1], x.shape[0])
        cells, rows, outputs = c.shape[1], self.gates * c.shape[1], h.shape[1]
        expected = {
            "w": (w, (rows, x.shape[2])), "r": (r, (rows, outputs)), "bw": (bw, (rows,)), "br": (br, (rows,)),
            "h": (h, (batch, cells if q is None else outputs)), "c": (c, (batch, cells)), "p": (p, (rows - cells,)),
            "n": (n, (rows,)), "nb": (nb, (rows,)), "q": (q, (outputs, cells)), "bq": (bq, (outputs,)),
        }  # fmt: skip
        for name, (type_, shape) in expected.items():
            if type_ is not None and type_.shape != shape:
                raise BadOperator(f"`{name}` of `qlstm` has shape {list(type_.shape)}, expected {list(shape)}")
        self._check(x, h, c, p is not None, n is not None and nb is not None, (q is None) is (bq is None))
        if p is not None and outputs > cells:
            raise BadOperator(f"`qlstm` with peepholes has {outputs} outputs of {cells} cells")
        y = (time, batch, outputs) if self.time_major else (batch, time, outputs)
        return TensorType(DType.I8, y), TensorType(DType.I8, h.shape), TensorType(DType.I16, c.shape)

    def _check(self, x: TensorType, h: TensorType, c: TensorType, peephole: bool, norm: bool, projection: bool) -> None:
        if x.dtype is not DType.I8 or h.dtype is not DType.I8 or c.dtype is not DType.I16:
            raise BadOperator(f"`qlstm` of {x.dtype.value}, {h.dtype.value} and {c.dtype.value}")
        if any(len(n) != self.gates for n in (self.w_multipliers, self.w_shifts, self.r_multipliers, self.r_shifts)):
            raise BadOperator(f"`qlstm` needs {self.gates} factors")
        wanted = (self.gates - 1) * peephole
        if not len(self.p_multipliers) == len(self.p_shifts) == wanted:
            raise BadOperator(f"`qlstm` needs {wanted} factors for its peepholes")
        wanted = self.gates * norm
        if not len(self.n_multipliers) == len(self.n_shifts) == len(self.n_guards) == wanted:
            raise BadOperator(f"`qlstm` needs {wanted} factors for its norm")
        if not projection:
            raise BadOperator("`qlstm` with a projection needs its weights and its bias")
        if not -15 <= self.cell_bits <= -9:
            raise BadOperator(f"`qlstm` with a cell state of step 2^{self.cell_bits}: -15 to -9 are possible")

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, w, r, bw, br, h, c = (np.asarray(a).astype(np.int64) for a in arrays[:7])
        extras = [*arrays[7:], *[None] * (OPERANDS - len(arrays))]
        more = _Extras(*[None if a is None else np.asarray(a).astype(np.int64) for a in extras])
        steps = x if self.time_major else x.swapaxes(0, 1)
        size, names = c.shape[1], GATES[4 - self.gates :]
        w_factors = [np.repeat(np.asarray(v, np.int64), size) for v in (self.w_multipliers, self.w_shifts)]
        r_factors = [np.repeat(np.asarray(v, np.int64), size) for v in (self.r_multipliers, self.r_shifts)]
        rows = []
        for step in steps:
            sums = saturate16(scale32(step @ w.T + bw, *w_factors))
            sums = saturate16(scale32(h @ r.T + br, *r_factors) + sums)
            parts = {name: sums[:, n * size : (n + 1) * size] for n, name in enumerate(names)}
            forget, update = self._gate("forget", parts, c, h, more), self._gate("update", parts, c, h, more)
            enter = INT16_MAX - forget if self.coupled else self._gate("input", parts, c, h, more)
            kept = wrap16(rounding_shift(forget * c, np.asarray(15)))
            c = saturate16(kept + wrap16(rounding_shift(enter * update, np.asarray(30 + self.cell_bits))))
            if self.cell_clip:
                c = np.clip(c, -self.cell_clip, self.cell_clip)
            squashed = tanh16(c, 15 + self.cell_bits)
            product = self._gate("output", parts, c, h, more) * squashed
            scaled = scale32(product, np.asarray(self.h_multiplier), np.asarray(self.h_shift))
            h = self._projected(np.clip(scaled + self.h_zero, -128, 127), more)
            rows.append(h)
        y = np.stack(rows, 0 if self.time_major else 1) if rows else np.zeros((*x.shape[:2], h.shape[1]))
        return clamp(y, -128, 127, np.dtype(np.int8)), h.astype(np.int8), c.astype(np.int16)

    def _gate(self, name: str, parts: dict[str, Array], cell: Array, h: Array, more: _Extras) -> Array:
        value, place, size = parts[name], self.peephole(name), cell.shape[1]
        if place is not None and more.p is not None:
            groups = 1 if self.time_major else len(h)  # what LiteRT has in a step
            sums, cells = value.reshape(groups, -1).copy(), cell.reshape(groups, -1)
            run = h.size // groups  # as many as there are outputs
            weights = np.resize(more.p[place * size : place * size + h.shape[1]], run)
            factor = [np.asarray(v[place]) for v in (self.p_multipliers, self.p_shifts)]
            sums[:, :run] = saturate16(sums[:, :run] + scale32(weights * cells[:, :run], *factor))
            value = sums.reshape(value.shape)
        if more.n is not None and more.nb is not None:
            g = GATES[4 - self.gates :].index(name)
            mine, factor_ = slice(g * size, (g + 1) * size), (self.n_multipliers[g], self.n_shifts[g])
            value = normalised(value, more.n[mine], more.nb[mine], factor_, self.n_guards[g])
        return tanh16(value) if name == "update" else logistic16(value)

    def _projected(self, hidden: Array, more: _Extras) -> Array:
        if more.q is None or more.bq is None:
            return hidden
        scaled = scale32(hidden @ more.q.T + more.bq, np.asarray(self.q_multiplier), np.asarray(self.q_shift))
        low, high = (-self.q_clip, self.q_clip) if self.q_clip else (-128, 127)
        return np.asarray(np.clip(np.clip(scaled + self.q_zero, -128, 127), low, high))

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        w, r, q = types[1], types[2], types[10] if len(types) > 10 else None
        steps = out.elements // max(out.shape[-1], 1)
        each = sum(t.elements for t in (w, r, q) if t is not None)
        return steps * each
