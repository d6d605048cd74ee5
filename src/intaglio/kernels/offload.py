"""A region of an accelerator as a kernel: the C that its plug-in wrote, in a function of ours.

    void net_npu_conv(const int8_t *restrict in0, const int8_t *restrict weights, int8_t *restrict out0)
    {
        npu_run(weights, in0, out0);
    }

Asynchronous regions have two: one starts the accelerator, one waits for it, with the same parameters.
"""

from __future__ import annotations

import textwrap

from intaglio.errors import OurFault
from intaglio.ir.offload import Offload
from intaglio.ir.types import DType
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import Kernel, Verbatim
from intaglio.targets.accelerator import Region
from intaglio.targets.plugins import find_accelerator


def region_of(op: Offload) -> Region:
    """The region as its plug-in sees it."""
    inputs = tuple(v for v in op.inputs if not v.is_const)
    return Region(op.body, inputs, op.outputs, tuple(v for v in op.inputs if v.is_const))


def offload(job: Job) -> Lowered:
    op = job.node.op
    assert isinstance(op, Offload)
    if list(op.inputs) != job.node.inputs or list(op.outputs) != job.node.outputs:
        raise OurFault("bad-graph", f"a pass has changed the values of {op.place} and not those of the nodes inside")
    region = region_of(op)
    code = find_accelerator(op.accelerator).compile(region, job.target)
    for n, value in enumerate(region.inputs):
        job.reads(value, f"in{n}")
    for name, data in code.constants.items():
        job.packed(data, name)
    for n in range(len(region.outputs)):
        job.writes(n, f"out{n}")
    if code.scratch_bytes:
        job.scratch(code.scratch_bytes, dtype=DType.U8)
    params = tuple(job.params)
    stem = f"{op.accelerator}_{op.number}"
    about = code.about or f"{op.accelerator}: {', '.join(node.op.NAME for node in op.body)}"
    wait = None if not code.wait else Kernel(stem, params, _verbatim(code.wait), f"Waits for {about}", fallible=code.fallible)
    kernel = Kernel(stem, params, _verbatim(code.body), about, fallible=code.fallible, includes=code.includes, wait=wait)
    if code.over is not None:  # inputs are the first parameters, in their order
        kernel.in_place, kernel.over = True, code.over
    if wait is not None:
        wait.includes, wait.in_place, wait.over = code.includes, kernel.in_place, kernel.over
    return Lowered(kernel, job.arguments, f"{op.accelerator}(region={op.number})")


def _verbatim(text: str) -> tuple[Verbatim, ...]:
    return (Verbatim(tuple(textwrap.dedent(text).strip("\n").rstrip().split("\n"))),)
