"""Build a hand-made program into a package, as the pipeline does with a compiled one."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from intaglio.ir.graph import Array
from intaglio.kernels.program import Program
from intaglio.package.manifest import write_manifest
from intaglio.package.vectors import Vectors, write_vectors
from intaglio.package.write import Origin, write_project
from intaglio.run.build import BuildOptions, build_project
from intaglio.run.package import Package
from intaglio.run.toolchains import find_toolchain
from intaglio.targets.target import find_target
from support.strict import strict_flags

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc here")


def write_sources(program: Program, folder: Path, template: Path | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    origin = Origin("model.onnx", "0" * 64, None, "0.0", {})
    write_manifest(write_project(program, find_target("host"), origin, folder, template), folder)
    return folder


def build(program: Program, folder: Path, cc: str | None = None, cflags: tuple[str, ...] | None = None) -> Package:
    write_sources(program, folder)
    name = program.graph.name
    toolchain = find_toolchain(cc)
    flags = strict_flags(toolchain.kind) if cflags is None else cflags
    build_project(folder, name, find_target("host"), toolchain, BuildOptions(cflags=flags))
    return Package.load(folder)


def store_vectors(package: Package, inputs: list[Array], outputs: list[Array]) -> None:
    vectors = Vectors(tuple(inputs), tuple(outputs), 0, "normal", "a test")
    names = [i.name for i in package.manifest.inputs], [o.name for o in package.manifest.outputs]
    write_vectors(vectors, package.folder / "test", *names)


def square_of_sum(x: Array, weights: int = 8) -> Array:
    """What `add_then_square` computes."""
    added = np.asarray(x, np.float32) + np.linspace(0, 1, weights, dtype=np.float32).reshape(1, weights)
    return np.asarray(added**2, np.float32)
