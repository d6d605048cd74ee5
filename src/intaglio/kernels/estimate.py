"""Time of a kernel without measuring it: cycles of its tiles, and its weights from memory.

What chooses tiles and algorithms, orders what `tune` measures and stands in `compile --explain` is the same function: the
`estimate` of a row in `choice.py`. Kernels without one have the roofline of their layer.
"""

from __future__ import annotations

from intaglio.ir.sizes import most
from intaglio.kernels.job import Job
from intaglio.targets import Target

NOT_HIDDEN = 0.25  # of arithmetic or memory, whichever is shorter
ONE_BY_ONE = 2.0  # cycles of a product in loops without vectors: the sum waits for the product before it


def clock(target: Target, lanes: int) -> float:
    """Cycles per microsecond, of a core with two units that multiply and add vectors."""
    return target.gflops / (4 * lanes) * 1e3


def micros(target: Target, lanes: int, cycles: float, weight_bytes: int) -> float:
    """Arithmetic, and weights that come from memory once per inference: layers before have used the caches. Kernels ask for weights
    ahead of time (`tiles.py`), so that most of the shorter one is hidden behind the longer one."""
    arithmetic, memory = cycles / clock(target, lanes) / target.threads, weight_bytes / (target.gbytes_per_s * 1e3)
    return max(arithmetic, memory) + NOT_HIDDEN * min(arithmetic, memory)


def one_by_one(job: Job) -> float:
    """Of a kernel that takes everything, one product at a time."""
    types = [None if v is None else v.type for v in job.node.inputs]
    macs = most(job.node.op.macs(types, job.node.output.type))
    return micros(job.target, job.isa.lanes, ONE_BY_ONE * max(macs, job.node.output.type.elements), 0)
