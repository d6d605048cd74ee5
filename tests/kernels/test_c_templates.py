"""Templates of routines are C: a compiler reads them as they are, and what is rendered is what its preprocessor makes of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import intaglio.kernels
import intaglio.package
from intaglio.ir.types import DType
from intaglio.kernels.c_template import functions, render
from intaglio.kernels.contraction import halves, halves_row
from intaglio.kernels.dsp.dense import dense
from intaglio.kernels.dsp.gather import edge, gather, gather_all
from intaglio.kernels.dsp.pool import average, highest
from intaglio.kernels.dsp.primitives import C, operation
from intaglio.kernels.dsp.ring import ring
from intaglio.kernels.dsp.scaling import finish_routine
from intaglio.kernels.dsp.slide import slide
from intaglio.kernels.dsp.sums import add, mul
from intaglio.kernels.dsp.tiles import tile
from intaglio.kernels.dsp.variants import Finish, How, Layout, Range, Side, Sum, Variant, parse_variant
from intaglio.kernels.fixed_point_functions import FIXED_POINT
from intaglio.kernels.fpu import tiles as fpu_tiles
from intaglio.kernels.fpu.tiles import After
from intaglio.kernels.mve.depthwise import taps
from intaglio.kernels.mve.rows import rows, window
from intaglio.kernels.routines import Routine, routine_texts
from intaglio.kernels.staged import unpack
from intaglio.run.firmware_tools import compile_flags, find_firmware_toolchain
from intaglio.targets.target import find_target

BYTES = (DType.I8, DType.U8)
TOP = """\
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <math.h>
#define IG_INLINE static inline __attribute__((unused))
"""
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wundef", "-Wdouble-promotion", "-Werror"]
LIBC = Path(intaglio.package.__file__).parent / "templates" / "_firmware" / "firmware" / "libc"
NEEDS_GCC = pytest.mark.skipif(shutil.which("gcc") is None, reason="the flags are gcc's")

FINISHES = [
    *(Finish(how, Range(DType.I8)) for how in How if how not in (How.REAL, How.REALROW)),
    *(Finish(How.TWICE, out) for out in (Range(DType.U8), Range(DType.I8, (-100, 90)), Range(DType.I8, (-128, 60)))),
]
REALS = [Finish(how, Range(DType.F32)) for how in (How.REAL, How.REALROW)]
SUMS = [Sum(Side.LEFT, Range(DType.I8)), Sum(Side.RIGHT, Range(DType.I8, (-5, 127))), Sum(Side.BOTH, Range(DType.I8))]
TILES = [Variant(layout, finish) for layout in Layout for finish in (FINISHES[0], FINISHES[3], REALS[0])]
TILES += [Variant(Layout.JOINED, finish) for finish in (FINISHES[1], FINISHES[2], *FINISHES[-3:])]
COLUMNS = [
    Variant(layout, finish, shared=shared, column=column)
    for layout in (Layout.JOINED, Layout.APART)
    for column in ("column", "i8", "u8")
    for finish, shared in ((FINISHES[2], True), (FINISHES[2], False), (REALS[1], False))
]
COLUMNS += [
    Variant(Layout.JOINED, finish, shared=shared, column=column, sixes=True)
    for column in ("column", "i8", "u8")
    for finish, shared in ((FINISHES[2], True), (FINISHES[0], False), (FINISHES[-2], True))
]


def representative() -> list[Routine]:
    """Every template in the variants that differ in more than a name."""
    found = [tile(columns, variant) for columns in (4, 2, 1) for variant in TILES]
    found += [tile(4, variant, 64) for variant in TILES if variant.finish.doubled and variant.layout is not Layout.WIDE]
    found += [dense(variant) for variant in COLUMNS]
    found += [finish_routine(finish) for finish in (*FINISHES, *REALS)]
    after = [After(added, relu) for added in (False, True) for relu in (False, True)]
    found += [fpu_tiles.tile(each) for each in after] + [fpu_tiles.dense(each) for each in after]
    found += [make(columns, kind) for make in (gather, gather_all, edge) for columns in (4, 2, 1) for kind in BYTES]
    found += [slide(stride, kind, FINISHES[0], pairs) for stride in (1, 2) for kind in BYTES for pairs in (True, False)]
    found += [slide(stride, DType.I8, FINISHES[0], narrow=True) for stride in (1, 2)]
    found += [ring(stride, lanes, kind, FINISHES[0]) for stride in (1, 2) for lanes in (1, 4) for kind in BYTES]
    found += [rows(count, kind, FINISHES[0]) for count in (1, 2) for kind in BYTES]
    found += [taps(kind, Range(to)) for kind in BYTES for to in BYTES]
    found += [make(kind) for make in (window, highest, average) for kind in BYTES]
    found += [add(added) for added in SUMS] + [mul(FINISHES[0])]
    found += [make(kind) for make in (halves.rows, halves.windows) for kind in BYTES]
    found += [halves_row.row(kind, FINISHES[2]) for kind in BYTES] + [unpack()]
    found += [halves.products(finish) for finish in FINISHES if finish.how in (How.TWICE, How.ONCE)]
    return found


def _parts(routines: list[Routine]) -> list[Routine]:
    """These and all that they need, in an order that C accepts."""
    found: dict[str, Routine] = {}
    for routine in routines:
        for needed in _parts(list(routine.needs)):
            found.setdefault(needed.name, needed)
        found.setdefault(routine.name, routine)
    return list(found.values())


def _as_they_are(routines: list[Routine]) -> str:
    """The templates themselves, each with its macros."""
    lines = [TOP]
    for routine in _parts(routines):
        lines += routine_texts([Routine("", "", functions=routine.functions)], dict.fromkeys(lines))
        if routine.file is None:
            lines.append(routine.text)
            continue
        lines += [f"#define {name} {int(value) if isinstance(value, bool) else value}" for name, value in routine.macros.items()]
        lines.append(f'#include "{routine.file}"')
        own = {name for file in routine.file.parent.iterdir() for name in re.findall(r"#define ((?!IG_)\w+)", file.read_text())}
        lines += [f"#undef {name}" for name in sorted(own | set(routine.macros))]
    return "\n".join(lines) + "\n"


def _tokens(text: str, folder: Path) -> list[str]:
    """After gcc's preprocessor, without headers."""
    (folder / "t.c").write_text(re.sub(r"#include <.*", "", text))
    done = subprocess.run(["gcc", "-E", "-P", "t.c"], cwd=folder, capture_output=True, text=True, check=True)
    return re.findall(r'"[^"]*"|\w+|[^\w\s]', done.stdout)


@NEEDS_GCC
def test_a_compiler_reads_every_template(tmp_path: Path) -> None:
    (tmp_path / "t.c").write_text(_as_they_are(representative()))
    command = ["gcc", "-std=c99", *WARNINGS, "-Wcast-align=strict", "-fsyntax-only", "t.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]


@pytest.mark.parametrize("core", ["cortex-m4f", "cortex-m55", "cortex-m0+", "cortex-m3"])
def test_a_compiler_for_the_core_reads_every_template(core: str, tmp_path: Path) -> None:
    """The assembly too, and the intrinsics."""
    target = find_target(core)
    toolchain = find_firmware_toolchain(None, target)
    (tmp_path / "t.c").write_text(_as_they_are(representative()))
    flags = [*compile_flags(toolchain, target), f"-I{LIBC}", "-O2", *WARNINGS]
    command = [*toolchain.compiler, *flags, "-c", "t.c", "-o", "t.o"]
    done = subprocess.run(command, cwd=tmp_path, env=toolchain.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]


@NEEDS_GCC
@pytest.mark.parametrize("features", [(), ("__ARM_FEATURE_DSP", "__ARM_FP", "__ARM_FEATURE_MVE")], ids=["plain", "dsp and mve"])
def test_what_is_rendered_is_what_the_preprocessor_makes(features: tuple[str, ...], tmp_path: Path) -> None:
    core = "".join(f"#define {name} 1\n" for name in (*features, "__OPTIMIZE__"))
    rendered = _tokens(core + TOP + "\n".join(routine_texts(representative(), {})), tmp_path)
    templates = _tokens(core + _as_they_are(representative()), tmp_path)
    different = next((n for n, (a, b) in enumerate(zip(rendered, templates, strict=False)) if a != b), None)
    assert different is None, (rendered[different - 20 : different + 20], templates[different - 20 : different + 20])
    assert len(rendered) == len(templates)


def test_no_macro_of_a_template_is_left_in_the_generated_code() -> None:
    for routine in representative():
        left = set(re.findall(r"\b[A-Z][A-Z_0-9]*[A-Z0-9]\b", re.sub(r'/\*.*?\*/|"[^"]*"', "", routine.text, flags=re.DOTALL)))
        assert {name for name in left if not name.startswith("IG_")} == set(), routine.name


def test_conditions_macros_and_files(tmp_path: Path) -> None:
    (tmp_path / "part.h").write_text("// for readers\nTWICE(a[i]);\n")
    (tmp_path / "t.c").write_text(
        """\
// for readers
#define TWICE(x) y = x + x
#define BOTH \\
    one(); \\
    two();
void NAME(void)
{
#if COUNT == 2 && !PLAIN
    BOTH
#elif COUNT > 2 || PLAIN
    one(LIST);
#else
    none();
#endif
#ifdef IG_DSP
    #include "part.h"
#endif
}
"""
    )
    text = "void f(void)\n{\n%s#ifdef IG_DSP\n    y = a[i] + a[i];\n#endif\n}"
    assert render(tmp_path / "t.c", NAME="f", COUNT=2, PLAIN=False) == text % "    one();\n    two();\n"
    assert render(tmp_path / "t.c", NAME="f", COUNT=3, PLAIN=False, LIST="1, 2") == text % "    one(1, 2);\n"
    assert render(tmp_path / "t.c", NAME="f", COUNT=2, PLAIN=True, LIST="") == text % "    one();\n"
    assert render(tmp_path / "t.c", NAME="f", COUNT=1, PLAIN=False) == text % "    none();\n"


def test_functions_of_a_file_are_found_by_name() -> None:
    assert operation("smlad").text == functions(C / "operations.c")["ig_smlad"]
    assert operation("smlad").text.startswith("/* c + low a * low b + high a * high b */\nIG_INLINE int32_t ig_smlad(")


@pytest.mark.parametrize("variant", [*TILES, *COLUMNS], ids=str)
def test_a_variant_is_read_back_from_its_text(variant: Variant) -> None:
    assert parse_variant(f"qconv_dsp({variant})") == variant


@pytest.mark.parametrize("text", ["", "qconv", "qconv_tiles(tile=6x2)", "qconv_dsp(joined)", "qconv_dsp(joined_twice_i4)"])
def test_other_text_is_no_variant(text: str) -> None:
    assert parse_variant(text) is None


@NEEDS_GCC
def test_functions_of_fixed_point_are_c_and_stand_above_those_that_call_them(tmp_path: Path) -> None:
    source = Path(intaglio.kernels.__file__).parent / "c" / "fixed_point.c"
    subprocess.run(["gcc", "-std=c99", "-fsyntax-only", *WARNINGS, "-Wconversion", "-Wno-unused-function", source], check=True)
    for name, function in FIXED_POINT.items():
        text = "\n".join(FIXED_POINT[needed].c for needed in (*function.needs, name))
        (tmp_path / f"{name}.c").write_text(TOP + text + "\n")
    subprocess.run(["gcc", "-std=c99", "-fsyntax-only", *WARNINGS, *sorted(tmp_path.glob("*.c"))], check=True)
