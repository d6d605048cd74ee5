"""What is checked and told at the end of a walk over an ONNX model."""

from __future__ import annotations

from typing import Any

from intaglio.errors import ModelError, quoted
from intaglio.frontends import finishing
from intaglio.frontends.onnx.call import Absent, Entries, Item, Items, Texts, Unknown, Unusable
from intaglio.frontends.onnx.faults import Problem
from intaglio.frontends.onnx.tensors import DTYPES, STRING
from intaglio.frontends.onnx.walk import Walk
from intaglio.ir.graph import Graph, State, Value
from intaglio.ir.types import DType
from intaglio.ops.binary import Add


def finish(walk: Walk, inputs: list[Value], outputs: list[tuple[str, Item]], name: str) -> Graph:
    tensors: list[tuple[str, Value]] = []
    for origin, item in outputs:
        if isinstance(item, Absent):
            walk.notes.append(f"the output {quoted(origin)} is absent, so the package does not have it")
            continue
        item = item.value if isinstance(item, Texts) else item
        if not isinstance(item, Value):
            reason, hint = _no_tensor(item)
            raise ModelError("unsupported-type", f"the output {quoted(origin)} is {reason}", where=walk.file, hint=hint)
        tensors.append((origin, item))
    if walk.random_run is None:
        return finishing.finish(walk, inputs, tensors, name)
    (after,) = walk.emit(Add(), [walk.random_run, walk.scalar(1, DType.U32)])
    after.origin = f"{walk.random_run.origin}_next"
    return finishing.finish(walk, [*inputs, walk.random_run], tensors, name, [State(walk.random_run, after)])


def _no_tensor(item: Item) -> tuple[str, str]:
    """What an output is that is no tensor of numbers, and what to do."""
    if isinstance(item, Unusable):
        return item.what, item.hint
    return "a map" if isinstance(item, Entries) else "a sequence or an optional", "give tensors as outputs"


def _need_strings(walk: Walk, out: Any) -> None:
    code = out.type.tensor_type.elem_type
    if code not in (0, STRING):
        reason = f"the output {quoted(out.name)} is a tensor of strings, but the model declares another type"
        hint = "the declared types of the model are wrong; export it again"
        if not walk.collect:
            raise ModelError("shape-mismatch", reason, where=walk.file, hint=hint)
        walk.problems.append(Problem(out.name, "output", reason, hint, "shape-mismatch", walk.file))


def check_declared(walk: Walk, graph: Any, results: list[Item]) -> None:
    """Outputs whose type is not what the model declares: another element type is an error, another shape a note."""
    for out, item in zip(graph.output, results, strict=True):
        if isinstance(item, (Unknown, Items, Absent)):
            continue
        if isinstance(item, Texts):
            _need_strings(walk, out)
            continue
        if not isinstance(item, Value):
            reason, hint = _no_tensor(item)
            walk.problems.append(Problem(out.name, "output", f"the output is {reason}", hint, "unsupported-type", walk.file))
            continue
        if out.type.WhichOneof("value") != "tensor_type":
            continue
        tensor = out.type.tensor_type
        small = item in walk.packed and walk.packed[item] == tensor.elem_type
        if tensor.elem_type and not small and DTYPES.get(tensor.elem_type) is not item.dtype:
            slug = "shape-mismatch" if tensor.elem_type in DTYPES else "unsupported-type"
            reason = f"the output {quoted(out.name)} is {item.dtype.value}, but the model declares another type"
            hint = "the declared types of the model are wrong; export it again"
            if not walk.collect:
                raise ModelError(slug, reason, where=walk.file, hint=hint)
            walk.problems.append(Problem(out.name, "output", reason, hint, slug, walk.file))
            continue
        if not tensor.HasField("shape"):
            continue
        dims = [d.dim_value if d.WhichOneof("value") == "dim_value" else None for d in tensor.shape.dim]
        fits = len(dims) == len(item.shape) and all(d is None or d <= 0 or d == s for d, s in zip(dims, item.shape, strict=True))
        if not fits:
            said = ", ".join("?" if d is None else str(d) for d in dims)
            walk.notes.append(f"the output {quoted(out.name)} is {item.type}; the model declares [{said}]")
