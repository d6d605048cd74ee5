"""Packages for OpenCL devices: compiled, run, validated, profiled and tuned, with PoCL; and what is said where that cannot be."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

import intaglio as api
from intaglio.cli.opencl import placed_lines
from intaglio.errors import AnswerIsNo, ToolError, UserError
from intaglio.ir.graph import Array
from intaglio.package.manifest import read_manifest
from intaglio.run.opencl import loader
from intaglio.run.opencl.cache_file import Program
from intaglio.run.opencl.cache_store import read_cache
from intaglio.run.opencl.library import DeviceOptions, OpenclLibrary, failure, writable_cache
from intaglio.run.package import Package
from intaglio.targets.caches import cache_root
from support.commands import DIGITS, Intaglio
from support.onnx_models import model, node, saved, value
from support.pocl import needs_pocl

RANDOM = np.random.default_rng(0)
W = RANDOM.standard_normal((8, 4, 3, 3)).astype(np.float32) / 6
D = RANDOM.standard_normal((8, 10)).astype(np.float32)
X = RANDOM.standard_normal((1, 4, 8, 8)).astype(np.float32)
DEVICES = "basic pthread"  # two of PoCL


def with_doubles(folder: Path) -> Path:
    """A convolution, exponentials in float64, which stay on the CPU, and a product."""
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
        node("Relu", "a", "b"),
        node("Cast", "b", "c", to=TensorProto.DOUBLE),
        node("Exp", "c", "e"),
        node("Cast", "e", "f", to=TensorProto.FLOAT),
        node("GlobalAveragePool", "f", "g"),
        node("Flatten", "g", "h"),
        node("MatMul", "h d", "y"),
    ]
    return saved(model(nodes, [value("x", [1, 4, 8, 8])], [value("y", [1, 10])], {"w": W, "d": D}), folder, "doubles.onnx")


def expected(x: Array) -> Array:
    padded = np.pad(x[0], ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    a = np.maximum(np.einsum("cyxij,ocij->oyx", windows, W), 0)
    return np.asarray(np.exp(a.astype(np.float64)).mean(axis=(1, 2)).astype(np.float32)[None] @ D)


@pytest.fixture(scope="module", autouse=True)
def own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A loader changes variables of this process; and the user's caches are not ours."""
    before = dict(os.environ)
    os.environ.setdefault("POCL_CACHE_DIR", f"{cache_root()}/pocl")  # PoCL's own, which makes the next time quick
    os.environ["INTAGLIO_CACHE_DIR"] = str(cache_root())
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("caches"))
    for name in (loader.VARIABLE, "POCL_DEVICES", "INTAGLIO_OPENCL_DEVICE", "INTAGLIO_OPENCL_CACHE"):
        os.environ.pop(name, None)
    loader._find.cache_clear()
    yield
    os.environ.clear()
    os.environ.update(before)
    loader._find.cache_clear()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """With programs for two devices. In this process PoCL may be at work already, with the one that it has by default."""
    folder = tmp_path_factory.mktemp("opencl")
    os.environ["POCL_DEVICES"] = DEVICES
    loader._find.cache_clear()
    api.compile(with_doubles(folder), output=folder / "package", target="opencl", device=["basic", "pthread"])
    del os.environ["POCL_DEVICES"]
    loader._find.cache_clear()
    return Package.load(folder / "package", device="pthread")


def programs(path: Path) -> list[Program]:
    return [record.content for record in read_cache(path).records if isinstance(record.content, Program)]


@needs_pocl
def test_programs_of_several_devices_are_in_one_file(package: Package) -> None:
    path = package.folder / "doubles.clbin"
    names = {program.field("device name").split("-")[0] for program in programs(path)}
    assert names == {"basic", "pthread"}
    assert read_manifest(package.folder).files["doubles.clbin"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert not list(package.folder.glob("*.lock")) and not list(package.folder.glob("*.loading*"))


@needs_pocl
def test_layers_with_doubles_stay_on_the_cpu(package: Package) -> None:
    info = package.manifest.opencl
    assert info is not None and info.transfers == 2 and info.device_macs == info.macs
    lines = placed_lines(package.manifest, ["basic"])
    assert lines[0].startswith("on the device: 4 of 6 layers, 19.0 k multiply-adds (100.0 %), in fp32")
    assert lines[1].startswith("on the CPU: 2 layers (chain, cast); 2 transfers, 4,096 bytes a run")
    assert lines[2].startswith("device memory: 7,808 bytes") and lines[3] == "programs for `basic` are in `doubles.clbin`"


@needs_pocl
def test_a_package_runs_with_the_programs_it_brings(package: Package, tmp_path: Path, intaglio: Intaglio) -> None:
    np.savez(tmp_path / "x.npz", x=X)
    said = intaglio("run", package.folder, "--device", "pthread", "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz")
    assert said.code == 0, said.err
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["y"], expected(X), rtol=1e-4)
    library = package.opencl_library
    assert library.device.name.startswith("pthread")
    np.testing.assert_allclose(library.run([X])[0], expected(X), rtol=1e-4)
    assert library.start_report().from_source == 0


@needs_pocl
def test_a_closed_library_starts_again(package: Package) -> None:
    library = OpenclLibrary(package.folder / "lib" / "libdoubles.so", package.manifest, options=DeviceOptions("pthread"))
    first = library.run([X])[0]
    library.close()
    np.testing.assert_array_equal(library.run([X])[0], first)
    assert library.start_report().from_process == 1


@needs_pocl
def test_two_of_one_library_do_not_share_variables(package: Package) -> None:
    path = package.folder / "lib" / "libdoubles.so"
    one, two = (OpenclLibrary(path, package.manifest, options=DeviceOptions("pthread", cache=cache)) for cache in (True, False))
    one.start()
    two.start()
    assert one.start_report().from_source == 0 and two.start_report().from_source == 1
    del two
    np.testing.assert_allclose(one.run([X])[0], expected(X), rtol=1e-4)


@pytest.mark.slow
@needs_pocl
def test_validate_goes_layer_by_layer(package: Package, intaglio: Intaglio) -> None:
    said = intaglio("validate", package.folder, "--device", "pthread", "--layers", "--json")
    assert said.code == 0 and said.json["ok"] and said.json["first_bad_layer"] is None
    assert len(said.json["layers"]) == 5
    assert said.json["threshold"] == 0.999 and said.json["backend"] == "cpu"
    assert said.json["outputs"][0]["cosine"] > 0.9999 and not said.json["outputs"][0]["by_cosine"]
    assert said.json["rule"] == "error <= 1e-3 x largest value (fp32) + 1e-6, or cosine >= 0.999 (cpu)"


@needs_pocl
@pytest.mark.parametrize(
    ("words", "code", "rule"),
    [
        (("--threshold", "0.9"), 0, "cosine >= 0.9"),
        (("--tolerance", "0.01"), 0, "error <= 1e-2 x largest value + 1e-6"),
        (("--tolerance", "-1"), 1, "error <= -1 x largest value + 1e-6"),
        (("--tolerance", "-1", "--threshold", "0.9"), 1, "error <= -1 x largest value + 1e-6, and cosine >= 0.9"),
    ],
)
def test_what_is_asked_of_outputs_is_all_that_counts(
    words: tuple[str, ...], code: int, rule: str, package: Package, intaglio: Intaglio
) -> None:
    said = intaglio("validate", package.folder, *words)
    assert (said.code, f"pass: {rule}\n" in said.out) == (code, True), said.out


@pytest.mark.slow
@needs_pocl
def test_profile_tells_where_layers_are_and_what_a_start_takes(package: Package, intaglio: Intaglio) -> None:
    told = intaglio("profile", package.folder, "--device", "pthread", "--runs", "2", "--json").json
    assert [layer["accelerator"] for layer in told["layers"]] == ["opencl", "opencl", "", "", "opencl", "opencl"]
    assert all(layer["time_ms"] >= 0 for layer in told["layers"]) and told["total"]["time_ms"] > 0
    on = told["opencl"]
    assert on["device"].startswith("pthread") and on["transfers"] == 2 and on["transfers_ms"] > 0
    assert on["cold"]["from_source"] == 1 and on["warm"]["from_writable"] == 1
    assert on["cold"]["init_ms"] + on["cold"]["first_run_ms"] > on["warm"]["init_ms"] + on["warm"]["first_run_ms"]
    assert told["total"]["ram_bytes"] == told["total"]["arena_bytes"] + told["total"]["weight_bytes"]


@pytest.mark.slow
@needs_pocl
def test_tuning_stays_in_the_package(package: Package, tmp_path: Path, intaglio: Intaglio) -> None:
    folder = tmp_path / "package"
    shutil.copytree(package.folder, folder)
    before = programs(folder / "doubles.clbin")
    said = intaglio("tune", folder, "--target", "opencl", "--device", "pthread", "--json")
    assert said.code == 0, said.err
    (told,) = said.json["devices"]
    assert told["device"].startswith("pthread") and told["before_ms"] > 0 and told["after_ms"] > 0
    assert [bool(layer["kernel"]) for layer in told["layers"]] == [layer["on"] == "device" for layer in told["layers"]]
    path = folder / "doubles.clbin"
    assert read_manifest(folder).files["doubles.clbin"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert len(programs(path)) >= len(before)  # of the other device too
    info = read_manifest(folder).opencl
    assert info is not None and {p.field("source") for p in programs(path)} <= {p.source for p in info.programs}
    tuned = Package.load(folder, device="pthread")
    np.testing.assert_allclose(tuned.run({"x": X})["y"], expected(X), rtol=1e-4)
    assert tuned.opencl_library.start_report().tuned
    count = len(programs(path))
    for _ in range(2):  # what an earlier search chose goes, in the file and in the manifest
        assert intaglio("tune", folder, "--device", "pthread", "--json").code == 0
    info = read_manifest(folder).opencl
    assert info is not None and len(programs(path)) <= count + 1
    of_device = {p.field("source") for p in programs(path) if p.field("device name").startswith("pthread")}
    assert len(of_device) <= 2 and {p.source for p in info.programs if p.kind == "tuned"} <= of_device


@needs_pocl
def test_a_cache_that_cannot_be_written_is_told_and_does_without(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    shutil.copytree(package.folder, tmp_path / "package")
    (tmp_path / "package" / "doubles.clbin").unlink()
    monkeypatch.setenv("INTAGLIO_OPENCL_CACHE", str(tmp_path / "file" / "doubles.clbin"))
    heard: list[str] = []
    found = Package.load(tmp_path / "package", device=DeviceOptions("pthread", say=heard.append))
    np.testing.assert_allclose(found.run({"x": X})["y"], expected(X), rtol=1e-4)
    assert found.opencl_library.start_report().from_source == 1
    assert [text for text in heard if text.startswith("warning: the cache `") and "file/doubles.clbin" in text]


@needs_pocl
def test_without_a_cache_nothing_is_read_or_written(package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTAGLIO_OPENCL_CACHE", str(tmp_path / "own" / "doubles.clbin"))
    library = Package.load(package.folder, device=DeviceOptions("pthread", cache=False)).opencl_library
    np.testing.assert_allclose(library.run([X])[0], expected(X), rtol=1e-4)
    assert library.start_report().from_source == 1 and not (tmp_path / "own").exists()


@needs_pocl
def test_the_writable_cache_is_the_applications(package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert writable_cache("net") == tmp_path / "intaglio" / "net.clbin"
    monkeypatch.setenv("INTAGLIO_OPENCL_CACHE", "none")
    assert writable_cache("net") is None
    monkeypatch.delenv("INTAGLIO_OPENCL_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert writable_cache("net") == tmp_path / "home" / ".cache" / "intaglio" / "net.clbin"


@needs_pocl
@pytest.mark.parametrize("command", ["run", "validate", "profile", "tune"])
def test_a_device_that_is_not_there_is_told_with_those_that_are(package: Package, command: str, intaglio: Intaglio) -> None:
    more = f"--input={package.folder}/test/in0.npy" if command == "run" else "--json"
    said = intaglio(command, package.folder, "--device", "adreno", more)
    assert said.code == 2 and "error[no-opencl-device]" in said.err
    assert "`0.0` pthread-" in said.err


@needs_pocl
def test_a_loader_that_is_not_there_is_told(package: Package, intaglio: Intaglio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(loader.VARIABLE, "/nonexistent/libOpenCL.so")
    for words in (("validate", package.folder), ("compile", DIGITS, "-o", "never", "--target", "opencl", "--device", "cpu")):
        said = intaglio(*words)
        assert said.code == 2 and "error[no-opencl]" in said.err and "hint:" in said.err


def test_a_package_of_the_processor_has_no_device(digits: Path, intaglio: Intaglio) -> None:
    for words in (("run", "--device", "gpu"), ("validate", "--no-cache"), ("profile", "--cache-check", "always"), ("tune",)):
        said = intaglio(words[0], digits, *words[1:])
        assert said.code == 2 and "error[bad-option]" in said.err and "`--target opencl`" in said.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--stream", "1"), "`--stream` cannot be combined with an OpenCL device"),
        (("--feed-rows",), "`--feed-rows` cannot be combined with an OpenCL device"),
        (("--accelerator", "example_npu"), "`--accelerator` cannot be combined with an OpenCL device"),
        (("--weights", "read"), "`--weights read` cannot be combined with an OpenCL device"),
        (("--arena", "caller"), "`--arena caller` cannot be combined with an OpenCL device"),
        (("--memory", "m.toml"), "`--memory` cannot be combined with an OpenCL device"),
        (("--board", "nucleo-f746zg"), "the board `nucleo-f746zg` has a `cortex-m7-sp`, not a `opencl`"),
        (("--precision", "fp8"), "unknown precision `fp8`"),
        (("--limit-kernel-time", "0"), "`--limit-kernel-time 0` is not a time"),
        (("--stop-after", "kernels", "--device", "cpu"), "`--device` needs a package that is built"),
    ],
)
def test_what_does_not_go_with_a_device_is_told(words: tuple[str, ...], said: str, intaglio: Intaglio, tmp_path: Path) -> None:
    told = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--target", "opencl", *words)
    assert told.code == 2 and said in told.err and "hint:" in told.err and not (tmp_path / "p").exists()


@pytest.mark.parametrize("words", [("--device", "cpu"), ("--precision", "fp16"), ("--limit-kernel-time", "8")])
def test_words_for_a_device_need_one(words: tuple[str, ...], intaglio: Intaglio, tmp_path: Path) -> None:
    told = intaglio("compile", DIGITS, "-o", tmp_path / "p", *words)
    assert told.code == 2 and f"`{words[0]}` needs an OpenCL device" in told.err


def test_a_precision_that_comes_too_late_is_an_error(intaglio: Intaglio, tmp_path: Path) -> None:
    for name, words in (("wide", ()), ("half", ("--precision", "fp16"))):
        made = tmp_path / f"{name}.ig"
        assert intaglio("compile", DIGITS, "-o", made, "--target", "opencl", "--stop-after", "optimise", *words).code == 0
    late = ("compile", "-o", tmp_path / "p", "--target", "opencl", "--stop-after", "package")
    for name, word in (("wide", "mixed"), ("wide", "fp16"), ("half", "fp32")):
        said = intaglio(*late, tmp_path / f"{name}.ig", "--precision", word)
        assert said.code == 2 and "error[bad-option]" in said.err and f"`--precision {word}` is too late" in said.err
    for name, words, told in (("wide", (), "fp32"), ("half", (), "mixed"), ("half", ("--precision", "fp16"), "fp16")):
        assert intaglio(*late, tmp_path / f"{name}.ig", "--force", *words).code == 0
        info = read_manifest(tmp_path / "p").opencl
        assert info is not None and info.precision == told


def test_an_unknown_kernel_is_told_with_the_way_to_the_cpu(intaglio: Intaglio, tmp_path: Path) -> None:
    path = tmp_path / "m.ig"
    assert intaglio("compile", DIGITS, "-o", path, "--target", "opencl", "--stop-after", "kernels").code == 0
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r"using cl_\S+", "using quick", text, count=1), encoding="utf-8")
    said = intaglio("compile", path, "-o", tmp_path / "p", "--stop-after", "package")
    assert said.code == 2 and "has no kernel `quick`" in said.err and "`using cpu` keeps the layer off it" in said.err


def test_a_quantised_model_is_told_as_integers(intaglio: Intaglio, tmp_path: Path) -> None:
    words = ("--target", "opencl", "--stop-after", "package", "--quantize", "int8")
    assert ", in int8\n" in intaglio("compile", DIGITS, "-o", tmp_path / "p", *words).out


def test_a_limit_counts_buffers_and_weights(intaglio: Intaglio, tmp_path: Path) -> None:
    told = intaglio("compile", with_doubles(tmp_path), "-o", tmp_path / "p", "--target", "opencl", "--ram", "7K")
    assert told.code == 1 and "bytes of device memory, `--ram` allows 7,168" in told.err
    assert "--> arena 6,144, weights 1,664" in told.err and "`--precision mixed` or `fp16`" in told.err
    need = 6144 + 1664  # what is told first is enough, and a byte less is not
    assert f"needs {need:,} bytes" in told.err
    words = ("compile", with_doubles(tmp_path), "-o", tmp_path / "p", "--target", "opencl", "--stop-after", "package", "--ram")
    assert [intaglio(*words, str(need + more)).code for more in (-1, 0)] == [1, 0]


@pytest.mark.parametrize(
    ("code", "kind", "slug"),
    [
        (1, AnswerIsNo, "index-out-of-range"),
        (34, UserError, "no-opencl-device"),
        (35, ToolError, "device-memory"),
        (36, ToolError, "build-failed"),
        (37, ToolError, "device-failed"),
    ],
)
def test_codes_of_the_runtime_are_errors_with_words(code: int, kind: type[Exception], slug: str) -> None:
    error = failure("net", code, "what it means", "line one\n\n  line two\n")
    assert type(error) is kind and error.slug == slug and error.hint
    if code > 30:
        assert error.message == "`net` stopped: what it means: line one; line two"


def test_devices_are_targets(intaglio: Intaglio) -> None:
    names = [target["name"] for target in intaglio("targets", "--json").json["targets"]]
    assert "opencl" in names and "opencl-aarch64" in names and "opencl-cortex-m4f" not in names


@pytest.mark.slow
@pytest.mark.usefixtures("one_board")
def test_fit_counts_device_memory(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("fit", with_doubles(tmp_path), "--target", "opencl", "--ram", "7K")
    assert said.code == 1 and "device        7,808 bytes   buffers 6,144 bytes" in said.out
    assert "stack" not in said.out + said.err


def test_an_ir_file_says_that_it_is_for_a_device(intaglio: Intaglio, tmp_path: Path) -> None:
    ir = tmp_path / "net.ig"
    assert intaglio("compile", with_doubles(tmp_path), "--target", "opencl", "--stop-after", "optimise", "-o", ir).code == 0
    assert "target opencl" not in ir.read_text()  # not before kernels are chosen
    assert intaglio("compile", with_doubles(tmp_path), "--target", "opencl", "--stop-after", "memory", "-o", ir).code == 0
    said = intaglio("compile", ir, "--limit-kernel-time", "8", "--stop-after", "package", "-o", tmp_path / "p", "--json")
    assert said.code == 0 and said.json["target"] == "opencl" and said.json["opencl"]["limit_ms"] == 8
    assert said.json["opencl"]["transfers"] == 2 and said.json["opencl"]["host_layers"] == ["e_1", "f_1"]
