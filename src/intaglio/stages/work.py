"""What a stage takes and returns: the model on its way. Each stage adds its part; what came before stays as it is."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from intaglio.fitting.budget import RESERVE_BYTES, Climbed
from intaglio.frontends.reading import Source
from intaglio.ir.graph import Graph
from intaglio.kernels.lower import Memo
from intaglio.kernels.program import Program
from intaglio.memory.plan_file import PlanFile
from intaglio.options.request import STAGES, Request, stage_index
from intaglio.package.manifest import Manifest
from intaglio.package.write import InCommon
from intaglio.passes import Context
from intaglio.quantize.settings import Account
from intaglio.run.build import Objects
from intaglio.run.toolchains import Toolchain
from intaglio.stages.context import Findings
from intaglio.stages.tasks import Tasks
from intaglio.stages.watch import Watch
from intaglio.targets.deployment import Deployment
from intaglio.targets.target import Target
from intaglio.targets.variants import Variant

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Model:
    """The graph, and what it is compiled for. `done`: the stage that the file was written after."""

    source: Source
    graph: Graph
    target: Target
    deployment: Deployment
    context: Context
    findings: Findings
    done: str
    account: Account | None = None  # of its quantisation

    def is_past(self, stage: str) -> bool:
        return stage_index(self.done) >= stage_index(stage)


@dataclass(frozen=True, slots=True)
class Written:
    """The package in a folder that becomes the output when it is complete."""

    folder: Path
    manifest: Manifest
    toolchain: Toolchain | None
    objects: Objects | None = None  # being compiled already
    tasks: Tasks | None = None  # that still write into it


@dataclass(frozen=True, slots=True)
class Work:
    """`reserve`: RAM for stack and variables, before they are known; without `climbing`, no limit makes layers slower; without
    `checking`, what is too large for its device is built all the same."""

    request: Request
    watch: Watch
    reserve: int = RESERVE_BYTES
    climbing: bool = True
    checking: bool = True
    pinned: PlanFile | None = None  # buffers whose place the user chose
    model: Model | None = None
    program: Program | None = None
    memo: Memo | None = None  # kernels that were built for it
    tuned: str = ""  # for how many layers which database has chosen the kernel
    stack: ExitStack = field(default_factory=ExitStack)  # closed when all stages have gone well, or one has not
    planned: Climbed | None = None  # with the rungs of the ladder that were needed to stay within a limit
    written: Written | None = None
    variant: Variant | None = None  # what this is, where a package has several
    others: tuple[Work, ...] = ()  # best first
    shared: InCommon | None = None  # what it has in common with other entry points

    def wants(self, stage: str) -> bool:
        """Is this stage still to be done? An IR file may be there already."""
        last = stage_index(self.request.stop_after)
        there = self.model is not None and last < stage_index("memory") and self.model.is_past(STAGES[last])
        return stage_index(stage) <= last and (stage == "import" or not there)

    def of_variants(self) -> tuple[Work, ...]:
        """Best first; this one, which every processor has to run, last."""
        return (*self.others, self)


def need(part: T | None) -> T:
    """A part that an earlier stage has added."""
    assert part is not None
    return part
