"""`--threads`: the same bits with any number of threads, a pool of one's own, and no trace of threads where there is one."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.ir.graph import Array
from intaglio.kernels.threads import split as splitting
from intaglio.run.package import Package
from intaglio.run.toolchains import find_toolchain
from support.building import needs_gcc
from support.onnx_models import model, node, saved, value
from support.small_networks import images
from support.strict import GCC, strict_flags

DRIVER = Path(__file__).parents[1] / "support" / "threads_driver.c"


def real_network(folder: Path) -> Path:
    """Convolutions with and without a border, a product of two computed sides, a softmax and a dense layer."""
    rng = np.random.default_rng(3)

    def weights(*shape: int) -> Array:
        return np.asarray(rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:])), np.float32)

    constants = {
        "w1": weights(24, 3, 3, 3), "w2": weights(20, 24, 1, 1), "wd": weights(20, 1, 3, 3), "shape": np.array([20, 225], np.int64),
        "w3": weights(20, 33), "b": weights(1, 33),
    }  # fmt: skip
    nodes = [
        node("Conv", "x w1", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "a1"),
        node("MaxPool", "a1", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "p w2", "c"), node("Conv", "c wd", "d", group=20, pads=[1, 1, 1, 1]), node("Add", "c d", "e"),
        node("Reshape", "e shape", "r"), node("Transpose", "r", "t", perm=[1, 0]), node("MatMul", "t r", "scores"),
        node("Softmax", "scores", "s", axis=-1), node("MatMul", "s t", "m"), node("MatMul", "m w3", "f"), node("Add", "f b", "y"),
    ]  # fmt: skip
    return saved(model(nodes, [value("x", [1, 3, 31, 31])], [value("y", [225, 33])], constants), folder, "net.onnx")


def whole_network(folder: Path) -> Path:
    path = folder / "net.tflite"
    path.write_bytes(images())
    return path


NETWORKS: dict[str, Callable[[Path], Path]] = {"real": real_network, "whole": whole_network}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Package]:
    """Networks by kind and number of threads, each built once; also short layers are divided."""

    @cache
    def make(kind: str, threads: int) -> Package:
        folder = tmp_path_factory.mktemp(f"{kind}{threads}")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(splitting, "HOST", splitting.Costs(0, 1.0))
            return intaglio.compile(
                NETWORKS[kind](folder), output=folder / "p", threads=threads, library_only=True,
                cflags=strict_flags(find_toolchain(None).kind), name="net",
            )  # fmt: skip

    return make


def given_input(package: Package) -> dict[str, Array]:
    (info,) = package.manifest.inputs
    rng = np.random.default_rng(9)
    if info.dtype == "f32":
        return {info.name: rng.standard_normal(info.shape).astype(np.float32)}
    return {info.name: rng.integers(-128, 128, info.shape).astype(np.int8)}


def only(results: dict[str, Array]) -> Array:
    (array,) = results.values()
    return array


MANY = [("real", 3), ("whole", 2)]
MORE = [pytest.param(kind, n, marks=pytest.mark.slow) for kind in NETWORKS for n in (2, 3, 4, 7) if (kind, n) not in MANY]


@pytest.mark.parametrize(("kind", "threads"), [*MANY, *MORE])
def test_the_bits_do_not_depend_on_the_number_of_threads(kind: str, threads: int, built: Callable[[str, int], Package]) -> None:
    one, many = built(kind, 1), built(kind, threads)
    assert sum(layer.parts == threads for layer in many.manifest.layers) >= 5
    inputs = given_input(one)
    wanted = only(one.run(inputs))
    for _ in range(5):
        assert only(many.run(inputs)).tobytes() == wanted.tobytes()


def test_one_thread_leaves_no_trace(built: Callable[[str, int], Package]) -> None:
    one, many = built("real", 1).folder, built("real", 3).folder
    assert b"pthread" in (many / "lib" / "libnet.so").read_bytes()
    assert b"pthread" not in (one / "lib" / "libnet.so").read_bytes()
    assert not list(one.glob("src/*threads*"))
    for file in [*one.glob("src/*.c"), *one.glob("src/*.h"), one / "include" / "net.h", one / "Makefile", one / "CMakeLists.txt"]:
        assert "pthread" not in file.read_text(errors="replace").lower()
        assert "part" not in file.read_text(errors="replace").split("weights")[0].split(), file
    assert "NET_THREADS" not in (one / "include" / "net.h").read_text()


def test_the_manifest_says_so(built: Callable[[str, int], Package]) -> None:
    manifest = built("real", 3).manifest
    assert manifest.options["threads"] == "3"
    assert {layer.parts for layer in manifest.layers} <= {1, 3}
    assert "threads" not in built("real", 1).manifest.options


def run_driver(package: Package, folder: Path, mode: str, *flags: str) -> str:
    """Sources and driver as one program; its output is compared with that of one thread."""
    inputs = only(given_input(package))
    (folder / "in.bin").write_bytes(np.ascontiguousarray(inputs).tobytes())
    sources = [str(p) for p in sorted(package.folder.glob("src/*.c"))]
    sources += [str(p) for p in sorted(package.folder.glob("src/*.S"))]
    command = [
        "gcc", *GCC, "-pthread", "-O1", "-g", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-march=native", *flags,
        "-Iinclude", "-Isrc", str(DRIVER), *sources, "-o", str(folder / "driver"), "-lm",
    ]  # fmt: skip
    made = subprocess.run(command, capture_output=True, text=True, check=False, cwd=package.folder)
    assert made.returncode == 0, made.stderr[:3000]
    run = [str(folder / "driver"), mode, "5", str(folder / "in.bin"), str(folder / "out.bin")]
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, (done.returncode, done.stderr[-3000:])
    return done.stdout


def test_a_pool_of_the_caller_gets_every_part(built: Callable[[str, int], Package]) -> None:
    """Callbacks from Python: `start` keeps the parts, `wait` does them, the last one first."""
    package = built("real", 3)
    wanted = only(package.run(given_input(package)))
    task_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)
    waiting: list[Callable[[], None]] = []
    contexts: list[int | None] = []

    start_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, task_type, ctypes.c_void_p, ctypes.c_int)
    wait_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

    def start(context: int | None, task: Callable[[int | None, int], None], argument: int | None, parts: int) -> None:
        contexts.append(context)
        waiting.extend(partial(task, argument, part) for part in range(parts))

    def wait(_: int | None) -> None:
        while waiting:
            waiting.pop()()

    library = ctypes.CDLL(str(package.folder / "lib" / "libnet.so"))
    callbacks = start_type(start), wait_type(wait)  # kept as long as they are called
    library.net_use_pool(*callbacks, ctypes.c_void_p(42))
    try:
        assert only(package.run(given_input(package))).tobytes() == wanted.tobytes()
    finally:
        library.net_use_pool(None, None, None)
    assert set(contexts) == {42}
    assert len(contexts) >= sum(layer.parts > 1 for layer in package.manifest.layers)  # one for each step
    assert library.net_threads_start() == 3
    library.net_threads_stop()


@needs_gcc
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["given", "own", "several"])
def test_threads_and_a_pool_of_the_caller(mode: str, built: Callable[[str, int], Package], tmp_path: Path) -> None:
    """With the sanitizers for addresses and undefined behaviour, and without a warning."""
    package = built("real", 3)
    said = run_driver(package, tmp_path, mode, "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    started, finished = map(int, said.split())
    assert started == finished
    assert (started > 0) == (mode == "given")
    assert (tmp_path / "out.bin").read_bytes() == only(built("real", 1).run(given_input(package))).tobytes()


@needs_gcc
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["given", "own", "several"])
def test_threads_do_not_race(mode: str, built: Callable[[str, int], Package], tmp_path: Path) -> None:
    package = built("real", 3)
    run_driver(package, tmp_path, mode, "-fsanitize=thread")
    assert (tmp_path / "out.bin").read_bytes() == only(built("real", 1).run(given_input(package))).tobytes()
