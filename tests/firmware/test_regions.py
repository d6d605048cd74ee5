"""Firmware with arenas in several memories, on the emulated core; and the same memories where there is an operating system."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from intaglio import compile
from intaglio.package.manifest import read_manifest
from support.commands import DIGITS, DIGITS_DATA, Intaglio
from support.firmware_running import firmware, package_selftest
from support.onnx_models import model, node, saved, value
from support.strict import CLANG

FAST, SLOW = 0x20000000, 0x24000000


def memories(folder: Path, fast: int, slow: int = 65536, *, addresses: bool = True) -> Path:
    rows = [
        ("flash", "flash", 0x08000000, 1 << 20, ""),
        ("fast", "ram", FAST, fast, 'bytes_per_cycle = 8\nholds = ["arena"]'),
        ("slow", "ram", SLOW, slow, "latency = 2"),
    ]
    text = ""
    for name, kind, address, size, more in rows:
        at = f"address = {address:#x}\n" if addresses else ""
        text += f'[[memory]]\nname = "{name}"\nkind = "{kind}"\n{at}bytes = {size}\n{more}\n\n'
    path = folder / "memories.toml"
    path.write_text(text)
    return path


def sections(package: Path, name: str) -> dict[str, tuple[int, int]]:
    with open(package / "bin" / f"{name}.elf", "rb") as file:
        return {s.name: (s["sh_addr"], s["sh_size"]) for s in ELFFile(file).iter_sections() if s["sh_flags"] & 2}


_ALONE = [pytest.param(words, marks=pytest.mark.slow) for words in ({"arena": "caller"}, {"io": "caller"})]


@pytest.mark.parametrize("words", [{}, *_ALONE, {"io": "caller", "arena": "caller"}], ids=str)
def test_two_memories(words: dict[str, str], tmp_path: Path) -> None:
    made = firmware(DIGITS, tmp_path / "out", target="cortex-m7", memory=memories(tmp_path, 2048), **words)
    arenas = made.manifest.memory.arenas
    assert [(a.region, a.memory) for a in arenas] == [("arena", "fast"), ("arena:slow", "slow")]
    at, size = sections(made.folder, "digits")[".intaglio_fast"]
    assert at == FAST and size == arenas[0].bytes <= 2048
    assert sections(made.folder, "digits")[".bss"][0] >= SLOW
    assert made.validate().ok
    assert package_selftest(made) == (0, "digits: probabilities: 0 of 10 elements differ\ndigits: self-test passed\n")
    info = made.manifest.firmware
    assert info is not None and info.ram_bytes >= made.manifest.memory.arena_bytes == sum(a.bytes for a in arenas)
    profile = made.profile()
    assert profile.total.instructions and profile.total.arena_bytes == made.manifest.memory.arena_bytes


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cortex-m0+", "cortex-m33", "rv32imc"])
def test_two_memories_of_other_cores(target: str, tmp_path: Path) -> None:
    made = firmware(DIGITS, tmp_path / "out", target=target, memory=memories(tmp_path, 2048))
    assert len(made.manifest.memory.arenas) == 2 and made.validate().ok


@pytest.mark.parametrize("arena", ["static", "caller"])
def test_one_arena_in_the_fast_memory(arena: str, tmp_path: Path) -> None:
    made = firmware(DIGITS, tmp_path / "out", target="cortex-m7", memory=memories(tmp_path, 8192), arena=arena)
    assert [(a.region, a.memory) for a in made.manifest.memory.arenas] == [("arena", "fast")]
    assert "digits_run_in(void *arena, " in (made.folder / "include" / "digits.h").read_text()
    assert sections(made.folder, "digits")[".intaglio_fast"][0] == FAST
    assert made.validate().ok


def running_sum(folder: Path) -> Path:
    """y is the sum of all x so far, made large enough to spill."""
    nodes = [
        node("Add", "x s", "t"),
        node("Exp", "x", "a"),
        node("Sin", "a", "b"),
        node("Add", "b t", "c"),
        node("Mul", "c a", "y"),
    ]
    proto = model(nodes, inputs=[value("x", [1, 64]), value("s", [1, 64])], outputs=[value("y", [1, 64]), value("t", [1, 64])])
    return saved(proto, folder)


def test_a_state_stays_in_the_first_arena(tmp_path: Path) -> None:
    made = firmware(
        running_sum(tmp_path), tmp_path / "out", target="cortex-m7", memory=memories(tmp_path, 512), name="total", states={"s": "t"}
    )
    manifest = made.manifest
    assert len(manifest.memory.arenas) == 2 and 0 < manifest.memory.state_bytes <= manifest.memory.arenas[0].bytes
    x = np.random.default_rng(1).uniform(-1, 1, (3, 1, 64)).astype(np.float32)
    found = made.run_steps({"x": x})
    np.testing.assert_allclose(found["t"], np.cumsum(x, axis=0), atol=1e-5)
    assert "in fast */" in (made.folder / "src" / "total.c").read_text()


def test_comments_manifest_and_ir_tell_the_memory(tmp_path: Path) -> None:
    made = firmware(DIGITS, tmp_path / "out", target="cortex-m7", memory=memories(tmp_path, 2048))
    assert "layers 0 to 1, in slow */" in (made.folder / "src" / "digits.c").read_text()
    assert "@arena:slow+0" in (made.folder / "ir" / "digits.ig").read_text()
    rows = json.loads((made.folder / "manifest.json").read_text())
    regions = {place["region"] for layer in rows["layers"] for place in layer["memory"]}
    assert regions == {"arena", "arena:slow", "output"}
    assert read_manifest(made.folder).memory == made.manifest.memory


def test_the_ir_file_is_compiled_again(tmp_path: Path) -> None:
    words = {"target": "cortex-m7", "memory": memories(tmp_path, 2048)}
    made = firmware(DIGITS, tmp_path / "out", **words)
    again = firmware(made.folder / "ir" / "digits.ig", tmp_path / "again", **words)
    for name in ("src/digits.c", "src/digits_static.c", "firmware/digits.ld"):
        assert (made.folder / name).read_bytes() == (again.folder / name).read_bytes()


@pytest.mark.parametrize("arena", ["static", "caller"])
def test_two_memories_where_there_is_an_operating_system(arena: str, tmp_path: Path) -> None:
    path = memories(tmp_path, 2048, addresses=False)
    made = compile(DIGITS, output=tmp_path / "out", memory=path, arena=arena, cflags=CLANG)
    assert [a.memory for a in made.manifest.memory.arenas] == ["fast", "slow"]
    assert made.validate().ok
    assert subprocess.run([made.folder / "bin" / "digits", "--selftest"], capture_output=True).returncode == 0


@pytest.mark.slow
def test_arenas_in_several_memories_cannot_be_shared(intaglio: Intaglio, tmp_path: Path) -> None:
    words = {"target": "cortex-m7", "memory": memories(tmp_path, 2048), "arena": "caller"}
    for name in ("first", "second"):
        firmware(DIGITS, tmp_path / name, name=name, **words)
    said = intaglio("link", tmp_path / "first", tmp_path / "second", "-o", tmp_path / "both")
    assert said.code == 2 and "has arenas in several memories" in said.err and "hint: " in said.err


@pytest.mark.slow
@pytest.mark.usefixtures("one_board")
def test_what_fits_into_no_memory(intaglio: Intaglio, tmp_path: Path) -> None:
    path = memories(tmp_path, 512, 1024)
    for command in (("compile", DIGITS, "-o", tmp_path / "out"), ("fit", DIGITS, "--quick")):
        said = intaglio(*command, "--target", "cortex-m7", "--memory", path)
        assert said.code == 1 and "the memory `slow` has 1,024: " in said.err and "together with `fast` 512 either" in said.err
        assert "layer `pool1_2`" in said.err or "layer `relu2_1`" in said.err
        assert "the lower bound is" in said.err or "No plan needs less than" in said.err
        assert "`--quantize int8`" in said.err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("one_board")
def test_fit_and_boards_tell_the_memories(intaglio: Intaglio, tmp_path: Path) -> None:
    path = memories(tmp_path, 2048)
    said = intaglio("fit", DIGITS, "--target", "cortex-m7", "--memory", path, "--quick")
    assert said.code == 0 and "of the arena in fast" in said.out and "of the arena in slow" in said.out
    told = intaglio("fit", DIGITS, "--target", "cortex-m7", "--memory", path, "--quick", "--json").json
    assert [row["memory"] for row in told["parts"]["arenas"]] == ["fast", "slow"]
    assert "dtcm" in intaglio("boards").out


def test_a_board_with_several_rams_puts_a_small_model_into_the_fastest(tmp_path: Path) -> None:
    made = firmware(DIGITS, tmp_path / "out", board="nucleo-h743zi")
    assert [(a.region, a.memory) for a in made.manifest.memory.arenas] == [("arena", "dtcm")]
    data = np.load(DIGITS_DATA)
    assert data and made.validate().ok
    assert made.manifest.firmware is not None and made.manifest.firmware.own_board is None
