"""Every OpenCL driver of this machine gives the same results, and never gets what another one compiled.

PoCL is part of the development set-up; Intel's CPU runtime takes part where it is installed (intel-opencl-rt).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import intaglio as api
from intaglio.errors import IntaglioError
from intaglio.run.opencl import loader
from intaglio.run.opencl.devices import OpenCLDevice, list_devices
from intaglio.run.opencl.library import DeviceOptions, OpenclLibrary
from intaglio.run.package import Package
from intaglio.targets.caches import cache_root
from support.onnx_models import model, node, saved, value

RANDOM = np.random.default_rng(3)
W = RANDOM.standard_normal((24, 16, 3, 3)).astype(np.float32) / 12
D = RANDOM.standard_normal((24, 10)).astype(np.float32) / 5
X = RANDOM.standard_normal((1, 16, 9, 9)).astype(np.float32)
BOUNDS = {"fp32": 1e-5, "mixed": 5e-3, "fp16": 3e-2}


def network(folder: Path) -> Path:
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
        node("Relu", "a", "b"),
        node("GlobalAveragePool", "b", "c"),
        node("Flatten", "c", "e"),
        node("MatMul", "e d", "f"),
        node("Softmax", "f", "y"),
    ]
    return saved(model(nodes, [value("x", [1, 16, 9, 9])], [value("y", [1, 10])], {"w": W, "d": D}), folder, "drivers.onnx")


@pytest.fixture(scope="module", autouse=True)
def own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.setdefault("POCL_CACHE_DIR", f"{cache_root()}/pocl")
    os.environ["INTAGLIO_OPENCL_CACHE"] = str(tmp_path_factory.mktemp("caches") / "drivers.clbin")
    for name in (loader.VARIABLE, "INTAGLIO_OPENCL_DEVICE", "POCL_DEVICES"):
        os.environ.pop(name, None)
    loader._find.cache_clear()
    yield
    os.environ.clear()
    os.environ.update(before)
    loader._find.cache_clear()


def devices() -> list[OpenCLDevice]:
    try:
        return list(list_devices())
    except IntaglioError as error:
        pytest.skip(f"no OpenCL driver: {error.message}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drivers")


@pytest.fixture(scope="module")
def expected(folder: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return api.compile(network(folder), output=folder / "host").run({"x": X})["y"]


@pytest.mark.slow  # the next one compares fp32
@pytest.mark.parametrize("precision", ["fp32", "mixed", "fp16"])
def test_every_driver_computes_the_same(
    precision: str, folder: Path, expected: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
) -> None:
    found = devices()
    made = api.compile(network(folder), output=folder / precision, target="opencl", precision=precision)
    for device in found:
        package = Package(made.folder, device=DeviceOptions(device.place, say=lambda _: None))
        got = package.run({"x": X})["y"]
        np.testing.assert_allclose(got, expected, rtol=0, atol=BOUNDS[precision] * float(np.max(expected)), err_msg=device.name)


@pytest.mark.slow
def test_no_driver_gets_what_another_one_compiled(
    folder: Path, expected: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
) -> None:
    """One file, filled by all: each finds its own programs there, and only these."""
    found = devices()
    made = api.compile(network(folder), output=folder / "shared", target="opencl", name="shared")
    for start in ("source", "writable"):
        for device in found:
            package = Package(made.folder, device=DeviceOptions(device.place, say=lambda _: None))
            got = package.run({"x": X})["y"]
            np.testing.assert_allclose(got, expected, rtol=0, atol=BOUNDS["fp32"] * float(np.max(expected)), err_msg=device.name)
            assert isinstance(package.library, OpenclLibrary)
            report = package.library.start_report()
            known = report.from_writable + report.from_process
            assert (report.from_source if start == "source" else known) == report.programs, (start, device.name)
            assert report.refused == 0
