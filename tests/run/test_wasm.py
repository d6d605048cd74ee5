"""Packages for WebAssembly: in wasmtime they compute what the reference says, and their page runs in a browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from intaglio import compile
from intaglio.errors import UserError
from intaglio.run.package import Package
from intaglio.run.toolchains import find_toolchain
from intaglio.run.wasm import module_flags
from support.commands import DIGITS, DIGITS_DATA, Intaglio
from support.onnx_models import INT64, model, node, saved, value

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def test_the_sources_of_a_package_have_a_page(intaglio: Intaglio, tmp_path: Path) -> None:
    assert intaglio("compile", DIGITS, "--target", "wasm32", "--stop-after", "package", "-o", tmp_path / "p").code == 0
    page = (tmp_path / "p" / "web" / "index.html").read_text(encoding="utf-8")
    assert '<script src="digits.js">' in page and "input image" in page
    assert 'dtype: "f32", shape: [1, 1, 8, 8]' in (tmp_path / "p" / "web" / "digits.js").read_text(encoding="utf-8")
    assert not (tmp_path / "p" / "CMakeLists.txt").exists(), "that builds shared libraries"


def test_a_module_exports_what_its_header_declares() -> None:
    flags = module_flags("m", "int m_run_in(void *arena, ...); const char *m_error(int code);")
    assert [f for f in flags if "export" in f] == ["-Wl,--export=m_run_in", "-Wl,--export=m_error"]
    assert "-Wl,--export=m_reset_in" in module_flags("m", "void m_reset_in(void *arena);")


def test_only_zig_has_a_c_library_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "gcc")  # of this machine: no wish for modules
    assert find_toolchain(None, "wasm32").kind == "zig"
    if shutil.which("gcc"):
        with pytest.raises(UserError, match="`gcc` has no C library for WebAssembly"):
            find_toolchain("gcc", "wasm32")


def test_sizes_that_move_are_in_the_script(intaglio: Intaglio, tmp_path: Path) -> None:
    path = saved(model([node("Relu", "x", "y")], [value("x", [1, "T", 8])]), tmp_path)
    words = ("--dim", "T=1..9", "--target", "wasm32", "--stop-after", "package", "-o", tmp_path / "p")
    assert intaglio("compile", path, *words).code == 0
    script = (tmp_path / "p" / "web" / "model.js").read_text(encoding="utf-8")
    assert 'shape: [1, 9, 8], sizes: ["", "T", ""]' in script and '{ name: "T", least: 1, most: 9 }' in script


def test_what_is_built_for_boards_is_refused(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, "--target", "wasm32", "--weights", "read", "-o", tmp_path / "p")
    assert said.code == 2 and "`--weights read`" in said.err and not (tmp_path / "p").exists()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    pytest.importorskip("wasmtime")
    return compile(DIGITS, output=tmp_path_factory.mktemp("wasm") / "p", target="wasm32")


@pytest.mark.slow  # zig compiles its C library for WebAssembly first
def test_it_validates_layer_by_layer(package: Package) -> None:
    assert package.validate(layers=True).ok
    times = package.profile(runs=2)
    assert len(times.layers) == 6 and all(layer.time_ms is not None for layer in times.layers)


@pytest.mark.slow
def test_integers_are_those_of_this_machine(tmp_path: Path) -> None:
    pytest.importorskip("wasmtime")
    there = compile(DIGITS, output=tmp_path / "wasm", target="wasm32", quantize="int8", calibrate=DIGITS_DATA)
    here = compile(DIGITS, output=tmp_path / "here", quantize="int8", calibrate=DIGITS_DATA)
    x = {"in0": np.load(DIGITS_DATA)[np.load(DIGITS_DATA).files[0]][:1].astype(np.float32)}
    (got,), (want,) = there.run(x).values(), here.run(x).values()
    np.testing.assert_array_equal(got, want)


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
def test_the_page_runs_its_test_vectors_in_a_browser(package: Package) -> None:
    page = (package.folder / "web" / "index.html").resolve().as_uri()
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000", "--dump-dom")
    done = subprocess.run([str(BROWSER), *flags, page], capture_output=True, text=True, timeout=120, check=False)
    assert "the test vectors pass: largest difference" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """A size of the caller, and one that follows from data."""
    pytest.importorskip("wasmtime")
    folder = tmp_path_factory.mktemp("bounded")
    w = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    nodes = [node("MatMul", "x w", "y"), node("Relu", "y", "r"), node("NonZero", "r", "where")]
    outputs = [value("y", None), value("where", None, INT64)]
    path = saved(model(nodes, [value("x", [1, "T", 8])], outputs, {"w": w}), folder)
    return compile(path, output=folder / "p", target="wasm32", dims={"T": (1, 9)}, name="net")


@pytest.mark.slow
def test_sizes_that_move_are_those_of_the_reference(bounded: Package, intaglio: Intaglio) -> None:
    result = bounded.validate()
    assert result.ok and {row.sizes["T"] for row in result.sizes} >= {1, 9}
    got = bounded.run({"x": np.full((1, 3, 8), 0.5, np.float32)})
    assert got["y"].shape == (1, 3, 4) and got["where"].shape == (3, int((got["y"] > 0).sum()))
    assert intaglio("profile", bounded.folder, "--size", "T=3").code == 0


NODE = shutil.which("node")


@pytest.mark.slow
@pytest.mark.skipif(NODE is None, reason="there is no Node.js here")
def test_sizes_that_move_in_javascript(bounded: Package, tmp_path: Path) -> None:
    x = np.full((1, 3, 8), 0.5, np.float32)
    want = bounded.run({"x": x})
    script = tmp_path / "run.js"
    script.write_text(f"""
        const net = require({str(bounded.folder / "web" / "net.js")!r});
        net.load(require("fs").readFileSync({str(bounded.folder / "lib" / "net.wasm")!r})).then((model) => {{
          const x = new Float32Array(24).fill(0.5), told = [];
          const got = model.run({{ x }}, net.sizesOf({{ x: [1, 3, 8] }}));
          for (const sizes of [{{ T: 4 }}, {{}}, {{ T: 10 }}]) {{
            try {{
              model.run({{ x: sizes.T === 10 ? new Float32Array(80) : x }}, sizes);
            }} catch (error) {{
              told.push(error.message);
            }}
          }}
          console.log(JSON.stringify({{ y: Array.from(got.y), shapes: model.shapes, told }}));
        }});
    """)
    done = subprocess.run([str(NODE), str(script)], capture_output=True, text=True, timeout=60, check=True)
    found = json.loads(done.stdout)
    np.testing.assert_array_equal(np.array(found["y"], np.float32), want["y"].reshape(-1))
    assert found["shapes"] == {"y": [1, 3, 4], "where": list(want["where"].shape)}
    assert ["32 numbers" in found["told"][0], "72 numbers" in found["told"][1], "at most 72" in found["told"][2]] == [True] * 3
