"""What is known of a package: plain values, which the page, the comparison and JSON show alike.

Every figure says where it comes from. `measured`: on this machine or on a board, or read from the built binary; `emulated`: counted
on an emulated core, exact; `estimated`: by a model of the core; `computed`: it follows from the graph and the memory plan.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MEASURED, EMULATED, ESTIMATED, COMPUTED = "measured", "emulated", "estimated", "computed"


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of the whole package. `key` is its name in budgets and comparisons; less is better, but for accuracy."""

    key: str
    label: str
    value: float
    unit: str
    source: str


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of RAM or flash."""

    name: str
    bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class Block:
    """A buffer in the arena, from the layer that writes it to the last that reads it. `layer`: whose it is, -1: an input's."""

    value: str
    region: str
    offset: int
    bytes: int
    first: int
    last: int
    layer: int
    kind: str  # value, scratch, weights or input


@dataclass(frozen=True, slots=True)
class Region:
    """An arena. `live`: bytes of the buffers that are alive in each layer. `bound`: no plan of these buffers is smaller."""

    name: str
    bytes: int
    bound: int
    live: tuple[int, ...]
    peak: int  # the layer with most of it


@dataclass(frozen=True, slots=True)
class Refused:
    """A kernel that was considered and not used."""

    kernel: str
    reason: str


@dataclass(frozen=True, slots=True)
class LayerFacts:
    index: int
    name: str
    label: str  # without what all names have in common
    op: str
    source: str
    kernel: str
    function: str
    why: str
    refused: tuple[Refused, ...]
    result: str  # type and shape
    macs: int
    time: float | None  # in microseconds
    cycles: int | None
    instructions: int | None
    weight_bytes: int
    result_bytes: int
    live_bytes: int
    error: float | None  # the largest difference from the reference, as a share of the largest value; integers: in steps
    cosine: float | None
    whole: bool  # integers
    accelerator: str
    parts: int


@dataclass(frozen=True, slots=True)
class Between:
    """What a run spends outside of its layers: microseconds, or cycles where layers have no time."""

    name: str
    cost: float


@dataclass(frozen=True, slots=True)
class GraphNode:
    """`layer` is -1 for inputs, outputs and what has no kernel: views."""

    label: str
    op: str
    layer: int
    x: float
    y: int


@dataclass(frozen=True, slots=True)
class Numerics:
    ok: bool
    reference: str
    rule: str
    samples: int
    random: bool
    outputs: tuple[dict[str, object], ...]
    first_bad: str | None
    no_layers: str
    against_float: tuple[dict[str, object], ...] = ()  # of a package that was quantised: how far it is from the float model


@dataclass(frozen=True, slots=True)
class Advice:
    """`gain` in words; `flag` is what to add to the command."""

    text: str
    flag: str
    gain: str
    source: str


@dataclass(frozen=True, slots=True)
class Snippet:
    title: str
    language: str
    text: str


@dataclass(frozen=True, slots=True)
class Roof:
    """What the target can do at best: multiply-adds and bytes in a `unit`, `us` or `cycle`. `words`: where that comes from.
    `flash`: bytes that flash gives. `least`: the shortest time of a layer that has a place under it."""

    macs: float
    bytes: float
    unit: str
    words: str
    source: str
    flash: float | None = None
    least: float = 0.0


@dataclass(frozen=True, slots=True)
class Facts:
    name: str
    target: str
    about: str
    board: str
    intaglio: str
    model: str
    sha256: str
    options: dict[str, str]
    tools: dict[str, str]
    command: str
    figures: tuple[Figure, ...]
    ram: tuple[Part, ...]
    flash: tuple[Part, ...]
    ram_limit: int | None
    flash_limit: int | None
    regions: tuple[Region, ...]
    blocks: tuple[Block, ...]
    layers: tuple[LayerFacts, ...]
    nodes: tuple[GraphNode, ...]
    edges: tuple[tuple[int, int], ...]
    passes: tuple[dict[str, object], ...]
    numerics: Numerics | None
    quantization: dict[str, object] | None
    accelerators: dict[str, object] | None
    roof: Roof | None
    advice: tuple[Advice, ...]
    snippets: tuple[Snippet, ...]
    time_source: str  # of the layers
    between: tuple[Between, ...] = ()
    notes: tuple[str, ...] = field(default=())  # why something is missing

    def figure(self, key: str) -> Figure | None:
        return next((f for f in self.figures if f.key == key), None)


__all__ = [
    "COMPUTED", "EMULATED", "ESTIMATED", "MEASURED", "Advice", "Between", "Block", "Facts", "Figure", "GraphNode", "LayerFacts",
    "Numerics", "Part", "Refused", "Region", "Roof", "Snippet",
]  # fmt: skip
