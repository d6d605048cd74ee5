"""The picture for Netron is an ONNX file that onnx reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from intaglio.errors import ToolError
from intaglio.ir.text import parse_graph
from intaglio.ir.view import export_onnx
from intaglio.kernels import lower
from intaglio.memory import place
from support.ir_text import TARGET, graph_of

TEXT = """
    input x: f32[1,3]
    input c: bool[]
    const w: f32[3,4] ...
    a: f32[1,4] = matmul(x, w)  # /dense/MatMul
    b: f32[1,4] = elu(a, alpha=0.5) when c
    y: f32[1,4] = select(c, b, a)
    output y
"""


def test_the_view_loads_and_keeps_what_the_text_has(tmp_path: Path) -> None:
    graph = graph_of(TEXT)
    program = lower(graph, TARGET)
    program.placement = place(program, TARGET)
    export_onnx(graph, tmp_path / "view.onnx", program.choices, program.placement)
    model = onnx.load(tmp_path / "view.onnx")
    matmul, elu, _ = model.graph.node
    assert (matmul.domain, matmul.op_type, matmul.doc_string) == ("intaglio", "matmul", "/dense/MatMul")
    assert list(matmul.input) == ["x", "w"]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in elu.attribute}
    assert attributes["alpha"] == b"0.5" and attributes["when"] == b"c"
    assert {a.name for a in matmul.attribute} >= {"using", "transpose_b"}
    weights = numpy_helper.to_array(model.graph.initializer[0])
    np.testing.assert_array_equal(weights, graph.constants()[0].data)
    assert "@arena" in model.graph.value_info[0].doc_string


def test_the_view_is_the_same_every_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        export_onnx(graph_of(TEXT), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_large_weights_are_left_out(tmp_path: Path) -> None:
    graph = graph_of("input x: f32[1,600]\nconst w: f32[600,600] ...\ny: f32[1,600] = matmul(x, w)\noutput y")
    export_onnx(graph, tmp_path / "view.onnx")
    assert (tmp_path / "view.onnx").stat().st_size < 10_000
    onnx.load(tmp_path / "view.onnx")


def test_a_view_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="cannot write"):
        export_onnx(graph_of(TEXT), tmp_path / "no" / "such" / "folder")


SIZED = """intaglio-ir 1
model t stage=import
size T = 1..9
input x: f32[1,T<=9]
a: f32[T*2<=18] = iota(count={T*2}, dtype=f32)
y: f32[1,T<=9] = relu(x)
output y
output a
"""


def test_sizes_stand_as_formulas(tmp_path: Path) -> None:
    export_onnx(parse_graph(SIZED, {}), tmp_path / "view.onnx")
    made = onnx.load(tmp_path / "view.onnx").graph.output
    shapes = {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in made}
    assert shapes == {"y": [1, "T"], "a": ["T*2"]}
