"""What a kernel is on an OpenCL device: launches, each a function that every work-item runs.

Kernel.variants   ways to compute the same layer (tiles, local memory or none); the device, or tuning on it, decides
Variant.launches  one after the other; what one wrote is seen by the next
Launch            a function over `size` work-items; `params` says which of the kernel's parameters it takes

A body names its work-item by `global_id(d)`, `local_id(d)` and checks its own bounds: sizes are rounded up to whole work-groups.
"""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.kernels.loop import IDX, Buffer, Expr, Num, Op, Stmt

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
