"""A TFLite file with two networks, `encode` and `step`, that read the same weights."""

from __future__ import annotations

import numpy as np

from intaglio.ir.graph import Array
from support.tflite_models import ModelWriter, Tensor

WEIGHTS: Array = np.random.default_rng(5).standard_normal((16, 8)).astype(np.float32)


def signature(writer: ModelWriter, key: str, index: int, inputs: dict[str, int], outputs: dict[str, int]) -> None:
    schema = writer.schema
    made = schema.SignatureDefT()
    made.signatureKey, made.subgraphIndex = key, index
    made.inputs, made.outputs = [], []
    for names, places in ((inputs, made.inputs), (outputs, made.outputs)):
        for name, tensor in names.items():
            item = schema.TensorMapT()
            item.name, item.tensorIndex = name, tensor
            places.append(item)
    writer.model.signatureDefs = [*(writer.model.signatureDefs or []), made]


def two_networks(keys: tuple[str, str] = ("encode", "step"), unknown_rows: bool = False) -> bytes:
    """`encode`: y = tanh(x @ W) for 4 rows. `step`: y = relu(x @ W) for one, and its input under the name of the signature."""
    writer = ModelWriter()
    buffer = -1
    for n, (key, rows, op) in enumerate(zip(keys, (4, 1), ("TANH", "RELU"), strict=True)):
        writer.subgraph()
        x = writer.tensor(Tensor((rows, 8), "float32", signature=(-1, 8) if unknown_rows else None), f"{key}_arg0")
        w = writer.tensor(Tensor((16, 8), "float32", data=WEIGHTS), "w")
        buffer = writer.graph.tensors[w].buffer if buffer < 0 else buffer
        writer.graph.tensors[w].buffer = buffer
        a = writer.tensor(Tensor((rows, 16), "float32", signature=(-1, 16) if unknown_rows else None), f"{key}_product")
        y = writer.tensor(Tensor((rows, 16), "float32", signature=(-1, 16) if unknown_rows else None), f"{key}_result")
        writer.operator("FULLY_CONNECTED", [x, w, -1], [a], "FullyConnectedOptions", version=1)
        writer.operator(op, [a], [y], version=1)
        writer.graph.inputs, writer.graph.outputs = [x], [y]
        signature(writer, key, n, {"features" if n == 0 else "frame": x}, {"hidden": y})
    return writer.finish()


def _counter(writer: ModelWriter, step: bool) -> tuple[dict[str, int], dict[str, int]]:
    """A subgraph that adds its input to the variable `total`, or one that sets it to its input."""
    writer.subgraph()
    handle = writer.tensor(Tensor((), "resource"), "handle")
    x = writer.tensor(Tensor((1, 4), "float32"), "x")
    writer.operator("VAR_HANDLE", [], [handle], "VarHandleOptions", {"container": "", "sharedName": "total"}, 1)
    now = x
    if step:
        old = writer.tensor(Tensor((1, 4), "float32"), "old")
        now = writer.tensor(Tensor((1, 4), "float32"), "sum")
        writer.operator("READ_VARIABLE", [handle], [old], version=1)
        writer.operator("ADD", [old, x], [now], "AddOptions", version=1)
    writer.operator("ASSIGN_VARIABLE", [handle, now], [], version=1)
    writer.graph.inputs, writer.graph.outputs = [x], [now]
    return {"x": x}, {"y": now}


def shared_variable() -> bytes:
    """`add` and `set` use one variable."""
    writer = ModelWriter()
    for n, key in enumerate(("add", "set")):
        signature(writer, key, n, *_counter(writer, key == "add"))
    return writer.finish()
