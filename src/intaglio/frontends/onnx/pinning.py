"""Making the inputs static: symbolic dimensions are pinned by `--dim`, `--shape`, or default to 1 for a batch. A range, such as
`--dim T=1..512`, makes one a size that the caller gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from intaglio.errors import ModelError, quoted
from intaglio.frontends.onnx.faults import Fault, need_text
from intaglio.frontends.onnx.names import Names, identifier
from intaglio.frontends.onnx.tensors import STRING, check_shape, dtype_of, stored_as
from intaglio.ir.graph import Array, Value
from intaglio.ir.sizes import MOST_COMBINATIONS, Bounds
from intaglio.ir.spans import Extent, Shapes, Span, named
from intaglio.ir.types import DType, Shape

if TYPE_CHECKING:
    from intaglio.frontends.onnx.walk import Walk


@dataclass(frozen=True, slots=True)
class Declared:
    """An input as the model declares it. A dimension is a number, a symbol, or None when nothing is known of it."""

    name: str
    dtype: DType
    dims: tuple[int | str | None, ...] | None
    text: bool = False  # strings, which are bytes with one axis more

    def __str__(self) -> str:
        if self.dims is None:
            return "of unknown rank"
        return "[" + ", ".join("?" if d is None else str(d) for d in self.dims) + "]"


def declared(info: Any, where: str) -> Declared:
    try:
        need_text(info.name, *[d.dim_param for d in info.type.tensor_type.shape.dim])
    except Fault as fault:
        raise ModelError(fault.slug, fault.reason, where=where, hint=fault.hint) from None
    what = f"the input {quoted(info.name)}"
    if info.type.WhichOneof("value") != "tensor_type":
        kind = (info.type.WhichOneof("value") or "no type").replace("_type", "")
        raise ModelError("unsupported-type", f"{what} is not a tensor ({kind})", where=where,
                         hint="give the model tensors as inputs")  # fmt: skip
    tensor = info.type.tensor_type
    try:
        text = tensor.elem_type == STRING
        dtype = DType.U8 if text else stored_as(tensor.elem_type) or dtype_of(tensor.elem_type, what)
        if not tensor.HasField("shape"):
            return Declared(info.name, dtype, None, text)
        dims: list[int | str | None] = []
        for d in tensor.shape.dim:
            kind = d.WhichOneof("value")
            if kind == "dim_value":
                if d.dim_value < -1:
                    raise Fault(
                        "bad-tensor", f"{what} has the dimension {d.dim_value}, which is not valid", "export the model again"
                    )
                dims.append(None if d.dim_value == -1 else d.dim_value)
            else:
                dims.append(d.dim_param if kind == "dim_param" and d.dim_param not in ("", "?", "-1") else None)
        check_shape([d if isinstance(d, int) else 1 for d in dims], what)
    except Fault as fault:
        raise ModelError(fault.slug, fault.reason, where=where, hint=fault.hint or "export the model again") from None
    return Declared(info.name, dtype, tuple(dims), text)


def fixed(walk: Walk, item: Declared, data: Array) -> Value:
    """An input that the user has given a value at compile time."""
    if data.dtype != item.dtype.numpy:
        raise ModelError("shape-mismatch", f"input {quoted(item.name)} is {item.dtype.value}, its value {data.dtype}",
                         where=walk.file, hint="give the value with the element type of the input")  # fmt: skip
    return walk.constant(data, item.dtype, item.name)


@dataclass(slots=True)
class _Sizes:
    """What symbolic dimensions are known to be, and who said so, as it was written."""

    where: str
    known: dict[str, int] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)

    def bind(self, symbol: str, size: int, written: object, source: str) -> None:
        told = f"{written} by {source}"
        if self.known.setdefault(symbol, size) != size:
            raise ModelError(
                "shape-mismatch", f"the dimension {quoted(symbol)} is {self.origin[symbol]} and {told}",
                where=self.where, hint="inputs that share a symbolic dimension must agree on it",
            )  # fmt: skip
        self.origin.setdefault(symbol, told)


SIZE_FIELD = "size_"  # what the field of a size in the inputs starts with


@dataclass(slots=True)
class _Ranges:
    """Ranges by their names in C, which no input has as its own."""

    where: str
    taken: set[str]
    clean: dict[str, str] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)
    names: Names = field(default_factory=Names)

    def name(self, label: str, span: Span) -> str:
        if label not in self.clean:
            name = self.names.take(label, "n")
            while f"{SIZE_FIELD}{name}" in self.taken:
                name += "_"
            self.clean[label], self.spans[name] = name, span
        name = self.clean[label]
        if self.spans[name] != span:
            raise ModelError(
                "shape-mismatch", f"the dimension {quoted(label)} is {self.spans[name]} and {span}", where=self.where,
                hint="inputs that share a symbolic dimension must agree on it",
            )  # fmt: skip
        return name


@dataclass(frozen=True, slots=True)
class Given:
    """What `--dim` and `--shape` say, with ranges as sizes."""

    dims: dict[str, int]
    shapes: dict[str, Shape]
    bounds: Bounds | None


def bounded(
    inputs: list[Declared], dims: Mapping[str, Extent], shapes: Mapping[str, tuple[Extent, ...]], where: str
) -> Given:
    """A range of `--shape` is named after the symbol of the model, or after the input and the axis."""
    found = _Ranges(where, {identifier(item.name) for item in inputs})
    clean: dict[str, str] = {}
    called: dict[tuple[str, int], str] = {}
    for symbol, extent in dims.items():
        if isinstance(extent, Span):
            clean[symbol] = found.name(extent.name or symbol, extent._replace(name=""))
    for key, shape in shapes.items():
        (position,) = _by_input(inputs, {key: ()}, where)
        known = inputs[position].dims or ()
        for axis, extent in enumerate(shape):
            if isinstance(extent, Span):
                written = known[axis] if axis < len(known) else None
                label = written if isinstance(written, str) else f"{inputs[position].name}_{axis}"
                called[key, axis] = found.name(extent.name or label, extent._replace(name=""))
    spans = found.spans
    if not spans:
        return Given({k: v for k, v in dims.items() if isinstance(v, int)}, _numbers(shapes), None)
    if Bounds.combinations(spans) > MOST_COMBINATIONS:
        raise ModelError(
            "too-large", f"the ranges allow {Bounds.combinations(spans)} combinations of sizes", where=where,
            hint=f"at most {MOST_COMBINATIONS} are possible; give narrower ranges",
        )  # fmt: skip
    bounds = Bounds(spans)
    sizes = {symbol: bounds.size(clean[symbol]) if isinstance(e, Span) else e for symbol, e in dims.items()}
    full = {
        key: tuple(bounds.size(called[key, axis]) if isinstance(e, Span) else e for axis, e in enumerate(shape))
        for key, shape in shapes.items()
    }
    return Given(sizes, full, bounds)


def _numbers(shapes: Mapping[str, tuple[Extent, ...]]) -> dict[str, Shape]:
    return {key: tuple(n for n in shape if isinstance(n, int)) for key, shape in shapes.items()}


@dataclass(frozen=True, slots=True)
class Pinned:
    shapes: list[Shape]
    notes: list[str]
    bounds: Bounds | None


CHOSEN = "only symbolic dimensions can be chosen"
Follows = Callable[[Mapping[str, int]], int | None]  # a dimension, of those that are known


def pin(
    inputs: list[Declared], dims: Mapping[str, Extent], shapes: Mapping[str, tuple[Extent, ...]], where: str,
    follows: Mapping[str, Follows] | None = None, written: Shapes | None = None, hint: str = CHOSEN,
    names: Collection[str] | None = None,
) -> Pinned:  # fmt: skip
    """The shape of each input, notes about what was assumed, and the bounds of sizes that the caller gives. `follows`: dimensions
    that are computed from others. `written`: the shapes as the user has them. `hint`: where a shape contradicts the model.
    `names`: of dimensions, where the model's own words are formulas."""
    symbols = {d for item in inputs for d in item.dims or () if isinstance(d, str)}
    said = bounded(inputs, *named(dims, shapes, symbols), where)
    given = _by_input(inputs, said.shapes, where)
    sizes = _Sizes(where)
    _bind_dims(sizes, symbols, symbols if names is None else names, said.dims, dims)
    words = {n: (key, shape) for key, shape in (written or shapes).items() for n in _by_input(inputs, {key: ()}, where)}
    for position, item in enumerate(inputs):
        if position in given and item.dims is not None:
            _bind_shape(sizes, item, item.dims, given[position], words[position], hint)
    for symbol, computed in (follows or {}).items():
        if (size := computed(sizes.known)) is not None:
            sizes.bind(symbol, size, size, "the model")
    notes = [text for n, item in enumerate(inputs) if n not in given and (text := _bind_batch(sizes, item))]
    try:
        made = [given[n] if n in given else _shape_of(sizes, item, n) for n, item in enumerate(inputs)]
    except ModelError as error:
        left = _all_open(sizes, inputs, given)
        if len(left) > 1:
            error.hint = f"give all sizes that are open: `{' '.join(left)}`, where a size may be a range (`1..N`)"
        raise
    pinned = [_checked(shape, item, where) for shape, item in zip(made, inputs, strict=True)]
    return Pinned(pinned, notes, said.bounds)


def _bind_dims(
    sizes: _Sizes, symbols: set[str], shown: Collection[str], dims: dict[str, int], written: Mapping[str, Extent]
) -> None:
    """What `--dim` says."""
    for name, size in dims.items():
        if name not in symbols:
            listing = ", ".join(f"`{s}`" for s in sorted(shown)) or "none"
            raise ModelError("unknown-dimension", f"no input has a dimension called {quoted(name)}", where=sizes.where,
                             hint=f"the symbolic dimensions are: {listing}")  # fmt: skip
        if size < 0:
            raise ModelError("bad-request", f"`--dim {name}={size}`: a dimension cannot be negative", where=sizes.where,
                             hint=f"give a size, for instance `--dim {name}=1`")  # fmt: skip
        sizes.bind(name, size, written[name], f"`--dim {name}={written[name]}`")


def _bind_shape(
    sizes: _Sizes, item: Declared, dims: tuple[int | str | None, ...], shape: Shape, written: tuple[str, tuple[Extent, ...]],
    hint: str,
) -> None:  # fmt: skip
    """What `--shape` says, of one input."""
    key, extents = written
    text = f"`--shape {key}={','.join(map(str, extents))}`"
    fits = len(shape) == len(dims) and all(not isinstance(d, int) or d == s for d, s in zip(dims, shape, strict=True))
    if not fits:
        raise ModelError("shape-mismatch", f"{text} contradicts the model, which has {item}", where=sizes.where,
                         hint=hint)  # fmt: skip
    for d, s, extent in zip(dims, shape, extents, strict=True):
        if isinstance(d, str):
            sizes.bind(d, s, extent, text)


def _bind_batch(sizes: _Sizes, item: Declared) -> str:
    """A first dimension that nobody gave is a batch of 1; returns the note about it."""
    first = item.dims[0] if item.dims else 0
    if isinstance(first, int) or (isinstance(first, str) and first in sizes.known):
        return ""
    if isinstance(first, str):
        sizes.bind(first, 1, 1, "default")
    called = f" {quoted(first)}" if isinstance(first, str) else ""
    return f"the batch dimension{called} of input {quoted(item.name)} is set to 1"


def _all_open(sizes: _Sizes, inputs: list[Declared], given: Mapping[int, Shape]) -> list[str]:
    """What pins every dimension that nobody gave: names, and shapes of inputs where there are none."""
    words: list[str] = []
    for n, item in enumerate(inputs):
        dims = item.dims if item.dims is not None else (None,)
        left = [d for axis, d in enumerate(dims) if n not in given and not isinstance(d, int) and d not in sizes.known]
        unnamed = item.dims is None or any(d is None for d in dims[1:])
        if left and unnamed and n not in given:
            words.append(f"--shape {_key(item, n)}={_example(item)}")
        elif left:
            words += [f"--dim {d}=N" for d in left if d is not None]
    return [*dict.fromkeys(words)]


def _shape_of(sizes: _Sizes, item: Declared, position: int) -> Shape:
    if item.dims is None:
        raise _unpinned(item, position, "its rank", sizes.where)
    shape = []
    for axis, d in enumerate(item.dims):
        chosen = d if isinstance(d, int) else sizes.known.get(d) if isinstance(d, str) else (1 if axis == 0 else None)
        if chosen is None:
            called = f" {quoted(d)}" if isinstance(d, str) else ""
            raise _unpinned(item, position, f"dimension {axis}{called}", sizes.where, d)
        shape.append(chosen)
    return tuple(shape)


def _checked(shape: Shape, item: Declared, where: str) -> Shape:
    try:
        return check_shape(shape, f"the input {quoted(item.name)}")
    except Fault as fault:
        raise ModelError(fault.slug, fault.reason, where=where, hint=fault.hint or "give a smaller shape") from None


def _unpinned(item: Declared, position: int, what: str, where: str, symbol: str | int | None = None) -> ModelError:
    key, example = _key(item, position), _example(item)
    hint = f"give `--shape {key}={example}`, where a size may be a range (`1..N`)"
    if isinstance(symbol, str):
        hint = f"give `--dim {symbol}=N`, a range (`--dim {symbol}=1..N`), or `--shape {key}={example}`"
    return ModelError("dynamic-dimension", f"{what} of input {quoted(item.name)} {item} is not known at compile time",
                      where=where, hint=hint)  # fmt: skip


def _key(item: Declared, position: int) -> str:
    return f"in{position}" if re.search(r"[^\w./-]", item.name) else item.name


def _example(item: Declared) -> str:
    if item.dims is None:
        return "1,..."
    return ",".join(str(d) if isinstance(d, int) else "1" if i == 0 else "N" for i, d in enumerate(item.dims))


def _by_input(inputs: list[Declared], shapes: dict[str, Shape], where: str) -> dict[int, Shape]:
    """Given shapes by position; `in0` counts unless an input has that very name."""
    names = {item.name: i for i, item in enumerate(inputs)}
    out: dict[int, Shape] = {}
    for key, shape in shapes.items():
        position = names.get(key)
        if position is None and key.startswith("in") and key[2:].isdecimal() and int(key[2:]) < len(inputs):
            position = int(key[2:])
        if position is None:
            listing = ", ".join(quoted(n) for n in names)
            raise ModelError("unknown-input", f"the model has no input {quoted(key)}", where=where,
                             hint=f"its inputs are: {listing}")  # fmt: skip
        if out.setdefault(position, tuple(shape)) != tuple(shape):
            name = quoted(inputs[position].name)
            raise ModelError("shape-mismatch", f"input {name} is given two shapes", where=where,
                             hint="give each input one shape")  # fmt: skip
    return out
