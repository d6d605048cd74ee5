"""An IR file that somebody edited: what cannot work is told with its line; nothing is passed over, nothing is a bug of ours."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from intaglio import compile
from intaglio.pipeline import compile_request
from intaglio.run.data import read_arrays
from intaglio.stages import Request, Watch
from support.commands import DIGITS, Intaglio


@pytest.fixture(scope="module")
def memory_ir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ir") / "digits.ig"
    compile_request(Request(model=DIGITS, output=path, stop_after="memory", target="generic"), Watch())
    return path


def edited(memory_ir: Path, folder: Path, old: str, new: str) -> Path:
    text = memory_ir.read_text()
    assert old in text
    (folder / "digits.ig").write_text(text.replace(old, new, 1))
    (folder / "digits.safetensors").write_bytes(memory_ir.with_suffix(".safetensors").read_bytes())
    return folder / "digits.ig"


SMALL = """intaglio-ir 1
model small stage=import
input x: f32[1,4]
const k: f32[4] = [1.0, 2.0, 3.0, 4.0]
a: f32[1,4] = add(x, k)
y: f32[1,4] = softmax(a, axis=1)
output y
"""
WRONG = {
    "a type": ("a: f32[1,4]", "a: f32[1,5]", "bad-ir", 5, "its operator gives f32[1,4]"),
    "an element type": ("a: f32[1,4]", "a: i8[1,4]", "bad-ir", 5, "its operator gives f32[1,4]"),
    "an axis": ("axis=1", "axis=9", "bad-ir", 6, "softmax"),
    "too few operands": ("add(x, k)", "add(x)", "bad-ir", 5, "add"),
    "too many operands": ("add(x, k)", "add(x, k, k)", "bad-ir", 5, "add"),
    "an absent operand": ("add(x, k)", "add(x, _)", "bad-ir", 5, "add"),
    "two results of one": ("y: f32[1,4] =", "y: f32[1,4], z: f32[1,4] =", "bad-ir", 6, "1 result"),
    "a guard that is no truth": ("softmax(a, axis=1)", "softmax(a, axis=1) when k", "bad-ir", 6, "not one bool"),
    "too many elements": ("input x: f32[1,4]", "input x: f32[1,4]\ninput z: f32[65536,65536]", "bad-ir", 4, "too many elements"),
    "an input that is an output": ("output y", "output x", "bad-ir", 3, "`copy`"),
    "an output twice": ("output y", "output y\noutput y", "bad-ir", 6, "`copy`"),
    "a state of another type": ("output y", "state x = k\noutput y", "bad-ir", 4, "its next value"),
    "a state that is no input": ("output y", "state a = y\noutput y", "bad-ir", 5, "is not an input"),
    "a keyword as a name": ("input x: f32[1,4]", "input x: f32[1,4]\ninput while: f32[1]", "bad-ir", 4, "name in C"),
    "a name of the library": ("input x: f32[1,4]", "input x: f32[1,4]\ninput errno: f32[1]", "bad-ir", 4, "name in C"),
    "an endless name": ("input x: f32[1,4]", f"input x: f32[1,4]\ninput {'q' * 500}: f32[1]", "bad-ir", 4, "name in C"),
    "a stage": ("stage=import", "stage=lunch", "unknown-stage", 0, "lunch"),
    "a target": ("stage=import", "stage=import target=zx81", "unknown-target", 0, "zx81"),
    "no output": ("output y", "", "bad-ir", 0, "no outputs"),
    "the name of the model": ("model small", "model while", "bad-ir", 0, "`while`"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_line_is_told(name: str, intaglio: Intaglio, tmp_path: Path) -> None:
    old, new, slug, line, text = WRONG[name]
    assert old in SMALL
    (tmp_path / "small.ig").write_text(SMALL.replace(old, new, 1))
    said = intaglio("compile", tmp_path / "small.ig", "-o", tmp_path / "p", "--stop-after", "package")
    assert said.code == 2
    assert f"error[{slug}]" in said.err
    assert text in said.err
    assert "hint: " in said.err
    assert not line or f"--> small.ig, line {line}" in said.err
    assert not (tmp_path / "p").exists()


KERNELS = {
    "a huge tile": ("conv_nhwc(tile=4x2)", "conv_nhwc(tile=99x99)", "bad-tile"),
    "an empty tile": ("conv_nhwc(tile=4x2)", "conv_nhwc(tile=0x1)", "bad-tile"),
    "half a tile": ("conv_nhwc(tile=4x2)", "conv_nhwc(tile=6)", "bad-tile"),
    "a kernel that is not there": ("using softmax", "using softmox", "bad-kernel"),
    "a view that is none": ("using softmax", "using view", "bad-kernel"),
    "a kernel of another operator": ("using softmax", "using matmul(tile=6x2)", "bad-kernel"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_that_cannot_be_is_told(name: str, intaglio: Intaglio, tmp_path: Path) -> None:
    compile_request(Request(model=DIGITS, output=tmp_path / "a" / "digits.ig", stop_after="memory", target="x86-64-v3"), Watch())
    old, new, slug = KERNELS[name]
    path = edited(tmp_path / "a" / "digits.ig", tmp_path, old, new)
    said = intaglio("compile", path, "-o", tmp_path / "p", "--stop-after", "package")
    assert said.code == 2
    assert f"error[{slug}]" in said.err
    assert "--> digits.ig, line " in said.err
    assert not (tmp_path / "p").exists()


ADDRESSES = {
    "outside": ('pool1_2 "pool1": f32[1,4,4,8] NHWC @arena+2048', 'pool1_2 "pool1": f32[1,4,4,8] NHWC @arena+999999936', "no plan"),
    "over its operand": (
        'pool1_2 "pool1": f32[1,4,4,8] NHWC @arena+2048',
        'pool1_2 "pool1": f32[1,4,4,8] NHWC @arena+1024',
        "writes over",
    ),
    "not aligned": (
        'pool1_2 "pool1": f32[1,4,4,8] NHWC @arena+2048',
        'pool1_2 "pool1": f32[1,4,4,8] NHWC @arena+2050',
        "multiples of",
    ),
    "another region": (
        'pool1_2 "pool1": f32[1,4,4,8] NHWC @arena+2048',
        'pool1_2 "pool1": f32[1,4,4,8] NHWC @input+0',
        "its place is in the arena",
    ),
    "no region": (
        'pool1_2 "pool1": f32[1,4,4,8] NHWC @arena+2048',
        'pool1_2 "pool1": f32[1,4,4,8] NHWC @moon+0',
        "its place is in the arena",
    ),
    "a view elsewhere": ("scores_1: f32[1,64] @arena+1024", "scores_1: f32[1,64] @arena+0", "is a view of"),
    "an output in the arena": ("probabilities: f32[1,10] @output+0", "probabilities: f32[1,10] @arena+0", "`@output+0`"),
    "an input elsewhere": ("image: f32[1,1,8,8] @input+0", "image: f32[1,1,8,8] @input+1", "`@input+0`"),
}


@pytest.mark.parametrize("name", ADDRESSES)
def test_an_address_that_cannot_be_is_told(name: str, memory_ir: Path, intaglio: Intaglio, tmp_path: Path) -> None:
    old, new, text = ADDRESSES[name]
    path = edited(memory_ir, tmp_path, old, new)
    said = intaglio("compile", path, "-o", tmp_path / "p", "--stop-after", "package")
    assert said.code == 2
    assert "error[bad-address]" in said.err
    assert text in said.err
    assert "--> digits.ig" in said.err
    assert not (tmp_path / "p").exists()


def test_an_address_that_works_is_kept(memory_ir: Path, tmp_path: Path) -> None:
    path = edited(memory_ir, tmp_path, "NHWC @arena+2048", "NHWC @arena+2112")
    package = compile(path, output=tmp_path / "p")
    assert package.manifest.memory.arena_bytes == 2112 + 4 * 4 * 8 * 4
    image = read_arrays(DIGITS.with_suffix(".npz"))["image"][0]
    plain = compile(memory_ir, output=tmp_path / "plain")
    before, after = plain.run({"image": image}), package.run({"image": image})
    assert np.array_equal(before["probabilities"], after["probabilities"])


def test_addresses_for_another_target_are_planned_anew(memory_ir: Path, tmp_path: Path) -> None:
    path = edited(memory_ir, tmp_path, "NHWC @arena+2048", "NHWC @arena+2050")
    package = compile(path, output=tmp_path / "p", target="x86-64")
    assert all(place.offset != 2050 for layer in package.manifest.layers for place in layer.memory)


def test_weights_that_are_damaged_are_told(memory_ir: Path, intaglio: Intaglio, tmp_path: Path) -> None:
    path = edited(memory_ir, tmp_path, "model digits", "model digits")
    weights = tmp_path / "digits.safetensors"
    whole = weights.read_bytes()
    for content in (b"", whole[:100], b"\xff" * 8 + whole[8:], whole[:-4] + b"\1\2\3\4"):
        weights.write_bytes(content)
        said = intaglio("compile", path, "-o", tmp_path / "p", "--stop-after", "package")
        assert said.code == 2
        assert "error[bad-weights]" in said.err or "the digest differs" in said.err
        assert "hint: " in said.err


def test_weights_that_are_a_pipe_are_not_waited_for(memory_ir: Path, intaglio: Intaglio, tmp_path: Path) -> None:
    path = edited(memory_ir, tmp_path, "model digits", "model digits")
    (tmp_path / "digits.safetensors").unlink()
    os.mkfifo(tmp_path / "digits.safetensors")
    said = intaglio("compile", path, "-o", tmp_path / "p")
    assert said.code == 2
    assert "error[bad-weights]" in said.err
