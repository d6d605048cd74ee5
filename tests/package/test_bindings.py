"""A package in what people have: a Rust crate, MicroPython, ESP-IDF, a CMSIS-Pack, PlatformIO. Each is built or read by its own
tool where that is installed."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from intaglio import Package, compile
from support.commands import DIGITS, Intaglio


def needs(*tools: str) -> pytest.MarkDecorator:
    missing = [tool for tool in tools if shutil.which(tool) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


MICROPYTHON = os.environ.get("MICROPYTHON")  # its sources: `make` builds the port for Unix


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Package:
    return compile(DIGITS, output=tmp_path_factory.mktemp("host") / "digits")


@pytest.fixture(scope="module")
def riscv(tmp_path_factory: pytest.TempPathFactory) -> Package:
    return compile(DIGITS, output=tmp_path_factory.mktemp("riscv") / "digits", target="rv32imc")


@pytest.fixture(scope="module")
def cortex(tmp_path_factory: pytest.TempPathFactory) -> Package:
    return compile(DIGITS, output=tmp_path_factory.mktemp("cortex") / "digits", target="cortex-m4f")


def did(*words: object, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, words)), cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def crate(folder: Path, model: Path, main: str) -> Path:
    """A program that uses the package as a crate."""
    (folder / "src").mkdir(parents=True)
    own = '[package]\nname = "product"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\n'
    (folder / "Cargo.toml").write_text(f'{own}net = {{ path = "{model}", package = "{Package.load(model).name}" }}\n')
    (folder / "src" / "main.rs").write_text(main)
    return folder


@needs("cargo", "cc")
@pytest.mark.slow
def test_a_crate_computes_what_the_package_does(host: Package, tmp_path: Path) -> None:
    shutil.copytree(host.folder, tmp_path / "net")
    main = """
        fn main() {
            let mut model = net::Model::new();
            let (x, mut y) = ([0f32; 64], [0f32; 10]);
            model.run(&x, &mut y).unwrap();
            println!("{:.6} {:?} {}", y[0], net::INPUT_IMAGE_SHAPE, net::Error(16));
        }
    """
    said = did("cargo", "run", "--offline", "-q", cwd=crate(tmp_path / "product", tmp_path / "net", main))
    y = host.run({"image": np.zeros((1, 1, 8, 8), np.float32)})["probabilities"]
    assert said.strip() == f"{y[0, 0]:.6f} [1, 1, 8, 8] a pointer is NULL"
    packed = did("cargo", "package", "--offline", "--allow-dirty", "--no-verify", "--list", cwd=tmp_path / "net").splitlines()
    assert {"src/digits.c", "src/digits_weights.S", "src/digits_weights.bin", "include/digits.h", "rust/lib.rs"} <= set(packed)


@needs("cargo", "cc")
@pytest.mark.slow
def test_a_crate_with_state_and_names_that_rust_has_taken(tmp_path: Path) -> None:
    kinds = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("type", "h", "self", "h_next")}
    nodes = [helper.make_node("Add", ["type", "h"], ["self"]), helper.make_node("Mul", ["self", "self"], ["h_next"])]
    graph = helper.make_graph(nodes, "g", [kinds["type"], kinds["h"]], [kinds["self"], kinds["h_next"]])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    package = compile(tmp_path / "m.onnx", output=tmp_path / "match", name="match", states={"h": "h_next"})
    main = """
        fn main() {
            let mut model = net::Model::new();
            let mut out = Vec::new();
            for step in 0..3 {
                if step == 2 { model.reset(); }
                let (x, mut y, mut h) = ([1f32; 4], [0f32; 4], [0f32; 4]);
                model.run(&x, &mut y, &mut h).unwrap();
                out.push(y[0]);
            }
            println!("{} {}", (out[0] != out[1]), (out[0] == out[2]));
        }
    """
    folder = crate(tmp_path / "product", package.folder, main)
    cargo = folder / "Cargo.toml"
    cargo.write_text(cargo.read_text().replace('package = "match"', 'package = "match_model"'))
    assert did("cargo", "run", "--offline", "-q", cwd=folder).strip() == "true true"


@pytest.mark.skipif(MICROPYTHON is None, reason="MICROPYTHON does not name the sources of MicroPython")
@pytest.mark.slow
def test_micropython_has_it_as_a_module(riscv: Package, tmp_path: Path) -> None:
    """The C of a RISC-V core is plain C: the Unix port compiles it too."""
    port = Path(str(MICROPYTHON)) / "ports" / "unix"
    off = ["PY_BTREE", "PY_SSL", "SSL_MBEDTLS", "PY_FFI", "PY_BLUETOOTH", "VFS_LFS1", "VFS_LFS2"]
    words = [*(f"MICROPY_{name}=0" for name in off), "FROZEN_MANIFEST=", f"USER_C_MODULES={riscv.folder}"]
    did("make", "-j2", *words, f"BUILD={tmp_path / 'b'}", cwd=port)
    (tmp_path / "x.py").write_text("import digits, array\nprint('%.6f' % digits.run(array.array('f', [0] * 64))[0])\n")
    y = riscv.run({"image": np.zeros((1, 1, 8, 8), np.float32)})["probabilities"]
    assert did(tmp_path / "b" / "micropython", "x.py", cwd=tmp_path).strip() == f"{y[0, 0]:.6f}"


@needs("cmake", "cc")
@pytest.mark.slow
def test_esp_idf_takes_it_as_a_component(riscv: Package, tmp_path: Path) -> None:
    """ESP-IDF's own CMake cannot be installed here: this is what it calls, on a component in plain C."""
    project = """
        cmake_minimum_required(VERSION 3.16)
        project(esp C ASM)
        set(ESP_PLATFORM 1)
        macro(idf_component_register)
          cmake_parse_arguments(own "" "" "SRCS;INCLUDE_DIRS;PRIV_INCLUDE_DIRS" ${ARGN})
          set(COMPONENT_LIB component)
          add_library(component STATIC ${own_SRCS})
          target_include_directories(component PUBLIC ${own_INCLUDE_DIRS} PRIVATE ${own_PRIV_INCLUDE_DIRS})
        endmacro()
    """
    (tmp_path / "CMakeLists.txt").write_text(f"{project}\nadd_subdirectory({riscv.folder} net)\n")
    did("cmake", "-B", "build", ".", cwd=tmp_path)
    did("cmake", "--build", "build", cwd=tmp_path)
    assert (tmp_path / "build" / "net" / "libcomponent.a").is_file()


@pytest.mark.skipif(importlib.util.find_spec("idf_component_tools") is None, reason="idf-component-manager is not installed")
@pytest.mark.slow
def test_the_component_manager_reads_the_manifest(riscv: Package) -> None:
    program = "import sys; from idf_component_tools.manager import ManifestManager as M; M(sys.argv[1], 'digits').validate()"
    did(sys.executable, "-c", program, riscv.folder, cwd=riscv.folder)


def test_only_packages_of_plain_c_are_components(host: Package, riscv: Package, cortex: Package) -> None:
    assert [(p.folder / "idf_component.yml").is_file() for p in (host, riscv, cortex)] == [False, True, False]
    assert [(p.folder / "micropython_module").is_dir() for p in (host, riscv, cortex)] == [False, True, True]
    assert "ESP_PLATFORM" not in (cortex.folder / "CMakeLists.txt").read_text()


@needs("pio")
@pytest.mark.slow
def test_platformio_packs_it(cortex: Package, tmp_path: Path) -> None:
    shutil.copytree(cortex.folder, tmp_path / "net")
    did("pio", "pkg", "pack", "-o", tmp_path / "net.tar.gz", cwd=tmp_path / "net", PLATFORMIO_CORE_DIR=str(tmp_path / "core"))
    assert (tmp_path / "net.tar.gz").is_file()
    assert json.loads((cortex.folder / "library.json").read_text())["name"] == "digits"


def test_a_cmsis_pack_lists_every_source(cortex: Package, tmp_path: Path, intaglio: Intaglio) -> None:
    said = intaglio("cmsis-pack", cortex.folder, "-o", tmp_path / "dist", "--vendor", "Example", "--pack-version", "1.2.3")
    path = tmp_path / "dist" / "Example.digits.1.2.3.pack"
    assert said.code == 0 and said.out.strip() == f"pack: {path}"
    with zipfile.ZipFile(path) as pack:
        names = pack.namelist()
        root = ElementTree.fromstring(pack.read("Example.digits.pdsc"))
    listed = {f.attrib["name"]: f.attrib["category"] for f in root.iter("file")}
    assert {n for n in names if n.endswith(".c")} == {n for n, kind in listed.items() if kind == "sourceC"}
    assert root.findtext("vendor") == "Example" and root.find(".//require").attrib == {"Dcore": "Cortex-M4"}  # type: ignore[union-attr]
    assert "include/digits.h" in names and listed["include/"] == "include"
    again = path.read_bytes()
    intaglio("cmsis-pack", cortex.folder, "-o", tmp_path / "dist", "--vendor", "Example", "--pack-version", "1.2.3")
    assert path.read_bytes() == again


@pytest.mark.parametrize(
    ("words", "reason"),
    [(["--vendor", "a b"], "is not the name of a vendor"), (["--pack-version", "1"], "is not a version")],
)
def test_what_cannot_be_a_pack(words: list[str], reason: str, cortex: Package, tmp_path: Path, intaglio: Intaglio) -> None:
    said = intaglio("cmsis-pack", cortex.folder, "-o", tmp_path / "dist", *words)
    assert said.code == 2 and reason in said.err and "hint: " in said.err and not (tmp_path / "dist").exists()


def test_a_package_for_a_host_is_no_pack(host: Package, tmp_path: Path, intaglio: Intaglio) -> None:
    said = intaglio("cmsis-pack", host.folder, "-o", tmp_path / "dist")
    assert said.code == 2 and "error[no-cmsis-pack]" in said.err
