"""Several networks in one program: sources of two may be one file, and two packages of one model live side by side."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from intaglio import compile
from intaglio.errors import UserError
from intaglio.run.firmware_tools import compile_flags, find_firmware_toolchain
from intaglio.run.toolchains import Toolchain, find_toolchain
from intaglio.targets.target import Target, find_target
from support.building import needs_gcc
from support.commands import DIGITS, Intaglio
from support.firmware_running import integer_model
from support.strict import strict_flags

FILE_SCOPE = re.compile(
    r"^ *(?:static(?: inline)?\b[^;=]*?\b(\w+)\s*(?:\(|\[|=|;)|typedef\b.*?\b(\w+)\s*;|#define (\w+))", re.MULTILINE
)
ENUM = re.compile(r"^enum[^{;]*\{(.*?)\}", re.MULTILINE | re.DOTALL)
TAG = re.compile(r"^typedef struct (\w+) \*", re.MULTILINE)
FEATURES = {"_POSIX_C_SOURCE", "_XOPEN_SOURCE"}  # what a file asks of the system's headers


def sources(intaglio: Intaglio, tmp_path: Path, target: str, *more: str) -> dict[str, Path]:
    """The folders of two networks of different kinds, by name."""
    models = {"digits": DIGITS, "dense": integer_model(tmp_path)}
    for name, model in models.items():
        words = ("compile", model, "-o", tmp_path / name, "--target", target, "--name", name, "--stop-after", "package")
        assert intaglio(*words, *more).code == 0
    return {name: tmp_path / name for name in models}


def as_one_file(folders: dict[str, Path], to: Path) -> list[str]:
    """One file that includes all others; where to find those."""
    files = [path for folder in folders.values() for path in sorted((folder / "src").glob("*.c"))]
    to.write_text("".join(f'#include "{path}"\n' for path in files))
    return [f"-I{folder / part}" for folder in folders.values() for part in ("include", "src")]


def outside_braces(text: str) -> str:
    """What is at file scope, without attributes."""
    text = re.sub(r"__attribute__\(\(.*?\)\)(?!\))", "", re.sub(r"/\*.*?\*/|\bsection\(.*?\)", "", text, flags=re.DOTALL))
    while text != (text := re.sub(r"\{[^{}]*\}", "", text)):
        pass
    return text


def names_at_file_scope(text: str) -> list[str]:
    """Statics, types, macros, constants of enums, tags of structs."""
    plain = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    found = ["".join(names) for names in FILE_SCOPE.findall(outside_braces(text))]
    found += [part.split("=")[0].strip() for body in ENUM.findall(plain) for part in body.split(",")]
    return [name for name in found + TAG.findall(plain) if name and name not in FEATURES]


def check(toolchain: Toolchain, flags: tuple[str, ...], words: list[str], folder: Path) -> None:
    command = [*toolchain.compiler, *flags, *strict_flags(toolchain.kind), *words]
    done = subprocess.run(command, cwd=folder, env=toolchain.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]


@needs_gcc
@pytest.mark.parametrize("threads", [(), ("--threads", "2")], ids=str)
def test_two_networks_are_one_file_on_the_host(threads: tuple[str, ...], intaglio: Intaglio, tmp_path: Path) -> None:
    target, toolchain = find_target("host"), find_toolchain("gcc")
    where = as_one_file(sources(intaglio, tmp_path, "host", *threads), tmp_path / "both.c")
    features = ("-D_POSIX_C_SOURCE=200809L",)  # before the first header, for all files
    check(toolchain, (*toolchain.compile_flags(target), *features), [*where, "-fsyntax-only", "both.c"], tmp_path)


def test_two_networks_are_one_file_on_a_small_core(intaglio: Intaglio, tmp_path: Path) -> None:
    target: Target = find_target("cortex-m4f")
    toolchain = find_firmware_toolchain(None, target)
    folders = sources(intaglio, tmp_path, target.name)
    where = as_one_file(folders, tmp_path / "digits" / "both.c")  # `firmware/libc` is found from there
    check(toolchain, compile_flags(toolchain, target), [*where, "-fsyntax-only", "both.c"], tmp_path / "digits")


@pytest.mark.parametrize("kind", ["gcc", pytest.param("zig", marks=pytest.mark.slow)])
def test_two_networks_are_one_file_on_an_opencl_device(kind: str, intaglio: Intaglio, tmp_path: Path) -> None:
    try:
        toolchain = find_toolchain(kind)
    except UserError:
        pytest.skip(f"there is no {kind} here")
    where = as_one_file(sources(intaglio, tmp_path, "opencl"), tmp_path / "both.c")
    features = ("-D_POSIX_C_SOURCE=200809L", "-D_XOPEN_SOURCE=700")  # before the first header, for all files
    check(toolchain, features, [*where, "-c", "both.c"], tmp_path)


TARGETS = ("host", "host --threads 2", "x86-64 --variants v3", "cortex-m4f", "cortex-m55", "aarch64", "opencl")


@pytest.mark.parametrize("target", TARGETS)
def test_names_at_file_scope_start_with_the_name_of_the_network(target: str, intaglio: Intaglio, tmp_path: Path) -> None:
    for name, folder in sources(intaglio, tmp_path, *target.split()).items():
        for path in sorted((folder / "src").glob(f"{name}*.[ch]")):
            found = names_at_file_scope(path.read_text())
            assert [n for n in found if not n.lower().startswith(f"{name}_")] == [], path.name


@pytest.mark.slow
@needs_gcc
def test_one_model_under_two_names_is_two_networks(tmp_path: Path) -> None:
    made = [compile(DIGITS, output=tmp_path / name, name=name) for name in ("first", "second")]
    main = tmp_path / "main.c"
    main.write_text(
        '#include "first.h"\n#include "second.h"\n#include <string.h>\n'
        "int main(void) { static float x[64]; float y[10], z[10]; for (int i = 0; i < 64; i++) x[i] = (float)(i % 7);\n"
        "  return first_run_one(x, y) || second_run_one(x, z) || memcmp(y, z, sizeof y) != 0; }\n"
    )
    words = [f"-I{p.folder}/include" for p in made] + ["main.c"] + [f"{p.folder}/lib/lib{p.name}.a" for p in made]
    toolchain = find_toolchain("gcc")
    check(toolchain, (), [*words, "-lm", "-o", "program"], tmp_path)
    subprocess.run([tmp_path / "program"], check=True)
    x = np.ones((1, 1, 8, 8), np.float32)
    results = [next(iter(p.run({"in0": x}).values())) for p in made]
    np.testing.assert_array_equal(results[0], results[1])
