"""Packages on a board behind a serial line: the values of the emulated core, bit for bit, over a real pseudo-terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from intaglio.ir.graph import Array
from intaglio.package.manifest import read_manifest
from intaglio.run.package import Package
from intaglio.run.serial.device import SelfTest
from intaglio.run.timing import stored_inputs
from support.commands import DIGITS, Intaglio
from support.firmware_running import CORES, SEVERAL, firmware, integer_model
from support.onnx_models import model, node, saved, value
from support.row_models import pixels
from support.serial_board import answering

INT8 = {"quantize": "int8", "integer_io": True, "ranges": "minmax", "equalize": False, "correct_bias": False, "sensitivity": False}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Package:
    return firmware(DIGITS, tmp_path_factory.mktemp("digits") / "p", name="net")


@pytest.fixture(scope="module")
def port(digits: Package) -> Iterator[str]:
    with answering(digits) as path:
        yield path


def on_board(package: Package, path: str) -> Package:
    return Package.load(package.folder, serial=path)


def same_on_board(package: Package, samples: Array) -> Package:
    """Runs them here and there; returns the one on the board."""
    with answering(package) as path:
        there = on_board(package, path)
        got, want = there.run_steps({"in0": samples}), package.run_steps({"in0": samples})
        assert there.serial_device.selftest() is SelfTest.PASSED
        there.serial_device.close()
    for name, array in want.items():
        np.testing.assert_array_equal(got[name], array)
    return there


def images(count: int = 2) -> Array:
    return np.random.default_rng(3).random((count, 1, 1, 8, 8)).astype(np.float32)


def bytes_of(count: int = 2) -> Array:
    return np.random.default_rng(4).integers(-128, 128, (count, 1, 16)).astype(np.int8)


def first_of(*values: str) -> list[object]:
    """Of each kind one in `make test`."""
    return [values[0], *(pytest.param(value, marks=pytest.mark.slow) for value in values[1:])]


@pytest.mark.parametrize("core", [*first_of(*CORES[:6]), *first_of(*CORES[6:])])
def test_every_core_gives_the_values_of_the_emulator(core: str, tmp_path: Path) -> None:
    same_on_board(firmware(integer_model(tmp_path), tmp_path / "p", target=core), bytes_of())


@pytest.mark.parametrize("board", ["nucleo-l4r5zi", "stm32f4-discovery", "nrf52840-dk", "rp2040"])
def test_every_kind_of_uart_carries_the_protocol(board: str, tmp_path: Path) -> None:
    same_on_board(firmware(integer_model(tmp_path), tmp_path / "p", board=board), bytes_of())


@pytest.mark.parametrize("where", [*first_of("caller", "several static"), *first_of("several caller", "read static")])
def test_arenas_and_weights_may_be_anywhere(where: str, tmp_path: Path) -> None:
    words: dict[str, object] = {"arena": where.split()[-1]}
    if " " in where:
        (tmp_path / "several.toml").write_text(SEVERAL)
        words |= {"memory": tmp_path / "several.toml", "weights": "read" if where.startswith("read") else "mapped"}
    same_on_board(firmware(DIGITS, tmp_path / "p", name="net", **words), images())


@pytest.mark.slow
@pytest.mark.parametrize("arena", first_of("static", "caller"))
def test_rows_are_fed_one_by_one(arena: str, tmp_path: Path) -> None:
    package = firmware(pixels(tmp_path), tmp_path / "p", feed_rows=True, arena=arena, **INT8)
    assert package.manifest.memory.fed_rows == 24
    pictures = np.random.default_rng(5).integers(-128, 128, (2, 1, 24, 16, 3)).astype(np.int8)
    same_on_board(package, pictures)


@pytest.mark.slow
def test_states_live_on_the_board_until_a_new_sequence(tmp_path: Path) -> None:
    proto = model([node("Add", "x h", "y")], [value("x", [1, 4]), value("h", [1, 4])], [value("y", [1, 4])], {})
    package = firmware(saved(proto, tmp_path), tmp_path / "p", states={"h": "y"})
    x = np.array([[1, 2, 3, 4]], np.float32)
    with answering(package) as path:
        there = on_board(package, path)
        np.testing.assert_array_equal(there.run({"x": x})["y"], x)
        np.testing.assert_array_equal(there.run({"x": x})["y"], 2 * x)
        assert there.serial_device.selftest() is SelfTest.PASSED
        there.reset()
        np.testing.assert_array_equal(there.run({"x": x})["y"], x)


@pytest.mark.slow
def test_a_tensor_may_need_many_frames(tmp_path: Path) -> None:
    proto = model([node("Neg", "x", "y")], [value("x", [1, 1000])], [value("y", [1, 1000])], {})
    package = firmware(saved(proto, tmp_path), tmp_path / "p")
    same_on_board(package, np.random.default_rng(6).random((1, 1, 1000)).astype(np.float32))


@pytest.mark.slow
def test_the_digest_of_a_build_is_that_of_its_code_and_weights(digits: Package, tmp_path: Path) -> None:
    again = firmware(DIGITS, tmp_path / "again", name="net")
    other = firmware(DIGITS, tmp_path / "other", name="net", optimize="size", io="caller")
    build = read_manifest(digits.folder).build
    assert len(build) == 64 and again.manifest.build == build != other.manifest.build
    assert f'"{build}"' in (digits.folder / "include" / "net_device.h").read_text()


def test_the_firmware_of_the_package_has_nothing_of_it(digits: Package) -> None:
    elf = (digits.folder / "bin" / "net.elf").read_bytes()
    assert b"net_serve" not in elf and digits.manifest.build.encode() not in elf


# Commands -------------------------------------------------------------------------------------------------------------------------


def test_validate_compares_the_board_with_the_reference(digits: Package, port: str, intaglio: Intaglio) -> None:
    said = intaglio("validate", digits.folder, "--serial", port)
    assert said.code == 0 and "matches onnxruntime" in said.out
    assert "self-test on the board: passed" in said.err


def test_run_writes_what_the_board_computes(digits: Package, port: str, intaglio: Intaglio, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", in0=images(1)[0])
    made = [tmp_path / "board.npz", tmp_path / "emulator.npz"]
    for path, words in zip(made, (("--serial", port), ()), strict=True):
        assert intaglio("run", digits.folder, "--input", tmp_path / "x.npz", "--output", path, *words).code == 0
    got, want = (dict(np.load(path)) for path in made)
    np.testing.assert_array_equal(got["probabilities"], want["probabilities"])


def test_profile_tells_the_cycles_of_every_layer(digits: Package, port: str, intaglio: Intaglio) -> None:
    """Behind the line is an emulator: it counts as `profile` without a line does, and the hook beside it."""
    found = intaglio("profile", digits.folder, "--serial", port, "--runs", "2", "--clock", "25", "--json").json
    alone = intaglio("profile", digits.folder, "--json").json
    assert found["serial"] == {"board": "mps2-an386", "clock_mhz": 25.0, "runs": 2, "cycles_are_estimated": True}
    assert found["total"]["time_ms"] == found["total"]["cycles"] / 25 / 1000
    for one, other in zip(found["layers"], alone["layers"], strict=True):
        assert one["name"] == other["name"]
        assert 0 <= one["cycles"] - other["cycles"] < 100 + other["cycles"] / 50
    assert 0 < found["total"]["cycles"] - alone["total"]["cycles"] < 2000
    shown = intaglio("profile", digits.folder, "--serial", port)
    assert "estimated by an emulated core" in shown.out and "`--clock MHZ` gives times" in shown.err


def test_a_core_without_a_counter_says_so(tmp_path: Path, intaglio: Intaglio) -> None:
    package = firmware(integer_model(tmp_path), tmp_path / "p", target="cortex-m0+")
    with answering(package) as path:
        said = intaglio("profile", package.folder, "--serial", path)
        kept = intaglio("profile", package.folder, "--serial", path, "--save", tmp_path / "r.json")
    assert said.code == 0 and said.out == "cycles: the core has no counter\n"
    assert kept.code == 2 and "error[no-cycles]: the board told no cycles" in kept.err


def test_python_loads_a_package_on_a_board(digits: Package, port: str) -> None:
    there = on_board(digits, port)
    assert there.validate().ok
    profile = there.profile(runs=1)
    assert profile.serial is not None and profile.total.cycles
    assert len(stored_inputs(there)) == 1
    there.serial_device.close()
