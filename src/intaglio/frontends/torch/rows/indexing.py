"""Reading and writing at places that are given by data."""

from __future__ import annotations

import itertools
import math

import numpy as np

from intaglio.frontends.building import cast, concat, expand, part, reshape, transpose
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.torch.call import Answer, TorchCall, row
from intaglio.frontends.torch.rows.found import found_axes
from intaglio.ir.graph import Value
from intaglio.ir.sizes import moves
from intaglio.ir.types import DType, broadcast_shapes
from intaglio.ops.binary import Add, Div, Equal, GreaterEqual, Less, LessEqual, LogicalAnd, Max, Mul, Where
from intaglio.ops.index import Gather, GatherElements, GatherNd, OneHot, ScatterElements, ScatterNd
from intaglio.ops.matmul import MatMul
from intaglio.ops.reduce import Reduce, TopK
from intaglio.ops.unary import LogicalNot


def places(call: TorchCall, index: Value) -> Value:
    """Whole numbers that the gathers of the IR take."""
    return index if index.dtype in (DType.I32, DType.I64) else cast(call, index, DType.I64)


@row("embedding")
def embedding(call: TorchCall) -> Answer:
    return call.emit(Gather(0), call.tensor("weight"), places(call, call.tensor("indices")))


@row("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(call: TorchCall) -> Answer:
    weight, indices, offsets = call.tensor("weight"), call.tensor("indices"), call.maybe("offsets")
    kind = {0: "sum", 1: "mean", 2: "max"}.get(call.integer("mode", 0), "")
    rows = call.emit(Gather(0), weight, places(call, indices))
    shares, left_out = call.maybe("per_sample_weights"), call.integer("padding_idx", -1)
    if offsets is None:
        raise unsupported("`embedding_bag` without offsets is not supported", "give bags of one length, as a matrix")
    if offsets.data is None or shares is not None or left_out >= 0:
        last = call.flag("include_last_offset")
        counted = None if left_out < 0 else call.emit(LogicalNot(), call.emit(Equal(), indices, call.like(left_out, indices)))
        return [_bags(call, kind, rows, offsets, last, shares, counted), None, None, None]
    edges = [*offsets.data.reshape(-1).tolist(), rows.shape[0]]
    if call.flag("include_last_offset"):
        edges = edges[:-1]
    bags = [call.emit(Reduce(kind, (0,), True), part(call, rows, 0, a, b - a)) for a, b in itertools.pairwise(edges)]
    return [concat(call, bags, 0), None, None, None]


def _bags(
    call: TorchCall, kind: str, rows: Value, offsets: Value, last: bool, shares: Value | None, counted: Value | None
) -> Value:
    """Rows from each offset to the next one. `shares`: what each is multiplied by; `counted`: bool, those that count at all."""
    count, (many, width) = offsets.shape[0] - last, rows.shape
    if moves((count, many)):
        raise unsupported("`embedding_bag` over a dimension that has a range is not supported", "give it one size, with `--shape`")
    call.bounded(count * many * (width if kind == "max" else 1))
    at = call.constant(np.arange(many, dtype=np.int64))
    starts = cast(call, reshape(call, offsets, (offsets.shape[0], 1)), DType.I64)
    after = part(call, starts, 0, 1, offsets.shape[0] - 1)
    if not last:
        after = concat(call, [after, call.constant(np.full((1, 1), many, np.int64))], 0)
    inside = call.emit(LogicalAnd(), call.emit(GreaterEqual(), at, part(call, starts, 0, 0, count)), call.emit(Less(), at, after))
    if counted is not None:
        inside = call.emit(LogicalAnd(), inside, counted)
    if kind == "max":
        wide = reshape(call, inside, (count, many, 1))
        largest = call.emit(Reduce("max", (1,), False), call.emit(Where(), wide, rows, call.like(-math.inf, rows)))
        empty = call.emit(LogicalNot(), cast(call, call.emit(Reduce("max", (1,), True), cast(call, inside, DType.I32)), DType.BOOL))
        return call.emit(Where(), empty, call.like(0.0, rows), largest)
    weights = cast(call, inside, rows.dtype)
    if shares is not None:
        weights = call.emit(Mul(), weights, shares)
    y = call.emit(MatMul(), weights, rows)
    if kind == "sum":
        return y
    total = call.emit(Reduce("sum", (1,), True), cast(call, inside, rows.dtype))
    return call.emit(Div(), y, call.emit(Max(), total, call.like(1.0, total)))


@row("index_select")
def index_select(call: TorchCall) -> Answer:
    x, index = call.tensor("self"), places(call, call.tensor("index"))
    return call.emit(Gather(call.dim("dim", len(x.shape))), x, reshape(call, index, (index.type.elements,)))


@row("gather", "take_along_dim")
def gather(call: TorchCall) -> Answer:
    x, index = call.tensor("self"), places(call, call.tensor("index", "indices"))
    if call.op == "take_along_dim" and call.get("dim") is None:
        x, index = reshape(call, x, (x.type.elements,)), reshape(call, index, (index.type.elements,))
    axis = call.dim("dim", len(x.shape), 0)
    if call.op == "take_along_dim":
        shape = broadcast_shapes(*[(*v.shape[:axis], 1, *v.shape[axis + 1 :]) for v in (x, index)])
        x = expand(call, x, (*shape[:axis], x.shape[axis], *shape[axis + 1 :]))
        index = expand(call, index, (*shape[:axis], index.shape[axis], *shape[axis + 1 :]))
    return call.emit(GatherElements(axis), x, index)


@row("take")
def take(call: TorchCall) -> Answer:
    x = call.tensor("self")
    return call.emit(Gather(0), reshape(call, x, (x.type.elements,)), places(call, call.tensor("index")))


# x[a, :, b] -------------------------------------------------------------------------------------------------------------


def _indices(call: TorchCall, x: Value) -> list[Value | None]:
    """An index per axis, where a mask has become the places where it holds."""
    found: list[Value | None] = []
    given = call.get("indices")
    if not isinstance(given, list):
        raise Fault("bad-graph", f"`{call.op}` has no list of indices")
    for item in given:
        if isinstance(item, Value) and item.dtype in (DType.BOOL, DType.U8):
            found += found_axes(call, item)
        else:
            found.append(None if item is None else places(call, item))
    return found + [None] * (len(x.shape) - len(found))


def _stacked(call: TorchCall, indices: list[Value]) -> tuple[Value, tuple[int, ...]]:
    """[..., n]: the coordinates of each place; negative ones count from the end by themselves."""
    shape = broadcast_shapes(*[v.shape for v in indices])
    wide = [reshape(call, expand(call, cast(call, v, DType.I64), shape), (*shape, 1)) for v in indices]
    return concat(call, wide, len(shape)), shape


@row("index", "_unsafe_index", "_unsafe_masked_index")
def index(call: TorchCall) -> Answer:
    x = call.tensor("self")
    if call.op == "_unsafe_masked_index":
        raise unsupported("`_unsafe_masked_index` is not supported")
    given = _indices(call, x)
    axes = [axis for axis, v in enumerate(given) if v is not None]
    chosen = [v for v in given if v is not None]
    if not axes:
        return x
    if len(axes) == 1:
        return call.emit(Gather(axes[0]), x, chosen[0])
    if all(v.data is not None for v in chosen) and (box := _slices(call, x, axes, chosen)) is not None:
        return box
    rest = [a for a in range(len(x.shape)) if a not in axes]
    coordinates, shape = _stacked(call, chosen)
    y = call.emit(GatherNd(), transpose(call, x, [*axes, *rest]), coordinates)
    if axes != list(range(axes[0], axes[0] + len(axes))):
        return y  # apart from each other: what was chosen comes first
    before = sum(a < axes[0] for a in rest)
    n = len(shape)
    return transpose(call, y, [*range(n, n + before), *range(n), *range(n + before, n + len(rest))])


def _slices(call: TorchCall, x: Value, axes: list[int], chosen: list[Value]) -> Value | None:
    """An index per axis that varies along its own axis alone (`x[:, :, rows[:, None], columns]`): one gather after the other."""
    n = len(axes)
    if axes != list(range(axes[0], axes[0] + n)) or any(len(v.shape) > n for v in chosen):
        return None
    for k, v in enumerate(chosen):
        shape = (1,) * (n - len(v.shape)) + v.shape
        if any(size != 1 for i, size in enumerate(shape) if i != k):
            return None
    for axis, v in zip(axes, chosen, strict=True):
        x = call.emit(Gather(axis), x, reshape(call, v, (v.type.elements,)))
    return x


@row("index_put", "_unsafe_index_put", "_index_put_impl")
def index_put(call: TorchCall) -> Answer:
    x, values = call.tensor("self"), call.tensor("values")
    values = cast(call, values, x.dtype)
    accumulate = call.flag("accumulate")
    masks = call.get("indices")
    if isinstance(masks, list) and len(masks) == 1 and isinstance(masks[0], Value) and masks[0].dtype is DType.BOOL:
        mask = masks[0]
        if values.type.elements == 1 and mask.data is None:
            mask = reshape(call, mask, (*mask.shape, *(1,) * (len(x.shape) - len(mask.shape))))
            value = reshape(call, values, ())
            new = call.emit(Add(), x, value) if accumulate else value
            return call.emit(Where(), mask, new, x)
    given = _indices(call, x)
    axes = [axis for axis, v in enumerate(given) if v is not None]
    chosen = [v for v in given if v is not None]
    rest = [a for a in range(len(x.shape)) if a not in axes]
    coordinates, shape = _stacked(call, chosen)
    order = [*axes, *rest]
    wanted = [*shape, *(x.shape[a] for a in rest)]
    if axes == list(range(axes[0], axes[0] + len(axes))):  # values come with the chosen axes in their place
        before = [a for a in rest if a < axes[0]]
        placed = [*(x.shape[a] for a in before), *shape, *(x.shape[a] for a in rest if a > axes[0])]
        n, b = len(shape), len(before)
        values = transpose(call, expand(call, values, placed), [*range(b, b + n), *range(b), *range(b + n, len(placed))])
    values = expand(call, values, wanted)
    y = call.emit(ScatterNd("add" if accumulate else "none"), transpose(call, x, order), coordinates, values)
    return transpose(call, y, [order.index(a) for a in range(len(order))])


# Scatter ----------------------------------------------------------------------------------------------------------------


REDUCE = {"": "none", "add": "add", "multiply": "mul", "sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


@row("scatter", "scatter_add", "scatter_reduce")
def scatter(call: TorchCall) -> Answer:
    x, at = call.tensor("self"), places(call, call.tensor("index"))
    axis = call.dim("dim", len(x.shape))
    kind = "add" if call.op == "scatter_add" else REDUCE.get(call.text("reduce"), "")
    if not kind or not call.flag("include_self", True):
        raise unsupported(f"`{call.op}` by {call.text('reduce')!r} is not supported")
    source = call.get("src") if "src" in call.arguments else call.get("value")
    if isinstance(source, Value) and source.shape:
        new = cast(call, source, x.dtype)
        for i, n in enumerate(at.shape):
            new = part(call, new, i, 0, n)
    else:
        new = expand(call, call.typed(source, x.dtype), at.shape)
    return call.emit(ScatterElements(axis, kind), x, at, new)


@row("index_add", "index_copy", "index_fill")
def index_add(call: TorchCall) -> Answer:
    x, at = call.tensor("self"), places(call, call.tensor("index"))
    axis = call.dim("dim", len(x.shape))
    order = [axis, *[a for a in range(len(x.shape)) if a != axis]]
    shape = (at.type.elements, *(x.shape[a] for a in order[1:]))
    if call.op == "index_fill":
        new = expand(call, call.typed(call.get("value"), x.dtype), shape)
    else:
        new = transpose(call, cast(call, call.tensor("source"), x.dtype), order)
        if (alpha := call.number("alpha", 1)) != 1:
            new = call.emit(Mul(), new, call.like(alpha, new))
    kind = "add" if call.op == "index_add" else "none"
    y = call.emit(ScatterNd(kind), transpose(call, x, order), reshape(call, at, (at.type.elements, 1)), new)
    return transpose(call, y, [order.index(a) for a in range(len(order))])


@row("one_hot")
def one_hot(call: TorchCall) -> Answer:
    x = call.first()
    count = call.integer("num_classes", -1)
    if count < 1:
        raise unsupported("`one_hot` without a number of classes is not supported", "give `num_classes`")
    return call.emit(OneHot(count, -1), places(call, x), call.constant([0, 1], DType.I64))


# Order ------------------------------------------------------------------------------------------------------------------


@row("topk", "sort", "argsort", "msort", "kthvalue")
def topk(call: TorchCall) -> Answer:
    x = call.first()
    axis = call.dim("dim", len(x.shape), 0 if call.op == "msort" else -1)
    if call.op == "topk":
        return list(call.emit_all(TopK(call.integer("k"), axis, call.flag("largest", True), call.flag("sorted", True)), x))
    if not x.shape:
        return [x, call.constant(0, DType.I64)]
    size = x.shape[axis]
    if call.op == "kthvalue":
        k = call.integer("k")
        values, at = call.emit_all(TopK(k, axis, False, True), x)
        shape = x.shape[:axis] + ((1,) if call.flag("keepdim") else ()) + x.shape[axis + 1 :]
        return [reshape(call, part(call, v, axis, k - 1, 1), shape) for v in (values, at)]
    pair = call.emit_all(TopK(size, axis, call.flag("descending"), True), x)
    return pair[1] if call.op == "argsort" else pair[0] if call.op == "msort" else list(pair)


@row("searchsorted", "bucketize")
def searchsorted(call: TorchCall) -> Answer:
    """How many edges lie below: a comparison with all of them, and a sum."""
    edges = call.tensor("boundaries" if call.op == "bucketize" else "sorted_sequence")
    x = call.tensor("self")
    if len(edges.shape) != 1 or math.prod(x.shape) * edges.shape[0] > 1 << 24:
        raise unsupported(f"`{call.op}` of {list(edges.shape)} is not supported")
    wide = reshape(call, x, (*x.shape, 1))
    below = call.emit(LessEqual() if call.flag("right") or call.text("side") == "right" else Less(), edges, wide)
    return call.emit(Reduce("sum", (len(x.shape),), False), cast(call, below, DType.I64))
