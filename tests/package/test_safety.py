"""`--safety`: damaged weights, overruns and steps. Without it, packages are as ever."""

from __future__ import annotations

import ctypes
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.ir.graph import Array
from intaglio.package.safety import GUARD_BYTES
from intaglio.run.package import Package
from support.building import needs_gcc
from support.commands import DIGITS, Intaglio
from support.firmware_running import package_selftest
from support.loop_models import LOOPS
from support.onnx_models import saved
from support.small_networks import images, keywords, sine
from support.strict import GCC

ALL = ("crc", "canary", "step", "golden", "slots", "encrypted")


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Package:
    return intaglio.compile(DIGITS, output=tmp_path_factory.mktemp("safe") / "digits", safety=ALL)


class Weights:
    """The weights of a loaded library, which this process may change."""

    def __init__(self, package: Package, symbol: str, size: int) -> None:
        self.library = ctypes.CDLL(str(package.folder / "lib" / f"lib{package.manifest.name}.so"))
        self.bytes = (ctypes.c_ubyte * size).in_dll(self.library, symbol)
        start = ctypes.addressof(self.bytes) // 4096 * 4096
        length = ctypes.addressof(self.bytes) + size - start
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start), ctypes.c_size_t(length), 3) == 0

    def flipped(self, bit: int) -> bool:
        """Does a changed bit go unnoticed?"""
        self.bytes[bit // 8] ^= 1 << bit % 8
        found: int = self.library.digits_check()
        self.bytes[bit // 8] ^= 1 << bit % 8
        return found == 0


def test_without_the_option_nothing_is_there(digits: Path) -> None:
    texts = {path.name: path.read_text() for path in (digits / "src").rglob("*.[ch]")}
    texts |= {path.name: path.read_text() for path in (digits / "include").iterdir()}
    assert not [name for name in texts if "slot" in name or "check" in name]
    assert not [name for name, text in texts.items() if "GUARD" in text or "_STEPS" in text or "WEIGHTS_DAMAGED" in text]


@needs_gcc
@pytest.mark.parametrize("words", [("crc",), ("canary",), ("step",), ("golden",), ("slots",), ALL], ids=",".join)
def test_the_code_is_without_warnings(words: tuple[str, ...], tmp_path: Path) -> None:
    package = intaglio.compile(DIGITS, output=tmp_path / "p", safety=words, cflags=GCC, cc="gcc")
    assert package.validate().ok
    assert subprocess.run([package.folder / "bin" / "digits", "--selftest"], check=False, capture_output=True).returncode == 0


def test_every_bit_of_the_weights_counts(tmp_path: Path) -> None:
    (tmp_path / "sine.tflite").write_bytes(sine())
    package = intaglio.compile(tmp_path / "sine.tflite", output=tmp_path / "p", name="digits", safety=("crc",))
    size = package.manifest.memory.weight_bytes
    weights = Weights(package, "digits_weights", size)
    assert weights.library.digits_check() == 0
    assert size < 4096
    assert not [bit for bit in range(8 * size) if weights.flipped(bit)]
    assert weights.library.digits_check() == 0


def test_bits_of_larger_weights_count(safe: Package) -> None:
    size = safe.manifest.memory.weight_bytes
    weights = Weights(safe, "digits_factory_weights", size)
    assert weights.library.digits_check() == 0
    assert not [bit for bit in random.Random(1).sample(range(8 * size), 2000) if weights.flipped(bit)]


def test_weights_are_checked_in_parts(safe: Package) -> None:
    size = safe.manifest.memory.weight_bytes
    weights = Weights(safe, "digits_factory_weights", size)

    class Checking(ctypes.Structure):
        _fields_ = [("block", ctypes.c_size_t), ("at", ctypes.c_size_t), ("crc", ctypes.c_uint32), ("rounds", ctypes.c_uint32)]

    state = Checking()
    calls = 0
    while state.rounds < 2:
        assert weights.library.digits_check_some(ctypes.byref(state), ctypes.c_size_t(1000)) == 0
        calls += 1
    assert calls == 2 * -(-size // 1000)
    weights.bytes[size - 1] ^= 1
    codes = [weights.library.digits_check_some(ctypes.byref(state), ctypes.c_size_t(1000)) for _ in range(calls)]
    weights.bytes[size - 1] ^= 1
    assert 23 in codes


@needs_gcc
def test_an_application_with_damaged_weights_does_not_run(tmp_path: Path) -> None:
    package = intaglio.compile(DIGITS, output=tmp_path / "p", safety=("crc",), cc="gcc")
    path = package.folder / "src" / "digits_weights.bin"
    data = bytearray(path.read_bytes())
    data[100] ^= 4
    path.write_bytes(data)
    made = subprocess.run(["make", "CC=gcc", "CFLAGS=-O0"], cwd=package.folder, check=False, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    ran = subprocess.run([package.folder / "build" / "digits", "--selftest"], check=False, capture_output=True, text=True)
    assert ran.returncode == 1
    assert "weights are damaged" in ran.stderr


@needs_gcc
@pytest.mark.parametrize(("words", "layer"), [(("canary",), 1), (("canary", "step"), 3)])
def test_a_layer_that_overruns_is_named(words: tuple[str, ...], layer: int, tmp_path: Path) -> None:
    """A planted fault: the layer writes half a tensor behind the end of the arena, into the guard."""
    package = intaglio.compile(DIGITS, output=tmp_path / "p", safety=words, cc="gcc")
    source = package.folder / "src" / "digits.c"
    field = ["", "pool1_2", "", "pool2_2"][layer]
    right = f"(float *)(void *)(arena + DIGITS_AT_{field}))"
    text = source.read_text()
    assert text.count(right) == 1
    size = [0, 512, 0, 256][layer]
    source.write_text(text.replace(right, f"(float *)(void *)(arena + DIGITS_ARENA_BYTES - {GUARD_BYTES + size - 4}))"))
    subprocess.run(["make", "CC=gcc", "CFLAGS=-O0"], cwd=package.folder, check=True, capture_output=True)
    library = ctypes.CDLL(str(package.folder / "build" / "libdigits.so"))
    image, out = (ctypes.c_float * 64)(), (ctypes.c_float * 10)()
    code = library.digits_run_one(image, out)
    assert code == 1000 + layer
    library.digits_error.restype = ctypes.c_char_p
    assert library.digits_error(code) == f"layer {layer}, {field}, wrote outside of the arena".encode()


def steps_of(package: Package, image: Array) -> tuple[int, Array]:
    library = ctypes.CDLL(str(package.folder / "lib" / f"lib{package.manifest.name}.so"))
    given = np.ascontiguousarray(image, np.float32)
    made = np.zeros(10, np.float32)
    inputs, outputs = ctypes.c_void_p(given.ctypes.data), ctypes.c_void_p(made.ctypes.data)
    steps, code, count = ctypes.c_uint32(0), 24, 0
    while code == 24:
        code = library.digits_step(ctypes.byref(inputs), ctypes.byref(outputs), ctypes.byref(steps))
        count += 1
    assert code == 0
    return count, made


def test_steps_make_what_a_run_makes(safe: Package) -> None:
    image = np.random.default_rng(3).random((1, 1, 8, 8), np.float32)
    for _ in range(2):  # the last step leaves everything ready for the next inference
        count, made = steps_of(safe, image)
        assert count == len(safe.manifest.layers)
        assert np.array_equal(made, safe.run({"image": image})["probabilities"].reshape(-1))


def test_there_is_no_step_behind_the_last(safe: Package) -> None:
    library = ctypes.CDLL(str(safe.folder / "lib" / "libdigits.so"))
    buffer = (ctypes.c_float * 64)()
    pointer = ctypes.c_void_p(ctypes.addressof(buffer))
    steps = ctypes.c_uint32(99)
    assert library.digits_step(ctypes.byref(pointer), ctypes.byref(pointer), ctypes.byref(steps)) == 25
    assert steps.value == 0
    assert library.digits_step(ctypes.byref(pointer), ctypes.byref(pointer), None) == 16


@pytest.mark.parametrize("name", list(LOOPS))
def test_loops_and_branches_in_steps(name: str, tmp_path: Path) -> None:
    """Sizes that are found in data are kept from step to step; a loop is one step."""
    case = LOOPS[name]
    path = saved(case.proto, tmp_path)
    options = {"max": case.most, "dims": case.dims, "library_only": True}
    plain, stepped = (
        intaglio.compile(path, output=tmp_path / f"p{len(words)}", safety=words, **options)  # type: ignore[arg-type]
        for words in ((), ("step", "canary"))
    )
    for seed in range(5):
        given = case.draw(np.random.default_rng(seed))
        want, got = plain.run(given), stepped.run(given)
        assert all(np.array_equal(want[key], got[key], equal_nan=want[key].dtype.kind == "f") for key in want), seed


@pytest.mark.parametrize("target", ["generic", "cortex-m4f", "cortex-m0+"])
@pytest.mark.parametrize("ram", [None, "4K"])
def test_on_other_targets(target: str, ram: str | None, tmp_path: Path) -> None:
    pytest.importorskip("unicorn")
    if target == "generic" and ram:
        pytest.skip("limits are for boards")
    package = intaglio.compile(DIGITS, output=tmp_path / "p", target=target, safety=("crc", "canary", "step"), ram=ram)
    assert package.validate().ok


@pytest.mark.parametrize("core", ["cortex-m4f", "cortex-m0+", "cortex-m3"])
def test_the_golden_test_passes_on_devices(core: str, tmp_path: Path) -> None:
    pytest.importorskip("unicorn")
    path = tmp_path / "images.tflite"
    path.write_bytes(images())
    package = intaglio.compile(path, output=tmp_path / "p", target=core, safety=("golden", "canary", "crc"))
    code, said = package_selftest(package)
    assert (code, "self-test passed" in said) == (0, True)


@needs_gcc
@pytest.mark.parametrize("network", [images, keywords, sine], ids=lambda f: f.__name__)
def test_a_broken_kernel_is_named_by_the_golden_test(network: Callable[[], bytes], tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(network())
    package = intaglio.compile(path, output=tmp_path / "p", target="generic", name="net", safety=("golden", "canary"), cc="gcc")
    source = package.folder / "src" / "net_kernels_0.c"
    text = source.read_text()
    assert text.count("int32_t total = 0;") or text.count("int32_t total = ")
    source.write_text(text.replace("int32_t total = ", "int32_t total = 40 + ", 1))
    subprocess.run(["make", "CC=gcc", "CFLAGS=-O0"], cwd=package.folder, check=True, capture_output=True)
    ran = subprocess.run([package.folder / "build" / "net", "--selftest"], check=False, capture_output=True, text=True)
    assert ran.returncode == 1
    assert "golden test FAILED: the golden test: layer " in ran.stderr


@pytest.mark.slow
@needs_gcc
@pytest.mark.parametrize("network", [images, keywords], ids=lambda f: f.__name__)
def test_most_mutants_of_kernels_fail_the_self_test(network: Callable[[], bytes], tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(network())
    package = intaglio.compile(path, output=tmp_path / "p", target="generic", safety=("golden", "canary"))
    tool = Path(__file__).resolve().parents[2] / "tools" / "selftest_mutants.py"
    ran = subprocess.run(
        [sys.executable, tool, package.folder, "--mutants", "120", "--json"], check=True, capture_output=True, text=True
    )
    found = json.loads(ran.stdout)
    assert found["tried"] > 80
    assert found["share"] >= 0.9, found["survivors"]  # of a small sample; the guide has the figures of larger ones


def test_words_are_checked(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--safety", "crc,locks")
    assert said.code == 2
    assert "unknown value `locks` of `--safety`" in said.err
    assert "crc, canary, step, golden, slots, encrypted" in said.err
    for words, told in (
        (["--safety", "encrypted"], "needs slots"),
        (["--safety", "step", "--feed-rows"], "cannot be combined"),
        (["--safety", "slots", "--weights", "read"], "cannot be combined"),
        (["--safety", "crc", "--target", "opencl"], "cannot be combined"),
    ):
        said = intaglio("compile", DIGITS, "-o", tmp_path / "p", *words)
        assert said.code == 2, words
        assert told in said.err
        assert not (tmp_path / "p").exists()
