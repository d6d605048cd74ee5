"""What options that a package does not use would gain: its model is planned again with each of them.

    --ram N        layers a few rows at a time: the least arena that stripes reach, and their extra instructions
    --feed-rows    the same, with rows of the input one by one
    --stream AXIS  one frame at a time: the first axis along which the arena becomes smaller
    --quantize     int8, with ranges of random inputs, which do not matter for sizes

Sizes of arena and weights are those that a compile would have. Code and stack are not planned, so they are left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from intaglio.errors import IntaglioError
from intaglio.fitting.fit import needs_of_program
from intaglio.fitting.limits import has_floats
from intaglio.options import kinds
from intaglio.options.reading import read_words
from intaglio.options.request import OPTIONS, Option, Request
from intaglio.package.manifest import Manifest
from intaglio.pipeline import Planned, least_rungs, plan_request
from intaglio.report.recorded import recorded_words
from intaglio.stages.watch import Watch
from intaglio.targets.board import all_boards
from intaglio.targets.target import Target

MOST_MACS = 100_000_000  # above, planning takes longer than a page is worth
ELSEWHERE = frozenset(["memory", "plan", "template"])  # files that are not in the package
BESIDE = frozenset(["calibrate", "labels", "max_error", "board"])  # of no consequence for sizes, or read apart


@dataclass(frozen=True, slots=True)
class Gain:
    """`flag` changes the arena and the weights by so many bytes; `slower`: the share of instructions that it costs, 0 if none."""

    flag: str
    arena_bytes: int
    weight_bytes: int = 0
    slower: float = 0.0


def gains_of(folder: Path, manifest: Manifest, target: Target) -> tuple[Gain, ...] | None:
    """None: not known here, without the model or for one that is too large."""
    source = manifest.model.source
    macs = sum(layer.macs for layer in manifest.layers)
    if source is None or not (folder / source).is_file() or macs > MOST_MACS or ELSEWHERE & manifest.options.keys():
        return None
    if target.device or manifest.variants:
        return None
    try:
        request = _request(folder / source, manifest)
        return tuple(_all(request, plan_request(request, Watch(), climbing=False), manifest))
    except IntaglioError:
        return None


def _request(model: Path, manifest: Manifest) -> Request:
    """That of the package, without limits."""
    values: dict[str, object] = {}
    for option in OPTIONS:
        words = recorded_words(option, manifest.options)
        if words and option.word and option.name not in BESIDE:
            values[option.name] = _value(option, words)
    board = manifest.options.get("board")
    values |= {"board": board} if board in all_boards() else {"target": manifest.target}
    plain = replace(Request(model, Path()), **values)  # type: ignore[arg-type]
    return replace(plain, ram=None, flash=None, name=manifest.name)


def _value(option: Option, words: list[str]) -> object:
    """As the command line reads it."""
    if option.kind is kinds.FLAG:
        return True
    return option.kind.command(words[0]) if option.kind.read is None else read_words(option, words)


def _all(request: Request, now: Planned, manifest: Manifest) -> Iterator[Gain]:
    program, target, arena = now.program, now.target, manifest.memory.arena_bytes
    alone = target.bare and not request.feed_rows and not request.accelerators
    if alone:
        for rung in least_rungs(request):
            flag = "--feed-rows" if rung.fed else "--ram"
            yield Gain(flag, arena - rung.arena_bytes, slower=rung.cost_ratio - 1)
    if alone and request.stream is None and len(program.graph.inputs) == 1 and not program.graph.states:
        for axis in range(1, program.graph.inputs[0].type.rank):
            made = _tried(replace(request, stream=axis))
            if made is not None and made.program.arena_bytes < arena:
                yield Gain(f"--stream {axis}", arena - made.program.arena_bytes)
                break
    if request.scheme is None and has_floats(program.graph) and (made := _tried(replace(request, quantize="int8"))) is not None:
        yield Gain("--quantize int8", arena - made.program.arena_bytes, manifest.memory.weight_bytes - _weights(made))


def _weights(planned: Planned) -> int:
    return needs_of_program(planned.program, planned.deployment).weights


def _tried(request: Request) -> Planned | None:
    """None where it cannot be done."""
    try:
        return plan_request(request, Watch(), climbing=False)
    except IntaglioError:
        return None


__all__ = ["Gain", "gains_of"]
