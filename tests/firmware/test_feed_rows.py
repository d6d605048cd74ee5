"""Rows of the input one by one: the same results, without the picture in RAM; and layers in stripes under a limit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import intaglio as compiler
from intaglio.ir.graph import Array
from intaglio.package.manifest import read_manifest
from intaglio.run.package import Package
from intaglio.targets.target import find_target
from support.building import needs_gcc
from support.commands import Intaglio
from support.firmware_running import booted, firmware, selftest
from support.row_models import dense, pixels
from support.strict import GCC

INT8 = {"quantize": "int8", "integer_io": True, "ranges": "minmax", "equalize": False, "correct_bias": False, "sensitivity": False}
ROWS, COLUMNS = 24, 16
LITTLE = 2048  # bytes: the picture and the first layer's result would be that already
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")


def picture(seed: int) -> Array:
    return np.random.default_rng(seed).integers(-128, 128, (1, ROWS, COLUMNS, 3)).astype(np.int8)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("whole")
    return compiler.compile(pixels(folder), output=folder / "out", **INT8)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("fed")
    return compiler.compile(pixels(folder), output=folder / "out", feed_rows=True, **INT8)  # type: ignore[arg-type]


def scores(package: Package, seed: int) -> list[int]:
    return [int(n) for n in package.run({"in0": picture(seed)})["scores"].reshape(-1)]


# On the host ----------------------------------------------------------------------------------------------------------------------

PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include "pixels.h"

static int8_t image[PIXELS_INPUT_IMAGE_ELEMENTS];
static int8_t scores[PIXELS_OUTPUT_SCORES_ELEMENTS];
static int given;

static int rows_of_image(void *context, size_t row, int8_t *to)
{
    given++;
    memcpy(to, (const int8_t *)context + row * PIXELS_ROW_ELEMENTS, PIXELS_ROW_ELEMENTS);
    return 0;
}

static int gives_up(void *context, size_t row, int8_t *to)
{
    (void)to;
    return row == 3 ? *(int *)context : 0;
}

static void show(const char *how, int code)
{
    printf("%s %d", how, code);
    for (size_t i = 0; i < PIXELS_OUTPUT_SCORES_ELEMENTS; i++)
        printf(" %d", scores[i]);
    printf("\n");
    memset(scores, 0, sizeof scores);
}

int main(int argc, char **argv)
{
    pixels_outputs out = { scores };
    pixels_outputs nowhere = { NULL };
    pixels_inputs in = { image };
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    int code = PIXELS_MORE_ROWS, own = 18; /* a code that looks like one of the network's */

    if (file == NULL || fread(image, 1, sizeof image, file) != sizeof image)
        return 1;
    fclose(file);
    printf("early %d\n", pixels_push_row(image, &out));
    pixels_begin();
    for (size_t row = 0; row < PIXELS_ROWS; row++) {
        code = pixels_push_row(image + row * PIXELS_ROW_ELEMENTS, &out);
        if (code != (row + 1 < PIXELS_ROWS ? PIXELS_MORE_ROWS : PIXELS_OK))
            return 2;
    }
    show("pushed", code);
    printf("late %d\n", pixels_push_row(image, &out));
    pixels_begin();
    for (size_t row = 0; row < 5; row++) /* a picture that nobody ends */
        (void)pixels_push_row(image, &out);
    pixels_begin();
    for (size_t row = 0; row < PIXELS_ROWS; row++) {
        memcpy(pixels_row(), image + row * PIXELS_ROW_ELEMENTS, PIXELS_ROW_ELEMENTS);
        code = pixels_push_row(pixels_row(), &out);
    }
    show("in place", code);
    show("asked", pixels_run_rows(rows_of_image, image, &out));
    printf("given %d\n", given);
    printf("given up %d\n", pixels_run_rows(gives_up, &own, &out));
    show("at once", pixels_run(&in, &out));
    printf("no source %d\n", pixels_run_rows(NULL, NULL, &out));
    pixels_begin();
    printf("no row %d\n", pixels_push_row(NULL, &out));
    printf("no outputs %d %d\n", pixels_push_row(image, NULL), pixels_push_row(image, &nowhere));
    printf("nothing %d\n", pixels_run_rows(rows_of_image, image, NULL));
    return 0;
}
"""


def says(package: Package, folder: Path, cc: str, *flags: str) -> list[str]:
    """What the program prints, built from the sources of the package."""
    (folder / "main.c").write_text(PROGRAM)
    (folder / "image.bin").write_bytes(picture(1).tobytes())
    sources = sorted(str(p) for p in (package.folder / "src").rglob("*.c") if p.stem.startswith("pixels"))
    flags += find_target(package.manifest.target).flags
    include = f"-I{package.folder / 'include'}"
    command = [*cc.split(), *GCC, include, *flags, str(folder / "main.c"), *sources, "-lm", "-o", str(folder / "program")]
    subprocess.run(command, check=True, cwd=folder)
    done = subprocess.run([str(folder / "program"), str(folder / "image.bin")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@needs_gcc
@pytest.mark.parametrize("flags", [pytest.param(("-O2",), marks=pytest.mark.slow), SANITIZE], ids=["strict", "sanitized"])
def test_a_program_that_pushes_rows(flags: tuple[str, ...], whole: Package, fed: Package, tmp_path: Path) -> None:
    told = says(fed, tmp_path, "gcc", *flags)
    right = " ".join(map(str, scores(whole, 1)))
    assert told == [
        "early 19",
        f"pushed 0 {right}",
        "late 19",
        f"in place 0 {right}",
        f"asked 0 {right}",
        f"given {ROWS}",
        "given up 18",
        f"at once 0 {right}",
        "no source 16",
        "no row 16",
        "no outputs 16 16",
        "nothing 16",
    ]


def test_run_and_validate_take_the_whole_picture(whole: Package, fed: Package, intaglio: Intaglio) -> None:
    for seed in (1, 2, 1):
        assert scores(fed, seed) == scores(whole, seed)
    assert fed.manifest.memory.fed_rows == ROWS
    assert fed.manifest.memory.arena_bytes < whole.manifest.memory.arena_bytes
    assert intaglio("validate", fed.folder).code == 0


@pytest.mark.parametrize(("rows", "first"), [pytest.param(25, 2, marks=pytest.mark.slow), (24, 5), (2, 1)])
def test_every_row_is_asked_for_whatever_the_windows_are(rows: int, first: int, tmp_path: Path) -> None:
    """Also a last row that no layer reads."""
    path = pixels(tmp_path, rows, first=first)
    words = {**INT8, "library_only": True}
    plain = compiler.compile(path, output=tmp_path / "plain", **words)  # type: ignore[arg-type]
    package = compiler.compile(path, output=tmp_path / "fed", feed_rows=True, **words)  # type: ignore[arg-type]
    image = np.random.default_rng(3).integers(-128, 128, (1, rows, COLUMNS, 3)).astype(np.int8)
    np.testing.assert_array_equal(package.run({"in0": image})["scores"], plain.run({"in0": image})["scores"])
    assert package.manifest.memory.fed_rows == rows


@needs_gcc
@pytest.mark.slow  # quick: `test_a_program_that_pushes_rows[sanitized]`
def test_stripes_under_a_limit_are_clean_under_sanitizers(whole: Package, tmp_path: Path) -> None:
    limit = whole.manifest.memory.arena_bytes * 3 // 4
    words = {**INT8, "ram": limit, "cc": "gcc", "cflags": SANITIZE}
    package = compiler.compile(pixels(tmp_path), output=tmp_path / "out", **words)  # type: ignore[arg-type]
    assert "static const unsigned char order[]" in (package.folder / "src" / "pixels.c").read_text()
    done = subprocess.run([str(package.folder / "bin" / "pixels"), "--selftest"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


# As firmware ----------------------------------------------------------------------------------------------------------------------


_ALONE = [pytest.param(words, marks=pytest.mark.slow) for words in ({"arena": "caller"}, {"io": "caller"})]
WORDS = [{}, *_ALONE, {"io": "caller", "arena": "caller"}]


@pytest.mark.parametrize("words", WORDS, ids=str)
def test_firmware_without_the_picture_in_ram(words: dict[str, str], whole: Package, tmp_path: Path) -> None:
    made = firmware(pixels(tmp_path), tmp_path / "out", feed_rows=True, ram=LITTLE, **INT8, **words)
    for seed in (1, 2, 1):
        assert scores(made, seed) == scores(whole, seed)
    assert made.validate().ok
    info = made.manifest.firmware
    assert info is not None and info.ram_bytes <= LITTLE
    assert made.profile().total.instructions


@pytest.mark.slow
@pytest.mark.parametrize("core", ["cortex-m0+", "rv32imc"])
def test_rows_are_fed_on_other_cores(core: str, whole: Package, tmp_path: Path) -> None:
    made = firmware(pixels(tmp_path), tmp_path / "out", target=core, feed_rows=True, **INT8)
    assert scores(made, 1) == scores(whole, 1)


@pytest.mark.slow
def test_a_limit_makes_stripes_and_the_firmware_stays_within_it(whole: Package, tmp_path: Path) -> None:
    plain = firmware(pixels(tmp_path), tmp_path / "plain", **INT8)
    info = plain.manifest.firmware
    assert info is not None
    limit = info.ram_bytes * 3 // 4
    made = firmware(pixels(tmp_path), tmp_path / "out", ram=limit, **INT8)
    small = made.manifest.firmware
    assert small is not None and small.ram_bytes <= limit
    assert scores(made, 1) == scores(whole, 1) and made.validate().ok


@pytest.mark.slow
def test_several_networks_with_rows_fed_in_one_firmware(intaglio: Intaglio, tmp_path: Path) -> None:
    names = ("first", "second")
    for n, name in enumerate(names):
        path = pixels(tmp_path, ROWS + 8 * n, name=name)
        firmware(path, tmp_path / name, feed_rows=True, arena="caller", name=name, **INT8)
    said = intaglio("link", *(tmp_path / name for name in names), "-o", tmp_path / "both")
    assert said.code == 0, said.err
    core = booted(tmp_path / "both", tmp_path / "both" / "bin" / "both.elf", read_manifest(tmp_path / "first"))
    try:
        for name in (*names, "first"):
            assert selftest(core, name)[0] == 0
    finally:
        core.close()


# What cannot ----------------------------------------------------------------------------------------------------------------------


def test_a_model_without_rows_says_why(intaglio: Intaglio, tmp_path: Path) -> None:
    for words in ((), ("--target", "cortex-m4f", "--ram", "64K")):
        said = intaglio("compile", dense(tmp_path), "--feed-rows", "-o", tmp_path / "out", *words)
        assert said.code == 2
        assert "error[no-rows]: `dense` cannot take rows of its input: " in said.err
        assert "layer 0, matmul" in said.err and "hint: " in said.err
        assert not (tmp_path / "out").exists()


def test_weights_that_are_read_and_rows_that_are_fed_exclude_each_other(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", pixels(tmp_path), "--feed-rows", "--weights", "read", "-o", tmp_path / "out")
    assert said.code == 2 and "`--weights read` and `--feed-rows` cannot be combined" in said.err
