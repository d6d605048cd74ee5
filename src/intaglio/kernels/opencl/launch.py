"""What a kernel is on an OpenCL device: launches, each a function that every work-item runs.

Kernel.variants   ways to compute the same layer (tiles, local memory or none); the device, or tuning on it, decides
Variant.launches  one after the other; what one wrote is seen by the next
Launch            a function over `size` work-items; `params` says which of the kernel's parameters it takes

A body names its work-item by `global_id(d)`, `local_id(d)` and checks its own bounds: sizes are rounded up to whole work-groups.
"""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import IDX, Buffer, Expr, Kernel, Num, Op, Stmt
from intaglio.kernels.unused import drop_unused

Size = tuple[int, ...]


@dataclass(slots=True)
class Launch:
    stem: str
    params: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    size: Size  # work-items wanted along each of up to three dimensions; the first is the fastest
    gpu: Size  # work-group by default on a GPU
    cpu: Size  # and on a CPU
    fixed: bool = False  # the body was written for that group
    about: str = ""
    half: bool = False  # arithmetic in halves, where the device has it


@dataclass(frozen=True, slots=True)
class Variant:
    label: str
    launches: tuple[Launch, ...]
    cpu: bool = False  # the first choice on a CPU; the first variant is that of a GPU


def global_id(dimension: int) -> Expr:
    return Op("global_id", (Num(dimension),), IDX)


def local_id(dimension: int) -> Expr:
    return Op("local_id", (Num(dimension),), IDX)


def local_size(dimension: int) -> Expr:
    return Op("local_size", (Num(dimension),), IDX)


def group_for(size: Size, most: int, first: int) -> Size:
    """A work-group of at most `most` items that wastes little: the first dimension up to `first`, then the others."""
    group: list[int] = []
    left = most
    for dimension, n in enumerate(size):
        limit = min(left, first if dimension == 0 else left)
        group.append(_fitting(n, limit))
        left //= group[-1]
    return tuple(group)


def _fitting(n: int, limit: int) -> int:
    """The largest power of two within the limit that wastes at most an eighth when n is rounded up to its multiples."""
    best = 1
    size = 1
    while size * 2 <= limit and size < n:
        size *= 2
        if -(-n // size) * size * 8 <= n * 9:
            best = size
    return best


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
