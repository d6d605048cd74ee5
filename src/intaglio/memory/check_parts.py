"""Do the cores that compute a layer together leave each other's memory alone? No part of a layer writes what another one reads or
writes, and working memory of a part is its own.

Kernels tell what their parts touch (`Touched`), in elements of their arguments; here it becomes bytes of the arenas, where two
arguments may be the same memory. Kernels that a proof has divided tell nothing: their parts are apart whatever the addresses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from intaglio.errors import OurFault
from intaglio.ir.graph import Value
from intaglio.ir.program import K, Layer, PartTouched, Program, ScratchArg, ValueArg

Bytes = npt.NDArray[np.int64]


def check_parts(program: Program[K], where: Callable[[Value], int | None], scratch: Callable[[Layer[K]], int]) -> None:
    """`where`: the place of a value in the arenas; None for what a caller gives, which is memory of its own."""
    for index, layer in enumerate(program.layers):
        split = layer.kernel.split
        if split is None:
            continue
        _check_own(layer, split.own, split.parts)
        reads, writes = (_by_part(layer, split.touched, split.parts, where, writes) for writes in (False, True))
        for part in range(split.parts):
            for other in range(split.parts):
                both = np.concatenate([reads[other], writes[other]])
                if other != part and (bad := np.intersect1d(writes[part], both)).size:
                    what = f"layer {index} `{layer.name}`: part {part} writes what part {other} uses, at {int(bad[0])} of the arena"
                    raise OurFault("bad-plan", what)


def _check_own(layer: Layer[K], own: tuple[int, ...], parts: int) -> None:
    for n, argument in enumerate(layer.arguments):
        if not isinstance(argument, ScratchArg):
            continue
        if n in own and not 0 < argument.each * parts <= argument.bytes:
            raise OurFault("bad-plan", f"`{layer.name}`: its parts do not have {parts} pieces of working memory")


def _by_part(
    layer: Layer[K], touched: tuple[PartTouched, ...], parts: int, where: Callable[[Value], int | None], writes: bool
) -> list[Bytes]:
    """The bytes of the arenas that each part reads, or writes. What a caller gives is far away, each for itself."""
    found: list[list[Bytes]] = [[np.zeros(0, np.int64)] for _ in range(parts)]
    for t in touched:
        argument = layer.arguments[t.param]
        if t.writes is not writes or not isinstance(argument, ValueArg):
            continue
        at = where(argument.value)
        base, step = (-(t.param + 1) << 48) if at is None else at, argument.value.dtype.bytes
        rows = base + step * (t.at + t.pitch * np.arange(t.rows, dtype=np.int64))
        found[t.part].append((rows[:, None] + np.arange(t.count * step, dtype=np.int64)).reshape(-1))
    return [np.unique(np.concatenate(each)) for each in found]
