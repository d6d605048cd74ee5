"""Which kernels there are for which operator, in the order in which they are tried: the first that applies is used.

A row is `Choice(name, applies, build)`. The name is what `using` shows in an IR file, without its parameters; `applies` returns
the reason why a kernel cannot be used, or None. Nothing here depends on the order of imports. `considered.py` lists every kernel of
a node with its reason; `compile --explain` prints that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from intaglio.errors import UserError, quoted
from intaglio.ir.graph import Node
from intaglio.ir.sizes import Undecided
from intaglio.kernels import (
    byte_chain,
    contract,
    coupling,
    deform,
    detection,
    elementwise,
    found,
    index,
    integer_elementwise,
    integer_pool,
    loops,
    movement,
    normalize,
    offload,
    quantised,
    quantised_real,
    quantised_recurrent,
    quantised_rows,
    random,
    recurrent,
    reduce,
    resample,
    sample,
    signal,
    sizes,
    strings,
    suppress,
    tree_functions,
    tree_tables,
    trees,
    window_general,
)
from intaglio.kernels.contraction import (
    attention,
    dots,
    fma,
    halves,
    hybrid,
    hybrid_tiles,
    listed,
    plain,
    products,
    qwinograd,
    taps,
    windows,
    winograd,
)
from intaglio.kernels.dsp import conv as dsp_conv
from intaglio.kernels.dsp import depthwise as dsp_depthwise
from intaglio.kernels.dsp import hybrid as dsp_hybrid
from intaglio.kernels.dsp import pool as dsp_pool
from intaglio.kernels.dsp import sums as dsp_sums
from intaglio.kernels.estimate import one_by_one
from intaglio.kernels.fpu import conv as fpu_conv
from intaglio.kernels.job import Choice, Job, Lowered, always, unless
from intaglio.kernels.mve import conv as mve_conv
from intaglio.kernels.mve import depthwise as mve_depthwise
from intaglio.kernels.mve import sums as mve_sums
from intaglio.kernels.opencl import conv as cl_conv
from intaglio.kernels.opencl import depthwise as cl_depthwise
from intaglio.kernels.opencl import matmul as cl_matmul
from intaglio.kernels.opencl import movement as cl_movement
from intaglio.kernels.opencl import rows as cl_rows
from intaglio.kernels.opencl import winograd as cl_winograd
from intaglio.kernels.opencl.lowering import lower_on_device
from intaglio.ops.base import Elementwise, Op
from intaglio.targets import Target
from intaglio.targets.roofline import roofline


def lanes(name: str) -> Choice:
    return Choice(name, unless(integer_elementwise.walk_of), integer_elementwise.integer_elementwise)


ELEMENTWISE = Choice("elementwise", always, elementwise.elementwise)
BYTE_CHAIN = Choice("byte_chain", unless(byte_chain.byte_chain_of), byte_chain.byte_chain)
SEVERAL: dict[str, tuple[Choice, ...]] = {
    "conv": (
        Choice(
            "winograd", winograd.winograd_applies, winograd.winograd, winograd.why_winograd, winograd.winograd_ways,
            winograd.winograd_estimate,
        ),
        Choice("conv_fpu", fpu_conv.applies, fpu_conv.contraction_fpu),
        Choice("conv_nhwc", fma.conv_applies, fma.conv_nhwc, ways=fma.conv_ways, estimate=fma.conv_estimate),
        Choice(
            "depthwise_nhwc", windows.depthwise_applies, windows.depthwise, ways=windows.depthwise_ways,
            estimate=windows.depthwise_estimate,
        ),
        Choice("conv_general", always, window_general.conv_general, estimate=one_by_one),
    ),
    "matmul": (
        Choice("matmul_fpu", fpu_conv.applies, fpu_conv.contraction_fpu),
        Choice(
            "matmul", products.matmul_applies, products.matmul_tiled, ways=products.matmul_ways,
            estimate=products.matmul_estimate,
        ),
        Choice("matmul_general", always, products.matmul_general, estimate=one_by_one),
    ),
    "qconv": (
        Choice("qdepthwise_mve", unless(mve_depthwise.facts), mve_depthwise.qdepthwise_mve),
        Choice("qconv_halves", unless(halves.facts), halves.contraction_halves),
        Choice("qconv_rows", unless(mve_conv.facts), mve_conv.contraction_rows),
        Choice("qdepthwise_lanes", unless(taps.taps_of), taps.qdepthwise, ways=taps.taps_ways, estimate=taps.taps_estimate),
        Choice("qdepthwise_dsp", unless(dsp_depthwise.facts), dsp_depthwise.qdepthwise_dsp),
        Choice("qconv_dsp", unless(dsp_conv.facts), dsp_conv.contraction_dsp),
        Choice(
            "qwinograd", qwinograd.qwinograd_applies, qwinograd.qwinograd, qwinograd.why_qwinograd, qwinograd.qwinograd_ways,
            qwinograd.qwinograd_estimate,
        ),
        Choice("qconv_listed", listed.listed_applies, listed.listed, ways=listed.listed_ways, estimate=listed.listed_estimate),
        Choice("qconv_tiles", unless(dots.dots_of), dots.qconv_tiles, ways=dots.dots_ways, estimate=dots.dots_estimate),
        Choice("qconv", plain.computed_weights, plain.qconv, estimate=one_by_one),
    ),
    "qmatmul": (
        Choice("qmatmul_halves", unless(halves.facts), halves.contraction_halves),
        Choice("qmatmul_rows", unless(mve_conv.facts), mve_conv.contraction_rows),
        Choice("qmatmul_dsp", unless(dsp_conv.facts), dsp_conv.contraction_dsp),
        Choice("qmatmul_listed", listed.listed_applies, listed.listed, ways=listed.listed_ways, estimate=listed.listed_estimate),
        Choice("qmatmul_tiles", unless(dots.dots_of), dots.qmatmul_tiles, ways=dots.dots_ways, estimate=dots.dots_estimate),
        Choice("qmatmul", always, plain.qmatmul, estimate=one_by_one),
    ),
    "hybrid_conv": (
        Choice("hybrid_conv_dsp", unless(dsp_hybrid.facts), dsp_hybrid.hybrid_conv_dsp),
        Choice(
            "hybrid_conv_tiles", unless(hybrid_tiles.hybrid_of), hybrid_tiles.hybrid_conv_tiles, ways=hybrid_tiles.tiles_ways,
            estimate=hybrid_tiles.tiles_estimate,
        ),
        Choice("hybrid_conv", plain.computed_weights, hybrid.hybrid_conv, estimate=one_by_one),
    ),
    "hybrid_matmul": (
        Choice("hybrid_dense_dsp", unless(dsp_hybrid.facts), dsp_hybrid.hybrid_matmul_dsp),
        Choice(
            "hybrid_matmul_tiles", unless(hybrid_tiles.hybrid_of), hybrid_tiles.hybrid_matmul_tiles,
            ways=hybrid_tiles.tiles_ways, estimate=hybrid_tiles.tiles_estimate,
        ),
        Choice("hybrid_matmul", always, hybrid.hybrid_matmul, estimate=one_by_one),
    ),
    "max_pool": (
        Choice("max_pool_dsp", dsp_pool.max_pool_applies, dsp_pool.max_pool_dsp),
        Choice("max_pool_bytes", integer_pool.max_pool_applies, integer_pool.max_pool_bytes),
        Choice("max_pool_nhwc", fma.not_float_image, windows.pool_nhwc),
        Choice("pool_general", always, window_general.pool_general, estimate=one_by_one),
    ),
    "average_pool": (
        Choice("average_pool_nhwc", fma.not_float_image, windows.pool_nhwc),
        Choice("pool_general", always, window_general.pool_general, estimate=one_by_one),
    ),
    "qaverage_pool": (
        Choice("qaverage_pool_dsp", dsp_pool.qaverage_pool_applies, dsp_pool.qaverage_pool_dsp),
        Choice("qaverage_pool", integer_pool.qaverage_pool_applies, integer_pool.qaverage_pool_lanes),
        Choice("qaverage_pool", always, quantised.qaverage_pool),
    ),
    "qmean": (
        Choice("qmean", unless(integer_pool.mean_of), integer_pool.qmean_lanes),
        Choice("qmean", always, quantised.qmean),
    ),
    "qadd": (
        lanes("qadd"), Choice("qadd_mve", unless(mve_sums.sum_of), mve_sums.qadd_mve),
        Choice("qadd_dsp", unless(dsp_sums.sum_of), dsp_sums.qadd_dsp), ELEMENTWISE,
    ),
    "qmul": (lanes("qmul"), Choice("qmul_dsp", unless(dsp_sums.product_of), dsp_sums.qmul_dsp), ELEMENTWISE),
    "requantize": (lanes("requantize"), ELEMENTWISE),
    **dict.fromkeys(("chain", "dequantize", "quantize"), (BYTE_CHAIN, ELEMENTWISE)),
    "layer_norm": (Choice("layer_norm", normalize.layer_norm_applies, normalize.layer_norm),),
    "tree_ensemble": (
        Choice("trees_assembly", tree_functions.assembly_applies, tree_functions.trees_assembly),
        Choice("trees_coded", trees.coded_applies, trees.trees_coded),
        Choice("trees_functions", tree_functions.functions_apply, tree_functions.trees_functions),
        Choice("trees_abreast", trees.abreast_applies, trees.trees_abreast),
        Choice("trees_walked", unless(tree_tables.tables_of), trees.trees_walked),
    ),
    "attention": (
        Choice(
            "attention", always, attention.attention, ways=attention.attention_ways, estimate=attention.attention_estimate
        ),
    ),
}
SINGLE: dict[str, Callable[[Job], Lowered]] = {  # operators with one kernel that takes everything
    "arg_reduce": reduce.arg_reduce,
    "as_size": found.as_size,
    "assert_true": movement.assert_true,
    "batch_norm": normalize.batch_norm,
    "bit_cast": movement.bit_cast,
    "col2im": contract.col2im,
    "concat": movement.concat,
    "conv_transpose": window_general.conv_transpose_general,
    "copy": movement.copy,
    "cumsum": reduce.cumsum,
    "deform_columns": deform.deform_columns,
    "det": contract.det,
    "dimensions": sizes.dimensions,
    "einsum": contract.einsum,
    "expand": movement.expand,
    "gather": index.gather,
    "gather_elements": index.gather_elements,
    "gather_nd": index.gather_nd,
    "grid_sample": sample.grid_sample,
    "gru": recurrent.recurrent,
    "iota": sizes.iota,
    "log_softmax": normalize.softmax,
    "lookup": quantised.lookup,
    "lookup16": quantised_rows.lookup16,
    "loop_end": loops.loop_end,
    "loop_start": loops.loop_start,
    "lp_pool": window_general.pool_general,
    "lrn": normalize.lrn,
    "lstm": recurrent.recurrent,
    "max_pool_indices": window_general.max_pool_indices,
    "max_unpool": index.max_unpool,
    "non_max_suppression": found.non_max_suppression,
    "ngrams": strings.ngrams,
    "nonzero": found.nonzero,
    "offload": offload.offload,
    "one_hot": index.one_hot,
    "pad": movement.pad,
    "pairwise_coupling": coupling.pairwise_coupling,
    "put_row": loops.put_row,
    "qdense": quantised_rows.qdense,
    "ql2_norm": quantised_rows.ql2_norm,
    "qlog_softmax": quantised_rows.qlog_softmax,
    "qlstm": quantised_recurrent.qlstm,
    "qreal_mean": quantised_real.qreal_mean,
    "qresize": quantised.qresize,
    "qsoftmax": quantised.qsoftmax,
    "qsoftmax16": quantised_rows.qsoftmax16,
    "random_uniform": random.random_uniform,
    "reduce": reduce.reduce,
    "reshape": movement.copy,
    "resize": resample.resize,
    "resize_bytes": quantised_rows.resize_bytes,
    "reverse_sequence": index.reverse_sequence,
    "rnn": recurrent.recurrent,
    "roi_align": sample.roi_align,
    "roll": movement.roll,
    "room": loops.room,
    "scatter_elements": index.scatter_elements,
    "scatter_nd": index.scatter_nd,
    "select": movement.select_,
    "select_boxes": detection.select_boxes,
    "suppress_boxes": suppress.suppress_boxes,
    "auto_scale": signal.auto_scale,
    "fixed_rfft": signal.fixed_rfft,
    "rounded_root": signal.rounded_root,
    "select_sized": movement.select_,
    "slice": movement.slice_,
    "softmax": normalize.softmax,
    "squash16": quantised_rows.squash16,
    "text_case": strings.text_case,
    "text_find": strings.text_find,
    "text_join": strings.text_join,
    "text_keep": strings.text_keep,
    "text_match": strings.text_match,
    "text_split": strings.text_split,
    "text_trim": strings.text_trim,
    "tile": movement.tile,
    "topk": index.topk,
    "transpose": movement.transpose,
    "trilu": movement.trilu,
    "unique": found.unique,
}
WITH_LOOPS = {"conv_fpu": "conv_nhwc", "matmul_fpu": "matmul"}  # where a routine does not do, since loops can be rewritten
TABLE: dict[str, tuple[Choice, ...]] = {
    **SEVERAL,
    **{name: (Choice(build.__name__.rstrip("_"), always, build),) for name, build in SINGLE.items()},
}


DEVICE: dict[str, tuple[Choice, ...]] = {  # OpenCL; an operator without a row, or whose rows do not apply, is spread from its loops
    "conv": (
        Choice("cl_winograd", cl_winograd.winograd_applies, cl_winograd.winograd),
        Choice("cl_conv", cl_conv.conv_applies, cl_conv.conv),
        Choice("cl_depthwise", cl_depthwise.depthwise_applies, cl_depthwise.depthwise),
    ),
    "matmul": (Choice("cl_matmul", cl_matmul.matmul_applies, cl_matmul.matmul),),
    "max_pool": (Choice("cl_max_pool", cl_conv.not_an_image, cl_depthwise.pool),),
    "average_pool": (Choice("cl_average_pool", cl_conv.not_an_image, cl_depthwise.pool),),
    "concat": (Choice("cl_concat", cl_movement.concat_applies, cl_movement.concat),),
    "pad": (Choice("cl_pad", cl_movement.pad_applies, cl_movement.pad),),
    "transpose": (Choice("cl_transpose", cl_movement.transpose_applies, cl_movement.transpose),),
    "softmax": (Choice("cl_softmax", cl_rows.softmax_applies, cl_rows.softmax),),
    "log_softmax": (Choice("cl_log_softmax", cl_rows.softmax_applies, cl_rows.softmax),),
    "layer_norm": (Choice("cl_layer_norm", cl_rows.layer_norm_applies, cl_rows.layer_norm),),
    "reduce": (Choice("cl_reduce", cl_rows.reduce_applies, cl_rows.reduce),),
}


def choices_of(op: Op) -> tuple[Choice, ...]:
    """The kernels of an operator, best first. What is elementwise needs no row of its own."""
    return TABLE.get(op.NAME, (ELEMENTWISE,) if isinstance(op, Elementwise) else ())


def refused(choice: Choice, job: Job) -> str | None:
    """Why a kernel cannot be used here; None: it can."""
    try:
        return choice.applies(job)
    except Undecided as reason:
        return str(reason)


def for_device(node: Node, target: Target, asked: str = "") -> Lowered | None:
    """The kernel of an OpenCL device; None: it stays on the CPU."""
    return lower_on_device(node, target, asked, DEVICE.get(node.op.NAME, ()), choices_of(node.op))


def lower_node(node: Node, target: Target, asked: str = "") -> Lowered:
    """The first kernel that applies; the one that is asked for, as it stands in IR files, comes before the others."""
    if target.device and node.op.LOOP:  # steps of a device are queued once each, in order: the loop would make one turn
        what = f"the loop in node {quoted(node.source)} makes a number of turns that is known at run time"
        hint = "give its number of turns as a constant, which unrolls it, or compile for the processor alone"
        raise UserError("unsupported-operator", f"{what}, which is not available for {quoted(target.name)}", hint=hint)
    if target.device and (made := for_device(node, target, asked)) is not None:
        return made
    job = Job(node, target, asked)
    undecided, hint = "", ""
    for choice in _asked_first(node, asked):
        try:
            if choice.applies(job) is None:
                return choice.build(job.fresh())
        except Undecided as reason:
            undecided, hint = f"{choice.name}: {reason}", reason.hint
    what = f"{quoted(node.op.NAME)} in node {quoted(node.source)} has no kernel for {quoted(target.name)}"
    if undecided:
        raise UserError("size-decides", f"{what} that takes all of these sizes ({undecided})", hint=hint)
    raise UserError("unsupported-operator", what, hint="`intaglio check MODEL` lists everything that is unsupported")


def _asked_first(node: Node, asked: str) -> list[Choice]:
    name = asked.partition("(")[0]
    return sorted(choices_of(node.op), key=lambda choice: choice.name != name)


# Without measuring, and what to measure -----------------------------------------------------------------------------------

FAR = 2.5  # times the best estimate: ways behind are not measured
MOST_TILES = 6  # of one algorithm that are measured


@dataclass(frozen=True, slots=True)
class Way:
    """One way to compute a layer: a kernel with its parameters, as `using` has it, and its estimate."""

    using: str
    estimate_us: float


def ways_to_measure(node: Node, target: Target) -> list[Way]:
    """Kernels that apply, with the parameters that the estimate finds promising, best first. The usual one of each kernel is
    always among them, unless another kernel is far better."""
    found: list[Way] = []
    for choice, uses in _possible(node, target).items():
        ways = [Way(using, choice.estimate(Job(node, target, using))) for using in uses]
        algorithms: dict[str, list[Way]] = {}
        for way in [ways[0], *sorted(ways[1:], key=lambda way: way.estimate_us)]:
            algorithms.setdefault(way.using.partition("tile=")[0], []).append(way)
        found += [way for tiles in algorithms.values() for way in tiles[:MOST_TILES]]
    least = min((way.estimate_us for way in found), default=0.0)
    return sorted((way for way in found if way.estimate_us <= FAR * least), key=lambda way: way.estimate_us)


def every_way(node: Node, target: Target) -> list[Way]:
    """Kernels that apply, with all parameters that they can have."""
    possible = _possible(node, target).items()
    return [Way(using, choice.estimate(Job(node, target, using))) for choice, uses in possible for using in uses]


def has_choice(node: Node) -> bool:
    """Is there more than one kernel, or more than one set of parameters?"""
    return node.op.NAME in SEVERAL


def usual_way(node: Node, target: Target) -> str:
    """What `lower_node` takes by itself; empty where nothing applies."""
    job = Job(node, target)
    first = next((choice for choice in choices_of(node.op) if refused(choice, job) is None), None)
    return "" if first is None else first.name if first.ways is None else first.ways(job)[0]


def can_use(node: Node, target: Target, using: str) -> bool:
    """Is this a kernel that applies, with parameters that it may have here? For what was measured by another version."""
    return any(using in uses for uses in _possible(node, target, using.partition("(")[0]).values())


def _possible(node: Node, target: Target, name: str = "") -> dict[Choice, list[str]]:
    """By kernel: all that apply here, or the one of this name. A kernel that is for smaller code or memory applies as always;
    one that is refused by an estimate alone may be measured."""
    found: dict[Choice, list[str]] = {}
    for choice in choices_of(node.op):
        job = Job(node, target, choice.name)
        there = name in ("", choice.name) and all(choice.name != other.name for other in found) and refused(choice, job) is None
        if there and (uses := [choice.name] if choice.ways is None else choice.ways(job)):
            found[choice] = uses
    return found


def estimate_us(node: Node, target: Target, using: str) -> float:
    """Microseconds of the kernel that a layer has: what tiles and algorithms are chosen by. Cores without an operating system and
    devices have a roofline."""
    if target.bare or target.device:
        return roofline(node, target).time_us
    job, name = Job(node, target, using), using.partition("(")[0]
    for choice in choices_of(node.op):
        if choice.name == name and refused(choice, job) is None:
            return choice.estimate(job)
    return roofline(node, target).time_us


def missing_kernels(nodes: list[Node], target: Target) -> list[tuple[Node, UserError]]:
    """Every node that no kernel takes, for `check`."""
    found = []
    for node in nodes:
        try:
            lower_node(node, target)
        except UserError as error:
            found.append((node, error))
    return found


def refusal(node: Node, target: Target, asked: str) -> str | None:
    """Why a kernel that an IR file asks for by its name cannot be used; None: it can."""
    job, known = Job(node, target, asked), choices_of(node.op)
    reasons = [refused(choice, job) for choice in known if choice.name == asked.partition("(")[0]]
    if not reasons:
        return f"kernels of `{node.op.NAME}` are {', '.join(dict.fromkeys(f'`{choice.name}`' for choice in known))}"
    if None in reasons:
        return None if "(" not in asked else "it has other parameters here"
    return reasons[0]
