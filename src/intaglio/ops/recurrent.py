"""LSTM, GRU and RNN with ONNX's operands: x, w, r, b?, sequence_lens?, initial_h?, (initial_c?, p?), and w_scale?, r_scale?.

Shapes: x [T,N,I], w [D,G*H,I], r [D,G*H,H], b [D,2*G*H], states [D,N,H], y [T,D,N,H], y_h and y_c [D,N,H]; with
`layout_batch_first` x is [N,T,I], states [N,D,H], y [N,T,D,H]. D is 2 for `bidirectional`.
`activations`, `alphas` and `betas` have one entry per activation and direction, defaults filled in.
w and r may be stored as i8 or f16 where x is f32 (`product_dtype`). Scales [D,G*H] multiply the sums of their matrix: with them, i8
numbers are weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, TensorType
from intaglio.ops.activation import Elu, HardSigmoid, LeakyRelu, Relu, Sigmoid, Softplus, Softsign, Tanh, ThresholdedRelu
from intaglio.ops.base import BadOperator, Elementwise, Op, product_dtype

OPERATORS: Mapping[str, Callable[[float, float], Elementwise]] = {  # activations by alpha and beta
    "Relu": lambda alpha, beta: Relu(),
    "Tanh": lambda alpha, beta: Tanh(),
    "Sigmoid": lambda alpha, beta: Sigmoid(),
    "LeakyRelu": lambda alpha, beta: LeakyRelu(alpha),
    "ThresholdedRelu": lambda alpha, beta: ThresholdedRelu(alpha),
    "HardSigmoid": HardSigmoid,
    "Elu": lambda alpha, beta: Elu(alpha),
    "Softsign": lambda alpha, beta: Softsign(),
    "Softplus": lambda alpha, beta: Softplus(),
}
ACTIVATIONS = (*OPERATORS, "Affine", "ScaledTanh")


def activate(name: str, alpha: float, beta: float, x: Array) -> Array:
    match name:
        case "Affine":
            return np.add(np.multiply(x, alpha), beta)
        case "ScaledTanh":
            return np.multiply(np.tanh(np.multiply(x, beta)), alpha)
        case _:
            return OPERATORS[name](alpha, beta).compute(x)


OPERANDS = 10


@dataclass(frozen=True, slots=True)
class Matrix:
    """The state's weights of one direction, a row per gate and unit, and what its sums are multiplied by."""

    rows: Array
    scale: Array

    def times(self, h: Array, first: int = 0, last: int | None = None) -> Array:
        scale = self.scale[first:last] if self.scale.ndim else self.scale
        return np.multiply(np.matmul(h, self.rows[first:last].T), scale)


@dataclass(frozen=True, slots=True)
class Recurrent(Op):
    """What the three share. `infer` and the walk along time are here, `step` is theirs."""

    GATES: ClassVar[int] = 1
    STATES: ClassVar[int] = 1  # 2: a cell state too
    FUNCTIONS: ClassVar[int] = 1  # activations per direction

    hidden: int = 1
    direction: str = "forward"
    activations: tuple[str, ...] = ()
    alphas: tuple[float, ...] = ()
    betas: tuple[float, ...] = ()
    clip: float = math.inf
    layout_batch_first: bool = False

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        given = [*types, *[None] * (OPERANDS - len(types))]
        x, w, r, b, lens = given[:5]
        if x is None or w is None or r is None:
            raise BadOperator(f"`{self.NAME}` needs an input and two weights")
        if self.direction not in ("forward", "reverse", "bidirectional"):
            raise BadOperator(f"`{self.NAME}` has the unknown direction `{self.direction}`")
        dtype = product_dtype(self.NAME, x.dtype, w.dtype, *[t.dtype for t in (b, *given[5:]) if t is not None])
        product_dtype(self.NAME, x.dtype, r.dtype)
        if x.rank != 3 or not dtype.is_float:
            raise BadOperator(f"`{self.NAME}` takes [time, batch, features] of floating point, got {x}")
        batch, time = (x.shape[0], x.shape[1]) if self.layout_batch_first else (x.shape[1], x.shape[0])
        d, h, g = self.directions, self.hidden, self.GATES
        state = (batch, d, h) if self.layout_batch_first else (d, batch, h)
        expected = {
            "w": (w, (d, g * h, x.shape[2])), "r": (r, (d, g * h, h)), "b": (b, (d, 2 * g * h)),
            "sequence_lens": (lens, (batch,)), "initial_h": (given[5], state), "initial_c": (given[6], state),
            "p": (given[7], (d, 3 * h)), "w_scale": (given[8], (d, g * h)), "r_scale": (given[9], (d, g * h)),
        }  # fmt: skip
        for name, (type_, shape) in expected.items():
            if type_ is not None and type_.shape != shape:
                raise BadOperator(f"`{name}` of `{self.NAME}` has shape {list(type_.shape)}, expected {list(shape)}")
        if lens is not None and lens.dtype is not DType.I32:
            raise BadOperator(f"`sequence_lens` must be i32, got {lens.dtype.value}")
        count = self.FUNCTIONS * d
        if not len(self.activations) == len(self.alphas) == len(self.betas) == count:
            raise BadOperator(f"`{self.NAME}` has {len(self.activations)} activations, expected {count}")
        for name in self.activations:
            if name not in ACTIVATIONS:
                raise BadOperator(f"there is no activation `{name}` in a recurrent operator")
        y = (batch, time, d, h) if self.layout_batch_first else (time, d, batch, h)
        return (TensorType(dtype, y), *[TensorType(dtype, state)] * self.STATES)

    def step(self, x: Array, states: list[Array], r: Matrix, b: Array, p: Array | None, at: int) -> list[Array]:
        """The next states, the output first. `x` is already multiplied by its weights and has the input bias added."""
        raise NotImplementedError(self.NAME)

    def act(self, index: int, x: Array) -> Array:
        if math.isfinite(self.clip):
            x = np.minimum(np.maximum(x, -self.clip), self.clip)
        return activate(self.activations[index], self.alphas[index], self.betas[index], x)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        given = [*arrays, *[None] * (OPERANDS - len(arrays))]
        x, w, r, b, lens = given[:5]
        assert x is not None
        assert w is not None
        assert r is not None
        if self.layout_batch_first:
            x = np.swapaxes(x, 0, 1)
        time, batch = x.shape[:2]
        d, h, g = self.directions, self.hidden, self.GATES
        y = np.zeros((time, d, batch, h), x.dtype)
        finals: list[Array] = [np.zeros((d, batch, h), x.dtype) for _ in range(self.STATES)]
        for k in range(d):
            bias = b[k] if b is not None else np.zeros(2 * g * h, x.dtype)
            w_scale, r_scale = (np.ones((), x.dtype) if s is None else s[k] for s in given[8:])
            projected = np.add(np.multiply(np.matmul(x, w[k].T.astype(x.dtype)), w_scale), bias[: g * h])
            weights = Matrix(r[k].astype(x.dtype, copy=False), r_scale)
            states: list[Array] = []
            for i in range(self.STATES):
                start = given[5 + i]
                if start is None:
                    states.append(np.zeros((batch, h), x.dtype))
                else:
                    states.append(start[:, k] if self.layout_batch_first else start[k])
            backwards = self.direction == "reverse" or k == 1
            for t in range(time):
                live = np.ones(batch, np.bool_) if lens is None else np.less(t, lens)
                end = np.full(batch, time) if lens is None else lens
                at = np.where(live, np.subtract(end, 1 + t), 0) if backwards else np.full(batch, t)
                at = at.astype(np.int64)
                rows = np.arange(batch)
                p = given[7][k] if given[7] is not None else None
                after = self.step(projected[at, rows], states, weights, bias[g * h :], p, k * self.FUNCTIONS)
                states = [np.where(live[:, None], new, old) for new, old in zip(after, states, strict=True)]
                y[at[live], k, rows[live]] = after[0][live]
            for i in range(self.STATES):
                finals[i][k] = states[i]
        if self.layout_batch_first:
            return np.transpose(y, (2, 0, 1, 3)), *[np.swapaxes(f, 0, 1) for f in finals]
        return y, *finals

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        x = types[0]
        if x is None:
            return 0
        return self.directions * x.shape[0] * x.shape[1] * self.GATES * self.hidden * (x.shape[2] + self.hidden)


@dataclass(frozen=True, slots=True)
class Lstm(Recurrent):
    """Gates in the order input, output, forget, cell. Outputs y, y_h, y_c."""

    NAME: ClassVar[str] = "lstm"
    GATES: ClassVar[int] = 4
    STATES: ClassVar[int] = 2
    FUNCTIONS: ClassVar[int] = 3
    input_forget: bool = False
    cell_clip: float = math.inf  # TFLite's: of the cell state itself

    def step(self, x: Array, states: list[Array], r: Matrix, b: Array, p: Array | None, at: int) -> list[Array]:
        h, c = states
        n = self.hidden
        z = np.add(np.add(x, r.times(h)), b)
        zi, zo, zf, zc = z[:, :n], z[:, n : 2 * n], z[:, 2 * n : 3 * n], z[:, 3 * n :]
        if p is not None:
            zi, zf = np.add(zi, np.multiply(p[:n], c)), np.add(zf, np.multiply(p[2 * n :], c))
        i = self.act(at, zi)
        f = np.subtract(1, i) if self.input_forget else self.act(at, zf)
        c = np.add(np.multiply(f, c), np.multiply(i, self.act(at + 1, zc)))
        if math.isfinite(self.cell_clip):
            c = np.minimum(np.maximum(c, -self.cell_clip), self.cell_clip).astype(x.dtype)
        if p is not None:
            zo = np.add(zo, np.multiply(p[n : 2 * n], c))
        # The clip is for what goes into the gates: the cell state is not clipped.
        squashed = activate(self.activations[at + 2], self.alphas[at + 2], self.betas[at + 2], c)
        return [np.multiply(self.act(at, zo), squashed), c]


@dataclass(frozen=True, slots=True)
class Gru(Recurrent):
    """Gates in the order update, reset, hidden. Outputs y, y_h."""

    NAME: ClassVar[str] = "gru"
    GATES: ClassVar[int] = 3
    FUNCTIONS: ClassVar[int] = 2
    linear_before_reset: bool = False

    def step(self, x: Array, states: list[Array], r: Matrix, b: Array, p: Array | None, at: int) -> list[Array]:
        h = states[0]
        n = self.hidden
        zr = np.add(np.add(x[:, : 2 * n], r.times(h, 0, 2 * n)), b[: 2 * n])
        z, reset = self.act(at, zr[:, :n]), self.act(at, zr[:, n:])
        if self.linear_before_reset:
            inner = np.multiply(reset, np.add(r.times(h, 2 * n), b[2 * n :]))
        else:
            inner = np.add(r.times(np.multiply(reset, h), 2 * n), b[2 * n :])
        new = self.act(at + 1, np.add(x[:, 2 * n :], inner))
        return [np.add(np.multiply(np.subtract(1, z), new), np.multiply(z, h))]


@dataclass(frozen=True, slots=True)
class Rnn(Recurrent):
    """One activation of x W + h R + b. Outputs y, y_h."""

    NAME: ClassVar[str] = "rnn"

    def step(self, x: Array, states: list[Array], r: Matrix, b: Array, p: Array | None, at: int) -> list[Array]:
        return [self.act(at, np.add(np.add(x, r.times(states[0])), b))]
