"""Spectra: a complex tensor is a pair of real ones, and a transform is a product with a constant matrix.

The IR has no complex numbers, so a model may use them inside and must come back to real ones."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from intaglio.frontends.building import concat, part, reshape, transpose
from intaglio.frontends.fourier import Complex, waves, waves_back
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.torch.call import TABLE, Answer, Item, TorchCall, row
from intaglio.ir.graph import Array, Value
from intaglio.ir.types import DType
from intaglio.ops.base import Op
from intaglio.ops.binary import Add, Div, Less, Mul, Sub, Where
from intaglio.ops.conv import Conv
from intaglio.ops.matmul import MatMul
from intaglio.ops.unary import Cos, IsNan, Neg, Sin, Sqrt

MOVING = {
    "view", "reshape", "flatten", "squeeze", "unsqueeze", "unflatten", "permute", "transpose", "t", "slice", "select", "narrow",
    "split", "split_with_sizes", "chunk", "unbind", "expand", "contiguous", "clone", "alias", "detach", "cat", "stack", "neg",
    "movedim", "swapaxes", "mT", "flip", "roll", "mean", "sum", "repeat", "_unsafe_view", "constant_pad_nd", "pad", "index",
}  # fmt: skip


def complex_answer(call: TorchCall) -> Answer:
    """An operator one of whose operands is complex."""
    if call.op in MATHS:
        return MATHS[call.op](call)
    if call.op not in MOVING:
        raise unsupported(
            f"`{call.op}` of complex numbers is not supported", "take the magnitude, or real and imaginary parts, first"
        )
    return _joined(*[TABLE[f"aten.{call.op}"](_with(call, side)) for side in ("re", "im")])


def _with(call: TorchCall, side: str) -> TorchCall:
    def half(item: Item) -> Item:
        if isinstance(item, list):
            return [half(i) for i in item]
        return getattr(item, side) if isinstance(item, Complex) else item

    return TorchCall(call.op, call.overload, {name: half(item) for name, item in call.arguments.items()}, call.record, call.walk)


def _joined(re: Answer, im: Answer) -> Answer:
    if isinstance(re, (list, tuple)):
        return [_joined(a, b) for a, b in zip(re, im, strict=True)]
    return Complex(re, im)


def _first(call: TorchCall) -> Complex:
    item = next(iter(call.arguments.values()))
    assert isinstance(item, Complex)
    return item


def _abs(call: TorchCall) -> Answer:
    x = _first(call)
    squares = [call.emit(Mul(), v, v) for v in (x.re, x.im)]
    return call.emit(Sqrt(), call.emit(Add(), *squares))


def _pairs(call: TorchCall) -> Answer:
    x = _first(call)
    return concat(call, [reshape(call, v, (*v.shape, 1)) for v in (x.re, x.im)], len(x.re.shape))


def _product(call: TorchCall) -> Answer:
    a, b = (call.get(name) for name in ("self", "other"))
    if not isinstance(a, Complex) or not isinstance(b, Complex):
        x, factor = (a, b) if isinstance(a, Complex) else (b, a)
        scale = [call.typed(factor, v.dtype) for v in (x.re, x.im)]
        op: Op = Div() if call.op == "div" else Mul()
        if call.op == "div" and x is b:
            raise unsupported("a division by complex numbers is not supported")
        return Complex(call.emit(op, x.re, scale[0]), call.emit(op, x.im, scale[1]))
    if call.op == "div":
        raise unsupported("a division by complex numbers is not supported")

    def times(x: Value, y: Value) -> Value:
        return call.emit(Mul(), x, y)

    re = call.emit(Sub(), times(a.re, b.re), times(a.im, b.im))
    return Complex(re, call.emit(Add(), times(a.re, b.im), times(a.im, b.re)))


def _sum(call: TorchCall) -> Answer:
    a, b = (call.get(name) for name in ("self", "other"))
    if not isinstance(a, Complex) or not isinstance(b, Complex) or call.number("alpha", 1) != 1:
        raise unsupported("a sum of real and complex numbers is not supported")
    op: Op = Add() if call.op == "add" else Sub()
    return Complex(call.emit(op, a.re, b.re), call.emit(op, a.im, b.im))


def _conj(call: TorchCall) -> Answer:
    x = _first(call)
    return Complex(x.re, call.emit(Neg(), x.im))


MATHS: dict[str, Callable[[TorchCall], Answer]] = {
    "abs": _abs, "view_as_real": _pairs, "real": lambda call: _first(call).re, "imag": lambda call: _first(call).im,
    "angle": lambda call: call.again("atan2", self=_first(call).im, other=_first(call).re), "mul": _product, "div": _product,
    "add": _sum, "sub": _sum, "conj": _conj, "_conj": _conj, "conj_physical": _conj, "_conj_physical": _conj,
    "resolve_conj": _first, "resolve_neg": _first, "fft_irfft": lambda call: inverse(call), "_fft_c2r": lambda call: inverse(call),
}  # fmt: skip


@row("view_as_real", "imag")
def of_reals(call: TorchCall) -> Answer:
    raise unsupported(f"PyTorch has no `{call.op}` of real numbers", "export the model again")


@row("conj_physical", "_conj_physical")
def itself(call: TorchCall) -> Answer:
    return call.first()


@row("angle")
def angle(call: TorchCall) -> Answer:
    """Of real numbers: half a circle where they are below 0."""
    x = call.floats(call.first())
    turned = call.emit(Where(), call.emit(Less(), x, call.like(0.0, x)), call.like(math.pi, x), call.like(0.0, x))
    return call.emit(Where(), call.emit(IsNan(), x), x, turned)


@row("complex", "polar", "view_as_complex")
def made(call: TorchCall) -> Answer:
    if call.op == "complex":
        return Complex(call.tensor("real"), call.tensor("imag"))
    if call.op == "polar":
        size, angle = call.tensor("abs"), call.tensor("angle")
        return Complex(*[call.emit(Mul(), size, call.emit(turn, angle)) for turn in (Cos(), Sin())])
    x = call.first()
    last = len(x.shape) - 1
    return Complex(*[reshape(call, part(call, x, last, n, 1), x.shape[:-1]) for n in (0, 1)])


# Transforms -------------------------------------------------------------------------------------------------------------


def _waves(call: TorchCall, n: int, bins: int) -> Array:
    call.bounded(2 * n * bins)
    return waves(n, bins)


def _factor(call: TorchCall, n: int, *, back: bool = False) -> float:
    """`normalization` by number, or `norm` by name."""
    norm = call.text("norm")
    kind = call.integer("normalization", 2 if back else 0)
    if norm or "normalization" not in call.arguments:
        kind = {"ortho": 1, "": 2 if back else 0, "backward": 2 if back else 0, "forward": 0 if back else 2}[norm]
    return {0: 1.0, 1: 1 / math.sqrt(n), 2: 1 / n}[kind]


def _axis(call: TorchCall, rank: int) -> int:
    dims = call.maybe_ints("dim") or [-1]
    if len(dims) != 1:
        raise unsupported(f"`{call.op}` along several axes is not supported")
    return call.axis(dims[0], rank)


@row("fft_rfft", "fft_fft", "_fft_r2c")
def forward(call: TorchCall) -> Answer:
    x = call.floats(call.first())
    rank = len(x.shape)
    axis = _axis(call, rank)
    n = call.integer("n", x.shape[axis])
    if n < 1:
        raise Fault("bad-attribute", f"`{call.op}` of {n} elements is not valid")
    if n > x.shape[axis]:
        raise unsupported(f"`{call.op}` of {n} elements out of {x.shape[axis]} is not supported", "pad it first")
    x = part(call, x, axis, 0, n)
    bins = n if call.op == "fft_fft" or not call.flag("onesided", True) else n // 2 + 1
    order = [*[a for a in range(rank) if a != axis], axis]
    matrix = call.constant(_waves(call, n, bins) * _factor(call, n), x.dtype)
    y = call.emit(MatMul(transpose_b=True), _matrix(call, transpose(call, x, order)), matrix)
    y = reshape(call, y, (*[x.shape[a] for a in order[:-1]], 2 * bins))
    back = [order.index(a) for a in range(rank)]
    return Complex(*[transpose(call, part(call, y, rank - 1, k * bins, bins), back) for k in (0, 1)])


def _matrix(call: TorchCall, x: Value) -> Value:
    return reshape(call, x, (1, *x.shape)) if len(x.shape) == 1 else x


@row("fft_irfft", "_fft_c2r")
def inverse(call: TorchCall) -> Answer:
    x = _first(call)
    rank = len(x.re.shape)
    axis = _axis(call, rank)
    bins = x.re.shape[axis]
    n = call.integer("last_dim_size", 2 * (bins - 1)) if call.op == "_fft_c2r" else call.integer("n", 2 * (bins - 1))
    if n // 2 + 1 != bins:
        raise unsupported(f"`{call.op}` of {bins} bins to {n} elements is not supported")
    call.bounded(2 * n * bins)
    matrix = waves_back(n, bins) * _factor(call, n, back=True)
    order = [*[a for a in range(rank) if a != axis], axis]
    both = concat(call, [transpose(call, v, order) for v in (x.re, x.im)], rank - 1)
    y = call.emit(MatMul(), _matrix(call, both), call.constant(matrix, x.re.dtype))
    y = reshape(call, y, (*[x.re.shape[a] for a in order[:-1]], n))
    return transpose(call, y, [order.index(a) for a in range(rank)])


@row("stft")
def stft(call: TorchCall) -> Answer:
    """A convolution: its kernels are the waves times the window, its stride the hop."""
    x, window = call.first(), call.maybe("window")
    n = call.integer("n_fft")
    hop, length = call.integer("hop_length", max(n // 4, 1)), call.integer("win_length", n)
    if n < 1 or hop < 1 or not 1 <= length <= n or (window is not None and window.shape != (length,)):
        raise Fault("bad-attribute", f"`stft` of {n} elements with the hop {hop} and a window of {length} is not valid")
    if window is not None and window.data is None:
        raise unsupported("`stft` with a window that depends on data")
    if call.flag("center") or x.dtype is not DType.F32:
        raise unsupported("`stft` with padding of its own, or of a type other than f32, is not supported")
    bins = n // 2 + 1 if call.flag("onesided", True) else n
    shape = np.zeros(n)
    start = (n - length) // 2
    shape[start : start + length] = 1.0 if window is None or window.data is None else window.data
    kernels = _waves(call, n, bins) * shape * (1 / math.sqrt(n) if call.flag("normalized") else 1.0)
    batch = x.shape[:-1]
    rows = reshape(call, x, (math.prod(batch), 1, x.shape[-1]))
    y = call.emit(Conv((hop,), (0, 0), (1,), 1), rows, call.constant(kernels[:, None, :], x.dtype))
    made = [reshape(call, part(call, y, 1, k * bins, bins), (*batch, bins, y.shape[2])) for k in (0, 1)]
    if call.flag("return_complex", True):
        return Complex(*made)
    return concat(call, [reshape(call, v, (*v.shape, 1)) for v in made], len(made[0].shape))
