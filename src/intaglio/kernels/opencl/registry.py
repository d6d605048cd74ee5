"""Which builder writes the device code of which operator; the others are spread from their loops (`spread.py`)."""

from __future__ import annotations

from collections.abc import Callable

from intaglio.ir.types import DType
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import Buffer, Builder, Kernel
from intaglio.kernels.opencl.launch import Launch, Size, Variant
from intaglio.kernels.unused import drop_unused
from intaglio.ops.base import Op

DeviceBuilder = Callable[[Job], "Lowered | None"]
BUILDERS: dict[type[Op], list[DeviceBuilder]] = {}


def on_device(*ops: type[Op], first: bool = False) -> Callable[[DeviceBuilder], DeviceBuilder]:
    """Builders of one operator are tried in order; one that does not apply returns None."""

    def register(fn: DeviceBuilder) -> DeviceBuilder:
        for op in ops:
            known = BUILDERS.setdefault(op, [])
            known.insert(0 if first else len(known), fn)
        return fn

    return register


def launch_of(
    k: Builder, stem: str, params: list[Buffer], size: Size, gpu: Size, cpu: Size, *, fixed: bool = False, about: str = ""
) -> Launch:
    return Launch(stem, tuple(params), drop_unused(k.body()), size, gpu, cpu, fixed, about)


def device_kernel(
    job: Job, stem: str, about: str, variants: list[Variant], over: Buffer | None = None, *,
    in_place: bool = False, halves: bool = False,
) -> Lowered:  # fmt: skip
    """All parameters of the job are the kernel's; each launch names those that it takes."""
    if halves and job.target.precision == "fp16" and any(p.dtype is DType.F16 for p in job.params):
        for launch in {id(launch): launch for variant in variants for launch in variant.launches}.values():
            launch.half = True
    kernel = Kernel(
        stem, tuple(job.params), (), about, in_place=in_place or over is not None,
        over=-1 if over is None else job.params.index(over), isa="opencl", variants=tuple(variants),
    )  # fmt: skip
    return Lowered(kernel, job.arguments, f"cl_{stem}")
