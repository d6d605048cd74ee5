"""Constants inside of branches and loops, which torch does not write to a file: `torch.tensor(0)` becomes `torch.full((), 0)`."""

from __future__ import annotations

import copy
from typing import Any

from intaglio.errors import ModelError


def writable(torch: Any, program: Any) -> Any:
    """The program, or a copy of it without such constants."""
    if not _constants(torch, program):
        return program
    program = copy.deepcopy(program)
    for graph, node, value in _constants(torch, program):
        alike = value.numel() > 0 and bool((value == value.reshape(-1)[0]).all())
        if not alike:
            what = "a branch or the body of a loop makes a tensor of several numbers, which torch does not save"
            raise ModelError("cannot-export", what, hint="make it outside, or register it as a buffer, and hand it to the branch")
        (reader, *_) = node.users or (None,)
        with graph.inserting_before(node):
            number = value.reshape(-1)[0].item()
            made = graph.call_function(torch.ops.aten.full.default, (list(value.shape), number), {"dtype": value.dtype})
        made.meta = {**node.meta, **({} if reader is None else reader.meta)}
        node.replace_all_uses_with(made)
        graph.erase_node(node)
    return program


def _constants(torch: Any, program: Any) -> list[tuple[Any, Any, Any]]:
    found = []
    for module in program.graph_module.modules():
        if module is program.graph_module or not isinstance(module, torch.fx.GraphModule):
            continue
        for node in module.graph.nodes:
            value = getattr(module, node.target, None) if node.op == "get_attr" else None
            if isinstance(value, torch.Tensor):
                found.append((module.graph, node, value))
    return found
