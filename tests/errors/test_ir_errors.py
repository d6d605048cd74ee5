"""One test per message about an IR file: each names its line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from intaglio.errors import IntaglioError, ModelError, ToolError
from intaglio.ir.files import read_ir, write_ir
from intaglio.ir.text import parse_graph
from support.ir_text import graph_of

HEAD = "intaglio-ir 1\nmodel t stage=import\ninput x: f32[2]\n"  # what follows is line 4


def message(line: str) -> str:
    with pytest.raises(ModelError) as caught:
        parse_graph(f"{HEAD}{line}\noutput x\n", file="t.ig")
    assert (caught.value.slug, caught.value.where) == ("bad-ir", "t.ig, line 4")
    return caught.value.message


FAULTS = {
    "an operator that is not there": ("y: f32[2] = rleu(x)", "unknown operator `rleu`"),
    "an attribute that is not there": ("y: f32[2] = elu(x, alhpa=1.0)", "`elu` has no attribute `alhpa`"),
    "an attribute of another type": ('y: f32[2] = elu(x, alpha="big")', "`elu.alpha` cannot be `big`"),
    "a truth where a number belongs": ("y: f32[2] = softmax(x, axis=true)", "`softmax.axis` cannot be `True`"),
    "a layout that is not there": ("y: f32[2] = conv(x, x, layout=NWHC)", "`NWHC` is not a Layout for `conv.layout`"),
    "a value that is not there": ("y: f32[2] = relu(z)", "`z` is not defined above this line"),
    "a guard that is not there": ("y: f32[2] = relu(x) when c", "`c` is not defined above this line"),
    "an output that is not there": ("output z", "`z` is not defined above this line"),
    "a name twice": ("x: f32[2] = relu(x)", "`x` is defined twice"),
    "no type": ("y = relu(x)", "expected `:`, found `= relu(x)`"),
    "a type that is not one": ("y: float[2] = relu(x)", "unknown element type `float`"),
    "a shape that is not one": ("y: f32(2) = relu(x)", "expected a type such as `f32[1,3,8,8]`, found `f32(2) = relu(x)`"),
    "no equals sign": ("y: f32[2] relu(x)", "expected `=`, found `relu(x)`"),
    "no operator": ("y: f32[2] =", "expected a name, found the end of the line"),
    "an open parenthesis": ("y: f32[2] = relu(x", "expected `,`, found the end of the line"),
    "a name that is not ASCII": ("y: f32[2] = relu(é)", "expected an operand, found `é)`"),
    "a number that is not ASCII": ("y: f32[2] = chain(x, steps=[relu(٣)])", "expected an operand, found `٣)])`"),
    "a strange operand": ("y: f32[2] = relu(+)", "expected an operand, found `+)`"),
    "a strange end": ("y: f32[2] = relu(x) usign view", "expected `using`, `on` or `when`, found `usign`"),
    "a strange end of an input": ("input z: f32[2] fast", "unexpected `fast`"),
    "an address without offset": ("y: f32[2] @arena = relu(x)", "expected `+`, found `= relu(x)`"),
    "an offset that is none": ("y: f32[2] @arena+x = relu(x)", "expected an offset, found `x = relu(x)`"),
    "kernel parameters that do not end": ("y: f32[2] = relu(x) using a(b", "expected kernel parameters, found `(b`"),
    "a string that does not end": ('y "a: f32[2] = relu(x)', 'expected a quoted string, found `"a: f32[2] = relu(x)`'),
    "a string that is not JSON": (r'y "\q": f32[2] = relu(x)', r'`"\q"` is not a JSON string'),
    "a constant with too few elements": ("const k: f32[3] = [1.0]", "the constant has 1 elements, its type f32[3] has 3"),
    "a constant that does not fit": ("const k: i8[1] = [1000]", "the constant does not fit its type i8[1]"),
    "a constant that is no number": ('const k: f32[1] = ["a"]', "the constant does not fit its type f32[1]"),
    "a constant without contents": ("const k: f32[9]", "expected `sha256:`, found the end of the line"),
    "a digest that is none": ("const k: f32[9] sha256:xyz", "expected a digest, found `xyz`"),
    "weights that are not there": ("const k: f32[9] sha256:0123", "the weights `k` are not in the .safetensors file"),
    "a step with a name": ("y: f32[2] = chain(x, steps=[relu(x)])", "the operands of step `relu` must be numbers"),
    "a property of the model that is not there": ("model t speed=9", "`model` has no `speed`"),
    "a scale that is no number": ("y: i8[2] q(a,0) = relu(x)", "`a` is not a scale"),
    "a zero point that is no number": ("y: i8[2] q(0.5,-) = relu(x)", "`-` is not a zero point"),
    "a number that is too large": (f"y: f32[{'9' * 5000}] = relu(x)", "the number `999"),
    "a number that is too large, as an attribute": (f"y: f32[2] = softmax(x, axis={'9' * 5000})", "the number `999"),
    "an infinity where an integer belongs": ("const k: i32[1] = [inf]", "the constant does not fit its type i32[1]"),
    "lists inside of lists": ("const k: f32[1] = " + "[" * 5000, "lists are nested more than 8 deep"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_the_line_of_a_fault_is_named(name: str) -> None:
    line, wanted = FAULTS[name]
    assert message(line).startswith(wanted)


@pytest.mark.parametrize("text", ["", "intaglio-ir 2\n", "hello\n", "intaglio-ir\n"])
def test_a_file_that_is_not_ir(text: str) -> None:
    with pytest.raises(ModelError, match="starts with") as caught:
        parse_graph(text, file="t.ig")
    assert caught.value.slug == "not-ir"
    assert "`intaglio-ir 1`" in caught.value.hint


def test_a_line_without_end_is_not_read() -> None:
    with pytest.raises(ModelError, match=r"line 5 has 4,000,\d+ characters") as caught:
        parse_graph(f"{HEAD}# {'x' * 10}\ny: f32[2] = relu({'x' * 4_000_000})\n", file="t.ig")
    assert "safetensors" in caught.value.hint


def test_a_state_of_a_value_that_is_not_there() -> None:
    with pytest.raises(ModelError, match="`h` is not defined"):
        parse_graph(f"{HEAD}state h = x\noutput x\n", file="t.ig")


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "t.ig").write_bytes(b"intaglio-ir 1\n\xff\xfe")
    with pytest.raises(ModelError, match=r"`t.ig` is not text"):
        read_ir(tmp_path / "t.ig")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="No such file"):
        read_ir(tmp_path / "t.ig")


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ToolError, match="cannot write"):
        write_ir(graph_of("input x: f32[2]\ny: f32[2] = exp(x)\noutput y"), tmp_path / "file" / "t.ig")


WEIGHTS = "input x: f32[9]\nconst k: f32[9] ...\ny: f32[9] = add(x, k)\noutput y"


def test_weights_of_another_model(tmp_path: Path) -> None:
    graph = graph_of(WEIGHTS)
    write_ir(graph, tmp_path / "a.ig")
    other = graph_of(WEIGHTS)
    other.constants()[0].data = np.zeros(9, np.float32)
    write_ir(other, tmp_path / "b.ig")
    (tmp_path / "b.safetensors").replace(tmp_path / "a.safetensors")
    with pytest.raises(ModelError, match="the weights `k` are not those of this text: the digest differs") as caught:
        read_ir(tmp_path / "a.ig")
    assert caught.value.where == "a.ig, line 4"


def test_weights_of_another_shape(tmp_path: Path) -> None:
    write_ir(graph_of(WEIGHTS), tmp_path / "a.ig")
    path = tmp_path / "a.ig"
    path.write_text(path.read_text().replace("const k: f32[9]", "const k: f32[3,3]"))
    with pytest.raises(ModelError, match=r"`k` is stored as float32\[9\], the text says f32\[3,3\]"):
        read_ir(path)


def test_weights_that_were_left_behind(tmp_path: Path) -> None:
    write_ir(graph_of(WEIGHTS), tmp_path / "a.ig")
    (tmp_path / "a.safetensors").unlink()
    with pytest.raises(ModelError, match=r"the weights `k` are not in the .safetensors file") as caught:
        read_ir(tmp_path / "a.ig")
    assert "together" in caught.value.hint


def test_weights_that_are_no_safetensors(tmp_path: Path) -> None:
    write_ir(graph_of(WEIGHTS), tmp_path / "a.ig")
    (tmp_path / "a.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(ModelError, match=r"`a.safetensors` is not a safetensors file"):
        read_ir(tmp_path / "a.ig")


def test_any_damage_to_a_text_is_an_error_or_a_graph() -> None:
    """Cut at every byte, and with every byte replaced: never a traceback of ours."""
    text = (
        'intaglio-ir 1\nmodel t stage=import target=host\ninput x "the x": f32[1,2] NHWC q(0.5,3) @input+0\n'
        "const k: f32[2] = [1.5, nan]\n"
        "y: f32[1,2] = conv(x, k, pads=(1,1), layout=NHWC, epilogue=[elu(0, alpha=2.0)]) using a(tile=1) when x  # s\n"
        'output y "o"\n'
    )
    damaged = [text[:n] for n in range(len(text))]
    damaged += [text[:n] + c + text[n + 1 :] for n in range(len(text)) for c in '"(,9=[-']
    assert {_slug(case) for case in damaged} == {"", "bad-ir", "not-ir"}


def _slug(text: str) -> str:
    try:
        parse_graph(text)
    except IntaglioError as error:
        return error.slug
    return ""
