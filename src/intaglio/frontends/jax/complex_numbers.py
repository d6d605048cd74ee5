"""Complex numbers inside of a function: pairs of real ones. Its inputs and results are real.

What moves data, and sums, is done to real and imaginary parts alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intaglio.frontends.building import cast
from intaglio.frontends.fourier import Complex, from_half, spectrum, whole
from intaglio.frontends.jax.literals import pairs_of, spread
from intaglio.frontends.onnx.faults import Fault
from intaglio.ir.graph import Value
from intaglio.ops.binary import Add, Div, Mul, Sub
from intaglio.ops.unary import Cos, Exp, Neg, Sin, Sqrt

if TYPE_CHECKING:
    from intaglio.frontends.jax.walk import JaxCall

_MOVING = {
    "reshape", "transpose", "broadcast_in_dim", "slice", "concatenate", "reverse", "pad", "gather", "dynamic_slice",
    "dynamic_update_slice", "select", "optimization_barrier",
}  # fmt: skip
_MOST = 1 << 24  # numbers of a matrix of waves


def concerned(call: JaxCall) -> bool:
    """Is an operand or a result complex?"""
    return any(isinstance(o, Complex) for o in call.operands) or any(map(_is_complex, call.operation.results))


def _is_complex(value: Any) -> bool:
    return "complex<" in str(value.type)


def made(call: JaxCall) -> list[Value | Complex]:
    """What such an operation gives."""
    name, operands = call.name, call.operands
    if name in MATHS:
        return [MATHS[name](call, operands)]
    sums = name in ("add", "subtract", "negate") or (name == "reduce" and _adds(call))
    if name not in _MOVING and not sums:
        raise Fault("unsupported-operator", "of complex numbers it is not supported", "take the magnitude, or the parts, first")
    halves = []
    for side in ("re", "im"):
        given = [getattr(o, side) if isinstance(o, Complex) else o for o in operands]
        halves.append(call.walk.real(call.of(given)))
    pairs = zip(call.operation.results, *halves, strict=True)
    return [Complex(a, b) if _is_complex(result) else a for result, a, b in pairs]


def _adds(call: JaxCall) -> bool:
    return [str(item.operation.name) for item in call.body().operations][:-1] == ["stablehlo.add"]


def _both(operands: Sequence[Value | Complex]) -> list[Complex]:
    """Operands of an operation that takes complex numbers only."""
    found = [o for o in operands if isinstance(o, Complex)]
    if len(found) != len(operands):
        raise Fault("bad-graph", "it mixes real and complex numbers")
    return found


def _constant(call: JaxCall, _: Sequence[Value | Complex]) -> Complex:
    made = call.result()
    data = spread(pairs_of(str(call.operation), made.dtype), made.shape)
    return Complex(*(call.constant(np.array(side), made.dtype) for side in (data.real, data.imag)))


def _complex(call: JaxCall, operands: Sequence[Value | Complex]) -> Complex:
    real, imaginary = operands
    assert isinstance(real, Value) and isinstance(imaginary, Value)
    return Complex(real, imaginary)


def _convert(call: JaxCall, operands: Sequence[Value | Complex]) -> Complex:
    x, to = operands[0], call.result().dtype
    if isinstance(x, Complex):
        return Complex(cast(call, x.re, to), cast(call, x.im, to))
    real = cast(call, x, to)
    return Complex(real, call.constant(np.zeros(x.shape, to.numpy), to))


def _size(call: JaxCall, operands: Sequence[Value | Complex]) -> Value:
    (x,) = _both(operands)
    return call.emit(Sqrt(), call.emit(Add(), call.emit(Mul(), x.re, x.re), call.emit(Mul(), x.im, x.im)))


def _product(call: JaxCall, operands: Sequence[Value | Complex]) -> Complex:
    a, b = _both(operands)
    real = call.emit(Sub(), call.emit(Mul(), a.re, b.re), call.emit(Mul(), a.im, b.im))
    return Complex(real, call.emit(Add(), call.emit(Mul(), a.re, b.im), call.emit(Mul(), a.im, b.re)))


def _quotient(call: JaxCall, operands: Sequence[Value | Complex]) -> Complex:
    a, b = _both(operands)
    size = call.emit(Add(), call.emit(Mul(), b.re, b.re), call.emit(Mul(), b.im, b.im))
    turned = _product(call, [a, Complex(b.re, call.emit(Neg(), b.im))])
    return Complex(call.emit(Div(), turned.re, size), call.emit(Div(), turned.im, size))


def _exponential(call: JaxCall, operands: Sequence[Value | Complex]) -> Complex:
    (x,) = _both(operands)
    size = call.emit(Exp(), x.re)
    return Complex(*(call.emit(Mul(), size, call.emit(turn, x.im)) for turn in (Cos(), Sin())))


# Transforms -------------------------------------------------------------------------------------------------------------


def _fft(call: JaxCall, operands: Sequence[Value | Complex]) -> Value | Complex:
    """Of the last axes, one after the other: the one that is real on one side is the last of them."""
    x, kind, sizes = operands[0], str(call.attribute("fft_type")), call.ints("fft_length")
    kind = next((k for k in ("IRFFT", "RFFT", "IFFT", "FFT") if k in kind), "")
    rank = len(x.re.shape if isinstance(x, Complex) else x.shape)
    axes = list(range(rank - len(sizes), rank))
    if not 1 <= len(sizes) <= 3 or any(2 * n * n > _MOST for n in sizes):
        raise Fault("too-large", f"a transform of {sizes} elements is not supported", "those of up to 2048 are")
    if isinstance(x, Value):
        x = spectrum(call, x, axes[-1], sizes[-1], sizes[-1] // 2 + 1)
        axes, sizes = axes[:-1], sizes[:-1]
    last = (axes.pop(), sizes[-1]) if kind == "IRFFT" else None
    back = kind in ("IFFT", "IRFFT")
    for axis, size in zip(axes, sizes, strict=False):
        x = whole(call, x, axis, size, back, 1 / size if back else 1.0)
    return x if last is None else from_half(call, x, *last, 1 / last[1])


MATHS: dict[str, Callable[[JaxCall, Sequence[Value | Complex]], Value | Complex]] = {
    "constant": _constant, "complex": _complex, "convert": _convert, "abs": _size, "multiply": _product, "divide": _quotient,
    "exponential": _exponential, "fft": _fft,
    "real": lambda _, operands: _both(operands)[0].re, "imag": lambda _, operands: _both(operands)[0].im,
}  # fmt: skip
