"""`--cores 2`: layers divided over the cores of an RP2040 or RP2350, emulated in turns; the same bits as from one core."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.errors import OurFault
from intaglio.frontends.tflite import load
from intaglio.ir.graph import Array
from intaglio.kernels import job, lower
from intaglio.kernels.program import Program, ScratchArg
from intaglio.memory import place
from intaglio.memory.checker import check
from intaglio.ops.evaluate import evaluate_graph
from intaglio.package.manifest import read_manifest
from intaglio.passes import Context, optimise
from intaglio.run.emulator.device import EmulatedDevice
from intaglio.run.emulator.two_cores import TwoCores
from intaglio.run.firmware import build_firmware
from intaglio.run.firmware_tools import find_firmware_toolchain
from intaglio.run.loaded import LoadedPackage
from intaglio.run.machine import Machine
from intaglio.run.timing import stored_inputs
from intaglio.targets.target import find_target, threaded
from support.commands import Intaglio
from support.small_networks import Layers, anomalies, images, keywords

BOARDS = ["rp2040", "rp2350"]


@pytest.fixture(scope="module", params=BOARDS)
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "net.tflite").write_bytes(images())
    intaglio.compile(folder / "net.tflite", output=folder / "p", board=request.param, cores=2)
    return folder / "p"


def test_results_are_exact_and_two_cores_are_faster(package: Path, intaglio: Intaglio) -> None:
    assert intaglio("validate", package).code == 0
    told = json.loads(intaglio("profile", package, "--json").out)
    emulation, total = told["emulation"], told["total"]
    assert emulation["cores"] == 2
    assert 1.3 < emulation["one_core_cycles"] / total["cycles"] <= 2.0
    assert sum(layer["instructions"] for layer in told["layers"]) == pytest.approx(total["instructions"], rel=0.05)


def test_the_profile_says_how_much_faster(package: Path, intaglio: Intaglio) -> None:
    assert re.search(r"2 cores: 1\.\d\d times as fast as one", intaglio("profile", package).out.replace("\n  ", " "))


def test_core_0_computes_alone_until_core_1_is_there(package: Path) -> None:
    loaded = LoadedPackage(package)
    together = EmulatedDevice(package, loaded.manifest)
    inputs = stored_inputs(loaded)
    expected = together.run(inputs)
    alone = EmulatedDevice(package, loaded.manifest)
    core = alone.core
    assert isinstance(core, TwoCores) and core._second is not None
    core._second.running = False
    ready = next(at for name, at in core.image.symbols.items() if name.endswith("_cores")) + 8
    core.write(ready, bytes(4))
    assert all((a == b).all() for a, b in zip(alone.run(inputs), expected, strict=True))


def test_a_race_is_found(tmp_path: Path) -> None:
    """Both cores in the same working memory: a bug that results may well hide."""
    (tmp_path / "net.tflite").write_bytes(images())
    package = tmp_path / "p"
    intaglio.compile(tmp_path / "net.tflite", output=package, board="rp2040", cores=2)
    source = package / "src" / "net.c"
    text = source.read_text()
    source.write_text(re.sub(r" \+ part \* \d+", "", text))
    assert source.read_text() != text
    elf, target = tmp_path / "race.elf", find_target("cortex-m0+")
    build_firmware(package, elf, "net", target, find_firmware_toolchain(None, target))
    device = EmulatedDevice(package, read_manifest(package), elf=elf)
    with pytest.raises(OurFault, match=r"core [01] (writes|reads) 0x20\w+, which core [01] uses in the same layer"):
        device.run(stored_inputs(LoadedPackage(package)))


# The check of the plan ----------------------------------------------------------------------------------------------------


def wide() -> bytes:
    """Few pixels and many channels: parts have channels."""
    net = Layers((1, 6, 6, 8), 4)
    net.conv(40, (3, 3), 2)
    net.conv(34, (1, 1))
    net.conv(36, (3, 3), 3)
    net.mean()
    net.dense(40)
    return net.file()


NETWORKS = {"keywords": keywords, "images": images, "anomalies": anomalies, "wide": wide}


def _planned(folder: Path, name: str = "keywords", core: str = "cortex-m0+") -> Program:
    """With every layer divided that can be."""
    path = folder / "net.tflite"
    path.write_bytes(NETWORKS[name]())
    target = threaded(find_target(core), 1, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "LEAST_SHARED", 0)
        program = lower(optimise(load(path, dims={}, shapes={})[0], Context(target)), target)
    program.placement = place(program, target)
    return program


@pytest.mark.parametrize("core", ["cortex-m0+", "cortex-m33"])
@pytest.mark.parametrize("name", NETWORKS)
def test_interpreted_parts_give_what_the_graph_gives(name: str, core: str, tmp_path: Path) -> None:
    program = _planned(tmp_path, name, core)
    check(program)
    divided = [layer for layer in program.layers if layer.kernel.split is not None]
    assert len(divided) >= len(program.layers) / 2
    assert all(layer.kernel.split.touched for layer in divided if "conv" in layer.kernel.stem)  # type: ignore[union-attr]
    graph = program.graph
    rng = np.random.default_rng(1)
    inputs: dict[str, Array] = {v.name: rng.integers(-128, 128, v.shape).astype(np.int8) for v in graph.inputs}
    found, expected = Machine(program).run(inputs), evaluate_graph(graph, inputs)
    for value in graph.outputs:
        np.testing.assert_array_equal(found[value.name], expected[value.name])


def _overlapping(program: Program) -> None:
    layer = next(layer for layer in program.layers if layer.kernel.split is not None and layer.kernel.split.touched)
    split = layer.kernel.split
    assert split is not None
    layer.kernel.split = replace(split, touched=tuple(replace(t, at=0) for t in split.touched))


def _one_piece(program: Program) -> None:
    layer = next(layer for layer in program.layers if layer.kernel.split is not None and layer.kernel.split.own)
    split = layer.kernel.split
    assert split is not None
    layer.arguments = tuple(replace(a, each=a.bytes) if isinstance(a, ScratchArg) else a for a in layer.arguments)


@pytest.mark.parametrize(
    ("spoil", "says"), [(_overlapping, "writes what part 1 uses"), (_one_piece, "do not have 2 pieces of working memory")]
)
def test_parts_that_meet_are_an_error_of_the_plan(spoil: Callable[[Program], None], says: str, tmp_path: Path) -> None:
    program = _planned(tmp_path)
    check(program)
    spoil(program)
    with pytest.raises(OurFault, match=says):
        check(program)
