"""What a pass may know beside the graph: the target and what was asked for. Read by passes, changed by none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from intaglio.ir.graph import Graph, Node
from intaglio.targets.target import Target

if TYPE_CHECKING:
    from intaglio.passes.offload import Offloaded
    from intaglio.passes.rows_input import Turned
    from intaglio.passes.stream import Stream
    from intaglio.targets.plugins import Plugin



@dataclass(frozen=True, slots=True)
class Skipped:
    """A pass that needs to know a size; the graph is as correct without it."""

    name: str
    reason: str


# What a pass reports beside the graph; a string is a note for the user.
Finding: TypeAlias = "str | Skipped | Offloaded | Stream | Turned"


def _ignore(finding: Finding) -> None:
    pass


def _unseen(name: str, graph: Graph) -> None:
    pass


def _no_halves(node: Node, target: Target) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Context:
    """`report` takes what a pass finds out; `observe` sees the name of each pass that ran and the graph after it."""

    target: Target
    disabled: frozenset[str] = frozenset()  # names of passes
    source: str = ""  # the format of the model file: onnx, torch, tflite, keras or ir
    narrow: str = ""  # how weights are stored: `weights` (i8), `fp16`, or as they are
    output_names: tuple[str, ...] = ()  # of the float model, for one that was quantised
    accelerators: tuple[Plugin, ...] = ()
    accelerator_only: frozenset[str] = frozenset()  # operators that must go there, and no others
    clock_mhz: float | None = None  # of the board
    stream: int | None = None  # the axis of frames
    feed_rows: bool = False
    weights_read: bool = False  # they are not mapped: each layer's are read into the arena
    weights_packed: bool = False  # those of few values are unpacked into the arena
    takes_halves: Callable[[Node, Target], bool] = _no_halves  # does the device have a kernel for this node in f16?
    report: Callable[[Finding], None] = _ignore
    observe: Callable[[str, Graph], None] = _unseen


__all__ = ["Context", "Finding", "Skipped"]
