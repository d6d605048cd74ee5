"""Small ONNX models for tests, in a line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from intaglio.ir.graph import Array

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(name: str, shape: Sequence[int | str | None] | None, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    """Operands by blanks; `_` is an absent one."""
    names = ["" if n == "_" else n for n in inputs.split()]
    return helper.make_node(op, names, outputs.split(), **attributes)


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any] = (value("x", [1, 4]),),
    outputs: Sequence[Any] = (value("y", None),),
    constants: Mapping[str, Array | Any] | None = None,
    opset: int = 21,
    **options: Any,
) -> Any:
    initializers = [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), initializers)
    opsets = [helper.make_opsetid("", opset), *options.pop("opsets", [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, **options)


def saved(proto: Any, folder: Path, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(proto if isinstance(proto, bytes) else proto.SerializeToString())
    return path


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


__all__ = ["BOOL", "FLOAT", "INT64", "ints", "model", "node", "onnx", "saved", "value"]
