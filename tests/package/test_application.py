"""The inference application of a package, as a device team uses it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from intaglio.ir.graph import Array
from intaglio.run.package import Package
from support.building import build, needs_gcc, square_of_sum, store_vectors
from support.programs import add_then_square

X = np.arange(8, dtype=np.float32).reshape(1, 8)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    made = build(add_then_square(), tmp_path_factory.mktemp("app") / "p")
    store_vectors(made, [X], [square_of_sum(X)])
    return made


def run(package: Package, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(package.folder / "bin" / package.name), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_npy_in_npy_out(package: Package, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    assert run(package, tmp_path / "x.npy", "-o", tmp_path / "y.npy").returncode == 0
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), square_of_sum(X))
    assert run(package, tmp_path / "x.npy", "-o", f"{tmp_path}/out_").returncode == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out_y.npy"), square_of_sum(X))


def test_raw_in_raw_out(package: Package, tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(X.tobytes())
    assert run(package, tmp_path / "x.bin", "--output", f"y={tmp_path}/y.bin").returncode == 0
    assert (tmp_path / "y.bin").read_bytes() == square_of_sum(X).tobytes()


def test_top_prints_the_largest_first(package: Package, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    rows = [line.split() for line in run(package, tmp_path / "x.npy", "--top", "3").stdout.splitlines()[1:]]
    assert [row[0] for row in rows] == ["7", "6", "5"]


def test_selftest_passes_and_notices_a_wrong_value(package: Package, tmp_path: Path) -> None:
    assert run(package, "--selftest").returncode == 0
    shutil.copytree(package.folder / "test", tmp_path / "test")
    wrong = square_of_sum(X)
    wrong[0, 3] += 1
    np.save(tmp_path / "test" / "out0.npy", wrong)
    failed = run(package, "--selftest", tmp_path / "test")
    assert failed.returncode == 1
    assert "1 of 8 values off" in failed.stdout


def test_the_total_of_a_profile_is_the_least_time_of_the_benchmark(digits: Path) -> None:
    """Of microseconds, reading the clock for each layer was a third. Noise only adds: the nearest of some attempts counts."""
    package, ratios = Package.load(digits), []
    for _ in range(5):
        found = re.search(r"least ([\d.]+) us", run(package, "--benchmark", "2000").stdout)
        total = package.profile().total.time_ms
        assert found is not None and total is not None
        ratios.append(1000 * total / float(found[1]))
        if 0.75 < ratios[-1] < 1.25:
            return
    assert not ratios, "outside of a quarter"


def test_benchmark_prints_the_median(package: Package) -> None:
    assert "median" in run(package, "--benchmark", "5").stdout


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (X.astype(np.float64), "has type '<f8', but input x needs float32"),
        (np.zeros((1, 9), np.float32), "has shape [1,9], but x needs [1,8]"),
        (np.asfortranarray(np.zeros((2, 4), np.float32)), "has shape [2,4]"),
    ],
)
def test_a_wrong_array_is_explained(package: Package, tmp_path: Path, array: Array, says: str) -> None:
    np.save(tmp_path / "x.npy", array)
    done = run(package, tmp_path / "x.npy")
    assert done.returncode == 2
    assert says in done.stderr


@pytest.mark.parametrize("cut", [0, 3, 9, 20, 100, 140])
def test_a_file_cut_short_is_explained(package: Package, tmp_path: Path, cut: int) -> None:
    np.save(tmp_path / "x.npy", X)
    whole = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(whole[:cut])
    assert run(package, tmp_path / "x.npy").returncode == 2


@pytest.mark.parametrize(
    "words", [[], ["a", "b"], ["--nothing"], ["--top"], ["--top", "x"], ["-o"], ["--output", "q=1"]]
)
def test_a_mistake_in_the_request_ends_with_2(package: Package, words: list[str]) -> None:
    assert run(package, *words).returncode == 2


@needs_gcc
def test_the_application_is_clean_under_sanitizers(tmp_path: Path) -> None:
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")
    package = build(add_then_square(), tmp_path / "p", "gcc", flags)
    store_vectors(package, [X], [square_of_sum(X)])
    for words in (
        ["--selftest"],
        ["--benchmark", "3"],
        ["--help"],
        ["--info"],
        [package.folder / "test/in0.npy", "--top", "9"],
    ):
        assert run(package, *words).returncode == 0


@pytest.mark.slow
@needs_gcc
@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
def test_the_makefile_builds_it_anywhere(package: Package, tmp_path: Path) -> None:
    shutil.copytree(package.folder, tmp_path / "p")
    subprocess.run(["make", "test"], cwd=tmp_path / "p", check=True, capture_output=True)
    subprocess.run(["make", "clean"], cwd=tmp_path / "p", check=True, capture_output=True)
    subprocess.run(["make", "PROFILE=1"], cwd=tmp_path / "p", check=True, capture_output=True)
    told = subprocess.run(["build/tiny", "--profile"], cwd=tmp_path / "p", check=True, capture_output=True, text=True)
    assert "square (relu)" in told.stdout


@pytest.mark.slow
@needs_gcc
@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake here")
def test_cmake_builds_it_anywhere(package: Package, tmp_path: Path) -> None:
    shutil.copytree(package.folder, tmp_path / "p")
    for command in (["cmake", "-B", "build", "."], ["cmake", "--build", "build"], ["ctest", "--test-dir", "build"]):
        subprocess.run(command, cwd=tmp_path / "p", check=True, capture_output=True)
