"""STABLEHLO_* operators, as converters from JAX and PyTorch write them. LiteRT runs some; what they mean is in their standard."""

from __future__ import annotations

import numpy as np

from intaglio.frontends import stablehlo, stablehlo_places
from intaglio.frontends.building import cast, concat, reshape, transpose
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.stablehlo_places import Axes
from intaglio.frontends.tflite.container import Subgraph
from intaglio.frontends.tflite.walk import TFLiteCall, importer
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.move import Slice

_UNARY = ("ABS", "CBRT", "COSINE", "EXPONENTIAL", "FLOOR", "LOG", "LOGISTIC", "NEGATE", "RSQRT", "TANH")
_BINARY = ("ADD", "AND", "DIVIDE", "MAXIMUM", "MINIMUM", "MULTIPLY", "OR", "POWER", "REMAINDER", "SHIFT_LEFT", "SUBTRACT")
_DIRECTIONS = ("EQ", "NE", "GE", "GT", "LE", "LT")
_SAME_AS = {"ADD": "add", "MUL": "multiply", "MAXIMUM": "maximum", "MINIMUM": "minimum", "LOGICAL_OR": "or", "LOGICAL_AND": "and"}
_WINDOWS = ("unsupported", "add", "multiply", "minimum", "maximum", "and", "or")  # of REDUCE_WINDOW, which is TFLite's own


def _name(call: TFLiteCall) -> str:
    return call.operator.op.removeprefix("STABLEHLO_").lower()


def _plain(call: TFLiteCall, i: int) -> Value:
    """An operand that is no quantised tensor: those are other operators."""
    tensor = call.tensor(i)
    if tensor.quant is not None and tensor.dtype in (DType.I8, DType.U8, DType.I16):
        raise Fault("unsupported-operator", "this operator on quantised numbers is not supported")
    return call.value(i)


def _ints(call: TFLiteCall, field: str) -> list[int]:
    """A list among the options; none is an empty one."""
    return [int(getattr(call.options, field)(n)) for n in range(int(getattr(call.options, field + "Length")()))]


def _or_ones(numbers: list[int], rank: int) -> list[int]:
    return numbers or [1] * rank


@importer(*[f"STABLEHLO_{name}" for name in _UNARY])
def unary(call: TFLiteCall) -> None:
    call.give(stablehlo.unary(call, _name(call), _plain(call, 0)))


@importer(*[f"STABLEHLO_{name}" for name in _BINARY])
def binary(call: TFLiteCall) -> None:
    call.give(stablehlo.binary(call, _name(call), _plain(call, 0), _plain(call, 1)))


@importer("STABLEHLO_CLAMP")
def clamp(call: TFLiteCall) -> None:
    call.give(stablehlo.clamp(call, *[_plain(call, n) for n in range(3)]))


@importer("STABLEHLO_SELECT")
def select(call: TFLiteCall) -> None:
    call.give(stablehlo.choose(call, *[call.value(n) for n in range(3)]))


@importer("STABLEHLO_COMPARE")
def compare(call: TFLiteCall) -> None:
    direction = int(call.options.ComparisonDirection())
    if not 0 <= direction < len(_DIRECTIONS):
        raise Fault("bad-attribute", f"there is no comparison {direction}")
    call.give(stablehlo.compare(call, _DIRECTIONS[direction], _plain(call, 0), _plain(call, 1)))


@importer("STABLEHLO_CONVERT")
def convert(call: TFLiteCall) -> None:
    to = call.out().dtype
    if to is None:
        raise Fault("unsupported-type", "it converts to a type that is not supported")
    call.give(cast(call, _plain(call, 0), to))


@importer("STABLEHLO_RESHAPE")
def reshape_(call: TFLiteCall) -> None:
    call.give(reshape(call, call.value(0), call.out().shape))


@importer("STABLEHLO_TRANSPOSE")
def transpose_(call: TFLiteCall) -> None:
    call.give(transpose(call, call.value(0), _ints(call, "Permutation")))


@importer("STABLEHLO_CONCATENATE")
def concatenate(call: TFLiteCall) -> None:
    call.give(concat(call, [call.value(n) for n in range(len(call.operator.inputs))], int(call.options.Dimension())))


@importer("STABLEHLO_BROADCAST_IN_DIM")
def broadcast_in_dim(call: TFLiteCall) -> None:
    call.give(stablehlo.broadcast_in_dim(call, call.value(0), _ints(call, "BroadcastDimensions"), call.out().shape))


@importer("STABLEHLO_IOTA")
def iota(call: TFLiteCall) -> None:
    call.give(stablehlo.iota(call, int(call.options.IotaDimension()), call.out().shape, call.out().dtype or DType.F32))


@importer("STABLEHLO_SLICE")
def slice_(call: TFLiteCall) -> None:
    x = call.value(0)
    starts, limits, strides = (_ints(call, name) for name in ("StartIndices", "LimitIndices", "Strides"))
    call.give(stablehlo.slice_(call, x, starts, limits, _or_ones(strides, x.type.rank)))


@importer("STABLEHLO_PAD")
def pad(call: TFLiteCall) -> None:
    value = np.asarray(call.known(1, "padding")).reshape(-1)[0].item()
    low, high, inside = (_ints(call, name) for name in ("EdgePaddingLow", "EdgePaddingHigh", "InteriorPadding"))
    call.give(stablehlo.pad(call, _plain(call, 0), value, low, high, inside))


@importer("STABLEHLO_DOT_GENERAL")
def dot_general(call: TFLiteCall) -> None:
    batch = _ints(call, "LhsBatchingDimensions"), _ints(call, "RhsBatchingDimensions")
    contract = _ints(call, "LhsContractingDimensions"), _ints(call, "RhsContractingDimensions")
    call.give(stablehlo.dot_general(call, _plain(call, 0), _plain(call, 1), batch, contract))


@importer("STABLEHLO_GATHER")
def gather(call: TFLiteCall) -> None:
    offset, collapsed, start_map = (_ints(call, name) for name in ("OffsetDims", "CollapsedSliceDims", "StartIndexMap"))
    axis, sizes = int(call.options.IndexVectorDim()), _ints(call, "SliceSizes")
    call.give(stablehlo_places.gather(call, call.value(0), call.value(1), offset, collapsed, start_map, axis, sizes))


def _body(call: TFLiteCall, index: int) -> Subgraph:
    graphs = call.walk.model.subgraphs
    if not 0 < index < len(graphs):
        raise Fault("bad-graph", f"it calls subgraph {index} of {len(graphs)}", "the file is damaged")
    return graphs[index]


def _of_two(graph: Subgraph) -> str | None:
    """The operator that a subgraph is on its two inputs."""
    if len(graph.operators) == 1 and sorted(graph.operators[0].inputs) == sorted(graph.inputs) and len(graph.inputs) == 2:
        word = graph.operators[0].op
        return word.removeprefix("STABLEHLO_").lower() if word.startswith("STABLEHLO_") else _SAME_AS.get(word, "")
    return None


def _reduction(call: TFLiteCall, index: int) -> str:
    """What a subgraph with one operator on its two inputs does, as a reduction."""
    name = _of_two(_body(call, index))
    if name in stablehlo.REDUCTIONS:
        return stablehlo.REDUCTIONS[name]
    raise Fault("unsupported-operator", "it reduces by an expression of its own", "sums, products, extremes, and, or are supported")


@importer("STABLEHLO_REDUCE")
def reduce(call: TFLiteCall) -> None:
    kind = _reduction(call, int(call.options.BodySubgraphIndex()))
    if len(call.operator.inputs) != 2:
        raise Fault("unsupported-operator", "it reduces several tensors at once")
    call.give(stablehlo.reduce(call, kind, _plain(call, 0), call.value(1), _ints(call, "Dimensions")))


@importer("STABLEHLO_REDUCE_WINDOW")
def reduce_window(call: TFLiteCall) -> None:
    x = _plain(call, 0)
    kind, rank = _reduction(call, int(call.options.BodySubgraphIndex())), x.type.rank
    if len(call.operator.inputs) != 2:
        raise Fault("unsupported-operator", "it reduces several tensors at once")
    names = ("WindowDimensions", "WindowStrides", "BaseDilations", "WindowDilations")
    sizes, strides, base, dilations = (_or_ones(_ints(call, name), rank) for name in names)
    flat = _ints(call, "Padding") or [0] * (2 * rank)
    pads = [flat[2 * n : 2 * n + 2] for n in range(rank)]
    call.give(stablehlo.reduce_window(call, kind, x, call.value(1), sizes, strides, base, dilations, pads))


@importer("REDUCE_WINDOW")
def own_reduce_window(call: TFLiteCall) -> None:
    """TFLite's form: sizes are operands, and nothing is padded."""
    x, function = _plain(call, 0), int(call.options.ReduceFunction())
    if not 1 <= function < len(_WINDOWS):
        raise Fault("unsupported-operator", "it has no function to reduce by")
    sizes, strides, dilations = ([int(v) for v in call.known(n, "window").reshape(-1)] for n in (2, 3, 4))
    kind, none = stablehlo.REDUCTIONS[_WINDOWS[function]], [1] * x.type.rank
    call.give(stablehlo.reduce_window(call, kind, x, call.value(1), sizes, strides, none, dilations, [(0, 0)] * len(none)))


# Parts, order, convolution --------------------------------------------------------------------------------------------------


def _starts(call: TFLiteCall, first: int) -> list[Value]:
    """One number for each axis: an operand each, or all in one."""
    rank = call.value(0).type.rank
    if len(call.operator.inputs) == first + 1:
        whole = call.value(first)
        return [call.emit(Slice((n,), (1,), (1,)), whole) for n in range(rank)]
    return [call.value(first + n) for n in range(rank)]


@importer("STABLEHLO_DYNAMIC_SLICE")
def dynamic_slice(call: TFLiteCall) -> None:
    sizes = _ints(call, "SliceSizes")
    call.give(stablehlo_places.dynamic_slice(call, call.value(0), _starts(call, 1), sizes))


@importer("STABLEHLO_DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(call: TFLiteCall) -> None:
    call.give(stablehlo_places.dynamic_update_slice(call, call.value(0), call.value(1), _starts(call, 2)))


@importer("STABLEHLO_SCATTER")
def scatter(call: TFLiteCall) -> None:
    body = _body(call, int(call.options.UpdateComputationSubgraphIndex()))
    itself = not body.operators and len(body.inputs) == 2 and list(body.outputs) == [body.inputs[1]]
    kind = stablehlo_places.UPDATES.get("" if itself else _of_two(body) or "unknown")
    if kind is None or len(call.operator.inputs) != 3:
        hint = "sums, products, extremes and new values are supported"
        raise Fault("unsupported-operator", "it updates by an expression of its own", hint)
    windows, inserted, axes = (_ints(call, name) for name in ("UpdateWindowDims", "InsertedWindowDims", "ScatterDimsToOperandDims"))
    x, indices, updates = _plain(call, 0), call.value(1), call.value(2)
    at = int(call.options.IndexVectorDim())
    call.give(stablehlo_places.scatter(call, x, indices, updates, windows, inserted, axes, at, kind))


@importer("STABLEHLO_SORT")
def sort(call: TFLiteCall) -> None:
    """By a comparison of the first operand with itself."""
    body = _body(call, int(call.options.ComparatorSubgraphIndex()))
    one = body.operators[0] if len(body.operators) == 1 and tuple(body.operators[0].inputs) == tuple(body.inputs[:2]) else None
    word = "" if one is None else one.op
    if one is not None and word == "STABLEHLO_COMPARE" and one.options is not None:
        direction = int(one.options.ComparisonDirection())
        word = {2: "GREATER_EQUAL", 3: "GREATER", 4: "LESS_EQUAL", 5: "LESS"}.get(direction, "")
    if word not in ("GREATER", "LESS", "GREATER_EQUAL", "LESS_EQUAL"):
        hint = "comparisons of the first operand are supported"
        raise Fault("unsupported-operator", "it sorts by an expression of its own", hint)
    values = [_plain(call, n) for n in range(len(call.operator.inputs))]
    for n, value in enumerate(stablehlo_places.sort(call, values, int(call.options.Dimension()), word.startswith("GREATER"))):
        call.give(value, n)


@importer("STABLEHLO_CONVOLUTION")
def convolution(call: TFLiteCall) -> None:
    o, x, w = call.options, _plain(call, 0), _plain(call, 1)
    axes = (
        Axes(o.InputBatchDimension(), o.InputFeatureDimension(), tuple(_ints(call, "InputSpatialDimensions"))),
        Axes(o.KernelOutputFeatureDimension(), o.KernelInputFeatureDimension(), tuple(_ints(call, "KernelSpatialDimensions"))),
        Axes(o.OutputBatchDimension(), o.OutputFeatureDimension(), tuple(_ints(call, "OutputSpatialDimensions"))),
    )
    count = len(axes[0].spatial)
    if o.BatchGroupCount() not in (0, 1) or any(_ints(call, "WindowReversal")):
        raise Fault("unsupported-operator", "this form of `convolution` is not supported")
    strides, apart, dilations = (_or_ones(_ints(call, name), count) for name in ("WindowStrides", "LhsDilation", "RhsDilation"))
    flat = _ints(call, "Padding") or [0] * (2 * count)
    pads = [flat[2 * n : 2 * n + 2] for n in range(count)]
    groups = max(int(o.FeatureGroupCount()), 1)
    call.give(stablehlo_places.convolution(call, x, w, axes, strides, pads, apart, dilations, groups))
