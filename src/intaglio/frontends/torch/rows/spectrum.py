"""Spectra: a complex tensor is a pair of real ones, and a transform is a product with a constant matrix.

The IR has no complex numbers, so a model may use them inside and must come back to real ones."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from intaglio.frontends.building import concat, padded, part, reshape
from intaglio.frontends.fourier import Complex, from_half, spectrum, waves, whole
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.torch.call import TABLE, Answer, Item, TorchCall, row
from intaglio.ir.graph import Array, Value
from intaglio.ir.sizes import whole as whole_of
from intaglio.ir.types import DType
from intaglio.ops.base import Op
from intaglio.ops.binary import Add, Div, Less, Mul, Sub, Where
from intaglio.ops.conv import Conv
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
    if call.op in (*FORTH, *BACK, "_fft_c2c"):
        return transform(call)
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
    "resolve_conj": _first, "resolve_neg": _first, "to": _first, "_to_copy": _first,
}  # fmt: skip


@row("view_as_real", "imag")
def of_reals(call: TorchCall) -> Answer:
    raise unsupported(f"PyTorch has no `{call.op}` of real numbers", "export the model again")


@row("_neg_view")
def negated(call: TorchCall) -> Answer:
    """The imaginary part of what was turned by `conj`."""
    return call.emit(Neg(), call.first())


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


FORTH = ("fft_fft", "fft_rfft", "fft_ihfft", "fft_fft2", "fft_rfft2", "fft_fftn", "fft_rfftn", "_fft_r2c")
BACK = ("fft_ifft", "fft_irfft", "fft_hfft", "fft_ifft2", "fft_irfft2", "fft_ifftn", "fft_irfftn", "_fft_c2r")


def _axes(call: TorchCall, x: Value, real: bool) -> tuple[list[int], list[int]]:
    """The axes, and how many elements each has, in the numbers that are not waves; `real`: the last of them becomes real."""
    rank = len(x.shape)
    told = call.get("s") if call.op.endswith(("2", "n")) else [call.integer("n")] if call.get("n") is not None else None
    sizes = [whole_of(n) for n in told] if isinstance(told, list) else None
    dims = call.maybe_ints("dim")
    if dims is None:
        dims = [-1] if not call.op.endswith(("2", "n")) else [-2, -1] if call.op.endswith("2") else []
    if not dims:
        dims = list(range(rank))[-len(sizes) if sizes else 0 :]
    axes = [call.axis(d, rank) for d in dims]
    usual = [x.shape[a] for a in axes]
    if real:
        usual[-1] = call.integer("last_dim_size", 2 * (usual[-1] - 1))
    sizes = usual if sizes is None else [u if n == -1 else n for n, u in zip(sizes, usual, strict=True)]
    if not 1 <= len(axes) <= 3 or len(set(axes)) != len(axes) or min(sizes) < 1:
        raise unsupported(f"`{call.op}` of {list(x.shape)} along {dims} is not supported")
    for n in sizes:
        call.bounded(4 * n * n)
    return axes, sizes


def _scale(call: TorchCall, sizes: list[int], back: bool) -> float:
    """`normalization` by number, or `norm` by name."""
    n, norm = math.prod(sizes), call.text("norm")
    kind = call.integer("normalization", 2 if back else 0)
    if norm or "normalization" not in call.arguments:
        kind = {"ortho": 1, "": 2 if back else 0, "backward": 2 if back else 0, "forward": 0 if back else 2}[norm]
    return {0: 1.0, 1: 1 / math.sqrt(n), 2: 1 / n}[kind]


def _fitted(call: TorchCall, x: Value, axis: int, size: int) -> Value:
    """As many elements as are asked for: cut, or with zeros behind."""
    pads = [0] * (2 * len(x.shape))
    pads[len(x.shape) + axis] = size - x.shape[axis]
    return padded(call, x, pads)


@row(*FORTH, *BACK, "_fft_c2c")
def transform(call: TorchCall) -> Answer:
    """Along one axis after the other; where one side is real, that is the last axis."""
    given = call.get("self")
    x = given if isinstance(given, Complex) else call.floats(call.first())
    back = not call.flag("forward") if call.op == "_fft_c2c" else call.op in BACK
    reverse = call.op in ("fft_hfft", "fft_ihfft")  # with the other sign, and the other way to normalise
    real = call.op in ("_fft_c2r", "fft_hfft") or "irfft" in call.op
    axes, sizes = _axes(call, x.re if isinstance(x, Complex) else x, real)
    factor = _scale(call, sizes, back != reverse)
    parts: tuple[Value, ...] = (x.re, x.im) if isinstance(x, Complex) else (x,)
    for axis, size in zip(axes, sizes, strict=True):
        bins = size // 2 + 1 if real and axis == axes[-1] else size
        parts = tuple(_fitted(call, v, axis, bins) for v in parts)
    if real:
        y = Complex(parts[0], parts[1] if len(parts) > 1 else call.emit(Mul(), parts[0], call.like(0.0, parts[0])))
        y = _turned(call, y) if reverse else y
        for axis, size in zip(axes[:-1], sizes[:-1], strict=True):
            y = whole(call, y, axis, size, True)
        return from_half(call, y, axes[-1], sizes[-1], factor)
    if len(parts) == 1:
        half = "rfft" in call.op or call.op == "fft_ihfft" or (call.op == "_fft_r2c" and call.flag("onesided", True))
        y = spectrum(call, parts[0], axes[-1], sizes[-1], sizes[-1] // 2 + 1 if half else sizes[-1], factor)
        y = _turned(call, y) if back or reverse else y
        axes, sizes, factor = axes[:-1], sizes[:-1], 1.0
    else:
        y = Complex(*parts)
    for axis, size in zip(axes, sizes, strict=True):
        y, factor = whole(call, y, axis, size, back, factor), 1.0
    return y


def _turned(call: TorchCall, x: Complex) -> Complex:
    return Complex(x.re, call.emit(Neg(), x.im))


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
