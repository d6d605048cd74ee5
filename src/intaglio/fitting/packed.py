"""Weights of few values in fewer bits (`--weights packed`, and without asking with `--quantize int4` and `palette`): a byte is the
number of a half word, two weights, in a table; a layer unpacks them to working memory before it runs.

    conv3   36,864 bytes of 15 values       18,432 and a table of 450 that all layers share
    conv1      432 bytes of 255 values      not packed: 30,155 half words

A table has at most 256 half words, so two weights of 16 values each always fit, in whatever order a kernel has them. Layers share a
table where it has room for all of theirs. The arena grows by the weights that are unpacked, or as far as `--ram` lets it: the
largest layers are given up first.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from intaglio.fitting.fast_weights import IN_RAM
from intaglio.fitting.staged import STEP, exchanged
from intaglio.ir.graph import Array
from intaglio.ir.placement import NOWHERE
from intaglio.ir.types import DType
from intaglio.kernels.loop import Kernel
from intaglio.kernels.program import Argument, Constant, ConstantArg, Layer, Program, ScratchArg
from intaglio.kernels.staged import CODES, can_be_staged, unpacked
from intaglio.memory import placed
from intaglio.memory.lifetimes import align
from intaglio.targets.target import Target

MOST_WORDS = 256
LEAST_BYTES = 128
WORD_BYTES = 2
CODE_BYTES = 32  # of a call, and of kernels that no longer share their code


@dataclass(frozen=True, slots=True)
class Found:
    """A layer and its largest constant of bytes: of how many values it is."""

    index: int
    layer: str
    param: int
    constant: str
    bytes: int
    values: int
    why_not: str = ""


@dataclass(slots=True)
class Table:
    words: set[int]
    names: list[str] = field(default_factory=list)  # of the constants that use it


def pack_weights(program: Program, target: Target, room_bytes: int | None, slots: bool) -> tuple[Program, list[Found]]:
    """The program in which layers unpack their weights, in an arena of `room_bytes` at most; and what was found out about each."""
    if len(program.placement.arena_sizes()) > 1:
        return program, []
    constants = {c.name: c for c in program.constants}
    rows = [f for index in range(len(program.layers)) if (f := _found(program, index, constants)) is not None]
    while any(not f.why_not for f in rows):
        tables = _tables(rows, constants)
        used = {name for table in tables for name in table.names}
        rows = [f if f.why_not or f.constant in used else replace(f, why_not="the table would be as large") for f in rows]
        chosen = [f for f in rows if not f.why_not]
        if not chosen:
            break
        made = _with(program, chosen, constants, tables)
        planned = placed(replace(made, placement=NOWHERE), target, slots=slots)
        if room_bytes is None or planned.arena_bytes <= max(room_bytes, program.arena_bytes):
            return planned, rows
        largest = max(chosen, key=lambda f: f.bytes).bytes
        rows = [replace(f, why_not="there is no RAM to unpack them") if not f.why_not and f.bytes == largest else f for f in rows]
    return program, rows


def _found(program: Program, index: int, constants: dict[str, Constant]) -> Found | None:
    layer = program.layers[index]
    held = [
        (constants[a.name].data.nbytes, n, a.name)
        for n, a in enumerate(layer.arguments)
        if isinstance(a, ConstantArg) and layer.kernel.params[n].dtype in (DType.I8, DType.U8)
    ]
    if not held:
        return None
    size, param, name = max(held)
    words, why_not = _words(constants[name].data), ""
    if constants[name].memory == IN_RAM or not can_be_staged(layer.kernel) or program.stripe_at(index) is not None:
        why_not = "several cores compute it, an accelerator does, or it is part of a stripe"
    elif size < LEAST_BYTES:
        why_not = "they are few"
    elif len(np.unique(words)) > MOST_WORDS:
        why_not = "they have too many values"
    elif _users(program, name) != _users_at(program, name, param):
        why_not = "another layer reads them too"
    return Found(index, layer.name, param, name, size, len(np.unique(constants[name].data)), why_not)


def _users(program: Program, name: str) -> int:
    return sum(a == ConstantArg(name) for layer in program.layers for a in layer.arguments)


def _users_at(program: Program, name: str, param: int) -> int:
    """Layers in which it is this parameter of a kernel that can unpack it."""
    return sum(
        len(layer.arguments) > param and layer.arguments[param] == ConstantArg(name) and can_be_staged(layer.kernel)
        for layer in program.layers
    )


def _words(data: Array) -> Array:
    flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return np.pad(flat, (0, -len(flat) % (2 * CODES))).view("<u2")


def _tables(rows: list[Found], constants: dict[str, Constant]) -> list[Table]:
    """Each layer in the table that has room for its half words and the most of them already, if that saves anything."""
    found: list[Table] = []
    for f in sorted((f for f in rows if not f.why_not), key=lambda f: -f.bytes):
        if any(f.constant in table.names for table in found):
            continue
        words = set(np.unique(_words(constants[f.constant].data)).tolist())
        rooms = [t for t in (*found, Table(set())) if len(t.words | words) <= MOST_WORDS]
        best = min(rooms, key=lambda t: len(words - t.words))
        if f.bytes // 2 <= WORD_BYTES * len(words - best.words) + CODE_BYTES:
            continue
        if not best.names:
            found.append(best)
        best.words |= words
        best.names.append(f.constant)
    return found


def _with(program: Program, chosen: list[Found], constants: dict[str, Constant], tables: list[Table]) -> Program:
    made, table_of = dict(constants), {}
    for n, table in enumerate(tables):
        ordered = np.asarray(sorted(table.words), np.uint16)
        words = Constant(f"weight_words_{n}" if n else "weight_words", ordered, DType.U16, about="two weights each")
        made[words.name] = words
        for name in table.names:
            old, codes = constants[name], np.searchsorted(ordered, _words(constants[name].data)).astype(np.uint8)
            about = f"{old.about}, as numbers in {words.name}" if old.about else f"numbers in {words.name}"
            made[name], table_of[name] = replace(old, data=codes, dtype=DType.U8, about=about), words
            words.used_by += [user for user in old.used_by if user not in words.used_by]
    kernels: dict[tuple[int, int], Kernel] = {}
    changed: dict[int, Layer] = {}
    for f in chosen:
        layer = program.layers[f.index]
        key = (id(layer.kernel), len(made[f.constant].data))
        kernel = kernels.setdefault(key, unpacked(layer.kernel, f.param, key[1]))
        scratch = ScratchArg(align(2 * key[1], STEP), align(layer.scratch_bytes, STEP))
        more: tuple[Argument, ...] = (ConstantArg(table_of[f.constant].name), scratch)
        changed[f.index] = replace(layer, kernel=kernel, arguments=(*layer.arguments, *more))
    return replace(exchanged(program, changed), constants=list(made.values()))


def packed_text(rows: list[Found], before: int, after: int) -> str:
    done = [f for f in rows if not f.why_not]
    if not done:
        return "no weights are packed: none has few values, or there is no RAM to unpack them"
    many = f"the weights of {len(done)} of {len(rows)} layers are packed: {before:,} bytes of weights become {after:,}"
    return f"{many}; the largest unpacks {max(f.bytes for f in done):,} bytes"


def packed_line(f: Found) -> str:
    """For `--explain`."""
    about = f"`{f.layer}`: {f.bytes:,} bytes of weights, {f.values} values"
    return f"{about}; {f'not packed: {f.why_not}' if f.why_not else 'packed'}"
