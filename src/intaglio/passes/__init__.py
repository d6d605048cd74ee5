"""Passes: `(Graph, Target) -> Graph`, one idea each, in the order of `PASSES`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from intaglio.errors import UserError, quoted
from intaglio.ir.graph import Graph
from intaglio.passes import (
    clean,
    dead_channels,
    fold_weights,
    fusion,
    layout,
    movement,
    recognise,
    reshapes,
    residual,
    strength,
    transposes,
)  # fmt: skip
from intaglio.targets import Target


@dataclass(frozen=True, slots=True)
class Pass:
    name: str
    run: Callable[[Graph, Target], Graph]

    @property
    def summary(self) -> str:
        return (self.run.__doc__ or "").strip().splitlines()[0]


def _named(*functions: Callable[[Graph, Target], Graph]) -> tuple[Pass, ...]:
    return tuple(Pass(f.__name__, f) for f in functions)


_TIDY = (clean.fold_constants, clean.remove_identities, clean.common_subexpressions, clean.dead_code)
_SETTLE = (
    clean.remove_identities,
    transposes.move_transposes,
    reshapes.move_reshapes,
    clean.common_subexpressions,
    clean.dead_code,
)
PREPARE = _named(
    *_TIDY,
    strength.reduce_strength,
    fold_weights.split_batch_norm,
    fold_weights.fold_pad,
    recognise.recognise_layer_norm,
    *_TIDY,
    strength.reduce_strength,
    layout.flatten_one_dimension,
    *(_SETTLE * 2),
    layout.choose_layout,
    fold_weights.fold_scale,
    *(_SETTLE * 3),
    strength.reduce_strength,
    *(_SETTLE * 3),
    movement.join_movement,
    *_SETTLE,
    transposes.fold_into_matmul,
    layout.expand_conv_transpose,
    fold_weights.fold_pad,
    fold_weights.fold_scale,
    layout.lay_flat,
    layout.store_wide_padding,
    *_TIDY,
    strength.reduce_strength,
    *_TIDY,
    dead_channels.drop_dead_channels,
)
FUSE = _named(residual.fuse_sum, fusion.fuse_epilogue, fusion.fuse_elementwise, clean.dead_code)
PIPELINE = (*PREPARE, *FUSE)
PASSES: tuple[Pass, ...] = tuple({p.name: p for p in PIPELINE}.values())


def prepare(graph: Graph, target: Target) -> Graph:
    """What `optimise` does before it fuses: the form in which a float model is quantised."""
    for step in PREPARE:
        graph = step.run(graph, target)
    return graph


def optimise(
    graph: Graph,
    target: Target,
    *,
    disabled: frozenset[str] = frozenset(),
    observe: Callable[[str, Graph], None] | None = None,
    before_fusion: Callable[[Graph], None] | None = None,
) -> Graph:
    """Run every pass that is not switched off. `observe` sees the graph after each; `before_fusion` may give parts of it away."""
    names = {p.name for p in PASSES}
    for name in sorted(disabled):
        if name not in names:
            raise UserError("unknown-pass", f"there is no pass {quoted(name)}", hint="passes: " + ", ".join(sorted(names)))
    for number, step in enumerate(PIPELINE):
        if number == len(PREPARE) and before_fusion is not None:
            before_fusion(graph)
        if step.name not in disabled:
            graph = step.run(graph, target)
            if observe is not None:
                observe(step.name, graph)
    graph.stage = "optimise"
    return graph


__all__ = ["PASSES", "PIPELINE", "Pass", "optimise", "prepare"]
