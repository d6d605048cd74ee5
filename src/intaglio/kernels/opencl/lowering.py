"""A node on the device: its own builder, or its loops for one core spread over work-items; None: it stays on the CPU."""

from __future__ import annotations

import math
from dataclasses import replace

from intaglio.ir.graph import Node
from intaglio.ir.types import DType
from intaglio.kernels.accesses import inner_of
from intaglio.kernels.job import Choice, Job, Lowered, same_memory
from intaglio.kernels.loop import For, Kernel, Num, Stmt, While
from intaglio.kernels.opencl.launch import Launch, Variant
from intaglio.kernels.opencl.launch_printer import print_launch
from intaglio.kernels.opencl.printer import CLPrinter, NoOpenCL, common
from intaglio.kernels.opencl.spread import spread
from intaglio.targets import Target

MOST_ELEMENTS = 2**31 - 1  # indices are ints there
MOST_IN_ORDER = 1 << 14  # rounds that a single work-item may do before the CPU is the better place
PREFIX = "cl_"  # of kernels of a device, in IR files
ON_CPU = "cpu"  # `using cpu`: this layer stays there


def stays_on_cpu(node: Node, asked: str) -> str | None:
    """Why no kernel of a device takes this node, whatever it computes."""
    if asked and not asked.startswith(PREFIX):
        return "the IR file keeps it on the CPU"
    values = [v for v in (*node.inputs, *node.outputs) if v is not None]
    if any(v.dtype is DType.F64 for v in values):
        return "it uses doubles, which not every device supports"
    return "a tensor is too large for 32-bit indices" if any(v.type.elements > MOST_ELEMENTS for v in values) else None


def device_job(node: Node, target: Target, asked: str = "") -> Job:
    return Job(node, replace(target, isa="opencl"), asked)


def lower_on_device(
    node: Node, target: Target, asked: str, own: tuple[Choice, ...], general: tuple[Choice, ...]
) -> Lowered | None:
    """`own`: the kernels of devices. `general`: those for one core, whose loops are spread where no other applies."""
    if stays_on_cpu(node, asked) is not None:
        return None
    job = device_job(node, target, asked)
    for choice in own:
        if choice.applies(job) is None:
            made = choice.build(job.fresh())
            if _printable(made.kernel):
                return made
    job = device_job(node, target)
    for choice in general:
        if choice.applies(job) is None:
            return _spread(choice.build(job.fresh()), node)
    return None


def _spread(lowered: Lowered, node: Node) -> Lowered | None:
    kernel = lowered.kernel
    if kernel.wait is not None:
        return None
    launches, in_place = spread(kernel, same_memory(lowered, node)), kernel.in_place
    if in_place and launches is not None:  # more goes at once when the result has memory of its own
        apart = spread(kernel, {})
        if apart is not None and _width(apart) > _width(launches):
            launches, in_place = apart, False
    if launches is None or any(_long(launch) for launch in launches):
        return None
    for number, launch in enumerate(launches):
        launch.about = kernel.about if len(launches) == 1 else f"{kernel.about}\npart {number + 1} of {len(launches)}"
    made = replace(
        kernel, body=(), isa="opencl", variants=(Variant("spread", launches, cpu=True),), in_place=in_place,
        over=kernel.over if in_place else -1, fallible=False, used_by=[],
    )  # fmt: skip
    if not _printable(made):
        return None
    return Lowered(made, lowered.arguments, PREFIX + lowered.using)


def _width(launches: tuple[Launch, ...]) -> int:
    return min((math.prod(launch.size) for launch in launches), default=1)


def _long(launch: Launch) -> bool:
    """One work-item, and a long way to go."""
    return math.prod(launch.size) == 1 and _rounds(launch.body) > MOST_IN_ORDER


def _rounds(body: tuple[Stmt, ...]) -> int:
    total = 1
    for stmt in body:
        inner = sum(_rounds(part) for part in inner_of(stmt))
        if isinstance(stmt, For):
            times = 64
            if isinstance(stmt.start, Num) and isinstance(stmt.stop, Num):
                times = -(-(int(stmt.stop.value) - int(stmt.start.value)) // stmt.step)
            inner *= max(1, times)
        elif isinstance(stmt, While):
            inner *= 64
        total += inner
    return total


def _printable(kernel: Kernel) -> bool:
    printer = CLPrinter()
    try:
        for variant in kernel.variants:
            for launch in variant.launches:
                print_launch(launch, kernel, printer, "k")
        common(printer)
    except NoOpenCL:
        return False
    return True


def device_text(kernel: Kernel) -> str:
    """What tells one kernel from another."""
    printer = CLPrinter()
    parts = []
    for variant in kernel.variants:
        for launch in variant.launches:
            sizes = f"{launch.size}{launch.gpu}{launch.cpu}"
            parts.append(f"{variant.label}{sizes}{print_launch(replace(launch, about='x'), kernel, printer, 'k')}")
    return "\n".join(parts)
