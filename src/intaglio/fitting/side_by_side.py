"""Concats along an inner axis without copies: the operands are made in the rows of the result.

    a: f32[1,8,8,16] = conv(x, w)                     a: f32[1,8,8,16] @arena+0/192 = conv(x, w)
    b: f32[1,8,8,32] = conv(x, u)              ->     b: f32[1,8,8,32] @arena+64/192 = conv(x, u)
    c: f32[1,8,8,48] = concat(a, b, axis=3)           c: f32[1,8,8,48] @arena+0 = concat(a, b, axis=3) using view

What is concatenated once more lies in the rows of the outermost result, and the same operand may be part of several results (dense
blocks). Not done where a kernel that makes or reads such a value cannot have rows that are apart (`kernels/pitched.py`), or where
the arena would become larger: the whole is alive as long as one of its parts.
"""

from __future__ import annotations

from dataclasses import replace

from intaglio.ir.choices import VIEW, Choices
from intaglio.ir.graph import Node, Value
from intaglio.ir.views import Part, Pitch, ViewRules, row_widths, storage_parts
from intaglio.kernels.choice import WITH_LOOPS
from intaglio.kernels.lower import Memo, lower, takes_rows
from intaglio.kernels.program import Program
from intaglio.memory import placed
from intaglio.memory.ladder import peak_of
from intaglio.memory.lifetimes import find_storage
from intaglio.memory.order import reorder
from intaglio.targets.target import Target


def without_copies(program: Program, target: Target, *, slots: bool, memo: Memo | None = None) -> Program | None:
    """The placed program with such views, where there are some and its arena is no larger; the program given has addresses too.
    A small core reaches rows that are far apart with more instructions than a copy takes: there the arena has to be smaller."""
    if target.device or program.asynchronous or program.stripes:
        return None
    search = _Search(program, target, slots, memo or Memo())
    found = search.choices()
    if found is None:
        return None
    made = lower(program.graph, target, found, memo=search.memo)
    made = reorder(replace(made, given_layers=program.given_layers or program.layers), target, slots=slots)
    made = placed(made, target, slots=slots)
    most = program.arena_bytes - 1 if target.bare else program.arena_bytes
    return made if made.arena_bytes <= most else None


class _Search:
    def __init__(self, program: Program, target: Target, slots: bool, memo: Memo) -> None:
        self._program, self._target, self._slots = program, target, slots
        self._known: dict[tuple[Node, tuple[tuple[str, int], ...]], bool] = {}
        self.memo = memo

    def choices(self) -> Choices | None:
        """What to ask the kernel stage for: all at once, or as many as there are kernels and room for."""
        given = self._program.choices
        candidates = [layer.node for layer in self._program.layers if row_widths(layer.node) is not None]
        found = self._allowed(candidates)
        while refused := self._refusing(found):
            candidates = [node for node in candidates if node not in refused]
            found = self._allowed(candidates)
        most = self._peak(given)
        if self._peak(self._with(found)) > most:
            found = self._within(candidates, most)
        return self._with_loops(self._with(found)) if found and not self._refusing(found) else None

    def _with(self, nodes: list[Node]) -> Choices:
        return self._program.choices.with_kernels({node.output.name: VIEW for node in nodes})

    def _rules(self) -> ViewRules:
        return ViewRules(self._program.graph, self._program.choices.views(self._program.graph))

    def _with_loops(self, choices: Choices) -> Choices:
        """Layers whose rows are apart have kernels that are loops."""
        parts = storage_parts(self._program.graph, choices)
        touched = [n for n in self._program.graph.nodes if any(v in parts and parts[v].pitch for v in [*n.operands(), *n.outputs])]
        kernels = {node.output.name: _loops(choices.of(node)) for node in touched if not choices.is_view(node)}
        return choices.with_kernels(kernels)

    def _allowed(self, candidates: list[Node]) -> list[Node]:
        rules = self._rules()
        found = []
        for node in candidates:
            if rules.allow_rows(node):
                rules.add(node)
                found.append(node)
        return found

    def _within(self, candidates: list[Node], most: int) -> list[Node]:
        """In order, as long as no more is alive at once: all that are left, or each half of them, down to one."""
        found: list[Node] = []
        rules = self._rules()
        waiting = [candidates]
        while waiting:
            nodes = waiting.pop()
            trial, more = rules.copy(), list(found)
            for node in nodes:
                if trial.allow_rows(node):
                    trial.add(node)
                    more.append(node)
            if len(more) > len(found) and self._peak(self._with(more)) <= most:
                found, rules = more, trial
            elif len(nodes) > 1:
                middle = len(nodes) // 2
                waiting += [nodes[middle:], nodes[:middle]]
        return found

    def _peak(self, choices: Choices) -> int:
        """The most that is alive at once."""
        layers = [layer for layer in self._program.layers if not choices.is_view(layer.node)]
        trial = replace(self._program, choices=choices, layers=layers)
        storage = find_storage(trial, self._target.alignment, slots=self._slots)
        found = peak_of(storage.buffers, self._target.alignment, storage.apart)
        return 0 if found is None else found.bytes

    def _refusing(self, found: list[Node]) -> set[Node]:
        """The views that make rows of values for which a layer has no kernel."""
        choices = self._with(found)
        parts = storage_parts(self._program.graph, choices)
        pitches = {v: part.pitch for v, part in parts.items() if part.pitch is not None}
        refused: set[Node] = set()
        for layer in self._program.layers:
            touched = [v for v in [*layer.node.operands(), *layer.node.outputs] if v in pitches]
            if touched and not choices.is_view(layer.node) and not self._takes(layer.node, _loops(choices.of(layer.node)), pitches):
                refused |= {node for value in touched for node in _makes_rows(value, found, parts)}
        return refused

    def _takes(self, node: Node, asked: str, pitches: dict[Value, Pitch]) -> bool:
        """Depends on how wide rows are, not on how far apart."""
        key = node, tuple((v.name, pitches[v].width) for v in [*node.operands(), *node.outputs] if v in pitches)
        if key not in self._known:
            self._known[key] = takes_rows(node, self._target, asked, pitches, self.memo)
        return self._known[key]


def _loops(using: str) -> str:
    """The kernel to ask for instead of a routine, which takes its memory in one piece."""
    return WITH_LOOPS.get(using.partition("(")[0], using)


def _makes_rows(value: Value, views: list[Node], parts: dict[Value, Part]) -> list[Node]:
    """The views of which a value is a part; where it came along with others, all that are wider."""
    mine = parts[value]
    direct = [node for node in views if any(parts.get(v) == mine for v in node.operands())]
    if direct or mine.pitch is None:
        return direct
    same = [node for node in views if mine.whole in (node.output, parts[node.output].whole if node.output in parts else None)]
    return [node for node in same if sum(row_widths(node) or ()) > mine.pitch.width]
