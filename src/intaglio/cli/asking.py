"""`intaglio check`, `view`, `targets`, `boards`, `ops`, `passes`, `template list`: questions that build nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from intaglio.cli.terminal import PAGE, bytes_text, note, print_json, print_table
from intaglio.errors import UserError, counted, quoted
from intaglio.frontends.bundle import opened
from intaglio.frontends.reading import chosen, front_end, kind_of, read_source, signatures
from intaglio.targets.memories import HOLDS, Memory

if TYPE_CHECKING:
    from intaglio.frontends.onnx.faults import Problem
    from intaglio.ir.graph import Node
    from intaglio.passes import Pass
    from intaglio.targets.target import Target


def check_model(path: Path, options: Mapping[str, object], json: bool) -> int:
    """0 when all of it is supported, 1 when not."""
    from intaglio.frontends.onnx import survey
    from intaglio.options.reading import request_of_words
    from intaglio.passes import Context, optimise
    from intaglio.targets.target import find_target

    request = request_of_words(Path(), Path(), options)
    wanted, dims, shapes = find_target(request.target or "host"), dict(request.dims), dict(request.shapes)
    problems: list[Problem] = []
    nodes: list[Node] = []
    keys: list[str | None] = [request.signature]
    if request.signature is None:
        keys = [*signatures(path)] or keys
    for given in keys:
        model, key = opened(path, given)
        kind = kind_of(model)
        found: list[Problem] = []
        if kind == "onnx":
            found, nodes = survey(model, dims=dims, shapes=shapes, most=request.most, lengths=request.lengths)
        elif kind != "ir":
            found = front_end(kind).check(model, dims=dims, shapes=shapes, **chosen(kind, key, request.most))
        if not found:  # the whole of it: what the passes make needs kernels too
            source = read_source(
                model, dims, shapes, None, {}, lambda text: note(f"note: {text}"), None, request.most, request.lengths,
                signature=key,
            )  # fmt: skip
            nodes = optimise(source.graph, Context(wanted)).nodes
        problems += [*found, *_without_kernels(nodes, wanted)]
    if json:
        rows = [{"node": p.node, "op": p.op, "reason": p.reason, "hint": p.hint} for p in problems]
        print_json({"supported": not problems, "problems": rows})
        return 1 if problems else 0
    if not problems:
        print(f"{path.name}: everything is supported on {wanted.name}")
        return 0
    for p in problems:
        print(f"{quoted(p.op)} in node {quoted(p.node)}: {p.reason}")
        if p.hint:
            print(f"    hint: {p.hint}")
    print(f"{counted(len(problems), 'problem')}")
    return 1


def _without_kernels(nodes: list[Node], target: Target) -> list[Problem]:
    from intaglio.frontends.onnx.faults import Problem
    from intaglio.kernels.choice import missing_kernels

    hint = "use another target (`intaglio targets`), or other operators when you export the model"
    missing = missing_kernels(nodes, target)
    return [Problem(n.source or n.output.name, n.op.NAME, e.message, hint, e.slug) for n, e in missing]


def view_model(path: Path, output: Path | None, json: bool) -> None:
    from intaglio.ir.view import export_onnx
    from intaglio.package.folder import check_kind, fresh_file

    source = read_source(path, {}, {}, None, {}, lambda text: note(f"note: {text}"))
    target = output or path.with_name(f"{path.stem}.view.onnx" if path.suffix == ".onnx" else f"{path.stem}.onnx")
    if target.resolve() == path.resolve():
        raise UserError("output-exists", f"{quoted(str(target), 200)} is the input itself", hint="give another file with `-o`")
    if target.is_dir():
        raise UserError("cannot-write", f"{quoted(str(target), 200)} is a folder", hint="give a file with `-o`")
    check_kind(target, "a view that Intaglio wrote", (b"\x12\x08intaglio",), within=16)  # by the name of its producer
    with fresh_file(target) as fresh:
        export_onnx(source.graph, fresh, source.choices, source.placement)
    print_json({"onnx": str(target)}) if json else note(f"wrote {target}: open it with Netron")


def list_targets(json: bool) -> None:
    from intaglio.targets.target import all_targets, find_target, host_target

    here = host_target().name
    cores = all_targets().values()
    devices = [find_target(name) for name in ("opencl", *(f"opencl-{t.name}" for t in cores if not (t.bare or t.wasm)))]
    if json:
        print_json({"host": here, "targets": [asdict(t) for t in (*cores, *devices)]})
        return
    rows = [[t.name, t.isa, t.interface, t.description + (" (this machine)" if t.name == here else "")] for t in cores]
    rows += [["opencl", "", "opencl", "an OpenCL 1.2 device with the processor of this machine"]]
    rows += [[t.name, t.isa, t.interface, "an OpenCL 1.2 device with that processor"] for t in devices[1:]]
    print_table(["target", "vectors", "interface", "description"], rows)


def list_boards(json: bool) -> None:
    from intaglio.targets.board import all_boards

    boards = all_boards().values()
    if json:
        print_json({"boards": [{**asdict(b), "ram_bytes": b.ram_bytes, "flash_bytes": b.flash_bytes} for b in boards]})
        return
    rows = [[b.name, b.core, f"{b.clock_mhz:g}", _kb(b.flash_bytes), _kb(b.ram_bytes), _chip(b.description)] for b in boards]
    print_table(["board", "core", ">MHz", ">flash", ">RAM", "chip; sizes in KB"], rows)
    several = [b for b in boards if len(b.memories) > 2]
    if several:
        print()
        print_table(
            ["boards with more", "memory", ">address", ">size", ">B/cycle", "holds"],
            [_memory_row(b.name if n == 0 else "", m) for b in several for n, m in enumerate(b.memories)],
        )


def _kb(size: int) -> str:
    return f"{size >> 10:,}"


def _chip(description: str) -> str:
    """`ST NUCLEO-F103RB (STM32F103RB)`: the name of the board is there already."""
    inside = description.removesuffix(")").partition(" (")[2]
    return inside or description


def _memory_row(board: str, memory: Memory) -> list[str]:
    holds = ", ".join(memory.holds or HOLDS[memory.kind])
    return [
        board, memory.name, f"{memory.address:#010x}", bytes_text(memory.bytes), f"{memory.bytes_per_cycle:g}", holds,
    ]  # fmt: skip


def list_ops(json: bool) -> None:
    from intaglio.cli.operators import ir_operators, onnx_operators, tflite_operators, torch_operators

    onnx_names, tflite_names, torch_names, fields = onnx_operators(), tflite_operators(), torch_operators(), ir_operators()
    if json:
        print_json({"onnx": onnx_names, "tflite": tflite_names, "torch": torch_names, "ir": list(fields), "ir_fields": fields})
        return
    with_fields = [name for op, own in fields.items() for name in _wrapped(op, own)]
    for title, names in (
        ("ONNX operators", onnx_names), ("TFLite operators", tflite_names), ("PyTorch operators", torch_names),
        ("IR operators and their fields", with_fields),
    ):  # fmt: skip
        print(f"{title} ({len(names)}):")
        line = " "
        for name in names:
            if len(line) + len(name) + 1 > PAGE:
                print(line)
                line = " "
            line += f" {name}"
        print(line)


def _wrapped(op: str, fields: list[str]) -> list[str]:
    """`conv(strides, ...)` in pieces that fit a line."""
    if not fields:
        return [op]
    pieces, line = [], f"{op}("
    for n, name in enumerate(fields):
        word = f"{name})" if n == len(fields) - 1 else f"{name},"
        if len(line) + len(word) > PAGE - 8:
            pieces.append(line)
            line = ""
        line += word
    return [*pieces, line]


def list_passes(json: bool) -> None:
    from intaglio.passes import PASSES

    if json:
        rows = [{"name": p.name, "summary": p.summary, "when": p.when.words, "required": p.required} for p in PASSES]
        print_json({"passes": rows})
        return
    print_table(["pass", "what it does, and for which models if not for all"], [[p.name, _told(p)] for p in PASSES])


def _told(step: Pass) -> str:
    conditions = [*([step.when.words] if step.when.words else []), *(["required"] if step.required else [])]
    return f"{step.summary} ({'; '.join(conditions)})" if conditions else step.summary


def list_templates(json: bool) -> None:
    from intaglio.package.template import template_names

    if json:
        print_json({"templates": template_names()})
        return
    for name in template_names():
        print(name)
