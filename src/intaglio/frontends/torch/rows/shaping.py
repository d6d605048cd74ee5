"""Operators that move data without looking at it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from intaglio.frontends.building import concat, expand, padded, part, reshape, resolved_shape, transpose
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.torch.call import Answer, TorchCall, promoted, row
from intaglio.frontends.torch.rows.found import repeated_places
from intaglio.ir.graph import Value
from intaglio.ir.sizes import Size, cut, most
from intaglio.ir.types import DType, broadcast_shapes
from intaglio.ops.index import Gather
from intaglio.ops.move import Slice, Tile, Trilu
from intaglio.ops.reduce import Reduce
from intaglio.ops.sample import Col2Im
from intaglio.ops.sizes import Iota
from intaglio.ops.small import BitCast


@row("view", "reshape", "_unsafe_view", "_reshape_alias", "view_as", "reshape_as", "unflatten", "flatten", "view_copy")
def view(call: TorchCall) -> Answer:
    x = call.first()
    rank = len(x.shape)
    if call.op in ("view_as", "reshape_as"):
        return reshape(call, x, call.tensor("other").shape)
    if call.op == "flatten":
        start, end = call.dim("start_dim", rank, 0), call.dim("end_dim", rank, -1)
        if rank == 0:
            return reshape(call, x, (1,))
        return reshape(call, x, (*x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :]))
    if call.op == "unflatten":
        axis = call.dim("dim", rank)
        sizes = call.ints("sizes")
        if -1 in sizes:
            known = math.prod(n for n in sizes if n != -1)
            sizes = [x.shape[axis] // max(known, 1) if n == -1 else n for n in sizes]
        return reshape(call, x, (*x.shape[:axis], *sizes, *x.shape[axis + 1 :]))
    if "dtype" in call.arguments:
        to = call.dtype()
        if to is None or to.bytes != x.dtype.bytes or DType.BOOL in (to, x.dtype):
            raise unsupported("a view of the bits as a type of another size is not supported")
        return x if to is x.dtype else call.emit(BitCast(to), x)
    wanted = call.ints("size") if "size" in call.arguments else call.ints("shape")
    return reshape(call, x, resolved_shape(call, x, wanted, allow_zero=True))


@row("squeeze", "squeeze_copy")
def squeeze(call: TorchCall) -> Answer:
    x = call.first()
    axes = call.dims("dim", len(x.shape))
    return reshape(call, x, [n for i, n in enumerate(x.shape) if i not in axes or n != 1])


@row("unsqueeze", "unsqueeze_copy")
def unsqueeze(call: TorchCall) -> Answer:
    x = call.first()
    axis = call.dim("dim", len(x.shape) + 1)
    return reshape(call, x, (*x.shape[:axis], 1, *x.shape[axis:]))


@row("permute", "permute_copy", "transpose", "transpose_copy", "swapaxes", "swapdims", "t", "t_copy", "numpy_T", "mT", "movedim",
     "moveaxis", "adjoint")  # fmt: skip
def permute(call: TorchCall) -> Answer:
    x = call.first()
    rank = len(x.shape)
    order = list(range(rank))
    if call.op.startswith("permute"):
        order = [call.axis(d, rank) for d in call.ints("dims")]
    elif call.op in ("movedim", "moveaxis"):
        source = [call.axis(d, rank) for d in call.ints("source")]
        target = [call.axis(d, rank) for d in call.ints("destination")]
        order = [d for d in order if d not in source]
        for to, dim in sorted(zip(target, source, strict=True)):
            order.insert(to, dim)
    elif call.op in ("t", "t_copy", "numpy_T"):
        order.reverse()
    elif rank:
        names = ("dim0", "dim1") if "dim0" in call.arguments else ("axis0", "axis1")
        a, b = (rank - 2, rank - 1) if call.op in ("mT", "adjoint") else (call.dim(name, rank) for name in names)
        order[a], order[b] = order[b], order[a]
    if sorted(order) != list(range(rank)):
        raise Fault("bad-attribute", f"{order} is not an order of the axes of {list(x.shape)}")
    return transpose(call, x, order)


@row("expand", "expand_copy", "expand_as", "broadcast_to")
def expand_row(call: TorchCall) -> Answer:
    x = call.first()
    if call.op == "expand_as":
        return expand(call, x, call.tensor("other").shape)
    size = call.ints("size")
    have = (1,) * (len(size) - len(x.shape)) + x.shape
    return expand(call, x, [h if n == -1 else n for n, h in zip(size, have, strict=True)])


@row("broadcast_tensors")
def broadcast_tensors(call: TorchCall) -> Answer:
    values = call.tensors("tensors")
    shape = broadcast_shapes(*[v.shape for v in values])
    return [expand(call, v, shape) for v in values]


@row("meshgrid")
def meshgrid(call: TorchCall) -> Answer:
    values = call.tensors("tensors")
    shape = [v.type.elements for v in values]
    swap = call.text("indexing", "ij") == "xy" and len(values) > 1
    made = []
    for n, value in enumerate(values):
        line = reshape(call, value, [shape[n] if i == n else 1 for i in range(len(values))])
        grid = expand(call, line, shape)
        made.append(transpose(call, grid, [1, 0, *range(2, len(values))]) if swap else grid)
    return made


@row("repeat", "tile")
def repeat(call: TorchCall) -> Answer:
    x = call.first()
    times = call.ints("repeats") if call.op == "repeat" else call.ints("dims")
    rank = max(len(times), len(x.shape))
    times = [1] * (rank - len(times)) + times
    x = reshape(call, x, (1,) * (rank - len(x.shape)) + x.shape)
    return x if set(times) <= {1} else call.emit(Tile(tuple(times)), x)


@row("repeat_interleave")
def repeat_interleave(call: TorchCall) -> Answer:
    x, times = call.first(), call.get("repeats")
    if "dim" not in call.arguments or call.get("dim") is None:
        x = reshape(call, x, (x.type.elements,))
    axis = call.dim("dim", len(x.shape), 0)
    counts = times.data.reshape(-1) if isinstance(times, Value) and times.data is not None else times
    if call.overload == "Tensor":  # of places alone
        counts, x = x, call.emit(Iota(x.shape[0], 0, 1, DType.I64)) if x.data is None else x
    if isinstance(counts, Value):
        return call.emit(Gather(axis), x, repeated_places(call, counts, x.shape[axis]))
    if isinstance(counts, int) and isinstance(x.shape[axis], Size):
        wide = (*x.shape[: axis + 1], counts, *x.shape[axis + 1 :])
        wide_x = expand(call, reshape(call, x, (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :])), wide)
        return reshape(call, wide_x, (*x.shape[:axis], x.shape[axis] * counts, *x.shape[axis + 1 :]))
    call.bounded(x.shape[axis] * counts if isinstance(counts, int) else float(np.abs(counts).sum()))
    places = np.repeat(np.arange(x.shape[axis]), counts)
    return call.emit(Gather(axis), x, call.constant(places.astype(np.int64)))


@row("cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack")
def cat(call: TorchCall) -> Answer:
    values = call.tensors("tensors")
    if not values:
        raise Fault("bad-graph", f"`{call.op}` has no operands")
    dtype = promoted(*values)
    values = [call.typed(v, dtype) for v in values]
    if call.op in ("hstack", "column_stack") and len(values[0].shape) < 2:
        if call.op == "column_stack":
            return concat(call, [reshape(call, v, (v.type.elements, 1)) for v in values], 1)
        return concat(call, [reshape(call, v, (v.type.elements,)) for v in values], 0)
    if call.op == "vstack" and len(values[0].shape) < 2:
        return concat(call, [reshape(call, v, (1, v.type.elements)) for v in values], 0)
    if call.op in ("hstack", "column_stack", "vstack", "dstack"):
        return concat(call, values, {"vstack": 0, "dstack": 2}.get(call.op, 1))
    if call.op == "stack":
        axis = call.dim("dim", len(values[0].shape) + 1, 0)
        return concat(call, [reshape(call, v, (*v.shape[:axis], 1, *v.shape[axis:])) for v in values], axis)
    kept = [v for v in values if v.shape != (0,)] or values[:1]
    return concat(call, kept, call.dim("dim", len(kept[0].shape), 0))


def parts(call: TorchCall, x: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
    if sum(sizes) != x.shape[axis] or min(sizes, default=0) < 0:
        raise Fault("bad-attribute", f"{x.shape[axis]} elements cannot be split into parts of {list(sizes)}")
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [part(call, x, axis, start, size) for start, size in zip(starts, sizes, strict=True)]


@row("split", "split_with_sizes", "chunk", "unsafe_split", "unsafe_chunk", "split_copy", "split_with_sizes_copy")
def split(call: TorchCall) -> Answer:
    x = call.first()
    axis = call.dim("dim", len(x.shape), 0)
    size = x.shape[axis]
    if "chunk" in call.op:
        each = max(-(-size // max(call.integer("chunks"), 1)), 1)
    elif isinstance(call.get("split_sizes", call.get("split_size")), list):
        return parts(call, x, axis, call.ints("split_sizes" if "split_sizes" in call.arguments else "split_size"))
    else:
        each = call.integer("split_size")
    if each < 1:
        raise Fault("bad-attribute", f"`{call.op}` into parts of {each} is not valid")
    return parts(call, x, axis, [min(each, size - start) for start in range(0, size, each)] or [0])


@row("tensor_split")
def tensor_split(call: TorchCall) -> Answer:
    x = call.first()
    axis = call.dim("dim", len(x.shape), 0)
    size = x.shape[axis]
    if "indices" in call.arguments:
        edges = [0, *[min(max(i + size if i < 0 else i, 0), size) for i in call.ints("indices")], size]
        return parts(call, x, axis, [max(b - a, 0) for a, b in itertools.pairwise(edges)])
    count = max(call.integer("sections"), 1)
    return parts(call, x, axis, [size // count + (i < size % count) for i in range(count)])


@row("unbind", "unbind_copy")
def unbind(call: TorchCall) -> Answer:
    x = call.first()
    axis = call.dim("dim", len(x.shape), 0)
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    return [reshape(call, part(call, x, axis, i, 1), shape) for i in range(x.shape[axis])]


@row("select", "select_copy")
def select(call: TorchCall) -> Answer:
    x = call.first()
    axis = call.dim("dim", len(x.shape))
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    return reshape(call, part(call, x, axis, _index(call, "index", x.shape[axis]), 1), shape)


def _index(call: TorchCall, name: str, size: int) -> int:
    index = call.integer(name)
    if not -size <= index < size:
        raise Fault("bad-attribute", f"index {index} of `{call.op}` is out of range for {size} elements")
    return index % size


def _places(call: TorchCall, size: int) -> tuple[int, int, int]:
    """The first place, how many, and the step."""
    step = call.integer("step", 1)
    if step < 1:
        raise Fault("bad-attribute", f"`{call.op}` with the step {step} is not valid")
    start, end = (default if call.get(name) is None else call.integer(name) for name, default in (("start", 0), ("end", size)))
    return *cut(start, end, step, size), step


def _range(call: TorchCall, size: int) -> range:
    first, count, step = _places(call, size)
    return range(first, first + count * step, step)


@row("slice", "slice_copy", "narrow", "narrow_copy")
def slice_row(call: TorchCall) -> Answer:
    x = call.first()
    rank = len(x.shape)
    axis = call.dim("dim", rank, 0)
    if call.op.startswith("narrow"):
        start, length = call.integer("start"), call.integer("length")
        start = start + x.shape[axis] if start < 0 else start
        if not 0 <= start <= start + length <= x.shape[axis]:
            raise Fault("bad-attribute", f"`narrow` to {length} from {start} of {x.shape[axis]} is not valid")
        return part(call, x, axis, start, length)
    first, count, step = _places(call, x.shape[axis])
    if count == x.shape[axis]:
        return x
    starts, steps, shape = [0] * rank, [1] * rank, list(x.shape)
    starts[axis], shape[axis] = first, count
    steps[axis] = step if most(count) > 1 else 1
    return call.emit(Slice(tuple(starts), tuple(steps), tuple(shape)), x)


@row("slice_scatter", "select_scatter", "diagonal_scatter")
def slice_scatter(call: TorchCall) -> Answer:
    x, new = call.tensor("self", "input"), call.tensor("src")
    if call.op == "diagonal_scatter":
        raise unsupported("`diagonal_scatter` is not supported")
    axis = call.dim("dim", len(x.shape), 0)
    size = x.shape[axis]
    if call.op == "select_scatter":
        at = _index(call, "index", size)
        places = range(at, at + 1)
        new = reshape(call, new, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    else:
        places = _range(call, size)
        new = expand(call, new, (*x.shape[:axis], len(places), *x.shape[axis + 1 :]))
    if places.step != 1 and len(places) > 1:
        call.bounded(size)
        order = np.arange(size)
        order[places.start : places.stop : places.step] = size + np.arange(len(places))
        return call.emit(Gather(axis), concat(call, [x, new], axis), call.constant(order.astype(np.int64)))
    start, end = (places.start, places.start + len(places)) if len(places) else (0, 0)
    pieces = [part(call, x, axis, 0, start)] if start else []
    pieces += [new] if len(places) else []
    pieces += [part(call, x, axis, end, size - end)] if end < size else []
    return concat(call, pieces, axis)


@row("flip", "fliplr", "flipud")
def flip(call: TorchCall) -> Answer:
    x = call.first()
    rank = len(x.shape)
    axes = {"fliplr": (1,), "flipud": (0,)}.get(call.op) or (call.dims("dims", rank) if call.maybe_ints("dims") else ())
    return _flipped(call, x, axes)


def _flipped(call: TorchCall, x: Value, axes: tuple[int, ...]) -> Value:
    rank = len(x.shape)
    starts = tuple(n - 1 if i in axes and n else 0 for i, n in enumerate(x.shape))
    return call.emit(Slice(starts, tuple(-1 if i in axes else 1 for i in range(rank)), x.shape), x)


@row("rot90")
def rot90(call: TorchCall) -> Answer:
    x = call.first()
    a, b = (call.axis(d, len(x.shape)) for d in call.ints("dims", [0, 1]))
    order = list(range(len(x.shape)))
    order[a], order[b] = b, a
    match call.integer("k", 1) % 4:
        case 1:
            return transpose(call, _flipped(call, x, (b,)), order)
        case 2:
            return _flipped(call, x, (a, b))
        case 3:
            return _flipped(call, transpose(call, x, order), (b,))
        case _:
            return x


@row("roll")
def roll(call: TorchCall) -> Answer:
    x = call.first()
    shifts, axes = call.ints("shifts"), call.maybe_ints("dims")
    if not axes:
        flat = reshape(call, x, (x.type.elements,))
        return reshape(call, _rolled(call, flat, 0, shifts[0]), x.shape)
    for shift, axis in zip(shifts, axes, strict=True):
        x = _rolled(call, x, call.axis(axis, len(x.shape)), shift)
    return x


def _rolled(call: TorchCall, x: Value, axis: int, shift: int) -> Value:
    size = x.shape[axis]
    cut = (-shift) % size if size else 0
    return x if not cut else concat(call, [part(call, x, axis, cut, size - cut), part(call, x, axis, 0, cut)], axis)


PADS = {"reflect": "reflect", "replicate": "edge", "circular": "wrap", "constant": "constant"}


@row("pad", "constant_pad_nd", *[f"{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3)], "_pad_circular",
     "_pad_enum")  # fmt: skip
def pad(call: TorchCall) -> Answer:
    x = call.first()
    given = call.ints("pad") if "pad" in call.arguments else call.ints("padding")
    rank = len(x.shape)
    if len(given) % 2 or len(given) > 2 * rank:
        raise Fault("bad-attribute", f"`{call.op}` by {given} of {list(x.shape)} is not valid")
    pads = [0] * (2 * rank)
    for i in range(len(given) // 2):  # from the last axis on
        pads[rank - 1 - i], pads[2 * rank - 1 - i] = given[2 * i], given[2 * i + 1]
    mode = "reflect" if "reflection" in call.op else "edge" if "replication" in call.op else "constant"
    if call.op == "_pad_circular":
        mode = "wrap"
    if call.op == "pad":
        mode = PADS.get(call.text("mode", "constant"), "")
    if call.op == "_pad_enum":
        mode = {0: "constant", 1: "reflect", 2: "edge", 3: "wrap"}.get(call.integer("mode"), "")
    if not mode:
        raise unsupported(f"`{call.op}` in the mode {call.get('mode')!r} is not supported")
    return padded(call, x, pads, mode, call.real("value", 0.0))


@row("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle")
def pixel_shuffle(call: TorchCall) -> Answer:
    x = call.first()
    *lead, c, h, w = x.shape
    n, front = len(lead), list(range(len(lead)))
    if call.op.endswith("channel_shuffle"):
        groups = call.integer("groups")
        split_up = reshape(call, x, (*lead, groups, c // groups, h, w))
        return reshape(call, transpose(call, split_up, [*front, n + 1, n, n + 2, n + 3]), x.shape)
    r = call.integer("upscale_factor" if call.op == "pixel_shuffle" else "downscale_factor")
    if call.op == "pixel_shuffle":
        y = reshape(call, x, (*lead, c // (r * r), r, r, h, w))
        y = transpose(call, y, [*front, n, n + 3, n + 1, n + 4, n + 2])
        return reshape(call, y, (*lead, c // (r * r), h * r, w * r))
    y = reshape(call, x, (*lead, c, h // r, r, w // r, r))
    y = transpose(call, y, [*front, n, n + 2, n + 4, n + 1, n + 3])
    return reshape(call, y, (*lead, c * r * r, h // r, w // r))


@row("contiguous", "clone", "alias", "alias_copy", "detach", "detach_copy", "lift_fresh", "lift_fresh_copy", "lift", "positive",
     "feature_dropout", "alpha_dropout", "dropout", "native_dropout", "feature_alpha_dropout", "_unsafe_clone", "sym_identity",
     "requires_grad_", "rename", "refine_names", "cpu")  # fmt: skip
def same(call: TorchCall) -> Answer:
    if "dropout" in call.op and call.flag("train") and call.real("p", 0.5) > 0:
        raise unsupported(f"`{call.op}` in training is not supported", "export with `model.eval()`")
    return [call.first(), None] if call.op == "native_dropout" else call.first()


@row("tril", "triu")
def triangle(call: TorchCall) -> Answer:
    return call.emit(Trilu(call.op == "triu", call.integer("diagonal", 0)), call.first())


@row("diagonal", "diagonal_copy", "diag", "trace")
def diagonal(call: TorchCall) -> Answer:
    x = call.first()
    rank, offset = len(x.shape), call.integer("offset", call.integer("diagonal", 0))
    if rank == 1:
        size = x.shape[0] + abs(offset)
        call.bounded(size * size)
        at = np.zeros((size, size), np.int64)
        rows = np.arange(x.shape[0])
        at[rows + max(-offset, 0), rows + max(offset, 0)] = rows + 1
        zero = call.constant(np.zeros(1, x.dtype.numpy), x.dtype)
        return call.emit(Gather(0), concat(call, [zero, x], 0), call.constant(at))
    a, b = call.dim("dim1", rank, 0), call.dim("dim2", rank, 1)
    rest = [i for i in range(rank) if i not in (a, b)]
    y = transpose(call, x, [*rest, a, b])
    m, n = y.shape[-2:]
    count = max(min(m - max(-offset, 0), n - max(offset, 0)), 0)
    call.bounded(count)
    places = (np.arange(count) + max(-offset, 0)) * n + np.arange(count) + max(offset, 0)
    flat = reshape(call, y, (*y.shape[:-2], m * n))
    y = call.emit(Gather(len(rest)), flat, call.constant(places.astype(np.int64)))
    return call.emit(Reduce("sum", (0,), False), y) if call.op == "trace" else y


@row("unfold", "unfold_copy")
def unfold(call: TorchCall) -> Answer:
    """Overlapping windows along one axis; the window becomes the last axis."""
    x = call.first()
    rank = len(x.shape)
    names = ("dimension", "dim")
    axis = call.dim(names[0] if names[0] in call.arguments else names[1], rank)
    size, step = call.integer("size"), call.integer("step")
    if step < 1 or not 0 <= size <= x.shape[axis]:
        raise Fault("bad-attribute", f"`unfold` of {x.shape[axis]} by {size} with the step {step} is not valid")
    call.bounded(((x.shape[axis] - size) // step + 1) * size)
    places = np.arange(0, x.shape[axis] - size + 1, step)[:, None] + np.arange(size)[None, :]
    y = call.emit(Gather(axis), x, call.constant(places.astype(np.int64)))
    return transpose(call, y, [*range(axis + 1), *range(axis + 2, rank + 1), axis + 1])


@row("im2col", "col2im")
def im2col(call: TorchCall) -> Answer:
    """`F.unfold` and `F.fold`."""
    x = call.first()
    kernel, dilation = call.spread("kernel_size", 2, 1), call.spread("dilation", 2, 1)
    pads, stride = call.spread("padding", 2, 0), call.spread("stride", 2, 1)
    batched = len(x.shape) == (4 if call.op == "im2col" else 3)
    x = x if batched else reshape(call, x, (1, *x.shape))
    if call.op == "col2im":
        size = call.ints("output_size")
        y = call.emit(Col2Im(tuple(size), kernel, stride, (*pads, *pads), dilation), x)
        return y if batched else reshape(call, y, y.shape[1:])
    n, c, h, w = x.shape
    x = padded(call, x, [0, 0, *pads, 0, 0, *pads])
    spans = []
    for i, length in enumerate((h, w)):
        count = (length + 2 * pads[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        call.bounded(count * kernel[i])
        spans.append(np.arange(kernel[i])[:, None] * dilation[i] + np.arange(count)[None, :] * stride[i])
    x = call.emit(Gather(2), x, call.constant(spans[0].astype(np.int64)))
    x = call.emit(Gather(4), x, call.constant(spans[1].astype(np.int64)))  # [n, c, kh, oh, kw, ow]
    x = transpose(call, x, [0, 1, 2, 4, 3, 5])
    y = reshape(call, x, (n, c * kernel[0] * kernel[1], spans[0].shape[1] * spans[1].shape[1]))
    return y if batched else reshape(call, y, y.shape[1:])
