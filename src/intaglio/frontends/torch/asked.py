"""The sizes of the inputs of an exported program: what the user asks for, within the bounds that it was exported with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from intaglio.errors import UserError, quoted
from intaglio.frontends.onnx.pinning import Declared, Follows
from intaglio.frontends.torch.expressions import NotAFormula, shown, symbols_of, value_of
from intaglio.frontends.torch.program import Program, Size
from intaglio.ir.spans import BY_MODEL, Dims, Extent, Shapes, Span, named


@dataclass(frozen=True, slots=True)
class Named:
    """Everything that is known about dimensions. `follows`: those that are computed from others."""

    dims: dict[str, Extent]
    shapes: dict[str, tuple[Extent, ...]]
    follows: dict[str, Follows]


def symbol_of(size: Size) -> str | None:
    """What a dimension is called: `s39`, or `2*s39`."""
    return size.symbol or shown(size.formula) or None


def asked_for(program: Program, wanted: list[Declared], dims: Dims, shapes: Shapes, notes: list[str]) -> Named:
    """What the user says, completed by the bounds of the program, or by the sizes of its example where there are none."""
    dims, shapes = named(dims, shapes, {s.symbol for item in wanted for s in _open_sizes(program, item.name) if s.symbol})
    by_position = {f"in{n}": item.name for n, item in enumerate(wanted)}
    known = {name: _opened(program, name, size) for name, size in dims.items()}
    full = {key: _shape_opened(program, by_position.get(key, key), shape) for key, shape in shapes.items()}
    given = {by_position.get(key, key): shape for key, shape in full.items()}
    said: dict[str, Extent] = dict(known)
    for item in wanted:
        pairs = zip(program.graph.metas[item.name].sizes, given.get(item.name, ()), strict=False)
        said.update({s.symbol: n for s, n in pairs if isinstance(s, Size) and s.symbol})
        _refuse_ranges(program, item.name, given.get(item.name, ()))
    notes += [note for name, size in said.items() if (note := _within(program, name, size))]
    plain = {s.symbol for item in wanted for s in _open_sizes(program, item.name) if s.symbol}
    follows: dict[str, Follows] = {}
    for item in wanted:
        told = []
        for size in _open_sizes(program, item.name):
            name = symbol_of(size)
            if name is None or name in said:
                continue
            if not size.symbol and symbols_of(size.formula) and symbols_of(size.formula) <= plain:
                follows[name] = _computed(size.formula)
            elif item.name not in given and (chosen := _chosen(program, size)) is not None:
                known[name] = said[name] = chosen
                told.append(_told(program, name, chosen))
        if told:
            notes.append(f"in the input {quoted(item.name)}, {'; '.join(told)}; `--dim` and `--shape` change it")
    return Named(known, full, follows)


def _open_sizes(program: Program, name: str) -> Iterator[Size]:
    return (s for s in program.graph.metas[name].sizes if isinstance(s, Size))


def _computed(formula: str) -> Follows:
    def follows(symbols: object) -> int | None:
        try:
            return value_of(formula, symbols)  # type: ignore[arg-type]
        except NotAFormula:
            return None

    return follows


def _range_of(program: Program, symbol: str) -> tuple[int, int | None]:
    """From 1 on where the program says nothing: torch has 0 as the least size of a dimension that nobody bounded."""
    low, high = program.ranges.get(symbol, (None, None))
    return max(1, low or 1), high


def _chosen(program: Program, size: Size) -> Extent | None:
    """The bounds of the program where it has both, else the size of its example."""
    low, high = _range_of(program, size.symbol)
    if not size.symbol or high is None:
        return size.hint
    return Span(low, high) if low < high else high


def _told(program: Program, name: str, chosen: Extent) -> str:
    if isinstance(chosen, Span):
        from_0 = chosen.low == 1 and program.ranges.get(name, (None, None))[0] == 0
        more = f" without 0, which `--dim {name}=0..{chosen.high}` adds" if from_0 else ""
        return f"`{name}` is {chosen}, the bounds of the program{more}"
    return f"`{name}` is {chosen}, as in the example"


def _opened(program: Program, symbol: str, size: Extent) -> Extent:
    """`..` becomes the range that the program was exported with."""
    if size != BY_MODEL:
        return size
    low, high = _range_of(program, symbol)
    if high is None:
        known = ", ".join(f"`{name}`" for name, (_, most) in program.ranges.items() if most is not None) or "none"
        what = f"the program has no upper bound for {quoted(symbol or 'this axis')}"
        hint = f"give one: `--dim {symbol or 'NAME'}=1..512`, or export with `Dim(..., max=...)`; bounded: {known}"
        raise UserError("bad-option", what, where=program.file, hint=hint)
    return Span(low, high) if low < high else high


def _shape_opened(program: Program, name: str, shape: tuple[Extent, ...]) -> tuple[Extent, ...]:
    if BY_MODEL not in shape or name not in program.graph.metas:
        return shape
    sizes = program.graph.metas[name].sizes
    symbols = [s.symbol if isinstance(s, Size) else "" for s in sizes] if len(sizes) == len(shape) else [""] * len(shape)
    return tuple(_opened(program, symbol, size) for symbol, size in zip(symbols, shape, strict=True))


def _within(program: Program, symbol: str, size: Extent) -> str:
    """Sizes that the program was not exported for are refused: what it does for them is not known. A note where they are fine.

    torch assumes a least size of 2 unless the program states another. The graph is valid for 1 too, so it stays as it is."""
    low, high = program.ranges.get(symbol, (None, None))
    first, last = (size.low, size.high) if isinstance(size, Span) else (size, size)
    if (high is None or last <= high) and (low is None or first >= low):
        return ""
    if first == 1 and low == 2 and (high is None or last <= high):
        note = f"the program was exported for `{symbol}` of 2 or more, which torch assumes"
        return f"{note}; validate the package at 1, or export with `min=1`"
    bounds = f"{0 if low is None else low} or more" if high is None else f"{0 if low is None else low}..{high}"
    what = f"`{symbol}={size}` is beyond the bounds of the program, which was exported for `{symbol}` of {bounds}"
    within = f"`--dim {symbol}=..` takes its bounds" if high is not None else f"start at {low}"
    hint = f"{within}; or export it again with `Dim(..., min={first}, max={last})`"
    raise UserError("bad-option", what, where=program.file, hint=hint)


def _refuse_ranges(program: Program, name: str, shape: tuple[Extent, ...]) -> None:
    """A range for an axis that is computed from another."""
    for axis, (size, extent) in enumerate(zip(program.graph.metas[name].sizes, shape, strict=False)):
        if isinstance(size, Size) and size.formula and isinstance(extent, Span):
            what = f"axis {axis} of the input {quoted(name)} is `{symbol_of(size)}` and cannot have a range of its own"
            hint = "give it one size, or export with a plain `Dim` for this axis"
            raise UserError("bad-option", what, where=program.file, hint=hint)
