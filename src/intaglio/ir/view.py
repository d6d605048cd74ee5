"""The graph as an ONNX file to look at in Netron.

Operators keep our names (domain `intaglio`), attributes are those of their dataclasses, and each node carries its kernel and
source. It is a picture, not a model to run: weights over 1 MB are left out unless asked for.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from intaglio.errors import ToolError, quoted
from intaglio.ir.choices import OPEN, Choices
from intaglio.ir.graph import Graph, Node, Value
from intaglio.ir.placement import NOWHERE, Placement
from intaglio.ir.sizes import Size
from intaglio.ir.text import print_attribute
from intaglio.ir.types import DType

if TYPE_CHECKING:
    from onnx import NodeProto

_LARGE_BYTES = 1 << 20


def export_onnx(graph: Graph, path: Path, choices: Choices = OPEN, placement: Placement = NOWHERE) -> None:
    import onnx
    from onnx import TensorProto, helper

    kinds = {
        DType.F32: TensorProto.FLOAT, DType.F64: TensorProto.DOUBLE, DType.F16: TensorProto.FLOAT16,
        DType.BF16: TensorProto.BFLOAT16, DType.I8: TensorProto.INT8, DType.I16: TensorProto.INT16,
        DType.I32: TensorProto.INT32, DType.I64: TensorProto.INT64, DType.U8: TensorProto.UINT8,
        DType.U16: TensorProto.UINT16, DType.U32: TensorProto.UINT32, DType.U64: TensorProto.UINT64,
        DType.BOOL: TensorProto.BOOL,
    }  # fmt: skip

    def info(value: Value) -> onnx.ValueInfoProto:
        shape = [str(n) if isinstance(n, Size) else n for n in value.shape]  # a formula of sizes stands where ONNX has a name
        return helper.make_tensor_value_info(value.name, kinds[value.dtype], shape, doc_string=_doc(value, placement))

    weights = []
    for value in graph.constants():
        assert value.data is not None
        data = np.ascontiguousarray(value.data)
        small = data.nbytes <= _LARGE_BYTES
        raw = data.tobytes() if small else b""
        dims = list(value.shape) if small else [0]
        weights.append(helper.make_tensor(value.name, kinds[value.dtype], dims, raw, raw=True))
    nodes = [_node(node, choices.of(node)) for node in graph.nodes]
    values = [info(o) for node in graph.nodes for o in node.outputs]
    body = helper.make_graph(
        nodes, graph.name, [info(v) for v in graph.inputs], [info(v) for v in graph.outputs], weights, value_info=values
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("intaglio", 1)]
    model = helper.make_model(body, producer_name="intaglio", opset_imports=opsets)
    try:
        path.write_bytes(model.SerializeToString(deterministic=True))
    except OSError as error:
        hint = "free some space, or use another `-o`"
        raise ToolError("cannot-write", f"cannot write {quoted(str(path), 200)}: {error.strerror}", hint=hint) from None


def _doc(value: Value, placement: Placement) -> str:
    return f"{value.type} {placement.of(value) or ''} {value.origin}".strip()


def _node(node: Node, using: str) -> NodeProto:
    from onnx import helper

    fields = {f.name: print_attribute(getattr(node.op, f.name)) for f in dataclasses.fields(node.op)}
    if using:
        fields["using"] = using
    if node.when is not None:
        fields["when"] = node.when.name
    return helper.make_node(
        node.op.NAME, ["" if v is None else v.name for v in node.inputs], [v.name for v in node.outputs],
        name=node.output.name, doc_string=node.source, domain="intaglio", **fields,
    )  # fmt: skip
