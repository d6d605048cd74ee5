"""The section `[fleet]` of a project file: models, variants and places that `intaglio fleet` crosses into jobs.

    [fleet]
    models = ["kws-*"]                  names or patterns; default: all models of the file
    boards = ["nucleo-*", "esp32-c3"]   names or patterns of boards; paths of board files; "!nucleo-n6*" leaves boards out
    targets = ["host"]                  places without a board
    jobs = ["fit", "compile", "validate", "profile"]        default: fit on boards, compile elsewhere
    quick = true                        fit: estimate code, stack and time; build and emulate nothing
    store = "fleet"                     results; default: build/fleet
    retries = 2                         of a job whose process crashed or hung
    timeout = 900                       seconds of one job
    budget = { ram = "64K" }            optional, of every result

    [fleet.variants.int8]               optional: each model is taken with each of these options
    quantize = "int8"

    [fleet.cluster.slurm]               optional: what `--cluster slurm` hands to dask-jobqueue, and `workers`
    queue = "short"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from intaglio.options.request import Request
from intaglio.targets.board import all_boards, find_board

CLUSTERS = ("local", "slurm", "ssh", "kubernetes")
JOBS = ("fit", "compile", "validate", "profile")
OF_FLEET = ("models", "boards", "targets", "jobs", "quick", "store", "retries", "timeout", "budget", "variants", "cluster")


@dataclass(frozen=True, slots=True)
class Cell:
    """A model with a variant's options for one place; `board`: the place is one."""

    model: str
    variant: str
    place: str
    board: bool
    request: Request
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class FleetPlan:
    cells: tuple[Cell, ...]
    jobs: tuple[str, ...]
    quick: bool
    store: Path
    retries: int
    timeout_s: float
    budget: tuple[tuple[str, float], ...]
    clusters: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


def matching(wanted: Sequence[str], known: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names by patterns, in the order of `known`; and patterns that match nothing. `!PATTERN` leaves names out."""
    inside = [pattern for pattern in wanted if not pattern.startswith("!")]
    out = [pattern[1:] for pattern in wanted if pattern.startswith("!")]
    lost = [pattern for pattern in wanted if not any(fnmatchcase(name, pattern.removeprefix("!")) for name in known)]
    found = [name for name in known if any(fnmatchcase(name, one) for one in inside)]
    return [name for name in found if not any(fnmatchcase(name, one) for one in out)], lost


def boards_of(wanted: Sequence[str], root: Path) -> tuple[list[str], list[str]]:
    """Names of known boards, then files; and what is neither."""
    found, lost = matching(wanted, list(all_boards()))
    files = [str(root / name) for name in lost if name.endswith(".toml") and (root / name).is_file()]
    for path in files:
        find_board(path)  # an error names what is wrong with it
    return [*found, *files], [name for name in lost if str(root / name) not in files]


def place_name(place: str) -> str:
    """Of a board or target in results; a board file is called as it is."""
    return Path(place).stem if place.endswith(".toml") else place


__all__ = ["CLUSTERS", "JOBS", "OF_FLEET", "Cell", "FleetPlan", "boards_of", "matching", "place_name"]
