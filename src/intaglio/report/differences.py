"""Two packages beside each other: figures, and layers matched by name and shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from intaglio.report.facts import MEASURED, Facts, Figure, LayerFacts

NOISE = {"time": 0.1}  # a share below which a measured figure says nothing; an emulated or estimated one has no noise
LEAST = 0.0005  # what is shown as 0.0 % is neither better nor worse
MORE_IS_BETTER = frozenset({"accuracy"})


@dataclass(frozen=True, slots=True)
class FigureChange:
    key: str
    label: str
    before: float | None
    after: float | None
    before_text: str
    after_text: str
    change_text: str
    share: float | None  # (after - before) / before
    worse: bool
    better: bool


@dataclass(frozen=True, slots=True)
class LayerChange:
    layer: str
    what: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Difference:
    name: str  # of the other package
    before: str
    after: str
    figures: tuple[FigureChange, ...]
    layers: tuple[LayerChange, ...]


def difference(before: Facts, after: Facts, folders: tuple[str, str] = ("before", "now")) -> Difference:
    keys = list(dict.fromkeys(f.key for facts in (after, before) for f in facts.figures))
    figures = tuple(compare_figures(before.figure(key), after.figure(key)) for key in keys)
    told = [_side(folder, one, other) for folder, one, other in zip(folders, (before, after), (after, before), strict=True)]
    return Difference(before.name, told[0], told[1], figures, tuple(_layers(before.layers, after.layers)))


def _side(folder: str, facts: Facts, other: Facts) -> str:
    """`build/a: digits for nucleo-l4r5zi, ram=10240`: with the options that the other does not have."""
    own = [f"{key}={value}" for key, value in sorted(facts.options.items()) if other.options.get(key) != value]
    version = [f"Intaglio {facts.intaglio}"] if facts.intaglio != other.intaglio else []
    return ", ".join([f"{folder}: {facts.name} for {facts.board or facts.target}", *own, *version])


def figure_text(figure: Figure | None) -> str:
    if figure is None:
        return "-"
    if figure.key == "error":
        return "0" if figure.value == 0 else f"{figure.value:.1e}"
    if figure.key == "accuracy":
        return f"{100 * figure.value:.2f} %"
    if figure.unit == "ms":
        return f"{figure.value * 1000:.3g} us" if figure.value < 0.1 else f"{figure.value:.4g} ms"
    return f"{figure.value:,.0f}" + (f" {figure.unit}" if figure.unit else "")


def compare_figures(before: Figure | None, after: Figure | None) -> FigureChange:
    known = after or before
    assert known is not None
    old, new = (None if f is None else f.value for f in (before, after))
    share = (new - old) / old if old and new is not None else 0.0 if old == new else None
    measured = any(f is not None and f.source == MEASURED for f in (before, after))
    matters = share is None or abs(share) > (NOISE.get(known.key, LEAST) if measured else LEAST)
    up = old is not None and new is not None and new > old and matters
    down = old is not None and new is not None and new < old and matters
    good, bad = (up, down) if known.key in MORE_IS_BETTER else (down, up)
    return FigureChange(
        known.key, known.label, old, new, figure_text(before), figure_text(after), _change(old, new, share), share, bad, good
    )


def _change(old: float | None, new: float | None, share: float | None) -> str:
    if old is None or new is None:
        return "new" if old is None else "gone"
    if old == new:
        return "same"
    return "from 0" if share is None else f"{100 * share:+.1f} %"


def _layers(before: tuple[LayerFacts, ...], after: tuple[LayerFacts, ...]) -> Iterator[LayerChange]:
    """By name and shape; then by name alone; the rest came or went."""
    old = {(layer.name, layer.result): layer for layer in before}
    by_name = {layer.name: layer for layer in before}
    seen = set()
    for layer in after:
        match = old.get((layer.name, layer.result)) or by_name.get(layer.name)
        if match is None:
            yield LayerChange(layer.label, "new", "", f"{layer.op} {layer.result}")
            continue
        seen.add(match.name)
        yield from _changes(match, layer)
    for layer in before:
        if layer.name not in seen:
            yield LayerChange(layer.label, "gone", f"{layer.op} {layer.result}", "")


def _changes(old: LayerFacts, new: LayerFacts) -> Iterator[LayerChange]:
    texts = (("operator", old.op, new.op), ("result", old.result, new.result), ("kernel", old.kernel, new.kernel))
    numbers = (
        ("instructions", old.instructions, new.instructions), ("weights", old.weight_bytes, new.weight_bytes),
        ("multiply-adds", old.macs, new.macs), ("RAM alive", old.live_bytes, new.live_bytes),
    )  # fmt: skip
    for what, a, b in texts:
        if a != b:
            yield LayerChange(new.label, what, a, b)
    for what, p, q in numbers:
        if p != q and p is not None and q is not None:
            yield LayerChange(new.label, what, f"{p:,}", f"{q:,}")


__all__ = ["Difference", "FigureChange", "LayerChange", "compare_figures", "difference", "figure_text"]
