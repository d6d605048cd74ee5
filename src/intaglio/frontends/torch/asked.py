"""The sizes of the inputs of an exported program: what the user asks for, within the bounds that it was exported with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from intaglio.errors import UserError, quoted
from intaglio.frontends.onnx.pinning import Declared, Follows
from intaglio.frontends.torch.expressions import NotAFormula, shown, symbols_of, value_of
from intaglio.frontends.torch.program import Program, Size
from intaglio.ir.spans import BY_MODEL, Dims, Extent, Shapes, Span, named, simplest

MOST_TRIED = 1 << 17  # sizes of a symbol, to find those that a formula of it allows


@dataclass(frozen=True, slots=True)
class Named:
    """Everything that is known about dimensions. `follows`: those that are computed from others. `names`: as `--dim` has them."""

    dims: dict[str, Extent]
    shapes: dict[str, tuple[Extent, ...]]
    follows: dict[str, Follows]
    names: set[str]


@dataclass(frozen=True, slots=True)
class Multiple:
    """An axis `factor * symbol + more` whose symbol is no axis itself: the axis is the size that the caller gives, in steps."""

    written: str  # `2*s39`
    label: str  # of the size: input and axis
    factor: int
    more: int

    def of(self, extent: Extent, name: str = "") -> Extent:
        """What the axis is where the symbol is this."""
        if not isinstance(extent, Span):
            return self.factor * extent + self.more
        low, high = (self.factor * n + self.more for n in (extent.low, extent.high))
        return Span(low, high, self.factor * extent.step, name or extent.name or self.label)


def symbol_of(size: Size) -> str | None:
    """What a dimension is called: `s39`, or `2*s39`."""
    return size.symbol or shown(size.formula) or None


def asked_for(program: Program, wanted: list[Declared], dims: Dims, shapes: Shapes, notes: list[str]) -> Named:
    """What the user says, completed by the bounds of the program, or by the sizes of its example where there are none.
    A symbol that only occurs as a multiple (`2*Dim("h", max=16)`) is a size as others are."""
    sizes = [s for item in wanted for s in _open_sizes(program, item.name)]
    plain = {s.symbol for s in sizes if s.symbol}
    hidden = _multiples(program, wanted, plain)
    names = plain | hidden.keys()
    dims, shapes = named(dims, shapes, names)
    by_position = {f"in{n}": item.name for n, item in enumerate(wanted)}
    known = {name: _opened(program, name, size) for name, size in dims.items()}
    full = {key: _shape_opened(program, by_position.get(key, key), shape) for key, shape in shapes.items()}
    said: dict[str, Extent] = dict(known)
    called: dict[str, str] = {}  # symbols to the names that the user gives multiples of them
    for item in wanted:
        for key in [key for key in full if by_position.get(key, key) == item.name]:
            pairs = _pairs(program, item.name, full[key])
            for axis, (size, extent) in enumerate(pairs):
                _bind(program, item.name, axis, size, extent, said, names)
                called.update({_base(size): extent.name} if isinstance(extent, Span) and extent.name else {})
            if any(isinstance(e, Span) and isinstance(s, Size) and not s.symbol for s, e in pairs):  # as words of `--dim`
                del full[key]
                known |= {base: said[base] for s, _ in pairs if (base := _base(s)) in names}
                known |= {symbol_of(s) or "": e for s, e in pairs if isinstance(s, Size) and _base(s) not in names}
    given = {by_position.get(key, key) for key in full}
    notes += [note for name, size in said.items() if (note := _within(program, name, size))]
    follows: dict[str, Follows] = {}
    for item in wanted:
        told = []
        for size in _open_sizes(program, item.name):
            name, base = symbol_of(size), _base(size)
            if name is None or name in said:
                continue
            if base in hidden and base not in said and _range_of(program, base)[1] is not None:
                said[base] = chosen = _opened(program, base, BY_MODEL)
                told.append(f"{_told(program, base, chosen)}, so `{name}` is {_extent(size.formula, base, chosen)}")
            if base in hidden and base in said and name == hidden[base].written:
                known[name] = hidden[base].of(said[base], called.get(base, ""))
            elif symbols_of(size.formula) and symbols_of(size.formula) <= plain | (hidden.keys() & said.keys()):
                follows[name] = _computed(size.formula, hidden)
            elif item.name not in given and (left := _chosen(program, size)) is not None:
                known[name] = said[name] = left
                told.append(_told(program, name, left))
        if told:
            notes.append(f"in the input {quoted(item.name)}, {'; '.join(told)}; `--dim` and `--shape` change it")
    return Named({name: size for name, size in known.items() if name not in hidden}, full, follows, names)


def _multiples(program: Program, wanted: list[Declared], plain: set[str]) -> dict[str, Multiple]:
    """By symbol, the first axis that has a multiple of it."""
    found: dict[str, Multiple] = {}
    for item in wanted:
        for axis, size in enumerate(program.graph.metas[item.name].sizes):
            base = _base(size)
            if not isinstance(size, Size) or size.symbol or not base or base in plain or base in found:
                continue
            first, second, third = (_value(size.formula, base, n) or 0 for n in (2, 3, 1000))
            factor, more = second - first, 3 * first - 2 * second
            if factor > 0 and third == 1000 * factor + more:
                found[base] = Multiple(symbol_of(size) or "", f"{item.name}_{axis}", factor, more)
    return found


def _pairs(program: Program, name: str, shape: tuple[Extent, ...]) -> list[tuple[int | Size, Extent]]:
    """Axes that a shape gives; none where it does not fit the input, which `pin` reports."""
    sizes = program.graph.metas[name].sizes
    fits = len(sizes) == len(shape) and all(isinstance(s, Size) or s == e for s, e in zip(sizes, shape, strict=True))
    return list(zip(sizes, shape, strict=True)) if fits else []


def _base(size: int | Size) -> str:
    """The symbol that alone decides a dimension; "" where there is none."""
    if not isinstance(size, Size):
        return ""
    symbols = symbols_of(size.formula)
    base = next(iter(symbols)) if len(symbols) == 1 else ""
    return size.symbol or (base if base and _value(size.formula, base, 2) is not None else "")


def _value(formula: str, base: str, n: int) -> int | None:
    try:
        return value_of(formula, {base: n})
    except NotAFormula:
        return None


def _bind(
    program: Program, name: str, axis: int, size: int | Size, extent: Extent, said: dict[str, Extent], names: set[str]
) -> None:
    """What a shape says of a symbol: also of `s39`, where it says what `2*s39` is."""
    if not isinstance(size, Size):
        return
    base = _base(size)
    if base in names:
        wanted = extent if size.symbol else _solved(program, name, axis, size, extent)
        before = said.setdefault(base, wanted)
        if not size.symbol and str(_unnamed(before)) != str(_unnamed(wanted)):  # of plain ones, `pin` says it
            hint = "inputs that share a symbolic dimension must agree on it"
            what = f"the dimension `{base}` is {_unnamed(before)} and {_unnamed(wanted)}"
            raise UserError("bad-option", what, where=program.file, hint=hint)
    elif isinstance(extent, Span):
        what = f"axis {axis} of the input {quoted(name)} is `{symbol_of(size)}` and cannot have a range of its own"
        hint = f"give ranges to what it is computed from: {_options(sorted(symbols_of(size.formula)))}"
        hint = "give it one size, or export with a plain `Dim` for this axis" if base else hint
        raise UserError("bad-option", what, where=program.file, hint=hint)


def _unnamed(extent: Extent) -> Extent:
    return extent._replace(name="") if isinstance(extent, Span) else extent


def _options(symbols: list[str]) -> str:
    return " ".join(f"`--dim {symbol}=..`" for symbol in symbols) or "export with a plain `Dim` for this axis"


def _solved(program: Program, name: str, axis: int, size: Size, extent: Extent) -> Extent:
    """What the symbol is where its formula is this."""
    base = _base(size)
    wanted = list(extent.numbers) if isinstance(extent, Span) else [extent]
    low, high = _range_of(program, base)
    least = 0 if 0 in wanted else 1 if low == 2 else low  # torch assumes 2
    sizes = range(least, least + MOST_TRIED if high is None else high + 1)[:MOST_TRIED]
    found = [n for n in sizes if _value(size.formula, base, n) in wanted]
    if found and [_value(size.formula, base, n) for n in found] == wanted:
        step = found[1] - found[0] if len(found) > 1 else 1
        if found == list(range(found[0], found[-1] + 1, step)):
            return simplest(Span(found[0], found[-1], step))
    what = f"axis {axis} of the input {quoted(name)} is `{symbol_of(size)}`, which cannot be {extent}"
    if len(found) > 1:
        near = Span(found[0], found[-1])
        hint = f"with `--dim {base}={near}`, it is {_extent(size.formula, base, near)}"
    elif high is not None and low < high:
        hint = f"with `--dim {base}={low}..{high}`, it is {_extent(size.formula, base, Span(low, high))}"
    else:
        hint = f"say what `{base}` is: `--dim {base}=N`"
    raise UserError("bad-option", what, where=program.file, hint=hint)


def _extent(formula: str, base: str, extent: Extent) -> Extent:
    """What a formula is for these sizes, as it is written: `2..32:2`."""
    numbers = extent.numbers if isinstance(extent, Span) else [extent]
    found = sorted({n for size in numbers[:MOST_TRIED] if (n := _value(formula, base, size)) is not None})
    step = found[1] - found[0] if len(found) > 1 else 1
    return simplest(Span(found[0], found[-1], step if all(b - a == step for a, b in pairwise(found)) else 1))


def _open_sizes(program: Program, name: str) -> Iterator[Size]:
    return (s for s in program.graph.metas[name].sizes if isinstance(s, Size))


def _computed(formula: str, hidden: Mapping[str, Multiple]) -> Follows:
    def follows(known: Mapping[str, int]) -> int | None:
        behind = {s: (known[of.written] - of.more) // of.factor for s, of in hidden.items() if of.written in known}
        try:
            return value_of(formula, {**known, **behind})
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
        what = f"the program has no upper bound for {quoted(symbol)}"
        hint = f"give one: `--dim {symbol}=1..512`, or export with `Dim(..., max=...)`; bounded: {known}"
        raise UserError("bad-option", what, where=program.file, hint=hint)
    return Span(low, high) if low < high else high


def _shape_opened(program: Program, name: str, shape: tuple[Extent, ...]) -> tuple[Extent, ...]:
    meta = program.graph.metas.get(name)
    if BY_MODEL not in shape or meta is None or len(meta.sizes) != len(shape):
        return shape
    return tuple(_axis_opened(program, name, axis, size, meta.sizes[axis]) for axis, size in enumerate(shape))


def _axis_opened(program: Program, name: str, axis: int, extent: Extent, size: int | Size) -> Extent:
    if extent != BY_MODEL:
        return extent
    if isinstance(size, int):
        what = f"axis {axis} of the input {quoted(name)} is {size} in the program; `..` is for open dimensions"
        raise UserError("bad-option", what, where=program.file, hint=f"write {size} there")
    if not (base := _base(size)):
        what = f"axis {axis} of the input {quoted(name)} is `{symbol_of(size)}`, which follows from other dimensions"
        hint = f"say it of them: {_options(sorted(symbols_of(size.formula)))}"
        raise UserError("bad-option", what, where=program.file, hint=hint)
    opened = _opened(program, base, extent)
    return opened if size.symbol else _extent(size.formula, base, opened)


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
