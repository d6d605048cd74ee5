"""Several networks in one TFLite file: a signature names a subgraph, its inputs and its outputs.

A file with one signature, or with none, is one network: the first subgraph. Other subgraphs are bodies of loops and branches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from intaglio.errors import ModelError, UserError, quoted
from intaglio.frontends.tflite.container import Model, Operator, Subgraph, read_model

_CALLS = ("CondSubgraphIndex", "BodySubgraphIndex", "ThenSubgraphIndex", "ElseSubgraphIndex")


def signatures_of(path: Path) -> list[str]:
    """The entry points of a file; none: it is one network."""
    return entry_points(read_model(path))


def entry_points(model: Model) -> list[str]:
    keys = [s.key for s in model.signatures]
    return keys if len({s.subgraph for s in model.signatures}) > 1 and len(set(keys)) == len(keys) else []


def choose(model: Model, key: str | None) -> Model:
    """The model with the subgraph of a signature as its network."""
    several = entry_points(model)
    known = ", ".join(quoted(s.key) for s in model.signatures) or "none"
    if key is None:
        if several:
            hint = f"choose one with `--signature`: {known}; `intaglio compile` and `intaglio.compile_entries` without it make "
            hint += "entry points of all"
            raise UserError("which-signature", "the model has several signatures", where=model.file, hint=hint)
        return model
    found = next((s for s in model.signatures if s.key == key), None)
    if found is None:
        raise UserError("unknown-signature", f"unknown signature {quoted(key)}", where=model.file, hint=f"signatures: {known}")
    return replace(model, signature=found.names, chosen=found.subgraph)


def check_together(path: Path, keys: Collection[str]) -> None:
    """Can these signatures be entry points of one package? A variable that one of them sets and another one reads would have to
    be in the memory of both."""
    model = read_model(path)
    users: dict[str, list[str]] = {}
    written: set[str] = set()
    for signature in (s for s in model.signatures if s.key in keys):
        for graph in _reached(model, signature.subgraph):
            handles = {o.outputs[0]: _name(o) for o in graph.operators if o.op == "VAR_HANDLE" and o.outputs}
            for name in dict.fromkeys(handles.values()):
                users.setdefault(name, []).append(signature.key)
            assigned = [o.inputs[0] for o in graph.operators if o.op == "ASSIGN_VARIABLE" and o.inputs]
            written |= {handles[index] for index in assigned if index in handles}
    for name, signatures in users.items():
        if name in written and len(set(signatures)) > 1:
            shown = " and ".join(quoted(key) for key in dict.fromkeys(signatures))
            what = f"the signatures {shown} share the variable {quoted(name)}, and an entry point has a state of its own"
            hint = "compile one of them with `--signature`, or export the variable as an input and an output"
            raise ModelError("shared-state", what, where=model.file, hint=hint)


def _name(operator: Operator) -> str:
    o = operator.options
    return "/".join((part or b"").decode("utf-8", "replace") for part in (o.Container(), o.SharedName())).strip("/")


def _reached(model: Model, first: int) -> Iterator[Subgraph]:
    """A subgraph, and those of its loops and branches; what runs once at the start only sets first values."""
    waiting, seen = [first], {first}
    while waiting:
        graph = model.subgraphs[waiting.pop()]
        yield graph
        for operator in graph.operators:
            if operator.op not in ("WHILE", "IF"):
                continue
            called = {int(getattr(operator.options, name)()) for name in _CALLS if hasattr(operator.options, name)}
            new = {index for index in called if 0 <= index < len(model.subgraphs)} - seen
            seen |= new
            waiting += sorted(new)
