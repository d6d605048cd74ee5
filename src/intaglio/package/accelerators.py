"""What accelerators bring into a package: their C files, and what is done before their first region of a run and after the last."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import dedent

from intaglio.errors import ToolError, UserError, quoted
from intaglio.ir.graph import Graph
from intaglio.ir.offload import Offload
from intaglio.ir.placement import ARENA
from intaglio.kernels.program import ConstantArg, Program, ValueArg
from intaglio.targets.deployment import Deployment
from intaglio.targets.plugins import find_accelerator
from intaglio.targets.target import Target


@dataclass(frozen=True, slots=True)
class Around:
    """C lines by accelerator, and the headers that they need."""

    setup: dict[str, tuple[str, ...]]
    teardown: tuple[str, ...]
    includes: tuple[str, ...]


NOTHING = Around({}, (), ())


def accelerator_of(node_op: object) -> str:
    return node_op.accelerator if isinstance(node_op, Offload) else ""


def accelerators_of(graph: Graph) -> list[str]:
    """Those that the graph uses, in order of first use."""
    return list(dict.fromkeys(name for node in graph.nodes if (name := accelerator_of(node.op))))


def around(program: Program, target: Target) -> Around:
    names = accelerators_of(program.graph)
    if not names:
        return NOTHING
    plugins = [find_accelerator(name) for name in names]
    setup = {p.name: lines for p in plugins if (lines := _lines(p.text("setup", target)))}
    teardown = tuple(line for p in reversed(plugins) for line in _lines(p.text("teardown", target)))
    needing = [p for p in plugins if p.text("setup", target) or p.text("teardown", target)]
    headers = [file for p in needing for file in p.files(target) if file.endswith(".h") and "/" not in file]
    return Around(setup, teardown, tuple(dict.fromkeys(headers)))


def aligned(graph: Graph, target: Target) -> Target:
    """The target, with the alignment that accelerators of the graph want of tensors."""
    wanted = [find_accelerator(name).facts.alignment for name in accelerators_of(graph)]
    return replace(target, alignment=max([target.alignment, *wanted]))


def check_reach(program: Program, deployment: Deployment) -> None:
    """Accelerators that do not see every memory of the board: is all that they need in those that they see?"""
    main = {kind: m.name if (m := deployment.main(kind)) is not None else "" for kind in ("ram", "flash")}
    arenas = {a.region: a.memory or main["ram"] for a in program.arenas} or {ARENA: main["ram"]}
    constants = {c.name: c.memory or main["flash"] for c in program.constants}
    for layer in program.layers:
        if not (name := accelerator_of(layer.node.op)) or (reaches := find_accelerator(name).facts.reaches) is None:
            continue
        values = [a.value for a in layer.arguments if isinstance(a, ValueArg)]
        places = {v.name: arenas.get(at.region, "") for v in values if (at := program.placement.of(v)) is not None}
        places |= {a.name: constants[a.name] for a in layer.arguments if isinstance(a, ConstantArg)}
        for what, memory in places.items():
            if memory and memory not in reaches:
                text = f"{quoted(name)} cannot access the memory `{memory}`, where `{what}` of `{layer.name}` is"
                seen = ", ".join(f"`{m}`" for m in reaches)
                hint = f"it can access {seen}; use these in a `--memory` file, or keep the layer on the core"
                raise UserError("unreached-memory", text, hint=hint)


def _lines(text: str) -> tuple[str, ...]:
    return tuple(f"    {line}".rstrip() for line in dedent(text).strip().splitlines())


def write_accelerators(program: Program, target: Target, source_folder: Path) -> None:
    """Their files, beside ours. Two that have a file of the same name and other contents cannot be in one package."""
    whose: dict[str, str] = {}
    for name in accelerators_of(program.graph):
        for file, text in find_accelerator(name).files(target).items():
            path = source_folder / file
            if path.exists() and path.read_text(encoding="utf-8") != text:
                other = quoted(whose[file]) if file in whose else "the package itself"
                raise ToolError("plugin-garbage", f"the accelerator {quoted(name)} has a file {quoted(file)}, and so has {other}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            whose[file] = name
