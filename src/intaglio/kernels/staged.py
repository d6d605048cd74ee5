"""A kernel that copies or unpacks its weights to working memory first, and reads them there.

    void net_conv(x, w, y)                     void net_conv_staged(x, w, y, staged)
      for (...)                                  memcpy(staged, w, 4096);
        tile(w, ...)                   ->        for (...)
                                                   tile(staged, ...)

Packed weights are the numbers of half words in a table, which kernels share: `ig_unpack(w, words, staged, 2048)`.

Not for kernels that several threads compute, or a part of whose work is done elsewhere.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.dsp.primitives import BASE
from intaglio.kernels.loop import Buffer, CopyRun, Kernel, Place, RoutineCall, Stmt, Type, idx
from intaglio.kernels.routines import Routine, routine_of

T = TypeVar("T")
CODES = 4  # that are unpacked at a time


def can_be_staged(kernel: Kernel) -> bool:
    return kernel.split is None and kernel.wait is None and not kernel.includes and not kernel.variants and not kernel.pitches


def staged(kernel: Kernel, param: int, elements: int) -> Kernel:
    """`param` is the constant; the copy is the last parameter."""
    old = kernel.params[param]
    new = Buffer("staged", old.dtype, False)
    made = _reading(kernel, old, new, (), CopyRun(new, idx(0), old, idx(0), elements))
    made.about, made.name = f"{kernel.about}\nthe weights are copied to working memory first", f"{kernel.name}_staged"
    return made


def unpacked(kernel: Kernel, param: int, codes: int) -> Kernel:
    """`param` has codes of half words instead; the table of these and the working memory are the last parameters."""
    old = kernel.params[param]
    packed, words, new = replace(old, dtype=DType.U8), Buffer("words", DType.U16), Buffer("unpacked", old.dtype, False)
    call = RoutineCall(unpack(), (Place(packed, idx(0)), Place(words, idx(0)), Place(new, idx(0)), idx(codes)))
    made = _reading(kernel, old, new, (words,), call)
    made.params = tuple(packed if p is old else p for p in made.params)
    made.about, made.name = f"{kernel.about}\nthe weights are unpacked to working memory first", f"{kernel.name}_packed"
    return made


def _reading(kernel: Kernel, old: Buffer, new: Buffer, more: tuple[Buffer, ...], first: Stmt) -> Kernel:
    """From `new`, which `first` fills, instead of `old`."""
    body = (first, *(_swapped(stmt, old, new) for stmt in kernel.body))
    return replace(kernel, params=(*kernel.params, *more, new), body=body, used_by=[], printed=None)


@cache
def unpack() -> Routine:
    def meaning(codes: Array, words: Array, to: Array, count: int) -> None:
        to[: 2 * count] = words[codes[:count]].astype("<u2").view(to.dtype)

    return routine_of(Path(__file__).parent / "c" / "unpack.c", "unpack", meaning, (BASE,))


def _swapped(part: T, old: Buffer, new: Buffer) -> T:
    if part is old:
        return new  # type: ignore[return-value]
    if isinstance(part, tuple):
        return tuple(_swapped(each, old, new) for each in part)  # type: ignore[return-value]
    if is_dataclass(part) and not isinstance(part, (type, Buffer, Type, Routine)):
        found = {f.name: getattr(part, f.name) for f in fields(part)}
        changed = {name: made for name, value in found.items() if (made := _swapped(value, old, new)) is not value}
        return replace(part, **changed) if changed else part
    return part
