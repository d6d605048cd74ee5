"""Firmware by pip alone: what is in it, and that it runs."""

from __future__ import annotations

import shutil
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from intaglio import compile
from intaglio.run.package import Package
from intaglio.targets.board import find_board
from support.commands import DIGITS, Intaglio
from support.firmware_running import CORES, firmware, integer_model, package_selftest
from support.strict import CLANG


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("firmware")
    return firmware(integer_model(folder), folder / "out", board="stm32f4-discovery", name="net")


# One core of each kind of code: Thumb alone, the DSP extension with floats, RISC-V. Kernels of the others: test_small_cores.py
QUICK_CORES = ("cortex-m0+", "cortex-m4f", "rv32imc")


@pytest.mark.parametrize("core", [c if c in QUICK_CORES else pytest.param(c, marks=pytest.mark.slow) for c in CORES])
def test_the_self_test_passes_on_every_core(core: str, tmp_path: Path) -> None:
    for model in (DIGITS, integer_model(tmp_path)):
        made = firmware(model, tmp_path / model.stem, target=core, name="net")
        code, said = package_selftest(made)
        assert code == 0, said
        assert said.endswith("net: self-test passed\n")


def test_a_wrong_result_fails_the_self_test(tmp_path: Path) -> None:
    made = firmware(integer_model(tmp_path), tmp_path / "out", name="net")
    elf = made.folder / "bin" / "net.elf"
    weights = section(elf, ".weights")
    data = bytearray(elf.read_bytes())
    start = weights["sh_offset"]
    data[start : start + 64] = bytes(64)
    elf.write_bytes(data)
    code, said = package_selftest(made)
    assert code == -1 and said.endswith("net: self-test FAILED\n")


def test_the_vector_table_is_at_the_start_of_flash(package: Package) -> None:
    elf = package.folder / "bin" / "net.elf"
    board = find_board("stm32f4-discovery")
    table = section(elf, ".vectors")
    words = elf.read_bytes()[table["sh_offset"] :][:8]
    assert table["sh_addr"] == board.main("flash").address
    assert int.from_bytes(words[:4], "little") == board.main("ram").address + board.ram_bytes
    assert int.from_bytes(words[4:], "little") == symbols(elf)["Reset_Handler"] | 1


def test_figures_add_up_and_are_told(package: Package) -> None:
    memory, info = package.manifest.memory, package.manifest.firmware
    assert info is not None and info.stack_bytes is not None
    assert info.flash_bytes == info.code_bytes + info.weight_bytes + info.data_bytes
    assert info.ram_bytes == memory.arena_bytes + info.io_bytes + info.static_bytes + info.stack_bytes
    assert info.weight_bytes == memory.weight_bytes
    assert info.selftest_bytes > 16 + 8  # at least the vectors
    readme = (package.folder / "README.md").read_text()
    assert f"| stack, at most | {info.stack_bytes} |" in readme and f"| **flash** | **{info.flash_bytes:,}** |" in readme


def test_names_in_the_library_carry_the_model_s(package: Package) -> None:
    for member in members(package.folder / "lib" / "libnet.a"):
        names = [n for n, s in member.items() if s["st_info"]["bind"] != "STB_LOCAL" and s["st_shndx"] != "SHN_UNDEF" and n]
        assert all(name.startswith("net_") for name in names), names


def test_an_arena_of_the_caller_leaves_no_variables(tmp_path: Path) -> None:
    made = firmware(integer_model(tmp_path), tmp_path / "out", name="net", arena="caller")
    for part in objects(made.folder / "lib" / "libnet.a"):
        writable = [s.name for s in ELFFile(part).iter_sections() if s["sh_flags"] & 1 and s["sh_size"]]
        assert not writable
    header = (made.folder / "include" / "net.h").read_text()
    assert "net_run_in(" in header and "net_run(" not in header
    assert package_selftest(made)[0] == 0


def test_nothing_of_a_c_library_is_needed_but_memory_and_mathematics(tmp_path: Path) -> None:
    made = firmware(DIGITS, tmp_path / "out", name="net")
    wanted = {n for m in members(made.folder / "lib" / "libnet.a") for n, s in m.items() if s["st_shndx"] == "SHN_UNDEF" and n}
    assert {n for n in wanted if not n.startswith(("net_", "__aeabi_"))} <= {"memcpy", "memset", "memmove", "expf", "logf", "tanhf"}


def test_the_same_model_gives_the_same_bytes(package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTAGLIO_OBJECT_CACHE", "off")
    again = firmware(integer_model(tmp_path), tmp_path / "out", board="stm32f4-discovery", name="net")
    assert again.manifest.files == package.manifest.files


@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="there is no arm-none-eabi-gcc here")
@pytest.mark.parametrize("core", ["cortex-m0+", "cortex-m4f"])
def test_a_cross_gcc_builds_it_too(core: str, tmp_path: Path) -> None:
    made = firmware(DIGITS, tmp_path / "out", target=core, name="net", cc="arm-none-eabi-gcc")
    assert package_selftest(made)[0] == 0
    assert made.manifest.firmware is not None and made.manifest.firmware.stack_bytes is not None


@pytest.mark.slow
def test_helium_s_core_is_built(tmp_path: Path) -> None:
    made = compile(DIGITS, output=tmp_path / "out", board="mps3-an547", cflags=CLANG)
    assert (made.folder / "bin" / f"{made.name}.elf").is_file()


def test_large_vectors_stay_out_of_the_device(intaglio: Intaglio, tmp_path: Path) -> None:
    from support.onnx_models import model, node, saved, value

    path = saved(model([node("Relu", "x", "y")], inputs=[value("x", [1, 20000])]), tmp_path)
    said = intaglio("compile", path, "--board", "nucleo-u575zi", "-o", tmp_path / "out", "--name", "net")
    assert said.code == 0 and "too large for a device" in said.err
    assert "#define NET_VECTORS 0" in (tmp_path / "out" / "src" / "net_vectors.h").read_text()


def test_doubles_without_a_unit_are_told_of(intaglio: Intaglio, tmp_path: Path) -> None:
    from onnx import TensorProto

    from support.onnx_models import model, node, saved, value

    inputs, outputs = [value("x", [1, 4], TensorProto.DOUBLE)], [value("y", [1, 4], TensorProto.DOUBLE)]
    path = saved(model([node("Exp", "x", "y")], inputs=inputs, outputs=outputs), tmp_path)
    said = intaglio("compile", path, "--target", "cortex-m4f", "-o", tmp_path / "out", "--name", "net")
    assert said.code == 0 and "`net` computes in f64, which `cortex-m4f` emulates in software" in said.err
    pytest.importorskip("unicorn")
    assert package_selftest(Package.load(tmp_path / "out"))[0] == 0


# Reading files --------------------------------------------------------------------------------------------------------


def section(elf: Path, name: str) -> dict[str, int]:
    with open(elf, "rb") as file:
        found = ELFFile(file).get_section_by_name(name)
        assert found is not None
        return dict(found.header)


def symbols(elf: Path) -> dict[str, int]:
    with open(elf, "rb") as file:
        return {n: s["st_value"] & ~1 for n, s in table(ELFFile(file)).items()}


def table(elf: ELFFile) -> dict[str, Any]:
    return {s.name: s.entry for t in elf.iter_sections() if isinstance(t, SymbolTableSection) for s in t.iter_symbols()}


def members(archive: Path) -> list[dict[str, Any]]:
    return [table(ELFFile(part)) for part in objects(archive)]


def objects(archive: Path) -> list[BytesIO]:
    """The object files of a static library: 60 bytes of header, then the file, at even offsets."""
    data, at, found = archive.read_bytes(), 8, []
    while at < len(data):
        size = int(data[at + 48 : at + 58])
        body = data[at + 60 : at + 60 + size]
        if body[:4] == b"\x7fELF":
            found.append(BytesIO(body))
        at += 60 + size + size % 2
    return found
