"""Layers a few rows at a time where the caller says how many rows there are, or how long a row is."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import intaglio
from intaglio.errors import OurFault
from intaglio.ir.choices import Choices
from intaglio.ir.stripes import StripeEnd, StripeSpec
from intaglio.ir.text import parse_network
from intaglio.kernels import lower
from intaglio.kernels.program import Program
from intaglio.memory import place
from intaglio.memory.checker import check
from intaglio.targets.target import find_target
from support.building import needs_gcc
from support.commands import Intaglio
from support.onnx_models import model, node, saved, value

RANDOM = np.random.default_rng(5)
SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def weights(*shape: int) -> Any:
    return (RANDOM.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def pictures(height: int | str, width: int | str, batch: int | str = 1) -> Any:
    """Strides and borders of several kinds."""
    constants = {"a": weights(12, 3, 3, 3), "b": weights(12, 12, 3, 3), "c": weights(8, 12, 3, 3)}
    nodes = [
        node("Conv", "x a", "h1", pads=[1] * 4, strides=[2, 2]), node("Relu", "h1", "h2"),
        node("Conv", "h2 b", "h3", pads=[1] * 4), node("Relu", "h3", "h4"),
        node("MaxPool", "h4", "h5", kernel_shape=[2, 2], pads=[1] * 4), node("Conv", "h5 c", "y", pads=[1] * 4, strides=[2, 2]),
    ]  # fmt: skip
    return model(nodes, [value("x", [batch, 3, height, width])], [value("y", None)], constants)


def words() -> Any:
    constants = {"q": weights(16, 16), "a": weights(16, 64), "b": weights(64, 16)}
    nodes = [
        node("MatMul", "x q", "h0"), node("MatMul", "h0 a", "h1"), node("Relu", "h1", "h2"), node("MatMul", "h2 b", "h3"),
        node("Add", "h3 h0", "h4"), node("Softmax", "h4", "y", axis=-1),
    ]  # fmt: skip
    return model(nodes, [value("x", [1, "T", 16])], [value("y", None)], constants)


CASES = {
    "rows of some length": (pictures(32, "W"), {"W": (1, 32)}, "18K"),
    "some rows": (pictures("H", 32), {"H": (1, 32)}, "18K"),
    "some rows of some length": (pictures("H", "W"), {"H": (3, 20), "W": (2, 32)}, "13K"),
    "as many rows as columns": (pictures("S", "S"), {"S": (1, 32)}, "19K"),
    "no rows, too": (words(), {"T": (0, 40)}, "8K"),
}  # fmt: skip


ALL = [pytest.param(name, marks=pytest.mark.slow) if n < 3 else name for n, name in enumerate(CASES)]


@pytest.mark.parametrize("name", ALL)
def test_every_size_gives_what_onnx_runtime_gives(name: str, tmp_path: Path) -> None:
    proto, dims, ram = CASES[name]
    path = saved(proto, tmp_path)
    whole = intaglio.compile(path, output=tmp_path / "whole", dims=dims, target="generic")
    package = intaglio.compile(path, output=tmp_path / "p", dims=dims, ram=ram, target="generic")
    assert package.manifest.memory.arena_bytes <= int(ram[:-1]) * 1024 < whole.manifest.memory.arena_bytes
    assert "_stripe_0(" in (tmp_path / "p" / "src" / "model.c").read_text()
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    declared = session.get_inputs()[0].shape
    low = min(n for n, _ in dims.values())
    for step in range(max(high for _, high in dims.values()) - low + 1):
        sizes = {n: first + step % (last - first + 1) for n, (first, last) in dims.items()}
        x = RANDOM.standard_normal([sizes.get(n, n) for n in declared]).astype(np.float32)
        want = session.run(None, {"x": x})[0]
        got = package.run({"x": x})["y"]
        assert got.shape == want.shape and np.allclose(got, want, atol=1e-4), sizes


@needs_gcc
@pytest.mark.parametrize("name", [*(pytest.param(name, marks=pytest.mark.slow) for name in list(CASES)[:-1]), *list(CASES)[-1:]])
def test_sanitizers_find_nothing(name: str, tmp_path: Path) -> None:
    proto, dims, ram = CASES[name]
    path = saved(proto, tmp_path)
    package = intaglio.compile(path, output=tmp_path / "p", dims=dims, ram=ram, target="generic", cflags=SANITIZED, cc="gcc")
    done = subprocess.run([package.folder / "bin" / "model", "--selftest"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@needs_gcc
@pytest.mark.parametrize(
    ("dims", "ram"),
    [pytest.param({"H": (1, 24), "W": (2, 32)}, "4608", marks=pytest.mark.slow), ({"H": (9, 24), "W": (31, 32)}, "4608")],
)
def test_integers_in_stripes_follow_their_references(dims: dict[str, tuple[int, int]], ram: str, tmp_path: Path) -> None:
    """A max pool among them, whose border is below every number. Sanitizers find nothing."""
    path = saved(pictures("H", "W"), tmp_path)
    data = tmp_path / "data"
    data.mkdir()
    for n in range(2):
        sizes = [ends[n] for ends in dims.values()]
        np.savez(data / f"{n}.npz", x=RANDOM.standard_normal((2, 1, 3, *sizes)).astype(np.float32))
    wishes: dict[str, Any] = {"quantize": "int8", "calibrate": data, "sensitivity": False, "target": "generic", "ram": ram}
    package = intaglio.compile(path, output=tmp_path / "p", dims=dims, **wishes)
    assert "_stripe_0(" in (tmp_path / "p" / "src" / "model.c").read_text()
    found = package.validate()
    assert found.ok and all(row.max_abs == 0 for row in found.outputs)
    checked = intaglio.compile(path, output=tmp_path / "s", dims=dims, **wishes, cflags=SANITIZED, cc="gcc")
    done = subprocess.run([checked.folder / "bin" / "model", "--selftest"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_has_no_rows_is_named(tmp_path: Path, intaglio: Intaglio) -> None:
    path = saved(pictures(32, 32, "N"), tmp_path)
    said = intaglio("compile", path, "--dim", "N=1..4", "--ram", "14K", "--target", "generic", "-o", tmp_path / "p")
    assert said.code == 1 and not (tmp_path / "p").exists()
    assert "cannot be made a few rows at a time: there are `N` of them in a batch" in said.err
    assert "`N=1..2`" in said.err


def test_too_many_numbers_of_rows_are_named(tmp_path: Path, intaglio: Intaglio) -> None:
    path = saved(words(), tmp_path)
    said = intaglio("compile", path, "--dim", "T=1..9000", "--ram", "600K", "--target", "generic", "-o", tmp_path / "p")
    assert said.code == 1 and "cannot be made a few rows at a time: `T` has more than 4,096 values" in said.err


# The checker --------------------------------------------------------------------------------------------------------------------

NET = """\
intaglio-ir 1
model m
size H = 1..9
input x: f32[1,H<=9,8,4] NHWC
a: f32[1,H<=9,8,4] NHWC = max_pool(x, kernel=(3,3), strides=(1,1), pads=(1,1,1,1), layout=NHWC)
b: f32[1,H<=9,8,4] NHWC = max_pool(a, kernel=(3,3), strides=(1,1), pads=(1,1,1,1), layout=NHWC)
output b
"""


def striped(rows: int = 1) -> Program:
    target = find_target("generic")
    program = lower(parse_network(NET).graph, target, Choices(stripes=(StripeSpec("a", "b", rows),)))
    return replace(program, placement=place(program, target, slots=True))


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_each_number_of_rows_has_an_end(rows: int) -> None:
    program = striped(rows)
    check(program)
    (stripe,) = program.stripes
    assert stripe.size == "H" and list(stripe.ends) == list(range(1, 10))
    for number, end in stripe.ends.items():
        steps = [stripe.actions[n] for n in (*stripe.order[: end.upto], *end.order)]
        made = [sum(s.rows[layer.node.output].count for s in steps if s.layer == n) for n, layer in enumerate(program.layers)]
        assert made == [number, number]


@pytest.mark.parametrize("number", [1, 4, 9])
def test_an_end_that_is_wrong_is_found(number: int) -> None:
    program = striped()
    (stripe,) = program.stripes
    good = dict(stripe.ends)
    end = good[number]
    orders = [(end.upto, end.order[:-1]), (end.upto, (*end.order, end.order[-1])), (end.upto + 1, end.order)]
    wrong = [StripeEnd(*each) for each in orders]
    if number < 9:
        wrong.append(good[number + 1])
    for each in wrong:
        stripe.ends = {**good, number: each}
        with pytest.raises(OurFault):
            check(program)
    stripe.ends = good
    check(program)
