"""What a compile reports while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from intaglio.kernels.considered import Explained
    from intaglio.passes.offload import Offloaded
    from intaglio.quantize.settings import Account
    from intaglio.run.accuracy import Labelled


class CostRow(Protocol):
    """One line of `--explain`: a node, its work, and what bounds its time."""

    @property
    def name(self) -> str: ...
    @property
    def op(self) -> str: ...
    @property
    def macs(self) -> int: ...
    @property
    def bytes_moved(self) -> int: ...
    @property
    def estimate_us(self) -> float: ...
    @property
    def measured_us(self) -> float | None: ...
    @property
    def bound(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Watch:
    """Callbacks: stages as they start, notes of the front end, files being compiled, rows of `--explain`,
    the report of a quantisation."""

    stage: Callable[[str], None] = lambda _: None
    note: Callable[[str], None] = lambda _: None
    progress: Callable[[str, int, int], None] | None = None
    explain: Callable[[list[CostRow]], None] | None = None
    chosen: Callable[[list[Explained]], None] | None = None  # the kernel of each layer, and why
    account: Callable[[Account], None] = lambda _: None
    current: Callable[[], None] = lambda: None  # the package is up to date: nothing is done
    accuracy: Callable[[Labelled], None] = lambda _: None  # by the labels of the calibration data
    offloaded: Callable[[Offloaded], None] = lambda _: None
