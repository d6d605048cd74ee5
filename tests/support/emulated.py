"""Code for 64-bit Arm, built by zig without a dynamic linker and run by qemu-user, where that is installed."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pytest

from intaglio.package.manifest import read_manifest, target_of
from intaglio.run.build import BuildOptions, build_project
from intaglio.run.toolchains import Toolchain, pip_zig
from intaglio.run.variants import variant_targets
from intaglio.targets.target import Target
from support.kernel_running import TARGETS, Call, Case, assert_close, compile_c, prepare, write_c

QEMU = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
needs_qemu = pytest.mark.skipif(QEMU is None, reason="qemu-aarch64 is not installed (Debian: qemu-user-static)")
PROCESSORS = {"neon": "cortex-a53", "neon_dot": "neoverse-n1", "neon_i8mm": "max"}  # the least that has the instructions
SECONDS = 600


@dataclass(frozen=True, slots=True)
class Static(Toolchain):
    """zig with the C library that it links statically."""

    def target_flags(self, target: Target) -> tuple[str, ...]:
        return tuple("aarch64-linux-musl" if "linux" in word else word for word in Toolchain.target_flags(self, target))


def static() -> Static:
    zig = pip_zig()
    assert zig is not None
    return Static(**{f.name: getattr(zig, f.name) for f in fields(zig)})


def build_application(folder: Path) -> Path:
    """The application of a package that was not built."""
    manifest = read_manifest(folder)
    options = BuildOptions(variants=variant_targets(manifest))
    build_project(folder, manifest.name, target_of(manifest), static(), options)
    return folder / "bin" / manifest.name


def run(program: Path, processor: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(QEMU), "-cpu", processor, str(program), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)


MAIN = """
#include <stdio.h>
#include <stdlib.h>

/* Reads the memory of a kernel's parameters: their number, then for each its size and bytes. */
static int read_all(FILE *file, void **to, uint64_t *sizes)
{
    uint64_t count = 0;
    if (fread(&count, sizeof count, 1, file) != 1)
        return 1;
    for (uint64_t i = 0; i < count; i++) {
        if (fread(&sizes[i], sizeof sizes[i], 1, file) != 1)
            return 1;
        to[i] = malloc((size_t)sizes[i] + 1);
        if (to[i] == NULL || fread(to[i], 1, (size_t)sizes[i], file) != (size_t)sizes[i])
            return 1;
    }
    return 0;
}

int main(int count, char **words)
{
    FILE *in = count == 3 ? fopen(words[1], "rb") : NULL;
    FILE *out = count == 3 ? fopen(words[2], "wb") : NULL;
    void *a[64];
    uint64_t sizes[64];
    int code;
    if (in == NULL || out == NULL)
        return 2;
"""
ONE = """    if (read_all(in, a, sizes) != 0)
        return 3;
    %s;
    fwrite(&code, sizeof code, 1, out);
    for (int i = 0; i < %d; i++) {
        fwrite(a[i], 1, (size_t)sizes[i], out);
        free(a[i]);
    }
"""


def main_text(calls: Sequence[Call]) -> str:
    parts = [MAIN]
    for call in calls:
        kernel = call.lowered.kernel
        text = f"{kernel.name}({', '.join(f'a[{n}]' for n in range(len(call.arrays)))})"
        parts.append(ONE % (f"code = {text}" if kernel.fallible else f"code = 0;\n    {text}", len(call.arrays)))
    return "".join([*parts, "    return fclose(out) != 0;\n}\n"])


def emulated(cases: dict[str, Case], isa: str, folder: Path, *flags: str) -> list[str]:
    """Kernels of all cases in one program: what is wrong, by case."""
    calls = {name: prepare(case, TARGETS[isa]) for name, case in cases.items()}
    write_c(list(calls.values()), isa, folder / "kernels.c")
    with open(folder / "kernels.c", "a") as file:
        file.write(main_text(list(calls.values())))
    compile_c(static(), TARGETS[isa], folder / "kernels.c", folder / "program", *flags, "-ffp-contract=off", "-lm")
    with open(folder / "in", "wb") as memory:
        for call in calls.values():
            memory.write(struct.pack("<Q", len(call.arrays)))
            for array in call.arrays:
                memory.write(struct.pack("<Q", array.nbytes) + array.tobytes())
    done = run(folder / "program", PROCESSORS[isa], folder / "in", folder / "out")
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
    return _wrong(cases, calls, (folder / "out").read_bytes())


def _wrong(cases: dict[str, Case], calls: dict[str, Call], data: bytes) -> list[str]:
    found, at = [], 0
    for name, call in calls.items():
        (code,) = struct.unpack_from("<i", data, at)
        at += 4
        arrays = []
        for array in call.arrays:
            arrays.append(np.frombuffer(data, array.dtype, array.size, at))
            at += array.nbytes
        shapes = [out.shape for out in cases[name].node().outputs]
        results = [arrays[n].reshape(shape) for n, shape in zip(call.outputs, shapes, strict=True)]
        try:
            assert code == 0
            assert_close(cases[name], results, cases[name].expected())
        except AssertionError as error:
            found.append(f"{name}: {error}")
    return found
