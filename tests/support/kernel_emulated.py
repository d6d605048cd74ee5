"""Kernels as one C program, which an emulated core without an operating system runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import intaglio.package
from intaglio.ir.graph import Array, Graph
from intaglio.kernels.c_printer import print_kernel
from intaglio.kernels.prelude import prelude
from intaglio.kernels.program import Program
from intaglio.targets.target import Target
from support.kernel_running import Call, Case, assert_close, prepare

LIBC = Path(intaglio.package.__file__).parent / "templates" / "_firmware" / "firmware" / "libc"


def wrong_cases(cases: dict[str, Case], run: Callable[[str], list[Array]]) -> list[str]:
    wrong = []
    for name, c in cases.items():
        results = run(name)
        try:
            assert_close(c, results, c.expected())
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
    return wrong


def program_of(cases: dict[str, Case], target: Target, *, over: bool = False) -> tuple[str, dict[str, Call]]:
    """All kernels as one C program: memory for each parameter, and a function without parameters that calls the kernel. `over`: the
    result is written over the operand."""
    calls = {name: prepare(c, target) for name, c in cases.items()}
    kernels = [c.lowered.kernel for c in calls.values()]
    parts = []
    for n, (kernel, call) in enumerate(zip(kernels, calls.values(), strict=True)):
        kernel.name = f"k{n}"
        parts.append(print_kernel(kernel))
        for m, array in enumerate(call.arrays):
            parts.append(f"__attribute__((aligned(8))) unsigned char k{n}_{m}[{max(1, array.nbytes)}];")
        places = {m: operand_of(call) if over and m in call.outputs else m for m in range(len(call.arrays))}
        arguments = ", ".join(f"(void *)k{n}_{m}" for m in places.values())
        parts.append(f"int run{n}(void);\nint run{n}(void)\n{{\n    k{n}({arguments});\n    return 0;\n}}")
    top = prelude(Program(Graph("t"), [], kernels, [], target.isa), pairs=target.issues_pairs)
    return top + "\n" + "\n\n".join(parts), calls


def operand_of(call: Call) -> int:
    """The one whose memory the result may take."""
    return max(call.lowered.kernel.over, 0)


def emulated_cases(cases: dict[str, Case], target: Target, folder: Path, *, over: bool = False) -> list[str]:
    """Which of them are wrong."""
    pytest.importorskip("unicorn")
    from support.bare_programs import core_with, program

    text, calls = program_of(cases, target, over=over)
    (folder / "firmware").mkdir()
    (folder / "firmware" / "libc").symlink_to(LIBC)
    image = program(folder, f"{text}\n#include <memory.c>\n", target.name, "-O2")
    machine = core_with(image, target.name)
    order = {name: n for n, name in enumerate(cases)}

    def run(name: str) -> list[Array]:
        n, call = order[name], calls[name]
        arrays = call.arrays
        for m, array in enumerate(arrays):
            machine.write(image.address(f"k{n}_{m}"), np.ascontiguousarray(array).tobytes())
        machine.call(f"run{n}", 1 << 30)
        found = []
        for m, out in zip(call.outputs, cases[name].node().outputs, strict=True):
            data = machine.read(image.address(f"k{n}_{operand_of(call) if over else m}"), arrays[m].nbytes)
            found.append(np.frombuffer(data, arrays[m].dtype).reshape(out.shape))
        return found

    try:
        return wrong_cases(cases, run)
    finally:
        machine.close()
