"""An IR file and its weights: `model.ig` and `model.safetensors`."""

from __future__ import annotations

from pathlib import Path

from intaglio.errors import ModelError, ToolError, quoted
from intaglio.ir.graph import Graph
from intaglio.ir.text import parse_graph, print_graph
from intaglio.ir.verify import verify_edited
from intaglio.ir.weights import INLINE_ELEMENTS, load_weights, save_weights


def write_ir(graph: Graph, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(print_graph(graph), encoding="utf-8")
        if any(v.data is not None and v.data.size > INLINE_ELEMENTS for v in graph.constants()):
            save_weights(graph, path.with_suffix(".safetensors"))
    except OSError as error:
        raise ToolError("cannot-write", f"cannot write {quoted(str(path))}: {error.strerror}") from None


def read_ir(path: Path) -> Graph:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ModelError("not-ir", f"{quoted(path.name)} is not text", hint="IR files start with `intaglio-ir 1`") from None
    except OSError as error:
        raise ModelError("cannot-read", f"cannot read {quoted(str(path))}: {error.strerror}") from None
    weights = path.with_suffix(".safetensors")
    arrays = load_weights(weights) if weights.exists() else {}
    graph = parse_graph(text, arrays, file=path.name)
    verify_edited(graph)
    return graph
