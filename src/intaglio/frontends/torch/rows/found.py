"""Results whose size depends on data: as many as are found, with room for the most; and numbers that data gives.

nonzero(x), where(c)     the places where it is not zero
x[mask], masked_select   what stands there
unique, unique_dim       each element, or each row, once
bincount, histc          how many of each number, or in each interval
item(x)                  a size, where the program or `--max` bounds it (`torch._check(n <= 64)`); else a number
"""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.building import cast, concat, expand, part, reshape, transpose
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.names import identifier
from intaglio.frontends.torch.call import Answer, TorchCall, row
from intaglio.ir.graph import Value
from intaglio.ir.sizes import MOST_COMBINATIONS, Size, least, most
from intaglio.ir.types import DType, broadcast_shapes
from intaglio.ops.base import widen
from intaglio.ops.binary import Add, Div, Equal, Less, LessEqual, LogicalAnd, Max, Min, Mul, Sub, Where
from intaglio.ops.control import AssertTrue
from intaglio.ops.found import Unique
from intaglio.ops.index import Gather, ScatterNd
from intaglio.ops.reduce import Cumsum, Reduce
from intaglio.ops.sizes import Iota
from intaglio.ops.unary import Floor, LogicalNot


def count_name(call: TorchCall) -> str:
    """What a size that follows from data is called: after the first result of the node."""
    return identifier(call.walk.labels.get(call.record.name, call.record.name), "found") + "_count"


def found_places(call: TorchCall, x: Value) -> Value:
    """[rank, count]: where it is not zero."""
    if x.data is not None:
        return call.constant(np.array(np.nonzero(np.atleast_1d(x.data)), np.int64).reshape(max(x.data.ndim, 1), -1))
    return call.walk.places(count_name(call), x)


def found_axes(call: TorchCall, x: Value) -> list[Value]:
    """The same as a vector for each axis."""
    at = found_places(call, x)
    return [reshape(call, part(call, at, 0, n, 1), at.shape[1:]) for n in range(at.shape[0])]


@row("nonzero", "nonzero_numpy", "argwhere")
def nonzero(call: TorchCall) -> Answer:
    x = call.first()
    if call.op == "nonzero_numpy":
        return found_axes(call, x)
    return transpose(call, found_places(call, x), (1, 0))


@row("masked_select")
def masked_select(call: TorchCall) -> Answer:
    x, mask = call.tensor("self"), call.tensor("mask")
    shape = broadcast_shapes(x.shape, mask.shape)
    flat = [reshape(call, wide := expand(call, v, shape), (wide.type.elements,)) for v in (x, mask)]
    (at,) = found_axes(call, flat[1])
    return call.emit(Gather(0), flat[0], at)


@row("masked_scatter")
def masked_scatter(call: TorchCall) -> Answer:
    """The elements of `source`, in order, where the mask is true. A running sum of the mask gives the place of each."""
    x, mask, source = call.tensor("self"), call.tensor("mask"), call.tensor("source")
    mask, n = expand(call, mask, x.shape), source.type.elements
    if least(n) < 1:
        raise unsupported("`masked_scatter` of no elements is not supported")
    flat = cast(call, reshape(call, mask, (x.type.elements,)), DType.I64)
    total = call.emit(Cumsum(0), flat)
    if least(n) < most(x.type.elements):
        last = part(call, total, 0, x.type.elements - 1, 1)
        enough = call.emit(LessEqual(), last, call.typed(n, DType.I64))
        call.emit(AssertTrue("`masked_scatter` has fewer elements than its mask has places"), enough)
    zero, one = (call.constant(np.asarray(number, np.int64)) for number in (0, 1))
    at = call.emit(Max(), call.emit(Sub(), total, one), zero)
    taken = call.emit(Gather(0), reshape(call, cast(call, source, x.dtype), (n,)), at)
    return call.emit(Where(), mask, reshape(call, taken, x.shape), x)


@row("unique", "_unique2", "_unique", "unique_dim")
def unique(call: TorchCall) -> Answer:
    """Elements, or rows along `dim`, once, sorted; which one each is; how often it is there."""
    x = call.first()
    axis = call.dim("dim", len(x.shape)) if call.op == "unique_dim" else None
    order = [] if axis is None else [axis, *(a for a in range(len(x.shape)) if a != axis)]
    moved = x if axis is None else transpose(call, x, order)
    n = x.type.elements if axis is None else x.shape[axis]
    rows = reshape(call, moved, (n, 1 if axis is None else math.prod(moved.shape[1:])))
    bounds = call.walk.narrowed(count_name(call), min(1, least(n)), most(n))
    made = call.walk.found(count_name(call), *bounds, lambda count: Unique(count, True), [rows])
    y, inverse, numbers = made[0], made[2], made[3]
    if axis is None:
        y, inverse = reshape(call, y, y.shape[:1]), reshape(call, inverse, x.shape)
    else:
        y = transpose(call, reshape(call, y, (y.shape[0], *moved.shape[1:])), [order.index(a) for a in range(len(order))])
    return [y, inverse if call.flag("return_inverse") else None, numbers if call.flag("return_counts") else None]


@row("unique_consecutive", "unique_dim_consecutive")
def unique_consecutive(call: TorchCall) -> Answer:
    """Elements, or rows along `dim`, that differ from the one before; which of them each is; how many are alike."""
    x = call.first()
    axis = None if call.get("dim") is None else call.dim("dim", len(x.shape))
    order = [] if axis is None else [axis, *(a for a in range(len(x.shape)) if a != axis)]
    moved = reshape(call, x, (x.type.elements,)) if axis is None else transpose(call, x, order)
    n = moved.shape[0]
    if least(n) < 1:
        raise unsupported(f"`{call.op}` of no elements is not supported")
    rows = reshape(call, moved, (n, math.prod(moved.shape[1:])))
    same = call.emit(Equal(), part(call, rows, 0, 1, n - 1), part(call, rows, 0, 0, n - 1))
    other = call.emit(LogicalNot(), call.emit(Reduce("all", (1,), False), same))
    fresh = concat(call, [call.constant(np.ones(1, np.bool_)), other], 0)
    (at,) = found_axes(call, fresh)
    y = call.emit(Gather(0), moved, at)
    y = y if axis is None else transpose(call, y, [order.index(a) for a in range(len(order))])
    which = call.emit(Sub(), call.emit(Cumsum(0), cast(call, fresh, DType.I64)), call.constant(np.asarray(1, np.int64)))
    inverse = counts = None
    if call.flag("return_inverse"):
        inverse = reshape(call, which, x.shape) if axis is None else which
    if call.flag("return_counts"):
        ones = expand(call, call.constant(np.ones(1, np.int64)), (n,))
        room = call.emit(Mul(), which, call.constant(np.asarray(0, np.int64)))
        every = call.emit(ScatterNd("add"), room, reshape(call, which, (n, 1)), ones)
        counts = call.emit(Gather(0), every, call.emit(Gather(0), which, at))
    return [y, inverse, counts]


@row("bincount")
def bincount(call: TorchCall) -> Answer:
    """How often each number is there, or the sum of its weights: comparisons with all of them, and a sum."""
    x, weights, at_least = call.first(), call.maybe("weights"), call.integer("minlength", 0)
    name = next((o for o in call.record.outputs if isinstance(o, str)), call.record.name)
    if name not in call.walk.most or least(x.type.elements) < 1:
        raise unsupported("how many bins `bincount` gives depends on data, and nothing bounds it",
                          f"give the largest number with `--max {name}=N`")  # fmt: skip
    call.walk.most_used.add(name)
    room = max(call.walk.most[name], at_least)
    ids = cast(call, x, DType.I64)
    lowest, highest = (call.emit(Reduce(kind, (0,), False), ids) for kind in ("min", "max"))
    highest = call.emit(Min(), highest, call.typed(room, DType.I64))  # one more is still too many
    needed = call.emit(Max(), call.emit(Add(), highest, call.typed(1, DType.I64)), call.typed(at_least, DType.I64))
    needed = call.emit(Where(), call.emit(Less(), lowest, call.typed(0, DType.I64)), call.typed(-1, DType.I64), needed)
    size = call.walk.as_size(identifier(name, "bins"), needed, at_least, room)
    call.bounded(most(size) * most(x.type.elements))
    bins = reshape(call, call.emit(Iota(size, 0, 1, DType.I64)), (1, size))
    return _counted(call, call.emit(Equal(), reshape(call, ids, (x.type.elements, 1)), bins), weights)


def _counted(call: TorchCall, there: Value, weights: Value | None) -> Value:
    """The number of those that are true in each column, or the sum of their weights."""
    if weights is None:
        return call.emit(Reduce("sum", (0,), False), cast(call, there, DType.I64))
    to = DType.F32 if weights.dtype is DType.F32 else DType.F64
    column = cast(call, reshape(call, weights, (weights.type.elements, 1)), to)
    return call.emit(Reduce("sum", (0,), False), call.emit(Where(), there, column, call.like(0.0, column)))


@row("histc")
def histc(call: TorchCall) -> Answer:
    """How many numbers lie in each of `bins` intervals between two bounds, or between the least and the largest."""
    x, bins = call.first(), call.integer("bins", 100)
    low, high = call.real("min", 0.0), call.real("max", 0.0)
    n = x.type.elements
    if bins < 1 or low > high or not x.dtype.is_float or least(n) < 1:
        raise Fault("bad-attribute", f"`histc` of {bins} bins from {low} to {high} is not valid")
    call.bounded(most(n) * bins)
    flat = reshape(call, x, (n,))
    if low < high:
        first, last = call.like(low, flat), call.like(high, flat)
    else:
        first, last = (call.emit(Reduce(kind, (0,), False), flat) for kind in ("min", "max"))
        alike, one = call.emit(Equal(), first, last), call.like(1.0, flat)
        first, last = (call.emit(Where(), alike, call.emit(o, v, one), v) for o, v in ((Sub(), first), (Add(), last)))
    inside = call.emit(LogicalAnd(), call.emit(LessEqual(), first, flat), call.emit(LessEqual(), flat, last))
    steps = call.emit(Mul(), call.emit(Sub(), flat, first), call.like(bins, flat))
    place = call.emit(Min(), call.emit(Div(), steps, call.emit(Sub(), last, first)), call.like(bins - 1, flat))
    place = call.emit(Floor(), call.emit(Where(), inside, place, call.like(-1.0, flat)))
    there = call.emit(Equal(), reshape(call, place, (n, 1)), call.constant(np.arange(bins).astype(np.float32), flat.dtype))
    return cast(call, _counted(call, there, None), x.dtype)


def repeated_places(call: TorchCall, counts: Value, rows: int) -> Value:
    """Each place as often as its count says: place j is where the running sum of counts first passes j."""
    name = next((o for o in call.record.outputs if isinstance(o, str)), call.record.name)
    given = call.get("output_size")
    if not isinstance(given, int | Size) and name not in call.walk.most:
        raise unsupported("how many rows `repeat_interleave` gives depends on data, and nothing bounds it",
                          f"give the largest number with `--max {name}=N`")  # fmt: skip
    counts = expand(call, cast(call, reshape(call, counts, (counts.type.elements,)), DType.I64), (rows,))
    negative = call.emit(Less(), call.emit(Reduce("min", (0,), False), counts), call.typed(0, DType.I64))
    room = most(given) if isinstance(given, int | Size) else call.walk.most[name]
    counts = call.emit(Min(), counts, call.typed(room + 1, DType.I64))  # their sum does not overflow, and is still too large
    ends = call.emit(Cumsum(0), counts)
    last = call.emit(Where(), negative, call.typed(-1, DType.I64), call.emit(Reduce("sum", (0,), False), counts))
    if isinstance(given, int | Size):
        size: int = given
        same = call.emit(Equal(), last, call.typed(size, DType.I64))
        call.emit(AssertTrue("the counts of `repeat_interleave` do not add up to its `output_size`"), same)
    else:
        call.walk.most_used.add(name)
        size = call.walk.as_size(identifier(name, "rows"), last, 0, call.walk.most[name])
    call.bounded(most(size) * most(rows))
    at = reshape(call, call.emit(Iota(size, 0, 1, DType.I64)), (size, 1))
    passed = call.emit(LessEqual(), reshape(call, ends, (1, rows)), at)
    return call.emit(Reduce("sum", (1,), False), cast(call, passed, DType.I64))


# Numbers ----------------------------------------------------------------------------------------------------------------


@row("item", "_local_scalar_dense")
def item(call: TorchCall) -> Answer:
    x = call.first()
    if x.type.elements != 1:
        raise Fault("bad-attribute", f"`{call.op}` of a tensor with {x.type.elements} elements", "export the model again")
    if x.data is not None:
        return widen(x.data, x.dtype).reshape(-1)[0].item()
    only = reshape(call, x, ())
    if not x.dtype.is_int:
        return only
    name = next((o for o in call.record.outputs if isinstance(o, str)), call.record.name)
    bounds = _bounds(call, name)
    if bounds is None:
        call.walk.unbounded.append(name)
        return only
    return call.walk.as_size(identifier(name, "item"), cast(call, only, DType.I64), *bounds)


def _bounds(call: TorchCall, name: str) -> tuple[int, int] | None:
    """Of a number that may be a size: by `--max`, or in the program."""
    symbol = call.walk.symbols.get(name, "")
    low, high = call.walk.program.ranges.get(symbol, (None, None))
    for known in (name, symbol):
        if known in call.walk.most:
            call.walk.most_used.add(known)
            asked = call.walk.most[known]
            if asked < (low or 0):
                raise Fault("bad-attribute", f"`--max {known}={asked}` is below {low}, the least that the program allows",
                            f"give {low} or more")  # fmt: skip
            return max(low or 0, 0), asked if high is None else min(asked, high)
    if low is None or high is None or low < 0 or high - low >= MOST_COMBINATIONS:
        return None
    return low, high
