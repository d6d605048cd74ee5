"""A classifier of ONNX often ends in a `ZipMap`: each row of probabilities becomes a map from classes to numbers. A package has the
rows, so the model that is its reference gives them too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from intaglio.frontends.onnx.container import skim


def may_make_maps(path: Path) -> bool:
    """Does the file have such an operator?"""
    return "ZipMap" in skim(path).operators


def without_maps(model: Any) -> bool:
    """Give rows instead of maps, in place; False where there were no maps."""
    outputs = {output.name: output for output in model.graph.output}
    found = [node for node in model.graph.node if node.op_type == "ZipMap"]
    for node in found:
        node.op_type, node.domain = "Identity", ""
        del node.attribute[:]
        if node.output[0] in outputs:
            outputs[node.output[0]].ClearField("type")
    return bool(found)
