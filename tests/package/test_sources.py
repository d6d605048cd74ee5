"""The C project of a program: it compiles without a warning, is re-entrant, and says nothing that the model made up."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from intaglio.run.toolchains import find_toolchain
from intaglio.targets.target import find_target
from support.building import build, needs_gcc, square_of_sum, write_sources
from support.programs import add_then_square, constant_output, running_sum
from support.strict import GCC

COMPILERS = [pytest.param("gcc", marks=needs_gcc), pytest.param("zig", marks=pytest.mark.slow)]
HOSTILE = ["*/ int f(void) { return 1; } /*", "end\\", "line\nbreak", "??/", "%s%n", '"', "\u202e", "x" * 100_000]


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("make", [add_then_square, running_sum, constant_output])
def test_generated_c_has_no_warnings(make: object, cc: str, tmp_path: Path) -> None:
    assert callable(make)
    build(make(), tmp_path / "p", cc)


def test_it_computes_what_the_program_says(tmp_path: Path) -> None:
    x = np.arange(8, dtype=np.float32).reshape(1, 8)
    result = build(add_then_square(), tmp_path / "p").run({"the input": x})
    np.testing.assert_array_equal(result["the/output:0"], square_of_sum(x))


def test_large_weights_stay_binary(tmp_path: Path) -> None:
    package = build(add_then_square("big", weights=5000), tmp_path / "p")
    assert (package.folder / "src" / "big_weights.bin").stat().st_size == 20_000
    x = np.ones((1, 5000), np.float32)
    np.testing.assert_array_equal(package.run({"in0": x})["the/output:0"], square_of_sum(x, 5000))


def test_state_is_carried_and_reset(tmp_path: Path) -> None:
    package = build(running_sum(), tmp_path / "p")
    one = np.ones(2, np.float32)
    assert [float(package.run({"x": one})["h_out"][0]) for _ in range(3)] == [1, 2, 3]
    package.reset()
    assert float(package.run({"x": one})["h_out"][0]) == 1
    steps = package.run_steps({"x": np.ones((4, 2), np.float32)})
    assert steps["h_out"][:, 0].tolist() == [1, 2, 3, 4]


def test_an_input_and_a_constant_are_handed_through(tmp_path: Path) -> None:
    result = build(constant_output(), tmp_path / "p").run({"x": np.array([7, 8, 9], np.float32)})
    assert {name: array.tolist() for name, array in result.items()} == {"a": [7, 8, 9], "b": [7, 8, 9], "c": [1, 2, 3]}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_names_give_the_same_tokens(hostile: str, tmp_path: Path) -> None:
    plain, odd = add_then_square(source="harmless"), add_then_square(source=hostile)
    odd.graph.inputs[0].origin = hostile
    odd.graph.output_names = [hostile]
    folders = [write_sources(p, tmp_path / str(i)) for i, p in enumerate((plain, odd))]
    names = [sorted(f.relative_to(folder) for f in folder.rglob("*") if f.suffix in (".c", ".h")) for folder in folders]
    assert names[0] == names[1]
    for name in names[0]:
        assert tokens(folders[0] / name) == tokens(folders[1] / name)


def tokens(path: Path) -> list[str]:
    """What a compiler sees: comments are gone, and nothing depends on how we remove them."""
    text = path.read_text(encoding="utf-8")
    assert "??" not in text
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL).split()


@needs_gcc
def test_two_models_live_in_one_program(tmp_path: Path) -> None:
    first = build(add_then_square("first"), tmp_path / "first", "gcc")
    second = build(add_then_square("second"), tmp_path / "second", "gcc")
    main = tmp_path / "main.c"
    main.write_text(
        '#include "first.h"\n#include "second.h"\n'
        "int main(void) { float x[8] = {1}, y[8];\n"
        "  return first_run_one(x, y) || second_run_one(x, y) || y[0] != 1.0f; }\n"
    )
    words = ["-I", f"{first.folder}/include", "-I", f"{second.folder}/include", str(main)]
    words += [f"{p.folder}/lib/lib{p.name}.a" for p in (first, second)]
    run_gcc(tmp_path, *words, "-lm")


@needs_gcc
def test_the_static_arena_can_be_left_out(tmp_path: Path) -> None:
    folder = write_sources(add_then_square(), tmp_path / "p")
    main = tmp_path / "main.c"
    main.write_text(
        '#include "tiny.h"\n#include <stdlib.h>\n'
        "static double arena[TINY_ARENA_BYTES / 8 + 16];\n"
        "int main(void) { float x[8] = {3}, y[8]; tiny_inputs in = {x}; tiny_outputs out = {y};\n"
        "  char *a = (char *)arena; while ((uintptr_t)a % TINY_ARENA_ALIGNMENT) a++;\n"
        "  if (tiny_run_in(a + 1, &in, &out) != TINY_ARENA_MISALIGNED) return 2;\n"
        "  if (tiny_run_in(a, 0, &out) != TINY_NULL_POINTER) return 3;\n"
        "  return tiny_run_in(a, &in, &out) || y[0] != 9.0f; }\n"
    )
    sources = [str(p) for p in (folder / "src").glob("*.c")]
    run_gcc(tmp_path, "-DTINY_NO_STATIC_ARENA", f"-I{folder}/include", f"-I{folder}/src", str(main), *sources, "-lm")


@needs_gcc
def test_the_header_is_also_cpp(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("there is no g++ here")
    folder = write_sources(running_sum(), tmp_path / "p")
    code = '#include "running.h"\nint main() { return RUNNING_OK; }\n'
    (tmp_path / "main.cpp").write_text(code)
    words = ["g++", "-Wall", "-Wextra", "-Werror", f"-I{folder}/include", "-c", "main.cpp"]
    subprocess.run(words, cwd=tmp_path, check=True)


def run_gcc(folder: Path, *words: str) -> None:
    flags = [*find_toolchain("gcc").target_flags(find_target("host")), *GCC]
    subprocess.run(["gcc", *flags, *words, "-o", "program"], cwd=folder, check=True)
    subprocess.run(["./program"], cwd=folder, check=True)


def test_sizes_in_the_header_are_plain_integers_for_the_preprocessor(digits: Path) -> None:
    header = (digits / "include" / "digits.h").read_text()
    sizes = re.findall(r"^#define (DIGITS_\w+_(?:BYTES|ELEMENTS|ALIGNMENT|RANK)) (.*)$", header, re.M)
    assert len(sizes) >= 7 and all(value.isdigit() for _, value in sizes), sizes
