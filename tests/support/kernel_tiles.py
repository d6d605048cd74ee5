"""Cases of the kernels with register tiles: convolution, matrix products, recurrent layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import Layout
from intaglio.kernels.contraction.tile import candidates
from intaglio.ops.activation import Relu, Sigmoid
from intaglio.ops.attention import Attention
from intaglio.ops.base import Step
from intaglio.ops.binary import Add, Mul, Sub
from intaglio.ops.conv import Conv, ConvTranspose
from intaglio.ops.matmul import MatMul
from intaglio.ops.recurrent import Gru, Lstm, Rnn
from support.kernel_cases import D, F, H, real, whole
from support.kernel_running import TARGETS, Case, case

TILED: dict[str, Case] = {}
_NHWC = Layout.NHWC


# Convolution -------------------------------------------------------------------------------------------------------------


def conv(
    shape: tuple[int, ...], out: int, kernel: tuple[int, int], strides: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (0, 0, 0, 0), dilations: tuple[int, int] = (1, 1), group: int = 1, bias: bool = True,
    using: str = "",
) -> Case:  # fmt: skip
    """NHWC, constant weights."""
    weights = real(out, shape[-1] // group, *kernel)
    op = Conv(strides, pads, dilations, group, _NHWC)
    return case(op, real(*shape), weights, real(out) if bias else None, constant=[1, 2], using=using)


TILED |= {
    "conv 3x3": conv((1, 6, 9, 3), 11, (3, 3), pads=(1, 1, 1, 1)),
    "conv 3x3 without bias": conv((1, 6, 9, 3), 16, (3, 3), bias=False),
    "conv 3x3 strided": conv((2, 7, 12, 5), 9, (3, 3), (2, 2), (1, 1, 1, 1)),
    "conv asymmetric pads": conv((1, 5, 8, 2), 5, (3, 4), (1, 2), (2, 0, 0, 3)),
    "conv dilated": conv((1, 9, 11, 3), 4, (3, 3), dilations=(2, 3), pads=(2, 3, 2, 3)),
    "conv dilated and strided": conv((1, 9, 17, 2), 4, (3, 2), (2, 2), (3, 2, 1, 0), (3, 2)),
    "conv grouped": conv((1, 5, 9, 6), 9, (3, 3), group=3, pads=(1, 1, 1, 1)),
    "conv grouped wide": conv((1, 3, 14, 4), 34, (2, 2), group=2, pads=(0, 1, 1, 0)),
    "conv 1x1": conv((1, 4, 5, 7), 13, (1, 1)),
    "conv 1x1 of batches": conv((2, 3, 3, 4), 21, (1, 1)),
    "conv 1x1 strided": conv((1, 5, 5, 4), 9, (1, 1), (2, 2)),
    "conv 1x1 padded": conv((1, 3, 3, 4), 9, (1, 1), pads=(1, 1, 1, 1)),
    "conv one channel": conv((1, 7, 7, 1), 1, (3, 3), pads=(1, 1, 1, 1)),
    "conv wider than the image": conv((1, 3, 3, 2), 3, (5, 5), pads=(2, 2, 2, 2)),
    "conv all padding": conv((1, 2, 2, 2), 3, (3, 3), (3, 3), (3, 3, 3, 3)),
    "conv of one pixel": conv((1, 1, 1, 20), 20, (1, 1)),
    "conv 1 high": conv((1, 1, 31, 3), 8, (1, 5), (1, 2), (0, 2, 0, 2)),
    "conv 1 wide": conv((1, 31, 1, 3), 8, (5, 1), (2, 1), (2, 0, 2, 0)),
    "depthwise": conv((1, 6, 9, 11), 11, (3, 3), pads=(1, 1, 1, 1), group=11),
    "depthwise strided": conv((2, 7, 8, 8), 8, (3, 3), (2, 2), (0, 1, 1, 0), group=8),
    "depthwise dilated": conv((1, 9, 9, 5), 5, (3, 3), dilations=(2, 2), pads=(2, 2, 2, 2), group=5),
    "depthwise wide": conv((1, 3, 20, 9), 9, (1, 9), pads=(0, 4, 0, 4), group=9, bias=False),
    "depthwise strided and dilated": conv((1, 9, 13, 3), 3, (2, 3), (3, 2), (1, 2, 1, 2), (2, 3), group=3),
    "conv NCHW": case(Conv((2, 1), (1, 0, 0, 1), (1, 2)), real(1, 3, 6, 7), real(4, 3, 3, 2), real(4)),
    "conv of one axis": case(Conv((2,), (1, 2), (1,)), real(2, 3, 9), real(4, 3, 3)),
    "conv of three axes": case(Conv((1, 1, 2), (1, 0, 0, 0, 1, 1), (1, 1, 1)), real(1, 2, 3, 4, 5), real(3, 2, 2, 2, 2)),
    "conv of computed weights": case(Conv(layout=_NHWC), real(1, 5, 5, 4), real(4, 4, 3, 3), real(4)),
    "conv f64": case(Conv(), real(1, 2, 4, 4).astype(D), real(3, 2, 2, 2).astype(D), real(3).astype(D)),
    "conv f16": case(Conv(layout=_NHWC), real(1, 4, 4, 2).astype(H), real(3, 2, 2, 2).astype(H), constant=[1]),
    "conv of integers": case(Conv(), whole(1, 2, 4, 4), whole(3, 2, 2, 2)),
    "conv_transpose": case(ConvTranspose((2, 3), (1, 0, 0, 1)), real(1, 3, 4, 5), real(3, 2, 3, 3), real(2)),
    "conv_transpose grouped": case(
        ConvTranspose((2, 2), (1, 1, 1, 1), (2, 1), 2, (1, 0), _NHWC), real(1, 4, 5, 4), real(4, 3, 3, 2), constant=[1]
    ),
    "conv_transpose of one axis": case(ConvTranspose((2,), (0, 0), (1,), 1, (1,)), real(1, 3, 5), real(3, 2, 3)),
}  # fmt: skip
for _tile in candidates(TARGETS["avx2"]):
    TILED[f"conv in tiles {_tile}"] = conv((1, 2, 11, 3), 19, (1, 2), pads=(0, 1, 0, 0), using=f"conv_nhwc(tile={_tile})")
_BY_WINOGRAD = {
    "3x3": conv((1, 6, 9, 3), 11, (3, 3), pads=(1, 1, 1, 1)),
    "3x3 without padding or bias": conv((2, 10, 6, 8), 16, (3, 3), bias=False),
    "3x3, asymmetric pads": conv((2, 7, 11, 9), 5, (3, 3), pads=(2, 0, 0, 3)),
    "3x3 smaller than a patch": conv((1, 3, 2, 4), 3, (3, 3), pads=(1, 1, 1, 1)),
}
for _size in (2, 4):
    TILED |= {f"winograd m={_size} {n}": replace(c, using=f"winograd(m={_size},tile=3x2)") for n, c in _BY_WINOGRAD.items()}
_STEPS = (
    Step(Add(), (0, 1)), Step(Mul(), (4, 2)), Step(Relu(), (5,)), Step(Sub(), (6, 3)), Step(Sigmoid(), (7,))
)  # fmt: skip
for _text, _op, _shape, _weights in (
    ("conv", Conv((1, 1), (1, 1, 1, 1), (1, 1), 1, _NHWC, _STEPS), (1, 5, 7, 3), (11, 3, 3, 3)),
    ("conv 1x1", Conv((1, 1), (0, 0, 0, 0), (1, 1), 1, _NHWC, _STEPS), (1, 5, 7, 3), (11, 3, 1, 1)),
    ("conv grouped", Conv((1, 1), (1, 1, 1, 1), (1, 1), 2, _NHWC, _STEPS), (1, 5, 7, 4), (22, 2, 3, 3)),
    ("depthwise", Conv((1, 1), (1, 1, 1, 1), (1, 1), 11, _NHWC, _STEPS), (1, 5, 7, 11), (11, 1, 3, 3)),
):
    _out = (1, 5, 7, _weights[0])
    TILED[f"{_text} with an epilogue"] = case(
        _op, real(*_shape), real(*_weights), real(_weights[0]), real(*_out), real(_weights[0]), real(1), constant=[1, 2, 4]
    )
TILED["winograd with an epilogue"] = replace(TILED["conv with an epilogue"], using="winograd(m=4,tile=6x2)")
TILED["conv NCHW with an epilogue"] = case(
    Conv(epilogue=(Step(Add(), (0, 1)), Step(Relu(), (2,)))), real(1, 2, 4, 4), real(3, 2, 2, 2), None, real(3, 1, 1)
)

# Matrix products -----------------------------------------------------------------------------------------------------------


def matmul(a: Array, b: Array, *more: Array | None, transposed: bool = False, constant: bool = True, using: str = "") -> Case:
    return case(MatMul(transpose_b=transposed), a, b, *more, constant=[1, 2] if constant else [], using=using)


TILED |= {
    "matmul": matmul(real(7, 5), real(5, 19)),
    "matmul of a row": matmul(real(1, 9), real(9, 37)),
    "matmul of a column": matmul(real(9, 3), real(3, 1)),
    "matmul transposed": matmul(real(7, 5), real(19, 5), transposed=True),
    "matmul of stacked rows": matmul(real(2, 3, 5), real(5, 9)),
    "matmul of stacked constants": matmul(real(2, 3, 5), real(2, 5, 9)),
    "matmul broadcast": matmul(real(2, 1, 3, 4), real(3, 4, 9)),
    "matmul broadcast left": matmul(real(3, 4), real(2, 4, 5)),
    "matmul computed": matmul(real(7, 5), real(5, 19), constant=False),
    "matmul computed and transposed": matmul(real(7, 5), real(19, 5), transposed=True, constant=False),
    "matmul computed in batches": matmul(real(2, 2, 3, 5), real(2, 2, 5, 9), constant=False),
    "matmul computed, transposed, in batches": matmul(real(2, 3, 5), real(2, 9, 5), transposed=True, constant=False),
    "matmul computed and broadcast": matmul(real(2, 3, 5), real(1, 5, 9), constant=False),
    "matmul of one shared matrix, broadcast left": matmul(real(3, 5), real(1, 1, 5, 9), constant=False),
    "matmul with bias": matmul(real(7, 5), real(5, 19), real(19)),
    "matmul with one number": matmul(real(7, 5), real(5, 19), real(1)),
    "matmul with a full bias": matmul(real(7, 5), real(5, 19), real(7, 19)),
    "matmul with a bias per row": matmul(real(7, 5), real(5, 19), real(7, 1)),
    "matmul with a computed bias": case(MatMul(), real(7, 5), real(5, 19), real(19), constant=[1]),
    "matmul with a computed bias in batches": matmul(real(2, 3, 5), real(2, 5, 9), real(9), constant=False),
    "matmul of a turned left side": case(MatMul(transpose_a=True, transpose_b=True), real(5, 7), real(19, 5), real(19)),
    "matmul f64": case(MatMul(), real(2, 3, 4).astype(D), real(4, 5).astype(D)),
    "matmul f16": case(MatMul(), real(3, 4).astype(H), real(4, 5).astype(H), real(5).astype(H)),
    "matmul of integers": case(MatMul(), whole(3, 4), whole(4, 5)),
    "matmul of depth nothing": case(MatMul(), real(3, 0), real(0, 5)),
    "matmul of nothing": case(MatMul(), real(0, 3), real(3, 5), constant=[1]),
    "matmul with an epilogue": case(
        MatMul(epilogue=_STEPS), real(6, 5), real(5, 19), real(19), real(6, 19), real(19), real(1), constant=[1, 2]
    ),
    "matmul with a computed bias and an epilogue": case(
        MatMul(epilogue=_STEPS), real(6, 5), real(5, 19), real(19), real(6, 19), real(19), real(1)
    ),
    "matmul in batches with an epilogue": case(
        MatMul(epilogue=_STEPS), real(2, 3, 5), real(2, 5, 11), real(11), real(2, 3, 11), real(11), real(1)
    ),
    "matmul of a turned left side with an epilogue": case(
        MatMul(True, epilogue=_STEPS), real(5, 6), real(5, 19), real(19), real(6, 19), real(19), real(1)
    ),
}  # fmt: skip
for _tile in candidates(TARGETS["avx2"]):
    TILED[f"matmul in tiles {_tile}"] = matmul(real(7, 4), real(4, 21), using=f"matmul(tile={_tile})")


# Recurrent -----------------------------------------------------------------------------------------------------------------

_FUNCTIONS = {"lstm": ("Sigmoid", "Tanh", "Tanh"), "gru": ("Sigmoid", "Tanh"), "rnn": ("Tanh",)}


def recurrent(
    kind: type[Lstm] | type[Gru] | type[Rnn], hidden: int = 3, direction: str = "forward", *, time: int = 4,
    batch: int = 2, features: int = 5, bias: bool = True, lens: bool = False, starts: bool = False, peep: bool = False,
    constant: bool = True, dtype: type = np.float32, activations: tuple[str, ...] = (), **fields: float | bool,
) -> Case:  # fmt: skip
    d = 2 if direction == "bidirectional" else 1
    g = kind.GATES
    names = (activations or _FUNCTIONS[kind.NAME]) * d
    first = bool(fields.get("layout_batch_first"))
    state = (batch, d, hidden) if first else (d, batch, hidden)
    arrays: list[Array | None] = [
        real(*((batch, time, features) if first else (time, batch, features))), real(d, g * hidden, features),
        real(d, g * hidden, hidden), real(d, 2 * g * hidden) if bias else None,
        np.array([time, 1], np.int32)[:batch] if lens else None, real(*state) if starts else None,
    ]  # fmt: skip
    if kind is Lstm:
        arrays += [real(*state) if starts else None, real(d, 3 * hidden) if peep else None]
    arrays = [a if a is None or a.dtype != F else a.astype(dtype) for a in arrays]
    op = kind(hidden, direction, names, (0.6,) * len(names), (0.4,) * len(names), **fields)  # type: ignore[arg-type]
    return case(op, *arrays, constant=[1, 2, 3] if constant else [])


for _kind in (Lstm, Gru, Rnn):
    for _text, _given in {
        "": {}, "long": {"hidden": 11, "time": 3}, "of one": {"hidden": 8, "batch": 1, "time": 1}, "without bias": {"bias": False},
        "reverse": {"direction": "reverse"}, "both ways": {"direction": "bidirectional", "starts": True},
        "with lengths": {"lens": True, "direction": "bidirectional", "hidden": 9}, "clipped": {"clip": 0.3},
        "from a state": {"starts": True}, "batch first": {"layout_batch_first": True, "starts": True},
        "batch first, both ways": {"layout_batch_first": True, "direction": "bidirectional", "lens": True},
        "computed": {"constant": False}, "computed, both ways": {"constant": False, "direction": "bidirectional", "lens": True},
        "computed without bias": {"constant": False, "bias": False}, "f64": {"dtype": np.float64}, "f16": {"dtype": np.float16},
    }.items():  # fmt: skip
        TILED[f"{_kind.NAME} {_text}".strip()] = recurrent(_kind, **_given)  # type: ignore[arg-type]
for _name in ("Relu", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu", "Softsign", "Softplus"):
    TILED[f"rnn with {_name}"] = recurrent(Rnn, 9, activations=(_name,))
TILED |= {
    "lstm with peepholes": recurrent(Lstm, 9, peep=True, starts=True),
    "lstm with peepholes, both ways": recurrent(Lstm, 3, "bidirectional", peep=True, starts=True, constant=False),
    "lstm coupled": recurrent(Lstm, 9, input_forget=True),
    "lstm clipped with peepholes": recurrent(Lstm, 3, peep=True, clip=0.2),
    "gru linear before reset": recurrent(Gru, 9, starts=True, linear_before_reset=True),
    "gru linear before reset, both ways": recurrent(Gru, 3, "bidirectional", linear_before_reset=True, lens=True),
    "gru linear before reset, computed": recurrent(Gru, 3, "bidirectional", linear_before_reset=True, constant=False),
    "gru linear before reset without bias": recurrent(Gru, 3, bias=False, linear_before_reset=True),
    "gru linear before reset, computed, no bias": recurrent(Gru, 3, bias=False, linear_before_reset=True, constant=False),
}


# Attention ---------------------------------------------------------------------------------------------------------------

_QKV = ((0, 126, 3, 18, 1), (6, 126, 3, 18, 1), (12, 126, 3, 18, 1))  # of [2,7,3,2,3]: batch, row, one of the three, head
_ROWS = (0, 0, 0, 4, 1)
TILED |= {
    "attention": case(
        Attention((2, 2, 7, 7, 3, 3), *_QKV, scale=0.5, joined=True), *[real(2, 7, 18)] * 3
    ),
    "attention of turned keys, other sizes": case(
        Attention((1, 2, 13, 21, 5, 9), (0, 0, 65, 5, 1), (0, 0, 105, 1, 21), (0, 0, 189, 9, 1), scale=0.25),
        real(1, 2, 13, 5), real(1, 2, 5, 21), real(1, 2, 21, 9),
    ),
    "attention with masks": case(
        Attention(
            (2, 3, 5, 11, 4, 8), (0, 60, 20, 4, 1), (0, 132, 44, 4, 1), (0, 264, 88, 8, 1),
            ((0, 0, 55, 11, 1), (0, 11, 0, 0, 1), (0, 0, 0, 1, 0)), joined=True,
        ),
        real(2, 3, 5, 4), real(2, 3, 11, 4), real(2, 3, 11, 8), real(3, 5, 11), real(2, 11), real(5, 1),
    ),
    "attention without what comes later": case(
        Attention((1, 1, 9, 9, 4, 4), _ROWS, _ROWS, _ROWS, ((0, 0, 0, 9, 1),)),
        real(9, 4), real(9, 4), real(9, 4), np.where(np.tri(9) > 0, F(0), -F(np.inf)).astype(F),
    ),
    "attention of hidden rows": case(
        Attention((1, 1, 6, 9, 4, 4), _ROWS, _ROWS, _ROWS, ((0, 0, 0, 9, 1),), hidden_zero=True),
        real(6, 4), real(9, 4), real(9, 4), np.where(np.arange(6)[:, None] % 2 * np.ones(9) > 0, real(6, 9), -F(np.inf)).astype(F),
    ),
    "attention in bands": case(
        Attention((1, 1, 25, 600, 2, 3), (0, 0, 0, 2, 1), (0, 0, 0, 2, 1), (0, 0, 0, 3, 1)), real(25, 2), real(600, 2), real(600, 3)
    ),
    "attention by another tile": case(
        Attention((1, 1, 7, 9, 4, 4), _ROWS, _ROWS, _ROWS), real(7, 4), real(9, 4), real(9, 4),
        using="attention(tile=3x2)",
    ),
}  # fmt: skip
