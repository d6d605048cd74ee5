"""Packages for emulated cores run, validate and profile as those of this machine do."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from intaglio import compile
from intaglio.errors import AnswerIsNo, OurFault, ToolError, UserError
from intaglio.package.manifest import write_manifest
from intaglio.run.package import Package
from support.commands import Intaglio
from support.onnx_models import INT64, ints, model, node, saved, value
from support.tflite_models import Tensor, numbers, one_operator

pytest.importorskip("unicorn")
pytest.importorskip("ai_edge_litert")  # writes the small models
needs_qemu = pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="there is no qemu-system-arm here")
WAITS_OF_BOARD, NO_WAITS = ("--wait-states", "board"), ("--wait-states", "0")
BYTES = numbers((1, 16), "int8", seed=1)
X = np.array([[1, 2, 3, 4]], np.float32)


def dense(folder: Path) -> Path:
    """A layer of bytes."""
    weights = Tensor((8, 16), "int8", 0.01, 0, numbers((8, 16), "int8"))
    bias = Tensor((8,), "int32", 0.0005, 0, np.arange(8, dtype=np.int32))
    given = [Tensor((1, 16), "int8", 0.05, -5), weights, bias]
    path = folder / "dense.tflite"
    path.write_bytes(one_operator("FULLY_CONNECTED", given, Tensor((1, 8), "int8", 0.1, 3), "FullyConnectedOptions", version=4))
    return path


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("dense")
    return compile(dense(folder), output=folder / "p", board="mps2-an386")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("here")
    return compile(dense(folder), output=folder / "p")


@pytest.mark.parametrize(
    "core", ["cortex-m0+", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33", "rv32imc", "rv32imafc", "hazard3"]
)
def test_integers_are_bit_for_bit_those_of_this_machine(here: Package, tmp_path: Path, core: str) -> None:
    there = compile(dense(tmp_path), output=tmp_path / "there", target=core)
    steps = numbers((5, 1, 16), "int8", seed=2)
    (want,), (got,) = here.run_steps({"in0": steps}).values(), there.run_steps({"in0": steps}).values()
    np.testing.assert_array_equal(got, want)


@needs_qemu
@pytest.mark.parametrize("core", ["cortex-m4f", "cortex-m55"])
def test_qemu_gives_the_same(here: Package, tmp_path: Path, core: str) -> None:
    there = Package.load(compile(dense(tmp_path), output=tmp_path / "there", target=core).folder, emulator="qemu")
    (want,), (got,) = here.run({"in0": BYTES}).values(), there.run({"in0": BYTES}).values()
    np.testing.assert_array_equal(got, want)
    assert (there.profile().total.instructions or 0) > 100


def test_states_live_in_the_memory_of_the_device(tmp_path: Path) -> None:
    proto = model([node("Add", "x h", "y")], [value("x", [1, 4]), value("h", [1, 4])], [value("y", [1, 4])])
    package = compile(saved(proto, tmp_path), output=tmp_path / "p", target="cortex-m4f", states={"h": "y"})
    steps = np.arange(12, dtype=np.float32).reshape(3, 1, 4)
    for _ in range(2):  # each sequence starts anew
        np.testing.assert_array_equal(package.run_steps({"x": steps})["y"], np.cumsum(steps, 0))
    package.reset()
    package.run({"x": steps[1]})
    np.testing.assert_array_equal(package.run({"x": steps[2]})["y"], steps[1] + steps[2])


def test_several_inputs_and_outputs_find_their_places(tmp_path: Path) -> None:
    nodes = [node("Sub", "a b", "d"), node("Mul", "a b", "m")]
    proto = model(nodes, [value("a", [1, 4]), value("b", [1, 4])], [value("d", [1, 4]), value("m", [1, 4])])
    package = compile(saved(proto, tmp_path), output=tmp_path / "p", target="rv32imafc")
    found = package.run({"b": X + 3, "in0": X})
    np.testing.assert_array_equal(found["d"], X - (X + 3))
    np.testing.assert_array_equal(found["m"], X * (X + 3))


def test_what_the_data_breaks_is_an_answer(tmp_path: Path) -> None:
    proto = model([node("Gather", "x i", "y", axis=1)], [value("x", [1, 4]), value("i", [1], INT64)], [value("y", [1, 1])])
    package = compile(saved(proto, tmp_path), output=tmp_path / "p", target="cortex-m4f")
    with pytest.raises(AnswerIsNo, match="index-out-of-range"):
        package.run({"x": X, "i": ints(9)})
    assert package.run({"x": X, "i": ints(2)})["y"] == 3


def test_validate_looks_into_every_layer(package: Package) -> None:
    result = package.validate(layers=True)
    assert result.ok
    assert [check.comparison.mismatches for check in result.layers] == [0]


def test_layers_add_up_to_the_whole(package: Package) -> None:
    result = package.profile()
    total, layers = result.total, result.layers
    assert total.instructions and total.cycles and all(layer.instructions and layer.cycles for layer in layers)
    counted = sum(layer.instructions or 0 for layer in layers)
    assert abs(counted - total.instructions) <= 40 + 10 * len(layers)
    assert total.time_ms == pytest.approx(total.cycles / 25_000)  # the board has 25 MHz
    assert layers[0].instructions_per_mac == pytest.approx((layers[0].instructions or 0) / 128)
    assert layers[0].weight_bytes and layers[0].weight_bytes >= 128


@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="there is no arm-none-eabi-gcc here")
def test_layers_are_built_by_the_compiler_of_the_package(tmp_path: Path) -> None:
    flags = ("-O1",)
    result = compile(dense(tmp_path), output=tmp_path / "p", target="cortex-m4", cc="arm-none-eabi-gcc", cflags=flags).profile()
    assert result.total.instructions
    assert abs(sum(layer.instructions or 0 for layer in result.layers) - result.total.instructions) <= 50


def test_the_stack_stays_within_its_bound(package: Package) -> None:
    total = package.profile().total
    assert total.stack_bytes and total.stack_used_bytes and 0 < total.stack_used_bytes <= total.stack_bytes


def test_a_stack_beyond_its_bound_is_our_fault(package: Package, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    shutil.copytree(package.folder, folder)
    assert package.manifest.firmware is not None
    write_manifest(replace(package.manifest, firmware=replace(package.manifest.firmware, stack_bytes=8)), folder)
    with pytest.raises(OurFault, match="the computed bound is 8"):
        Package.load(folder).run({"in0": BYTES})


def test_wait_states_of_flash_add_cycles(package: Package, intaglio: Intaglio) -> None:
    none, two = (intaglio("profile", package.folder, "--json", "--wait-states", n).json for n in ("board", "2"))
    assert none["emulation"]["wait_states"] == 0
    assert two["emulation"]["wait_states"] == 2
    assert two["total"]["cycles"] > none["total"]["cycles"]
    assert two["total"]["instructions"] == none["total"]["instructions"]


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("cached")
    return compile(dense(folder), output=folder / "p", board="nucleo-l4r5zi")


def test_a_board_that_is_described_is_estimated_with_its_memories(cached: Package, intaglio: Intaglio) -> None:
    default, board, core = (intaglio("profile", cached.folder, "--json", *w).json for w in ((), WAITS_OF_BOARD, NO_WAITS))
    assert default["total"] == board["total"] and default["emulation"]["described"]
    total, whole = default["total"], core["total"]
    assert total["cycles"] == round(1.1 * whole["cycles"]) + sum(stall["cycles"] for stall in total["stalls"])
    assert total["instructions"] == whole["instructions"] and whole["stalls"] == []
    assert total["cycles_low"] < total["cycles"] < total["cycles_high"] and whole["cycles_low"] is None
    (layer,) = default["layers"]
    assert {stall["cause"]: stall["count"] for stall in layer["stalls"]}["art_data data"] >= 128 // 8  # weights, eight at a time
    assert layer["cycles_low"] < layer["cycles"] < layer["cycles_high"]


def test_its_profile_says_what_the_estimate_rests_on(cached: Package, intaglio: Intaglio) -> None:
    said = intaglio("profile", cached.folder)
    assert max(map(len, said.out.splitlines())) <= 100
    assert "(an estimate for nucleo-l4r5zi)" in said.out and "of these: core " in said.out and "art_data data" in said.out
    assert "interval: " in said.out and "+-4 %: nine MLPerf Tiny results" in said.out


@pytest.mark.usefixtures("one_board")
def test_fit_agrees_with_the_profile_of_a_described_board(cached: Package, intaglio: Intaglio, tmp_path: Path) -> None:
    fit = intaglio("fit", dense(tmp_path), "--board", "nucleo-l4r5zi", "--json").json
    assert fit["cycles"] == cached.profile().total.cycles


def test_wait_states_need_unicorn(package: Package, intaglio: Intaglio) -> None:
    said = intaglio("profile", package.folder, "--emulator", "qemu", "--wait-states", "2")
    assert said.code == 2
    assert "QEMU does not count loads from flash" in said.err


def test_profile_fits_a_terminal_and_says_what_is_estimated(package: Package, intaglio: Intaglio) -> None:
    said = intaglio("profile", package.folder)
    assert said.code == 0
    assert max(map(len, said.out.splitlines())) <= 80
    assert "an estimate for cortex-m4, zero wait states" in " ".join(said.out.split())
    assert "per MAC (exact, Unicorn" in said.out


def test_the_commands_take_an_emulator(package: Package, intaglio: Intaglio, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", in0=BYTES)
    said = intaglio("run", package.folder, "--input", tmp_path / "x.npz", "--emulator", "unicorn", "--json")
    assert said.json["outputs"][0]["shape"] == [1, 8]
    said = intaglio("validate", package.folder, "--emulator", "abacus")
    assert said.code == 2
    assert "unknown emulator `abacus`" in said.err


def test_firmware_that_was_not_built_is_told(tmp_path: Path, intaglio: Intaglio) -> None:
    intaglio("compile", dense(tmp_path), "-o", tmp_path / "p", "--target", "cortex-m4f", "--stop-after", "package")
    np.savez(tmp_path / "x.npz", in0=BYTES)
    for command, *words in (["run", "--input", str(tmp_path / "x.npz")], ["profile"], ["validate"]):
        said = intaglio(command, tmp_path / "p", *words)
        assert said.code == 2
        assert "error[not-built]" in said.err


@needs_qemu
def test_firmware_for_addresses_that_qemu_does_not_have_is_refused_at_once(intaglio: Intaglio, tmp_path: Path) -> None:
    made = compile(dense(tmp_path), output=tmp_path / "p", board="nucleo-l4r5zi").folder
    said = intaglio("profile", made, "--emulator", "qemu")
    assert said.code == 2 and "cannot run firmware for the board `nucleo-l4r5zi`" in said.err
    assert "flash at 0x08000000" in said.err and "`--board mps2-an386`" in said.err


@needs_qemu
def test_a_qemu_that_does_not_answer_is_a_tool_s_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from intaglio.run.emulator.gdb import Debugger

    package = Package.load(compile(dense(tmp_path), output=tmp_path / "p", board="mps2-an386").folder, emulator="qemu")

    def never(self: Debugger, seconds: float) -> str:
        raise TimeoutError

    monkeypatch.setattr(Debugger, "answer", never)
    with pytest.raises(ToolError, match="does not answer"):
        package.run({"in0": BYTES})


def test_qemu_is_not_named_where_it_cannot_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "unicorn", None)
    for board, named in (("nucleo-l4r5zi", False), ("esp32-c3", False), ("mps2-an386", True)):
        package = compile(dense(tmp_path), output=tmp_path / "p", force=True, board=board)
        with pytest.raises(ToolError) as caught:
            package.run({"in0": BYTES})
        assert ("--emulator qemu" in caught.value.hint) == named


def test_without_unicorn_the_way_to_it_is_told(package: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "unicorn", None)
    with pytest.raises(ToolError, match=r"pip install -e '.\[emulator\]'") as caught:
        Package.load(package.folder).run({"in0": BYTES})
    assert caught.value.exit_code == 2


def test_without_qemu_the_m55_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = compile(dense(tmp_path), output=tmp_path / "p", target="cortex-m55")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match="apt install qemu-system-arm"):
        package.run({"in0": BYTES})


def test_unicorn_does_not_take_the_m55(tmp_path: Path) -> None:
    package = Package.load(compile(dense(tmp_path), output=tmp_path / "p", target="cortex-m55").folder, emulator="unicorn")
    with pytest.raises(ToolError, match="Unicorn does not support `cortex-m55`"):
        package.run({"in0": BYTES})


def test_the_variable_chooses_the_emulator(package: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTAGLIO_EMULATOR", "abacus")
    with pytest.raises(UserError, match="unknown emulator `abacus`"):
        Package.load(package.folder).run({"in0": BYTES})
