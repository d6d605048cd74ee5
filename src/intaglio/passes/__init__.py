"""Passes: `(Graph, Context) -> Graph`, one idea each, in the order in which they stand here.

Groups of them run at four places of the line: on the graph as it was read (`ABSORB`), before a model is quantised (`PREPARE`, and
`NARROW` for its weights alone), in the stage `optimise` (`OPTIMISE`), and in front of the stage `kernels` (`SPLIT`).
"""

from __future__ import annotations

from difflib import get_close_matches

from intaglio.errors import UserError, quoted
from intaglio.ir.graph import Graph
from intaglio.passes import (
    attention,
    clean,
    dead_channels,
    fold_weights,
    fusion,
    gelu,
    layout,
    movement,
    recognise,
    reshapes,
    residual,
    strength,
    transposes,
    tree_features,
)  # fmt: skip
from intaglio.passes.absorb import absorb_quantisation
from intaglio.passes.context import Context
from intaglio.passes.halves import store_halves
from intaglio.passes.line import Condition, Pass, Step, UntilSettled, named, passes_of, run, until_settled
from intaglio.passes.loops import gather_loops
from intaglio.passes.offload import offload
from intaglio.passes.output_names import name_outputs
from intaglio.passes.read_tiles import split_reads
from intaglio.passes.rows_input import rows_of_pixels
from intaglio.passes.stream import stream
from intaglio.passes.weights import narrow_weights

_PAIRS = Condition("models of ONNX and PyTorch", lambda context: context.source in ("onnx", "torch"))
_NARROW = Condition("`--quantize weights`", lambda context: bool(context.narrow))
_QUANTISED = Condition("`--quantize`", lambda context: bool(context.output_names))
_ACCELERATOR = Condition("`--accelerator`", lambda context: bool(context.accelerators))
_HALVES = Condition("`--precision`", lambda context: context.target.precision != "fp32")
_STREAM = Condition("`--stream`", lambda context: context.stream is not None)
_ROWS = Condition("`--feed-rows`", lambda context: context.feed_rows)
_PARTS = Condition("`--weights read` or `packed`", lambda context: context.weights_read or context.weights_packed)

_TIDY = named(clean.fold_constants, clean.remove_identities, clean.common_subexpressions, clean.dead_code)
_STRENGTH = named(strength.reduce_strength)
_SETTLE = until_settled(
    clean.remove_identities,
    transposes.move_transposes,
    reshapes.move_reshapes,
    clean.common_subexpressions,
    clean.dead_code,
)
ABSORB: tuple[Step, ...] = (Pass("absorb_quantisation", absorb_quantisation, _PAIRS),)
PREPARE: tuple[Step, ...] = (
    *_TIDY,
    *named(tree_features.compare_whole_features),
    *_STRENGTH,
    *named(fold_weights.split_batch_norm, fold_weights.fold_pad, recognise.recognise_layer_norm, gelu.recognise_gelu),
    *_TIDY,
    *_STRENGTH,
    *named(layout.flatten_one_dimension),
    _SETTLE,
    *named(layout.choose_layout, fold_weights.fold_scale),
    _SETTLE,
    *_STRENGTH,
    _SETTLE,
    *named(movement.join_movement),
    _SETTLE,
    *named(transposes.fold_into_matmul, layout.expand_conv_transpose, fold_weights.fold_pad, fold_weights.fold_scale),
    *named(layout.lay_flat, layout.store_wide_padding),
    *_TIDY,
    *_STRENGTH,
    *_TIDY,
    *named(dead_channels.drop_dead_channels),
)
NARROW: tuple[Step, ...] = (*PREPARE, Pass("narrow_weights", narrow_weights, _NARROW, required=True))
OPTIMISE: tuple[Step, ...] = (
    *PREPARE,
    Pass("offload", offload, _ACCELERATOR, required=True),
    *named(recognise.join_norm_scale, attention.fuse_attention, clean.dead_code),
    *named(residual.fuse_sum, fusion.fuse_epilogue, fusion.fuse_elementwise, clean.dead_code),
    Pass("store_halves", store_halves, _HALVES, required=True),
    Pass("name_outputs", name_outputs, _QUANTISED),
    Pass("stream", stream, _STREAM, required=True),
    Pass("rows_of_pixels", rows_of_pixels, _ROWS),
)
SPLIT: tuple[Step, ...] = (Pass("split_reads", split_reads, _PARTS),)
PASSES: tuple[Pass, ...] = tuple({p.name: p for p in passes_of((*ABSORB, *NARROW, *OPTIMISE, *SPLIT))}.values())


def absorb(graph: Graph, context: Context) -> Graph:
    """The graph as it was read, with quantisation in its types."""
    return run(ABSORB, graph, context)


def prepare(graph: Graph, context: Context) -> Graph:
    """What `optimise` does before it fuses: the form in which a float model is quantised."""
    return run(PREPARE, graph, context)


def narrow(graph: Graph, context: Context) -> Graph:
    """A prepared graph whose weights are stored small."""
    return run(NARROW, graph, context)


def optimise(graph: Graph, context: Context) -> Graph:
    """The bodies of loops are in one piece afterwards, whatever is switched off."""
    return gather_loops(run(OPTIMISE, graph, context), context)


def split(graph: Graph, context: Context) -> Graph:
    """Layers in the sizes in which the stage `kernels` takes them."""
    return run(SPLIT, graph, context)


def check_disabled(names: frozenset[str]) -> None:
    """Are these names of passes?"""
    known = [p.name for p in PASSES]
    for name in sorted(names - set(known)):
        near = get_close_matches(name, known, 1)
        hint = f"did you mean `{near[0]}`?" if near else "`intaglio passes` lists them"
        raise UserError("unknown-pass", f"unknown pass {quoted(name)}", hint=hint)


__all__ = [
    "PASSES", "Context", "Pass", "UntilSettled", "absorb", "check_disabled", "narrow", "optimise", "prepare", "split",
]  # fmt: skip
