"""What passes know of the request, and where their findings go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from intaglio.frontends.reading import Source
from intaglio.ir.choices import Choices
from intaglio.ir.files import write_ir
from intaglio.ir.graph import Graph
from intaglio.ir.text import print_graph
from intaglio.kernels.choice import for_device
from intaglio.options.request import WEIGHT_SCHEMES, Request
from intaglio.package.manifest import PassInfo
from intaglio.package.stream_info import StreamInfo
from intaglio.passes.context import Context, Finding, Skipped
from intaglio.passes.offload import Offloaded
from intaglio.passes.rows_input import Turned
from intaglio.passes.stream import Stream
from intaglio.stages.verifying import Verifier
from intaglio.stages.watch import Watch
from intaglio.targets.deployment import Deployment
from intaglio.targets.plugins import find_accelerator
from intaglio.targets.target import Target


class Changes:
    """What each pass has changed: operators, and the shapes of their results. One that runs again, in a later round, is reported
    again."""

    MOST_LAYERS = 6

    def __init__(self) -> None:
        self.found: list[PassInfo] = []
        self._before: Counter[tuple[str, str, tuple[int, ...]]] | None = None

    def __call__(self, name: str, graph: Graph) -> None:
        now = Counter((node.op.NAME, node.output.name, node.output.shape) for node in graph.nodes)
        before, self._before = self._before, now
        if before is None or (removed := before - now) == (added := now - before):
            return
        gone, new = (dict(sorted(Counter(op for op, _, _ in part).items())) for part in (removed, added))
        layers = tuple(value for _, value, _ in list(added)[: self.MOST_LAYERS])
        self.found.append(PassInfo(name, len(graph.nodes), gone, new, layers))


class Findings:
    """What passes report: notes and regions go to the user at once, the rest is kept for the manifest."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._noted: set[str] = set()
        self.stream: StreamInfo | None = None
        self.turned = False
        self.offloaded: Offloaded | None = None
        self.passes = Changes()
        self.verifier = Verifier()

    def __call__(self, finding: Finding) -> None:
        match finding:
            case str():
                self._note_once(finding)
            case Skipped():
                if self._watch.explain is not None:
                    self._note_once(f"the pass `{finding.name}` is skipped: {finding.reason}")
            case Offloaded():
                self.offloaded = finding
                self._watch.offloaded(finding)
            case Stream():
                self.stream = StreamInfo(finding.axis, finding.hop, finding.window, finding.outputs, bool(finding.goes_on))
            case Turned():
                self.turned = True
            case _:
                assert_never(finding)

    def _note_once(self, text: str) -> None:
        """A pass runs in many rounds, and would say it in each."""
        if text not in self._noted:
            self._watch.note(text)
        self._noted.add(text)


def context_of(request: Request, target: Target, deployment: Deployment, source: Source, findings: Findings) -> Context:
    """What the passes need to know about the request."""
    graph, choices = source.graph, source.choices
    narrow = request.scheme if request.scheme in WEIGHT_SCHEMES else ""
    clock = deployment.board.clock_mhz if deployment.board is not None else None
    return Context(
        target,
        disabled=request.disabled,
        source=source.format,
        narrow=narrow or "",
        output_names=tuple(v.name for v in graph.outputs) if request.scheme is not None else (),
        accelerators=tuple(find_accelerator(name) for name in dict.fromkeys(request.accelerators)),
        accelerator_only=request.accelerator_only,
        clock_mhz=clock or None,
        stream=request.stream,
        feed_rows=request.feed_rows,
        weights_read=deployment.weights_read or graph.weights == "read",
        weights_packed=deployment.weights_packed,
        takes_halves=lambda node, target: for_device(node, target, choices.of(node)) is not None,
        report=findings,
        observe=_Observer((findings.passes, _Dumper(request, choices), *((findings.verifier,) if request.verify else ()))),
    )


@dataclass(frozen=True, slots=True)
class _Observer:
    observers: tuple[Callable[[str, Graph], None], ...]

    def __call__(self, name: str, graph: Graph) -> None:
        for observe in self.observers:
            observe(name, graph)


class _Dumper:
    """Writes one IR file per pass, numbered in order."""

    def __init__(self, request: Request, choices: Choices) -> None:
        self._folder, self._choices = request.dump_ir, choices
        self._count = 0
        self._before = ""

    def __call__(self, name: str, graph: Graph) -> None:
        """Passes run again and again until nothing changes: one that changed nothing leaves no file."""
        self._count += 1
        if self._folder is not None and (text := print_graph(graph, self._choices)) != self._before:
            self._before = text
            write_ir(graph, self._folder / f"{self._count:02d}-{name}.ig", self._choices)
