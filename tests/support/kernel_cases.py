"""At least one case per operator, and more where a kernel has more than one way: the rows that the kernel tests walk through.

Shapes are small and do not divide by the number of lanes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, Layout
from intaglio.ops.activation import Clip, Gelu, Relu, Selu, Shrink
from intaglio.ops.base import REGISTRY, Chain, Step, f32_to_bf16
from intaglio.ops.binary import Add, Greater, Less, Mod, Mul, Pow, Where
from intaglio.ops.control import AssertTrue, Copy, Select
from intaglio.ops.convert import Cast, Dequantize, Quantize
from intaglio.ops.index import Gather, GatherElements, GatherNd, OneHot, ScatterElements, ScatterNd
from intaglio.ops.matmul import Det, Einsum
from intaglio.ops.move import Concat, Expand, Pad, Reshape, ReverseSequence, Roll, Slice, Tile, Transpose, Trilu
from intaglio.ops.norm import BatchNorm, LayerNorm, Lrn
from intaglio.ops.pool import AveragePool, LpPool, MaxPool, MaxPoolIndices
from intaglio.ops.reduce import ArgReduce, Cumsum, LogSoftmax, Reduce, Softmax, TopK
from intaglio.ops.resize import Resize
from intaglio.ops.sample import Col2Im, GridSample, MaxUnpool, RoiAlign
from intaglio.ops.unary import Abs, IsInf, Neg, Sqrt
from support.elementwise_meaning import MEANINGS
from support.kernel_running import Case, case

F, D, H = np.float32, np.float64, np.float16
_RNG = np.random.default_rng(7)
CASES: dict[str, Case] = {}


def real(*shape: int) -> Array:
    return np.asarray(_RNG.standard_normal(shape)).astype(F)


def whole(*shape: int, low: int = -9, high: int = 10, dtype: object = np.int32) -> Array:
    return np.asarray(_RNG.integers(low, high, shape)).astype(np.dtype(dtype))  # type: ignore[call-overload]


def truth(*shape: int) -> Array:
    return np.asarray(_RNG.random(shape) < 0.5)


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


# Elementwise -------------------------------------------------------------------------------------------------------------

INF, NAN = float("inf"), float("nan")
ODD = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 88.0, -88.0, 1e-20, 3e38, -3e38, INF, -INF, NAN, 7.0], F)
POSITIVE = np.abs(real(3, 19)) + F(0.1)
_LOGIC = ("logical_and", "logical_or", "logical_xor", "logical_not")
_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left", "shift_right")
for _name, _row in MEANINGS.items():
    if _row.op.ARITY == 1:
        CASES[_name] = case(_row.op, np.asarray(_row.domain(real(3, 19))).astype(F))
        CASES[f"{_name} of odd numbers"] = case(_row.op, ODD)
    else:
        CASES[_name] = case(_row.op, real(3, 19), real(3, 19))
        CASES[f"{_name} broadcast"] = case(_row.op, real(2, 1, 19), real(3, 1))
        CASES[f"{_name} of odd numbers"] = case(_row.op, np.repeat(ODD, len(ODD)), np.tile(ODD, len(ODD)))
for _name in _LOGIC:
    CASES[_name] = case(REGISTRY[_name](), *[truth(3, 5) for _ in range(1 if _name == "logical_not" else 2)])
for _name in _BITS:
    for _type in (np.uint8, np.int16, np.uint32, np.int64):
        if _name.startswith("shift") and np.dtype(_type).kind == "i":
            continue
        _many = [whole(3, 5, low=0, high=100, dtype=_type) for _ in range(1 if _name == "bitwise_not" else 2)]
        CASES[f"{_name} {np.dtype(_type).name}"] = case(REGISTRY[_name](), *_many)
for _name in ("add", "sub", "mul", "div", "mod", "min", "max", "equal", "less", "greater_equal"):
    for _kind_of in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64):
        _info = np.iinfo(_kind_of)
        _edge = np.array([0, 1, 2, 7, 100, _info.max, _info.max - 1, _info.min, max(_info.min, -1), max(_info.min, -5)], _kind_of)
        _a, _b = np.repeat(_edge, len(_edge)), np.tile(_edge, len(_edge))
        if _name in ("div", "mod"):
            _a, _b = _a[_b != 0], _b[_b != 0]
        CASES[f"{_name} {np.dtype(_kind_of).name}"] = case(REGISTRY[_name](), _a, _b)
for _name in ("neg", "abs", "sign", "relu"):
    for _signed in (np.int8, np.int32, np.int64):
        CASES[f"{_name} {np.dtype(_signed).name}"] = case(REGISTRY[_name](), np.array([-7, 0, 3, np.iinfo(_signed).min], _signed))
for _name in ("add", "mul", "div", "exp", "tanh", "gelu", "sigmoid", "less"):
    _many = [np.asarray(real(3, 5).astype(D)) for _ in range(REGISTRY[_name].ARITY)]  # type: ignore[attr-defined]
    CASES[f"{_name} f64"] = case(REGISTRY[_name](), *_many)
    CASES[f"{_name} f16"] = case(REGISTRY[_name](), *[a.astype(H) for a in _many])
    _stored = [f32_to_bf16(a.astype(F)) for a in _many]
    CASES[f"{_name} bf16"] = Case(REGISTRY[_name](), tuple(_stored), dtypes=tuple((n, DType.BF16) for n in range(len(_many))))
CASES |= {
    "fmod": case(Mod(fmod=True), real(20) * F(5), real(20)),
    "fmod of integers": case(Mod(fmod=True), whole(20), whole(20, low=1)),
    "add of one number": case(Add(), real(), real()),
    "add of a column": case(Add(), real(4, 17), real(4, 1)),
    "add of a row of seven": case(Add(), real(2, 3, 7), real(7)),
    "add of nothing": case(Add(), real(0, 3), real(3)),
    "pow": case(Pow(), np.abs(real(3, 7)), real(3, 7)),
    "pow by an integer": case(Pow(), real(3, 7), whole(3, 7, low=0, high=4, dtype=np.int64)),
    "pow of integers": case(Pow(), whole(12, dtype=np.int64), whole(12, low=0, high=5, dtype=np.int64)),
    "pow of an integer by a float": case(Pow(), whole(12, low=1, dtype=np.int32), np.full(12, 0.5, F)),
    "where": case(Where(), truth(3, 1), real(3, 9), real(9)),
    "where of integers": case(Where(), truth(9), whole(9), whole(9)),
    "where of a truth": case(Where(), truth(9), truth(9), truth(9)),
    "is_inf positive": case(IsInf(negative=False), ODD),
    "is_inf never": case(IsInf(False, False), ODD),
    "selu in vectors": case(Selu(), real(40)),
    "gelu by tanh": case(Gelu(approximate=True), real(3, 9)),
    "clip of integers": case(Clip(-3.0, 4.0), whole(20)),
    "shrink of integers": case(Shrink(1.5, 2.0), whole(20)),
    "quantize": case(Quantize(DType.I8, -128, 127), real(4, 9) * F(50), np.array(0.5, F), np.array(3, np.int8)),
    "quantize odd numbers": case(Quantize(DType.U8, 0, 255), ODD, np.array(0.5, F), np.array(3, np.uint8)),
    "quantize per channel": case(
        Quantize(DType.U8, 0, 255), real(2, 4, 3), POSITIVE[0, :4, None], whole(4, 1, low=0, dtype=np.uint8)
    ),
    "dequantize": case(Dequantize(), whole(4, 9, dtype=np.int8), np.array(0.5, F), np.array(3, np.int8)),
    "dequantize to f16": case(Dequantize(DType.F16), whole(9, dtype=np.int32), np.array(0.5, H), np.array(0, np.int32)),
    "chain": case(
        Chain((Step(Mul(), (0, 1)), Step(Add(), (3, 2)), Step(Relu(), (4,)))), real(2, 3, 11), real(3, 1), real(11)
    ),
    "chain with a condition": case(
        Chain((Step(Less(), (0, 1)), Step(Neg(), (0,)), Step(Where(), (2, 3, 1)))), real(2, 11), real(2, 11)
    ),
    "chain of types": case(
        Chain((Step(Cast(DType.F32), (0,)), Step(Sqrt(), (1,)), Step(Cast(DType.I32), (2,)))), whole(20, low=0)
    ),
    "chain to a truth": case(Chain((Step(Abs(), (0,)), Step(Greater(), (2, 1)))), real(20), real(20)),
}  # fmt: skip
_MISSING = np.array([[3, NAN, 1, 2, NAN, 0], [NAN, INF, NAN, -INF, -NAN, 5]], F)
_WIDE = np.array([0.0, -1.0, 1.5, -1.5, 2.5, 127.4, 255.0, 1e10, -1e10, 65504.0, 1e-5], F)
for _to in DType:
    CASES[f"cast f32 to {_to.value}"] = case(Cast(_to), _WIDE[:6] if _to in (DType.U16, DType.U32, DType.U64) else _WIDE)
    CASES[f"cast i16 to {_to.value}"] = case(Cast(_to), np.array([0, 1, 2, 300, 32767], np.int16))
    CASES[f"cast i64 to {_to.value}"] = case(Cast(_to), ints(0, 1, 2, 100))
    CASES[f"cast bool to {_to.value}"] = case(Cast(_to), truth(9))
    CASES[f"cast bf16 to {_to.value}"] = Case(Cast(_to), (f32_to_bf16(_WIDE[:5]),), dtypes=((0, DType.BF16),))
    CASES[f"cast f16 to {_to.value}"] = case(Cast(_to), np.array([0, 1.5, 6e-8, 6e-5, 100], H))

# Movement ----------------------------------------------------------------------------------------------------------------

_PAD = Pad((0, 1, 2, 0, 2, 1))
CASES |= {
    "transpose": case(Transpose((2, 0, 1)), real(2, 3, 4)),
    "transpose in blocks": case(Transpose((0, 2, 1)), real(2, 19, 11)),
    "transpose of integers": case(Transpose((1, 0)), whole(3, 4, dtype=np.int8)),
    "slice": case(Slice((1, 0), (1, 2), (2, 3)), real(4, 6)),
    "slice backwards": case(Slice((3, 5), (-1, -2), (3, 3)), real(4, 6)),
    "slice of nothing": case(Slice((0, 0), (1, 1), (0, 6)), real(4, 6)),
    "expand": case(Expand((2, 3, 4)), real(3, 1)),
    "tile": case(Tile((2, 1, 3)), real(2, 3, 4)),
    "copy": case(Copy(), real(5)),
    "copy of one": case(Copy(), real(1)),
    "reshape": case(Reshape((4, 3)), real(3, 4)),
    "concat": case(Concat(1), real(2, 3, 4), real(2, 1, 4), real(2, 0, 4)),
    "concat of the last axis": case(Concat(-1), real(2, 3), real(2, 1)),
    "roll": case(Roll(1), real(1, 5, 3), real(1, 2, 3)),
    "roll behind another axis": case(Roll(1), real(2, 3, 4), real(2, 1, 4)),
    "roll that replaces all": case(Roll(0), real(2, 4), real(2, 4)),
    "select": case(Select(), np.array(True), real(3, 4), real(3, 4)),
    "select the other": case(Select(), np.array(False), real(3, 4), real(3, 4)),
    "assert_true": case(AssertTrue("is it?"), np.array(True)),
    "pad": case(_PAD, real(2, 3, 4)),
    "pad with a number": case(replace(_PAD, value=2.5), real(2, 3, 4)),
    "pad of integers": case(replace(_PAD, value=-2.0), whole(2, 3, 4, dtype=np.int8)),
    "pad f16": case(replace(_PAD, value=0.1), real(2, 3, 4).astype(H)),
    "pad reflected": case(replace(_PAD, mode="reflect"), real(2, 3, 4)),
    "pad reflected far": case(Pad((2, 2), "reflect"), real(3)),
    "pad of one, at the edge": case(Pad((2, 2), "edge"), real(1)),
    "pad edge": case(replace(_PAD, mode="edge"), real(2, 3, 4)),
    "pad wrapped": case(replace(_PAD, mode="wrap"), real(2, 3, 4)),
    "trilu": case(Trilu(), real(2, 4, 5)),
    "trilu lower": case(Trilu(upper=False, k=1), whole(4, 5)),
    "trilu f16": case(Trilu(k=-1), real(4, 5).astype(H)),
}

# Reductions and norms ----------------------------------------------------------------------------------------------------

for _kind in ("sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp"):
    _x = POSITIVE[:, :].reshape(3, 19) if _kind.startswith("log_sum") else real(3, 19)
    CASES[f"reduce {_kind}"] = case(Reduce(_kind, (1,)), _x)
    CASES[f"reduce {_kind} of rows"] = case(Reduce(_kind, (0,), keepdims=False), _x)
    CASES[f"reduce {_kind} of the middle"] = case(Reduce(_kind, (1,)), POSITIVE[:, :18].reshape(3, 3, 6))
    CASES[f"reduce {_kind} of all"] = case(Reduce(_kind, (0, 1), keepdims=False), POSITIVE)
    CASES[f"reduce {_kind} f64"] = case(Reduce(_kind, (0,)), POSITIVE.astype(D))
    CASES[f"reduce {_kind} f16"] = case(Reduce(_kind, (0,)), POSITIVE.astype(H))
    if _kind not in ("max", "min", "mean"):
        CASES[f"reduce {_kind} of nothing"] = case(Reduce(_kind, (0,)), real(0, 3))
    if _kind not in ("log_sum", "log_sum_exp"):
        CASES[f"reduce {_kind} of integers"] = case(Reduce(_kind, (1,)), whole(3, 5))
CASES |= {
    "reduce max long": case(Reduce("max", (1,)), real(2, 77)),
    "reduce sum long": case(Reduce("sum", (1,)), real(2, 77)),
    "reduce mean in parts": case(Reduce("mean", (1,)), real(1, 2100, 2)),
    "reduce sum_square in parts": case(Reduce("sum_square", (0,)), real(2112, 17)),
    "reduce max with NaN": case(Reduce("max", (0,)), ODD.reshape(-1, 1)),
    "reduce min with NaN": case(Reduce("min", (1,)), np.concatenate([ODD, ODD]).reshape(1, -1)),
    "reduce max of i8": case(Reduce("max", (0,)), whole(9, 2, low=-128, high=-100, dtype=np.int8)),
    "reduce any": case(Reduce("any", (1,)), truth(4, 5)),
    "reduce all": case(Reduce("all", (0,)), truth(4, 5)),
    "arg_reduce": case(ArgReduce("max", 1), whole(4, 9)),
    "arg_reduce min last": case(ArgReduce("min", 0, keepdims=False, select_last=True), whole(9, 4, low=0, high=3)),
    "arg_reduce with NaN": case(ArgReduce("max", 0), ODD),
    "cumsum": case(Cumsum(1), real(2, 7, 3)),
    "cumsum exclusive": case(Cumsum(1, exclusive=True), whole(2, 7)),
    "cumsum backwards": case(Cumsum(-1, True, True), real(2, 7).astype(D)),
    "softmax": case(Softmax(), real(3, 19)),
    "softmax of a middle axis": case(Softmax(1), real(2, 5, 3)),
    "softmax f64": case(Softmax(), real(3, 5).astype(D)),
    "softmax f16": case(Softmax(), real(3, 19).astype(H)),
    "softmax of large numbers": case(Softmax(), real(3, 19) * F(1000)),
    "log_softmax": case(LogSoftmax(), real(3, 19)),
    "log_softmax of the first axis": case(LogSoftmax(0), real(5, 3)),
    "softmax long": case(Softmax(), real(3, 100)),
    "softmax of a long middle axis": case(Softmax(1), real(2, 70, 3)),
    "log_softmax long": case(LogSoftmax(), real(3, 100)),
    "layer_norm long": case(LayerNorm(-1, 1e-3), real(3, 100), real(100), real(100)),
    "layer_norm": case(LayerNorm(), real(3, 19)),
    "layer_norm with scale": case(LayerNorm(-1, 1e-3), real(3, 19), real(19), real(19)),
    "rms norm": case(LayerNorm(centred=False), real(3, 19), real(19)),
    "layer_norm of two axes": case(LayerNorm(1), real(2, 3, 7), real(3, 7), real(1), constant=[1, 2]),
    "layer_norm with one number": case(LayerNorm(), real(2, 9), real(1), real(1)),
    "layer_norm f16": case(LayerNorm(), real(2, 9).astype(H), real(9).astype(H), real(9).astype(H)),
    "batch_norm": case(BatchNorm(), real(2, 3, 4), real(3), real(3), real(3), np.abs(real(3))),
    "batch_norm f64": case(BatchNorm(), *[np.abs(real(2, 3)).astype(D), *[np.abs(real(3)).astype(D) for _ in range(4)]]),
    "lrn": case(Lrn(3, 0.1, 0.75, 1.5), real(1, 5, 2, 3)),
    "lrn even": case(Lrn(4, 0.1), real(1, 5, 2, 1)),
}  # fmt: skip

# Indices, sampling, contractions -------------------------------------------------------------------------------------------

CASES |= {
    "gather": case(Gather(1), real(2, 5, 3), ints(4, 0, -1)),
    "gather of constant indices": case(Gather(0), real(5), np.array([[4, 0], [2, 2]], np.int32), constant=[1]),
    "gather of negative constants": case(Gather(0), real(5, 2), ints(-1, -5), constant=[1]),
    "gather by a scalar": case(Gather(0), whole(5, 2), np.array(3, np.int64)),
    "gather_elements": case(GatherElements(1), real(3, 4), whole(2, 3, low=-4, high=4, dtype=np.int64)),
    "gather_nd": case(GatherNd(), real(3, 4, 2), np.array([[0, 1], [-1, 3]])),
    "gather_nd with batches": case(GatherNd(1), real(2, 3, 4), np.array([[1], [2]])),
    "scatter_nd": case(ScatterNd(), real(4, 3), np.array([[1], [-1]]), real(2, 3)),
    "scatter_elements": case(ScatterElements(1), real(3, 4), np.array([[0, -1]]), real(1, 2)),
    "one_hot": case(OneHot(4), ints(0, 3, -1, 9), np.array([0.5, 2.0], F)),
    "one_hot in front": case(OneHot(3, 0), whole(2, 2, low=0, high=3), np.array([0, 1], np.int8)),
    "reverse_sequence": case(ReverseSequence(), real(4, 3, 2), ints(4, 1, 2)),
    "reverse_sequence by batch": case(ReverseSequence(0, 1), real(3, 4), ints(4, 1, 0)),
    "max_unpool": case(MaxUnpool((1, 1, 4, 4)), real(1, 1, 2, 2), ints(0, 3, 9, 15).reshape(1, 1, 2, 2)),
    "topk": case(TopK(3), np.array([[3, 1, 2, 3, 0, 5], [1, 1, 1, 2, 2, 0]], F)),
    "topk smallest": case(TopK(2, 0, largest=False), whole(5, 3)),
    "topk with NaN": case(TopK(6), _MISSING),
    "topk smallest with NaN": case(TopK(6, largest=False), _MISSING),
    "topk of NaN, some": case(TopK(3, largest=False), _MISSING),
    "col2im": case(Col2Im((5, 4), (3, 2), (2, 1), (1, 0, 1, 1), (1, 1)), real(1, 12, 12)),
    "col2im dilated": case(Col2Im((6,), (2,), (1,), (1, 1), (2,)), real(2, 4, 6)),
    "det": case(Det(), real(2, 4, 4)),
    "det of nothing singular": case(Det(), np.array([[0, 1, 0], [1, 0, 0], [0, 0, 2]], D)),
    "einsum": case(Einsum("bij,bjk->bik"), real(2, 3, 4), real(2, 4, 5)),
    "einsum of three": case(Einsum("i,ij,j->"), real(3), real(3, 4), real(4)),
    "einsum with dots": case(Einsum("...ij,...j->...i"), real(2, 1, 3, 4), real(3, 4)),
    "einsum diagonal": case(Einsum("ii->i"), whole(3, 3)),
    "roi_align": case(RoiAlign(2, 3, 2, 0.5), real(2, 3, 6, 7), real(4, 4) * F(6), ints(0, 1, 1, 0)),
}  # fmt: skip
for _how in ("add", "mul", "max", "min"):
    CASES[f"scatter_nd {_how}"] = case(ScatterNd(_how), real(4, 3), np.array([[1], [1]]), real(2, 3))
    CASES[f"scatter_elements {_how}"] = case(ScatterElements(0, _how), whole(3, 4), np.array([[0, 2, 0, 1]]), whole(1, 4))
_GRID = np.concatenate([real(1, 3, 4, 2), np.array([-1, -1, 1, 1, 0, 0, 3, -3], F).reshape(1, 1, 4, 2)], 1)
for _mode in ("nearest", "linear", "cubic"):
    for _pad in ("zeros", "border", "reflection"):
        for _align in (False, True):
            CASES[f"grid_sample {_mode} {_pad}{' aligned' if _align else ''}"] = case(
                GridSample(_mode, _pad, _align), real(1, 2, 5, 3), _GRID
            )
CASES |= {
    "grid_sample of a volume": case(GridSample(padding_mode="border"), real(2, 1, 3, 4, 2), real(2, 2, 1, 3, 3)),
    "grid_sample of odd places": case(GridSample(), real(1, 2, 4, 4), np.repeat(ODD, 2).reshape(1, 1, 17, 2)),
    "grid_sample of odd places, nearest": case(
        GridSample("nearest", "reflection"), real(1, 2, 4, 4), np.repeat(ODD, 2).reshape(1, 1, 17, 2)
    ),
    "grid_sample of odd places, cubic": case(
        GridSample("cubic", "border"), real(1, 2, 4, 4), np.repeat(ODD, 2).reshape(1, 1, 17, 2), bound=1e-5
    ),
    "grid_sample f16": case(GridSample(), real(1, 1, 4, 4).astype(H), _GRID.astype(H)),
    "grid_sample of one pixel": case(GridSample("linear", "reflection", True), real(1, 1, 1, 1), _GRID),
    "roi_align max": case(RoiAlign(2, 2, 0, 1.0, "max"), real(1, 2, 6, 7), real(3, 4) * F(5), ints(0, 0, 0)),
    "roi_align without half pixels": case(
        RoiAlign(3, 2, 0, 0.7, half_pixel=False), real(1, 2, 6, 7), np.array([[0, 0, 6, 5], [5, 5, 1, 1], [2, 1, 9, 12]], F),
        np.zeros(3, np.int32),
    ),
    "roi_align f64": case(RoiAlign(1, 1, 0), real(1, 1, 5, 5).astype(D), np.array([[0, 0, 4, 4.0]]), ints(0)),
}  # fmt: skip

# Resize ------------------------------------------------------------------------------------------------------------------

for _mode in ("nearest", "linear", "cubic"):
    for _where in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"):
        CASES[f"resize {_mode} {_where}"] = case(
            Resize((1, 2, 7, 4), (1.0, 1.0, 7 / 5, 4 / 6), (), _mode, _where), real(1, 2, 5, 6)
        )
CASES |= {
    "resize nhwc": case(Resize((1, 6, 7, 11), (1.0, 2.0, 7 / 4, 1.0), (), "linear"), real(1, 3, 4, 11)),
    "resize nhwc nearest": case(Resize((1, 6, 8, 11), (1.0, 2.0, 2.0, 1.0)), real(1, 3, 4, 11)),
    "resize of integers": case(Resize((1, 7), (1.0, 1.75), (), "linear"), whole(1, 4, dtype=np.int8)),
    "resize f64": case(Resize((1, 7), (1.0, 1.75), (), "cubic"), real(1, 4).astype(D)),
    "resize f16": case(Resize((1, 7), (1.0, 1.75), (), "linear"), real(1, 4).astype(H)),
    "resize cropped": case(
        Resize((1, 5), (1.0, 1.0), (0.0, 0.2, 1.0, 1.4), "linear", "tf_crop_and_resize", extrapolation_value=9.0), real(1, 5)
    ),
    "resize cropped nearest": case(
        Resize((1, 5), (1.0, 1.0), (0.0, 0.2, 1.0, 1.4), "nearest", "tf_crop_and_resize", extrapolation_value=9.0), real(1, 5)
    ),
    "resize antialiased": case(Resize((1, 3), (1.0, 0.5), (), "cubic", antialias=True), real(1, 6)),
    "resize to nothing": case(Resize((0, 6), (1.0, 1.0)), real(0, 3)),
    "resize without change": case(Resize((2, 3), (1.0, 1.0), (), "linear"), real(2, 3)),
}  # fmt: skip

# Pooling -----------------------------------------------------------------------------------------------------------------

_NHWC = Layout.NHWC
for _cls in (MaxPool, AveragePool, LpPool):
    for _layout, _shape in ((Layout.NCHW, (2, 3, 6, 7)), (_NHWC, (2, 6, 7, 11)), (_NHWC, (1, 4, 13, 8)), (_NHWC, (1, 5, 5, 3))):
        for _text, _fields in {
            "2x2": ((2, 2), (2, 2), (0, 0, 0, 0), (1, 1)),
            "3x3 padded": ((3, 3), (1, 2), (1, 0, 2, 1), (1, 1)),
            "dilated": ((2, 2), (1, 1), (1, 1, 0, 1), (2, 3)),
        }.items():
            CASES[f"{_cls.NAME} {_text} {_layout.value} {_shape[-1]}"] = case(_cls(*_fields, _layout), real(*_shape))
CASES |= {
    "average_pool with pads": case(AveragePool((3, 3), (2, 2), (1, 1, 1, 1), (1, 1), _NHWC, True), real(1, 7, 7, 9)),
    "average_pool with counted pads": case(
        AveragePool((3, 3), (2, 2), (1, 1, 2, 2), (1, 1), Layout.NCHW, True, (1, 1, 1, 1)), real(1, 2, 6, 6)
    ),
    "lp_pool of 3": case(LpPool((2,), (1,), (1, 0), (1,), Layout.NCHW, 3), real(1, 2, 6)),
    "lp_pool of 1": case(LpPool((2,), (1,), (1, 0), (1,), Layout.NCHW, 1), real(1, 2, 6)),
    "max_pool of integers": case(MaxPool((2, 2), (1, 1), (1, 1, 0, 0)), whole(1, 2, 4, 5, dtype=np.int8)),
    "max_pool of a volume": case(MaxPool((2, 2, 2), (1, 2, 1), (0,) * 6, (1, 1, 1)), real(1, 2, 3, 4, 5)),
    "max_pool f16": case(MaxPool((2, 2), (2, 2), (0,) * 4, (1, 1), _NHWC), real(1, 4, 4, 9).astype(H)),
    "max_pool_indices": case(MaxPoolIndices((2, 2), (1, 1), (1, 0, 0, 1)), real(1, 2, 4, 5)),
    "max_pool_indices by column": case(MaxPoolIndices((2, 2), (2, 2), storage_order=1), real(2, 2, 4, 6)),
}  # fmt: skip
