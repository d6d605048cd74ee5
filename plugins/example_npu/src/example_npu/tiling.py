"""A layer as commands: tiles that fit the scratchpad, everything twice, so that DMA loads the next tile while the array works.

    load weights 0, load input 0
    load input 1  |  conv 0           DMA  |  array
    load input 2  |  conv 1
    store 0       |  ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from example_npu.hardware import (
    ADD,
    BANK_BYTES,
    CONSTANTS,
    CONV,
    DEPTHWISE,
    FIRST,
    LANES,
    LOAD,
    OUTPUT,
    PARAMETER_BYTES,
    SCRATCHPAD_BYTES,
    SECOND,
    STORE,
    Block,
    Command,
    fill,
    packed,
    schedule,
    transfer,
)
from example_npu.layers import Layer, repacked


@dataclass(frozen=True, slots=True)
class Tile:
    rows: int
    columns: int
    outputs: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}x{self.outputs}"


@dataclass(frozen=True, slots=True)
class Job:
    """What the NPU gets: commands, constants; and how long it takes."""

    tile: Tile
    commands: tuple[Command, ...]
    constants: npt.NDArray[np.uint8]
    cycles: int

    @property
    def moved_bytes(self) -> int:
        return sum(c.moved_bytes for c in self.commands)

    @property
    def array_cycles(self) -> int:
        return sum(c.cycles for c in self.commands if c.on_array)


def best_job(layer: Layer) -> Job:
    """The fastest of the tiles that fit, by a quick estimate; the list of that one is timed exactly."""
    tiles = sorted(_tiles(layer), key=lambda tile: _estimate(layer, tile))
    jobs = [_job(layer, tile) for tile in tiles[:3]]
    return min(jobs, key=lambda job: job.cycles)


def _tiles(layer: Layer) -> Iterator[Tile]:
    for outputs in _steps(layer.outputs, LANES):
        for columns in _steps(layer.out_columns, 1):
            for rows in _steps(layer.out_rows, 1):
                if _pads(layer, Tile(rows, columns, outputs)) is not None:
                    yield Tile(rows, columns, outputs)


def _steps(size: int, least: int) -> list[int]:
    """`size`, its half and so on, each a multiple of `least` where it is not all."""
    found = [size]
    while found[-1] > least:
        half = -(-found[-1] // 2)
        step = -(-half // least) * least
        if step >= found[-1]:
            break
        found.append(step)
    return found


@dataclass(frozen=True, slots=True)
class Pads:
    """Where things are in the scratchpad; two of each, for the tile now and the next."""

    inputs: tuple[int, int]
    weights: tuple[int, int]
    outputs: tuple[int, int]
    added: tuple[int, int]


def _channels(layer: Layer, tile: Tile) -> int:
    """Of the input, that a tile needs."""
    return tile.outputs if layer.depthwise else layer.channels


def _pads(layer: Layer, tile: Tile) -> Pads | None:
    given = layer.input_rows(tile.rows) * layer.input_columns(tile.columns) * _channels(layer, tile)
    made = tile.rows * tile.columns * tile.outputs
    sizes = [given, layer.weight_bytes(tile.outputs), made, made if layer.add else 0]
    at, places = 0, []
    for size in sizes:
        room = -(-size // BANK_BYTES) * BANK_BYTES
        places.append((at, at + room))
        at += 2 * room
    return Pads(*places) if at <= SCRATCHPAD_BYTES else None


def _estimate(layer: Layer, tile: Tile) -> float:
    """Array and DMA at the same time, and what each command costs by itself."""
    spatial = -(-layer.out_rows // tile.rows) * -(-layer.out_columns // tile.columns)
    groups = -(-layer.outputs // tile.outputs)
    pixels = layer.out_rows * layer.out_columns
    blocks = -(-tile.outputs // LANES)
    taps = layer.kernel[0] * layer.kernel[1]
    per_pixel = blocks * (-(-taps // 4) if layer.depthwise else taps * -(-layer.channels // LANES))
    array = groups * (pixels * per_pixel + 12 * spatial)
    rows, columns = layer.input_rows(tile.rows), layer.input_columns(tile.columns)
    runs = rows if _channels(layer, tile) == layer.channels else rows * columns
    size = rows * columns * _channels(layer, tile)
    loads = groups * spatial if spatial > 1 or layer.depthwise else 1
    dma = loads * (24 + runs + size / 8) + groups * (48 + layer.weight_bytes(tile.outputs) / 8)
    stores = tile.rows if tile.outputs == layer.outputs else tile.rows * tile.columns
    dma += groups * spatial * (24 + stores + tile.rows * tile.columns * tile.outputs / 8) * (2 if layer.add else 1)
    return max(array, dma) + min(array, dma) / max(1, groups * spatial)


def _job(layer: Layer, tile: Tile) -> Job:
    pads = _pads(layer, tile)
    assert pads is not None
    commands: list[Command] = []
    stores: list[Command] = []  # of the tile before: stored after the next one's loads, so that these do not wait for it
    constants: list[npt.NDArray[np.uint8]] = []
    offset = turn = loaded = 0
    last_input = None
    for group, first in enumerate(range(0, layer.outputs, tile.outputs)):
        outputs = min(tile.outputs, layer.outputs - first)
        blob = repacked(layer, first, outputs)
        weights = pads.weights[group % 2]
        constants.append(blob)
        commands.append(transfer(LOAD, CONSTANTS, offset, weights, Block(len(blob))))
        offset += len(blob)
        for top in range(0, layer.out_rows, tile.rows):
            for left in range(0, layer.out_columns, tile.columns):
                rows, columns = min(tile.rows, layer.out_rows - top), min(tile.columns, layer.out_columns - left)
                part = Part(top, left, rows, columns, first, outputs)
                key = (top, left, first if layer.depthwise else 0)
                if key != last_input:
                    loaded += 1
                    commands += _load(layer, part, pads.inputs[loaded % 2])
                    last_input = key
                commands += _compute(layer, part, pads, pads.inputs[loaded % 2], weights, len(blob), turn)
                commands += stores
                result = pads.added if layer.add else pads.outputs
                stores = [_outside(STORE, OUTPUT, layer, part, result[turn % 2])]
                turn += 1
    commands += stores
    return Job(tile, tuple(commands), np.concatenate(constants), schedule(commands))


@dataclass(frozen=True, slots=True)
class Part:
    """One tile of the output."""

    top: int
    left: int
    rows: int
    columns: int
    first: int
    outputs: int


def _load(layer: Layer, part: Part, pad: int) -> list[Command]:
    """The input of a part; what lies outside of the image is the zero point."""
    rows, columns = layer.input_rows(part.rows), layer.input_columns(part.columns)
    channels = part.outputs if layer.depthwise else layer.channels
    top, left = part.top * layer.strides[0] - layer.pads[0], part.left * layer.strides[1] - layer.pads[1]
    above, before = max(0, -top), max(0, -left)
    below, after = max(0, top + rows - layer.rows), max(0, left + columns - layer.columns)
    inner_rows, inner_columns = rows - above - below, columns - before - after
    commands = []
    if inner_rows < rows or inner_columns < columns:
        commands.append(fill(pad, rows * columns * channels, layer.zeros[0]))
    if inner_rows <= 0 or inner_columns <= 0:
        return commands
    start = ((top + above) * layer.columns + left + before) * layer.channels + (part.first if layer.depthwise else 0)
    at = pad + (above * columns + before) * channels
    row_bytes, pitch = layer.columns * layer.channels, columns * channels
    block = Block(inner_columns * channels, inner_rows, row_bytes, pitch)
    if channels != layer.channels:
        block = Block(channels, inner_columns, layer.channels, channels, inner_rows, row_bytes, pitch)
    return [*commands, transfer(LOAD, FIRST, start, at, block)]


def _outside(kind: int, base: int, layer: Layer, part: Part, pad: int) -> Command:
    """A part of the output (or of what is added to it) in memory."""
    start = (part.top * layer.out_columns + part.left) * layer.outputs + part.first
    row_bytes, pitch = layer.out_columns * layer.outputs, part.columns * part.outputs
    block = Block(pitch, part.rows, row_bytes, pitch)
    if part.outputs != layer.outputs:
        block = Block(part.outputs, part.columns, layer.outputs, part.outputs, part.rows, row_bytes, pitch)
    return transfer(kind, base, start, pad, block)


def _compute(layer: Layer, part: Part, pads: Pads, given: int, weights: int, blob: int, turn: int) -> list[Command]:
    columns = layer.input_columns(part.columns)
    channels = part.outputs if layer.depthwise else layer.channels
    blocks = -(-part.outputs // LANES)
    parameters = weights + blob - blocks * PARAMETER_BYTES
    made = pads.outputs[turn % 2]
    kh, kw = layer.kernel
    words = (
        DEPTHWISE if layer.depthwise else CONV, given, weights, parameters, made, columns * channels, channels, part.outputs,
        part.rows, part.columns, packed(kh, kw, *layer.strides), packed(*layer.dilations, layer.mode),
        packed(*layer.zeros, *layer.limits),
    )  # fmt: skip
    size = part.rows * part.columns * part.outputs
    read = layer.input_rows(part.rows) * columns * channels
    taps = kh * kw
    cycles = 12 + part.rows * part.columns * blocks * (-(-taps // 4) if layer.depthwise else taps * -(-channels // LANES))
    reads = ((given, read), (weights, blocks * taps * layer.depth * LANES), (parameters, blocks * PARAMETER_BYTES))
    commands = [Command(words, reads, ((made, size),), cycles)]
    if (op := layer.add) is not None:
        other = pads.added[turn % 2]
        commands.insert(0, _outside(LOAD, SECOND, layer, part, other))
        first, second = (made, other) if layer.add_first else (other, made)
        sum_words = (
            ADD, first, second, other, size, op.a_multiplier, op.b_multiplier, op.multiplier,
            packed(op.a_shift, op.b_shift, op.shift), packed(op.lift, int(op.subtract)), packed(op.a_zero, op.b_zero, op.y_zero),
            packed(op.low, op.high),
        )  # fmt: skip
        commands.append(Command(sum_words, ((made, size), (other, size)), ((other, size),), 8 + -(-size // LANES)))
    return commands
