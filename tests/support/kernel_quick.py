"""All kernel cases, and those that stand for the others where `make test` cannot afford all of them.

Cases of one kind have the same operator, types, tile, kernels and kind of border: the first one stands for them. A new kind of
case is therefore in the quick set at once. `make test-all` runs every case everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from intaglio.kernels.considered import considered
from intaglio.targets import Target
from support.kernel_byte_chain import BYTE_CHAINS
from support.kernel_cases import CASES
from support.kernel_hybrid import HYBRID
from support.kernel_integer_tiles import INTEGER_TILES
from support.kernel_narrow import NARROW
from support.kernel_quantised import QUANTISED
from support.kernel_running import TARGETS, Case
from support.kernel_tiles import TILED
from support.tree_models import TREES

ALL = {**CASES, **TILED, **QUANTISED, **INTEGER_TILES, **HYBRID, **BYTE_CHAINS, **NARROW, **TREES}
# Operators with tests of their own: of sizes and loops in tests/package, of strings and random numbers in test_strings.
ELSEWHERE = {"as_size", "bit_cast", "dimensions", "iota", "non_max_suppression", "nonzero", "unique"}
ELSEWHERE |= {"loop_end", "loop_start", "put_row", "room", "select_sized", "deform_columns", "random_uniform", "ngrams"}
ELSEWHERE |= {f"text_{kind}" for kind in ("case", "find", "join", "keep", "match", "split", "trim")}
_PLAIN = {"pads": 0, "strides": 1, "dilations": 1, "group": 1}  # what a window without that part has


def kernel_of(case: Case, target: Target) -> str:
    """The name in the table of kernels that this case has on a target; none where no kernel takes it."""
    return next((c.name for c in considered(case.node(), target, case.using) if not c.reason), "")


def kind_of(case: Case, targets: Sequence[Target]) -> tuple[object, ...]:
    node = case.node()
    types = [None if v is None else v.dtype for v in (*node.inputs[:2], *node.outputs)]
    kernels = [kernel_of(case, target) for target in targets]
    return case.op.NAME, tuple(types), case.using, *kernels, _borders(case)


def _borders(case: Case) -> tuple[object, ...]:
    """Which of a window's parts are there, not how large they are."""
    found: list[object] = [bool(getattr(case.op, "epilogue", ()))]
    for name, plain in _PLAIN.items():
        value: object = getattr(case.op, name, plain)
        sizes = value if isinstance(value, tuple) else (value,)
        found.append(any(size != plain for size in sizes))
    return tuple(found)


def first_of_each_kind(cases: Mapping[str, Case], *targets: Target) -> dict[str, Case]:
    first: dict[tuple[object, ...], str] = {}
    for name, case in cases.items():
        first.setdefault(kind_of(case, targets), name)
    return {name: cases[name] for name in first.values()}


@cache
def quick_cases() -> dict[str, Case]:
    return first_of_each_kind(ALL, TARGETS["avx2"], TARGETS["scalar"])
