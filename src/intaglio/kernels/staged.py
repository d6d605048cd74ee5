"""A kernel that copies its weights to working memory first, and reads them there.

    void net_conv(x, w, y)                     void net_conv_staged(x, w, y, staged)
      for (...)                                  memcpy(staged, w, 4096);
        tile(w, ...)                   ->        for (...)
                                                   tile(staged, ...)

Not for kernels that several threads compute, or a part of whose work is done elsewhere.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

from intaglio.kernels.loop import Buffer, CopyRun, Kernel, Type, idx
from intaglio.kernels.routines import Routine

T = TypeVar("T")


def can_be_staged(kernel: Kernel) -> bool:
    return kernel.split is None and kernel.wait is None and not kernel.includes and not kernel.variants and not kernel.pitches


def staged(kernel: Kernel, param: int, elements: int) -> Kernel:
    """`param` is the constant; the copy is the last parameter."""
    old = kernel.params[param]
    new = Buffer("staged", old.dtype, False)
    body = (CopyRun(new, idx(0), old, idx(0), elements), *(_swapped(stmt, old, new) for stmt in kernel.body))
    about = f"{kernel.about}\nthe weights are copied to working memory first"
    made = replace(kernel, params=(*kernel.params, new), body=body, about=about, used_by=[], printed=None)
    made.name = f"{kernel.name}_staged"
    return made


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
