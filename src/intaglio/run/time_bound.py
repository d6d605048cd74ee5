"""A bound of the cycles of every layer, whatever the data: of all ways through its machine code, the one that costs most.

    maximise    sum over blocks: cycles x times it runs, + cycles of a refill x times its branch is taken
    subject to  what comes into a block leaves it; a function is entered as often as it is called;
                a loop goes round at most as often as it does in a run

What data cannot change runs as often as in one run: `run/taint.py` finds it in the machine code. For the rest, the linear program
takes the way that costs most. Loops of kernels have bounds that do not depend on data (`kernels/loop_facts.py` reads that from the
loop IR), so they go round as often as in a run, even where a compiler has spread the end of one over several ways. Loops in
functions of the compiler or of mathematics that data may end early count `HELPER_TURNS` each time they are entered.

Cycles of blocks are those of `run/costs.py`: an Arm core at zero wait states. No bound where a kernel has a loop that data ends, or
machine code jumps to computed addresses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from intaglio.errors import ToolError, install_hint
from intaglio.run.costs import BlockCost, Coster
from intaglio.run.emulator.counting import BasicBlock, Counts
from intaglio.run.emulator.image import Image
from intaglio.run.emulator.traced import Traced
from intaglio.run.flow import Block, Flow, flow_of
from intaglio.run.seen import Seen, seen_of
from intaglio.run.taint import Clean, clean_code

Name = tuple[str | int, ...]  # of a variable: a block, an edge, or an exit
HELPER_TURNS = 64  # of loops over the bits of a number


@dataclass(frozen=True, slots=True)
class Bound:
    """`cycles` is None where there is no bound, and `reason` says why."""

    observed: int
    cycles: int | None
    reason: str = ""
    helpers: tuple[str, ...] = ()  # functions with loops that are not of a kernel


class Bounds:
    """Of the layers of one firmware."""

    def __init__(self, image: Image, coster: Coster, name: str, traced: Traced) -> None:
        self._image, self._coster, self._name, self._traced = image, coster, name, traced
        self._flows: dict[int, Flow] = {}

    def layer(self, function: str, counts: list[Counts]) -> Bound:
        """`counts`: of runs on different data."""
        observed = max(self._coster.add(one).cycles for one in counts)
        if function not in self._image.symbols:
            return Bound(observed, None, f"the firmware has no function `{function}`")
        flows = self._reached(self._image.symbols[function])
        for flow in flows.values():
            if flow.unknown:
                return Bound(observed, None, f"`{flow.function.name}` has {flow.unknown}")
        seen = seen_of(counts, flows)
        inside = max(self._coster.add(_only(one, flows)).cycles for one in counts)
        most, helpers = self._most(flows, seen, self._image.symbols[function])
        if most is None:
            return Bound(observed, None, "the linear program has no solution")
        return Bound(observed, max(observed, observed - inside + most), helpers=helpers)

    def _own(self, flow: Flow) -> bool:
        """Of the generated C: kernels, and routines that they share."""
        return flow.function.name.startswith(f"{self._name}_")

    def _reached(self, address: int) -> dict[int, Flow]:
        found: dict[int, Flow] = {}
        todo = [address]
        while todo:
            at = todo.pop()
            function = self._image.function(at)
            if function is None or function.address in found:
                continue
            if function.name in (f"{self._name}_hook", f"{self._name}_cycles"):
                continue
            if function.address not in self._flows:
                self._flows[function.address] = flow_of(function, self._image, self._coster.read)
            flow = found[function.address] = self._flows[function.address]
            todo += [to for block in flow.blocks.values() for to in block.calls]
        return found

    def _most(self, flows: Mapping[int, Flow], seen: Seen, root: int) -> tuple[int | None, tuple[str, ...]]:
        program = _Program()
        helpers: list[str] = []
        calls: dict[int, list[Name]] = {}
        for block in (block for flow in flows.values() for block in flow.blocks.values()):
            for n, to in enumerate(block.calls):
                name: Name = ("c", block.address, n) if n in block.may_call else ("x", block.address)
                if n in block.may_call:
                    program.at_most([(name, 1.0), (("x", block.address), -1.0)], 0)
                if (called := self._image.function(to)) is not None:
                    calls.setdefault(called.address, []).append(name)
        entered = seen.ran.get(root, 0)
        clean = clean_code(flows, self._coster.read, self._traced, seen, root)
        for start, flow in flows.items():
            self._add(program, flow, start == root, entered, calls.get(start, []))
            self._fixed(program, flow, seen, clean)
            if self._loops(program, flow, seen, clean):
                helpers.append(flow.function.name)
        return program.solve(), tuple(sorted(helpers))

    def _add(self, program: _Program, flow: Flow, root: bool, entered: int, calls: list[Name]) -> None:
        into: dict[int, list[Name]] = {at: [] for at in flow.blocks}
        for block in flow.blocks.values():
            cost = self._cost(flow, block)
            program.cost(("x", block.address), cost.cycles)
            leaving: list[tuple[Name, float]] = []
            for to in block.edges():
                edge: Name = ("e", block.address, to)
                leaving.append((edge, 1.0))
                if to == block.taken and block.taken != block.next:
                    program.cost(edge, cost.taken_cycles)
                into[to].append(edge)
            if block.may_leave:
                leaving.append((("o", block.address), 1.0))
                program.cost(("o", block.address), cost.taken_cycles)
            if leaving:
                program.equal([*leaving, (("x", block.address), -1.0)], 0)
            else:
                program.cost(("x", block.address), cost.taken_cycles)  # a return fills the pipeline again
        for at, edges in into.items():
            terms: list[tuple[Name, float]] = [*((edge, 1.0) for edge in edges), (("x", at), -1.0)]
            if at != flow.function.address:
                program.equal(terms, 0)
            elif root:
                program.equal(terms, -entered)
            else:
                program.equal([*terms, *((call, 1.0) for call in calls)], 0)

    def _cost(self, flow: Flow, block: Block) -> BlockCost:
        """The most, whether it is jumped to or follows a block: an instruction may wait for the one in front of it. Calls fill the
        pipeline again."""
        cycles = 0
        before = [None, *(BasicBlock(at, other.size) for at, other in flow.blocks.items() if other.next == block.address)]
        for at, size in block.pieces():
            if not size:
                return BlockCost(0, cycles, 0)
            costs = [self._coster.block(BasicBlock(at, size), one) for one in before]
            cycles += max(one.cycles for one in costs)
            before = [None]
            if at + size in block.returns:
                cycles += costs[0].taken_cycles
        return replace(costs[0], cycles=cycles)

    def _fixed(self, program: _Program, flow: Flow, seen: Seen, clean: Clean) -> None:
        """What data cannot change is as in a run."""
        for at, block in flow.blocks.items():
            if at in clean.blocks:
                program.equal([(("x", at), 1.0)], seen.ran.get(at, 0))
            if at in clean.branches and len(block.edges()) > 1 and not block.may_leave:
                for to in block.edges():
                    program.equal([(("e", at, to), 1.0)], seen.edge(flow, at, to))

    def _loops(self, program: _Program, flow: Flow, seen: Seen, clean: Clean) -> bool:
        """True: some loop of it is bounded by HELPER_TURNS."""
        own = self._own(flow)
        closing = [edge for edge in (flow.retreating() if own else flow.back_edges()) if edge[1] not in clean.blocks]
        for header in {to for _, to in closing}:
            back: list[Name] = [("e", at, to) for at, to in closing if to == header]
            before = [at for at, block in flow.blocks.items() if header in block.edges() and (at, header) not in closing]
            entries: list[Name] = [("e", at, header) for at in before]
            if own:
                turns = sum(seen.edge(flow, at, to) for at, to in closing if to == header)
                program.at_most([(edge, 1.0) for edge in back], turns)
            else:
                terms = [*((edge, 1.0) for edge in back), *((edge, -float(HELPER_TURNS)) for edge in entries)]
                if header == flow.function.address:
                    terms.append((("x", header), -float(HELPER_TURNS)))
                program.at_most(terms, 0)
        return bool(closing) and not own


def _only(counts: Counts, flows: Mapping[int, Flow]) -> Counts:
    spans = [(flow.function.address, flow.function.address + flow.function.size_bytes) for flow in flows.values()]
    inside = {b: t for b, t in counts.blocks.items() if any(start <= b.address < end for start, end in spans)}
    return Counts(inside)


class _Program:
    """A linear program over named variables, all from 0 up."""

    def __init__(self) -> None:
        self._index: dict[Name, int] = {}
        self._costs: dict[int, float] = {}
        self._equal: list[tuple[list[tuple[int, float]], float]] = []
        self._most: list[tuple[list[tuple[int, float]], float]] = []

    def _at(self, name: Name) -> int:
        return self._index.setdefault(name, len(self._index))

    def cost(self, name: Name, cycles: float) -> None:
        at = self._at(name)
        self._costs[at] = self._costs.get(at, 0.0) + cycles

    def equal(self, terms: Iterable[tuple[Name, float]], value: float) -> None:
        self._equal.append(([(self._at(name), factor) for name, factor in terms], value))

    def at_most(self, terms: Iterable[tuple[Name, float]], value: float) -> None:
        self._most.append(([(self._at(name), factor) for name, factor in terms], value))

    def solve(self) -> int | None:
        try:
            from scipy.optimize import linprog  # type: ignore[import-untyped,unused-ignore]
            from scipy.sparse import csr_matrix  # type: ignore[import-untyped,unused-ignore]
        except ImportError as error:
            hint = f"{install_hint('dossier')} installs it"
            raise ToolError("no-solver", f"a bound of the time needs the package `scipy`: {error}", hint=hint) from None

        def matrix(rows: list[tuple[list[tuple[int, float]], float]]) -> tuple[object, object]:
            if not rows:
                return None, None
            entries = [(factor, row, at) for row, (terms, _) in enumerate(rows) for at, factor in terms]
            data, i, j = zip(*entries, strict=True)
            return csr_matrix((data, (i, j)), shape=(len(rows), len(self._index))), [value for _, value in rows]

        costs = np.zeros(len(self._index))
        for at, cycles in self._costs.items():
            costs[at] = -cycles
        most, limits = matrix(self._most)
        equal, values = matrix(self._equal)
        found = linprog(costs, A_ub=most, b_ub=limits, A_eq=equal, b_eq=values, bounds=(0, None), method="highs")
        return None if found.status != 0 else int(np.ceil(-found.fun - 1e-6))
