"""Figures of boards, kept in a file: `profile --serial PORT --save runs.json`, `report --measured runs.json`.

One run for each board and build; a later one replaces it. There is no date and no port in it: the same figures give the same bytes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from intaglio.errors import UserError, quoted
from intaglio.package.folder import write_text
from intaglio.package.manifest import Manifest
from intaglio.run.timing import Profile

FORMAT = 1
MEASURED, ESTIMATED = "measured", "estimated"


@dataclass(frozen=True, slots=True)
class LayerRun:
    name: str
    cycles: int


@dataclass(frozen=True, slots=True)
class BoardRun:
    """`build`: digest of the package, as in its manifest. `layers` are none where the firmware has no hook."""

    board: str
    name: str
    build: str
    target: str
    source: str  # measured, or estimated by an emulator behind the line
    clock_mhz: float | None
    runs: int
    cycles: int
    layers: tuple[LayerRun, ...]


def run_of(manifest: Manifest, profile: Profile, label: str | None) -> BoardRun:
    """What `profile` found on a board."""
    board, cycles = profile.serial, profile.total.cycles
    if board is None or cycles is None:
        what = "the board told no cycles: there is nothing to keep"
        raise UserError("no-cycles", what, hint=f"a core without a counter needs a `{manifest.name}_cycles` of yours")
    layers = tuple(LayerRun(layer.name, layer.cycles) for layer in profile.layers if layer.cycles is not None)
    source = ESTIMATED if board.cycles_are_estimated else MEASURED
    name = label or board.board or manifest.target
    return BoardRun(name, manifest.name, manifest.build, manifest.target, source, board.clock_mhz, board.runs, cycles, layers)


def save_run(path: Path, run: BoardRun) -> int:
    """Returns how many the file has now."""
    others = [r for r in (read_runs(path) if path.exists() else ()) if (r.board, r.build) != (run.board, run.build)]
    rows = sorted([*others, run], key=lambda r: (r.name, r.build, r.board))
    write_text(path, json.dumps({"format": FORMAT, "runs": [asdict(row) for row in rows]}, indent=1) + "\n")
    return len(rows)


def read_runs(path: Path) -> tuple[BoardRun, ...]:
    shown = quoted(str(path), 200)
    hint = "`intaglio profile DIR --serial PORT --save FILE` writes one"
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        if table["format"] != FORMAT:
            raise ValueError(f"format {table['format']!r}")
        return tuple(_run(row) for row in table["runs"])
    except OSError as error:
        raise UserError("bad-runs", f"cannot read the runs {shown}: {error.strerror}", hint=hint) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UserError("bad-runs", f"{shown} is not a file of runs", hint=hint) from None


def _run(row: dict[str, object]) -> BoardRun:
    layers = row["layers"]
    if not isinstance(layers, list):
        raise ValueError("layers")
    made = BoardRun(**{**row, "layers": tuple(LayerRun(**layer) for layer in layers)})  # type: ignore[arg-type]  # checked below
    texts = (made.board, made.name, made.build, made.target, *(layer.name for layer in made.layers))
    whole = (made.cycles, made.runs, *(layer.cycles for layer in made.layers))
    clock = made.clock_mhz
    if not all(isinstance(text, str) for text in texts) or made.source not in (MEASURED, ESTIMATED):
        raise ValueError("texts")
    if not all(type(n) is int and n >= 0 for n in whole) or not (clock is None or (isinstance(clock, int | float) and clock > 0)):
        raise ValueError("numbers")
    return made


def runs_of(path: Path, manifest: Manifest) -> tuple[BoardRun, ...]:
    """Those of this build: that of its own board first."""
    runs = read_runs(path)
    names = [layer.name for layer in manifest.layers]
    own = [r for r in runs if r.build == manifest.build and r.build]
    if not own:
        has = ", ".join(dict.fromkeys(f"{quoted(r.name)} {r.build[:12]} on {quoted(r.board)}" for r in runs)) or "nothing"
        what = f"{quoted(path.name)} has no run of `{manifest.name}` {manifest.build[:12]}: it has {has}"
        hint = "measure this package with `intaglio profile DIR --serial PORT --save FILE`; one that is compiled again may differ"
        raise UserError("other-package", what, where=str(path), hint=hint)
    if any(run.layers and [layer.name for layer in run.layers] != names for run in own):
        what = f"{quoted(str(path), 200)} is not a file of runs: its layers are not those of `{manifest.name}`"
        raise UserError("bad-runs", what, hint="measure the package again")
    board = manifest.firmware.board if manifest.firmware is not None else ""
    return tuple(sorted(own, key=lambda r: (r.source != MEASURED, r.board != board)))
