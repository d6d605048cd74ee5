"""Cases of real arithmetic between bytes in vectors: broadcast operands, tails, numbers that are far out. Bit for bit."""

from __future__ import annotations

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.ops.activation import Relu
from intaglio.ops.base import Chain, Step
from intaglio.ops.binary import Add, Sub
from intaglio.ops.convert import Dequantize, Quantize
from support.kernel_integer_tiles import numbers
from support.kernel_running import Case, case


def between_bytes(
    *shapes: tuple[int, ...], middle: tuple[Step, ...] = (Step(Add(), (-2, -1)),), dtype: type = np.int8, quantised: bool = True,
    scales: tuple[float, ...] = (0.049, 0.051, 0.036), zeros: tuple[int, ...] = (-1, 7, -128), high: int | None = None,
) -> Case:  # fmt: skip
    """Operands of bytes as reals, the steps of `middle` (-2 and -1 are the first and the last operand), quantised again."""
    count, info = len(shapes), np.iinfo(dtype)
    to = DType.U8 if dtype is np.uint8 else DType.I8
    constants: list[Array] = []
    for scale, zero in zip(scales, zeros, strict=True):
        constants += [np.array(scale, np.float32), np.array(zero, dtype)]
    operands = [numbers(*shape, dtype=dtype) for shape in shapes]
    first = count + len(constants)
    steps = [Step(Dequantize(), (n, count + 2 * n, count + 2 * n + 1)) for n in range(count)]
    for step in middle:
        steps.append(Step(step.op, tuple(first if a == -2 else first + count - 1 if a == -1 else a for a in step.args)))
    if quantised:
        op = Quantize(to, int(info.min), int(info.max) if high is None else high)
        steps.append(Step(op, (first + len(steps) - 1, count + 2 * count, count + 2 * count + 1)))
    known = range(count, first)
    return case(Chain(tuple(steps)), *operands, *constants, constant=list(known))


_ODD = [0.25, 0.75, 1.25, 0.2499999, 1e30, np.inf, np.nan, 63.9, 62.25, 64.0, 0.0, 1e-40, 3.3, 5.25, 9.75, 20.1]
REALS = np.array(_ODD, np.float32)
_RELU = (Step(Sub(), (-2, -1)), Step(Relu(), (10,)))
BYTE_CHAINS: dict[str, Case] = {
    "lanes of a real sum": between_bytes((3, 5, 7), (3, 5, 7)),
    "lanes of a real sum of channels": between_bytes((5, 33), (33,), high=99),
    "lanes of a real sum with one number": between_bytes((5, 33), (1,)),
    "lanes of a real difference of u8": between_bytes((40,), (40,), middle=_RELU, dtype=np.uint8, zeros=(0, 200, 31)),
    "lanes of a real sum by a product": between_bytes(
        (2, 37), (2, 37), scales=(0.048875965, 0.05121015, 0.03586933), zeros=(-1, -1, -128)
    ),
    "lanes of a real sum that is no byte": between_bytes((3, 19), (3, 19), quantised=False),
    "lanes of a real sum beyond all bytes": between_bytes((50,), (50,), scales=(3e37, 1e30, 1e-4)),
    "lanes quantised": case(
        Quantize(DType.I8, -128, 127),
        np.concatenate([REALS, -REALS]),
        np.array(0.5, np.float32),
        np.array(3, np.int8),
        constant=[1, 2],
    ),
    "lanes dequantised": case(Dequantize(), numbers(70), np.array(0.37, np.float32), np.array(-9, np.int8), constant=[1, 2]),
}
