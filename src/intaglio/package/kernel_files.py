"""Kernels as C files: a header of prototypes, one of inline functions, and a few files of about equal size, so compilers run in
parallel."""

from __future__ import annotations

from pathlib import Path

from intaglio.kernels.c_printer import print_kernel, prototype, rename
from intaglio.kernels.loop import Kernel
from intaglio.kernels.prelude import own_names, prelude
from intaglio.kernels.program import Program
from intaglio.package.c_text import identifier

MOST_FILES = 8
FILE_BYTES = 24_000  # below this, starting another compiler costs more than it saves


def write_kernels(program: Program, name: str, source_folder: Path, *, pairs: bool = False) -> None:
    """Those of this processor; what a device runs is elsewhere (`opencl.py`)."""
    kernels = [kernel for kernel in program.kernels if not kernel.variants]
    top = prelude(program, kernels, pairs=pairs)
    renamed = own_names(top, name)
    (source_folder / f"{name}_kernels.h").write_text(_header(kernels, name), encoding="ascii")
    if kernels:
        helpers = rename(_guarded(f"/* What the layers of {name} are made of. */", f"{name}_helpers", top), renamed)
        (source_folder / f"{name}_helpers.h").write_text(helpers, encoding="ascii")
    for number, group in enumerate(_groups([(kernel, print_kernel(kernel, renamed=renamed)) for kernel in kernels])):
        body = "\n\n".join(text.strip() for _, text in group)
        text = f'#include "{name}_helpers.h"\n#include "{name}_kernels.h"\n\n{body}\n'
        (source_folder / f"{name}_kernels_{number}.c").write_text(text, encoding="ascii")


def _guarded(about: str, file: str, text: str) -> str:
    guard = f"{file.upper()}_H"
    return f"{about}\n#ifndef {guard}\n#define {guard}\n\n{text.strip()}\n\n#endif\n"


def _header(kernels: list[Kernel], name: str) -> str:
    prototypes = []
    for kernel in kernels:
        identifier(kernel.name)
        prototypes.append(prototype(kernel).strip() + ";")
    text = "\n".join(["#include <stddef.h>\n#include <stdint.h>\n", *prototypes])
    return _guarded(f"/* The layers of {name}, as functions on plain pointers. */", f"{name}_kernels", text)


def _groups(texts: list[tuple[Kernel, str]]) -> list[list[tuple[Kernel, str]]]:
    """Split in order, by size: neighbours stay together, so a file reads from the first layer to the last."""
    total = sum(len(text) for _, text in texts)
    count = max(1, min(MOST_FILES, len(texts), total // FILE_BYTES))
    groups: list[list[tuple[Kernel, str]]] = [[] for _ in range(count)]
    before = 0
    for kernel, text in texts:
        groups[min(count - 1, before * count // max(total, 1))].append((kernel, text))
        before += len(text)
    return [group for group in groups if group]
