"""Reading `intaglio.toml`.

    [defaults]                          options of every package, as keywords of `intaglio.compile`
    optimize = "speed"

    [models.digits]
    source = "models/digits.onnx"       relative to this file, as all paths
    sha256 = "f793..."                  optional: another file is refused
    calibrate = "data/digits.npz"       options of every package of this model

    [packages.digits-board]
    model = "digits"
    board = "nucleo-l4r5zi"             further options
    quantize = "int8"
    output = "build/digits-board"       default: build/NAME
    report = "build/digits.html"        optional
    budget = { ram = "32K" }            optional, or the name of a budget file
    make = ["arduino", "cmsis-pack"]    optional: files to hand out, in `dist`, with `version` and `vendor`

    [packages.speech]                   several entry points that share weights
    entries = { encode = "encoder", step = "decoder" }     by name: a model of this file

    [firmware.product]                  `intaglio link` of several packages
    packages = ["digits-board", "kws-board"]

    [fleet]                             many models on many boards; see fleet.py

Nearer options win: those of the package, then of the model, then the defaults. `${NAME}` in a text is a variable of the
environment.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from intaglio.errors import UserError, quoted
from intaglio.options import kinds
from intaglio.options.entries import each_of_lists
from intaglio.options.reading import request_of_keywords
from intaglio.options.request import OPTIONS, Request
from intaglio.project.fleet import CLUSTERS, JOBS, OF_FLEET, Cell, FleetPlan, boards_of, matching, place_name
from intaglio.project.products import NO_WISH, Wish, check_kinds
from intaglio.report.budgets import limits_of, read_budgets
from intaglio.targets.board import all_boards
from intaglio.targets.deployment import ARENAS, CODE, IO
from intaglio.targets.target import find_target, optimized

NAME = "intaglio.toml"
HINT = "see docs/guides/project.md"
SECTIONS = ("defaults", "models", "packages", "firmware", "fleet")
OF_MODEL = ("source", "sha256")
OF_PACKAGE = ("model", "entries", "output", "report", "budget", "make", "dist", "version", "vendor")
OF_FIRMWARE = ("packages", "output")
KEYWORDS = tuple(o.keyword for o in OPTIONS if o.keyword and o.keyword not in ("force", "dump_ir", "export_plan"))
_PATHS = {o.keyword for o in OPTIONS if o.kind in (kinds.FILE, kinds.DATA, kinds.LABELS)} | {"memory", "template"}
_CLEAN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class Job:
    """A package to make."""

    name: str
    request: Request
    sha256: str = ""
    budget: tuple[tuple[str, float], ...] = ()
    report: Path | None = None
    wish: Wish = NO_WISH
    entries: tuple[tuple[str, Request, str], ...] = ()  # name, what it is made of, SHA-256; without any, `request` is all


@dataclass(frozen=True, slots=True)
class Firmware:
    """Several packages as one program."""

    name: str
    packages: tuple[str, ...]
    output: Path


@dataclass(frozen=True, slots=True)
class ProjectFile:
    path: Path
    jobs: tuple[Job, ...]
    firmware: tuple[Firmware, ...]
    fleet: FleetPlan | None = None


def read_project(path: Path, overrides: Sequence[str] = (), *, fleet: bool = False) -> ProjectFile:
    """`fleet`: for `intaglio fleet`, which needs that section. `overrides`: `packages.digits-board.quantize=int16x8`, values as in
    TOML, or text."""
    try:
        table: dict[str, object] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        hint = f"write one, or name {'another: `intaglio fleet FILE`' if fleet else 'it with `--file`'}; {HINT}"
        raise UserError("no-project", f"cannot read {quoted(str(path), 200)}: {error.strerror}", hint=hint) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError("bad-project", f"{quoted(path.name)} is not TOML: {error}", hint=HINT) from None
    for text in overrides:
        _override(table, text)
    read = _Reader(path, table)
    if fleet:
        read.check_fleet()
    return ProjectFile(path, read.jobs(), read.firmware(), read.fleet())


def _override(table: dict[str, object], text: str) -> None:
    place, equals, value = text.partition("=")
    keys = place.strip().split(".")
    if not equals or len(keys) < 2 or not all(keys):
        raise UserError("bad-option", f"{quoted(text)} is not of the form SECTION.KEY=VALUE", hint="e.g. `defaults.optimize=size`")
    for key in keys[:-1]:
        inner = table.setdefault(key, {})
        if not isinstance(inner, dict):
            raise UserError("bad-option", f"{quoted(place)} is not a place in the project file", hint=HINT)
        table = inner
    try:
        table[keys[-1]] = tomllib.loads(f"x = {value}")["x"]
    except tomllib.TOMLDecodeError:
        table[keys[-1]] = value


def _listed(text: str) -> list[object]:
    return [int(part) if part.strip().isdecimal() else part.strip() for part in text.split(",")]


class _Reader:
    def __init__(self, path: Path, table: Mapping[str, object]) -> None:
        self._path, self._root = path, path.parent
        self._check(table, SECTIONS, "")
        self._defaults = self._section(table, "defaults")
        self._check(self._defaults, KEYWORDS, "defaults")
        self._models, self._packages, self._firmware = (self._tables(table, name) for name in SECTIONS[1:4])
        self._fleet = self._section(table, "fleet")

    def check_fleet(self) -> None:
        if not self._fleet:
            hint = "add `[fleet]` with `boards = [...]`, or `targets`; see docs/guides/fleet.md"
            raise self._error("it has no `[fleet]`", hint)

    def jobs(self) -> tuple[Job, ...]:
        for name, model in self._models.items():
            self._check(model, (*OF_MODEL, *KEYWORDS), f"models.{name}")
        made = tuple(self._job(name, package) for name, package in self._packages.items())
        if not made and not self._fleet:
            raise self._error("it makes no package", f"add `[packages.NAME]` with `model = ...`; {HINT}")
        places = [job.request.output.resolve() for job in made]
        for job in made:
            if places.count(job.request.output.resolve()) > 1:
                raise self._error(f"two packages have the output {quoted(str(job.request.output))}", "give each its own")
        return made

    def _job(self, name: str, package: Mapping[str, object]) -> Job:
        where = f"packages.{name}"
        self._check(package, (*OF_PACKAGE, *KEYWORDS), where)
        if "entries" in package:
            return self._with_entries(name, package, where)
        return self._of_model(name, package, where)

    def _of_model(self, name: str, package: Mapping[str, object], where: str, entry: str = "") -> Job:
        """Of one model; a list of sizes makes several entry points, whose names begin with `entry`."""
        model_name = self._text(package, "model", where)
        if model_name not in self._models:
            what = f"`{where}` is of the model {quoted(model_name)}, which is not there"
            raise self._error(what, _near(model_name, self._models))
        model = self._models[model_name]
        output = self._root / str(self._expanded(package.get("output", f"build/{name}")))
        given = {**self._defaults, **model, **package}
        sizes = self._each_size(given.get("dims"), where)
        requests = {"_".join(filter(None, (entry, end))): self._request(model_name, output, {**given, **dims}, where)
                    for end, dims in sizes.items()}  # fmt: skip
        request = next(iter(requests.values()))
        page = self._root / self._text(package, "report", where) if "report" in package else None
        budget = self._budget(package.get("budget"), where)
        sha256 = str(model.get("sha256", ""))
        entries = tuple((entry, one, sha256) for entry, one in requests.items()) if entry or len(requests) > 1 else ()
        if entries and "make" in package:
            raise self._error(f"`{where}` has `make` and several entry points", "`make` is for packages of one model and size")
        return Job(name, request, sha256, budget, page, self._wish(package, where), entries)

    def _each_size(self, dims: object, where: str) -> dict[str, dict[str, object]]:
        """What options each entry point adds, by the end of its name: `dims = { T = [32, 128] }`, or `T = "32,128"`."""
        if not isinstance(dims, dict):
            return {"": {}}
        lists = {key: _listed(size) if isinstance(size, str) and "," in size else size for key, size in dims.items()}
        try:
            return {end: {"dims": made} for end, made in each_of_lists(lists).items()}
        except UserError as error:
            raise UserError(error.slug, f"{error.message}, in `{where}` of {quoted(self._path.name)}", hint=error.hint) from None

    def _request(self, model: str, output: Path, given: Mapping[str, object], where: str) -> Request:
        options = {key: self._value(key, value) for key, value in given.items() if key in KEYWORDS}
        source = self._root / self._text(self._models[model], "source", f"models.{model}")
        try:
            return replace(request_of_keywords(source, output, options), force=True)
        except UserError as error:
            raise UserError(error.slug, f"{error.message}, in `{where}` of {quoted(self._path.name)}", hint=error.hint) from None

    def _with_entries(self, name: str, package: Mapping[str, object], where: str) -> Job:
        """Each as a package of its model would be."""
        table = package["entries"]
        if not isinstance(table, dict) or not table or not all(isinstance(model, str) for model in table.values()):
            what = f"`entries` of `{where}` is not a table of models by name"
            raise self._error(what, 'for example `entries = { step = "decoder" }`')
        if "model" in package:
            raise self._error(f"`{where}` has `model` and `entries`", "`model` is for packages of one model")
        rest = {key: value for key, value in package.items() if key != "entries"}
        jobs = [self._of_model(name, {**rest, "model": model}, where, entry) for entry, model in table.items()]
        return replace(jobs[0], entries=tuple(one for job in jobs for one in job.entries))

    def _wish(self, package: Mapping[str, object], where: str) -> Wish:
        """`make` and what goes with it."""
        kinds = package.get("make", [])
        if not isinstance(kinds, list):
            raise self._error(f"`make` of `{where}` is not a list", 'for example `make = ["zip", "wheel"]`')
        told = {key: self._text(package, key, where) for key in ("dist", "version", "vendor") if key in package}
        if told and not kinds:
            raise self._error(f"`{where}` has `{next(iter(told))}` without `make`", f"say what to make; {HINT}")
        plain = Wish(check_kinds(kinds, where), self._root / told.get("dist", "dist"))
        return replace(plain, version=told.get("version", plain.version), vendor=told.get("vendor", plain.vendor))

    def _budget(self, given: object, where: str) -> tuple[tuple[str, float], ...]:
        if given is None:
            return ()
        if isinstance(given, str):
            return tuple(read_budgets(self._root / str(self._expanded(given))).items())
        if not isinstance(given, dict):
            raise self._error(f"the budget of `{where}` is neither a table nor the name of a file", HINT)
        return tuple(limits_of(given, self._path.name).items())

    def firmware(self) -> tuple[Firmware, ...]:
        found = []
        for name, table in self._firmware.items():
            where = f"firmware.{name}"
            self._check(table, OF_FIRMWARE, where)
            parts = table.get("packages")
            if not isinstance(parts, list) or len(parts) < 2 or not all(isinstance(part, str) for part in parts):
                raise self._error(f"`packages` of `{where}` is not a list of two or more names", HINT)
            for part in parts:
                if part not in self._packages:
                    raise self._error(f"`{where}` links {quoted(part)}, which is not there", _near(part, self._packages))
            output = self._root / str(self._expanded(table.get("output", f"build/{name}")))
            if name in self._packages:
                raise self._error(f"a package and firmware are both called {quoted(name)}", "give one another name")
            found.append(Firmware(name, tuple(parts), output))
        return tuple(found)

    def fleet(self) -> FleetPlan | None:
        if not self._fleet:
            return None
        told = self._fleet
        self._check(told, OF_FLEET, "fleet")
        models, lost = matching(self._names(told, "models", ["*"]), list(self._models))
        boards, none = boards_of(self._names(told, "boards", []), self._root)
        if lost:
            raise self._error(f"`fleet` names the model {quoted(lost[0])}, which is not there", _near(lost[0], self._models))
        if none:
            raise self._no_board(none[0])
        targets = self._targets(told)
        places = [*((board, True) for board in boards), *((target, False) for target in targets)]
        if not models or not places:
            raise self._error("`fleet` has no models, or neither `boards` nor `targets`", HINT)
        self._one_name_each(places)
        jobs = self._jobs_of_fleet(told, bool(boards))
        quick = told.get("quick", False)
        if not isinstance(quick, bool):
            raise self._error("`quick` of `fleet` is neither `true` nor `false`", "write it without quotes")
        variants = self._tables(told, "variants") or {"": {}}
        clusters = self._tables(told, "cluster")
        for name in clusters:
            if name not in CLUSTERS:
                raise self._error(f"`fleet.cluster` has the unknown kind {quoted(name)}", _near(name, CLUSTERS))
        cells = tuple(
            self._cell(model, variant, options, place, board)
            for model in models
            for variant, options in variants.items()
            for place, board in places
        )
        return FleetPlan(
            cells,
            tuple(job for job in JOBS if job in jobs),
            quick,
            self._root / str(self._expanded(told.get("store", "build/fleet"))),
            int(self._number(told, "retries", 2, 0, 100)),
            self._number(told, "timeout", 900, 1, 1e6),
            self._budget(told.get("budget"), "fleet"),
            clusters,
        )

    def _no_board(self, name: str) -> UserError:
        if name.endswith(".toml"):
            what = f"`fleet` names the board file {quoted(name)}, which does not exist"
            return self._error(what, f"paths begin at the folder of the project file, {quoted(str(self._root.absolute()), 200)}")
        if any(sign in name for sign in "*?[!"):
            return self._error(f"no board matches {quoted(name)} of `fleet`", "`intaglio boards` lists them")
        near = get_close_matches(name, list(all_boards()), 1)
        hint = f"did you mean `{near[0]}`?" if near else "`intaglio boards` lists those that are known; or name a file `NAME.toml`"
        return self._error(f"`fleet` names the board {quoted(name)}, which is not there", hint)

    def _targets(self, told: Mapping[str, object]) -> list[str]:
        """A name that is not there is said now, not by every job."""
        names = self._names(told, "targets", [])
        for name in names:
            try:
                find_target(name)
            except UserError as error:
                hint = f"put it into `boards`: `boards = [\"{name}\"]`" if name in all_boards() else error.hint
                raise self._error(f"`fleet` has an {error.message}", hint) from None
        return names

    def _one_name_each(self, places: Sequence[tuple[str, bool]]) -> None:
        seen: set[str] = set()
        for place, _ in places:
            if (name := place_name(place)) in seen:
                raise self._error(f"two places of `fleet` are called {quoted(name)}", "results are kept by name: give one another")
            seen.add(name)

    def _jobs_of_fleet(self, told: Mapping[str, object], boards: bool) -> list[str]:
        jobs = self._names(told, "jobs", ["fit"] if boards else ["compile"])
        for job in jobs:
            if job not in JOBS:
                raise self._error(f"`fleet` has the job {quoted(job)}", f"jobs: {', '.join(JOBS)}")
        if not jobs or (jobs == ["fit"] and not boards):
            what = "`jobs` of `fleet` is empty" if not jobs else "`fleet` has the job `fit` alone, which is for boards"
            raise self._error(what, f"jobs: {', '.join(JOBS)}; `targets` are compiled")
        return jobs

    def _cell(self, model: str, variant: str, options: Mapping[str, object], place: str, board: bool) -> Cell:
        where = f"fleet.variants.{variant}" if variant else f"models.{model}"
        self._check(options, KEYWORDS, where)
        given = {**self._defaults, **self._models[model], **options, "board" if board else "target": place}
        made = self._request(model, Path("package"), given, where)
        try:
            made.quantization()
            for key, words in (("arena", ARENAS), ("io", IO), ("code", CODE)):
                if (word := getattr(made, key)) not in words:
                    what = f"unknown value {quoted(word)} of `{key}`"
                    raise UserError("bad-option", what, hint=f"values: {', '.join(words)}")
            optimized(find_target(made.target or "host"), made.optimize)
        except UserError as error:  # a value that no job could take
            raise self._error(f"{error.message}, in `{where}`", error.hint) from None
        return Cell(model, variant, place_name(place), board, made, str(self._models[model].get("sha256", "")))

    def _names(self, table: Mapping[str, object], key: str, default: list[str]) -> list[str]:
        found = table.get(key, default)
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise self._error(f"`{key}` of `fleet` is not a list of names", HINT)
        return [str(self._expanded(one)) for one in found]

    def _number(self, table: Mapping[str, object], key: str, default: float, least: float, most: float) -> float:
        found = table.get(key, default)
        if isinstance(found, bool) or not isinstance(found, int | float) or not least <= found <= most:
            raise self._error(f"`{key}` of `fleet` is not a number from {least:g} to {most:g}", HINT)
        return float(found)

    def _value(self, key: str, value: object) -> object:
        value = self._expanded(value)
        return str(self._root / value) if key in _PATHS and isinstance(value, str) and value != "off" else value

    def _expanded(self, value: object) -> object:
        """`${NAME}` of the environment; one that is not set is an error, not an empty text."""
        if not isinstance(value, str):
            return value

        def known(match: re.Match[str]) -> str:
            if match[1] not in os.environ:
                raise self._error(f"`${{{match[1]}}}` is not set in the environment", f"set `{match[1]}`, or write the value")
            return os.environ[match[1]]

        return re.sub(r"\$\{(\w+)\}", known, value)

    def _text(self, table: Mapping[str, object], key: str, where: str) -> str:
        value = self._expanded(table.get(key))
        if not isinstance(value, str) or not value:
            raise self._error(f"`{where}` has no `{key}`", HINT)
        return value

    def _section(self, table: Mapping[str, object], name: str) -> dict[str, object]:
        part = table.get(name, {})
        if not isinstance(part, dict):
            raise self._error(f"`{name}` is not a table", HINT)
        return part

    def _tables(self, table: Mapping[str, object], name: str) -> dict[str, dict[str, object]]:
        found = {}
        for key, value in self._section(table, name).items():
            if not isinstance(value, dict):
                raise self._error(f"`{name}.{key}` is not a table", HINT)
            if _CLEAN.fullmatch(key) is None:
                raise self._error(f"{quoted(key)} is not a name", "letters, digits, `-`, `_` and `.`")
            found[key] = value
        return found

    def _check(self, table: Mapping[str, object], known: Sequence[str], where: str) -> None:
        for key in table:
            if key not in known:
                place = f"`{where}`" if where else "the file"
                raise self._error(f"{place} has an unknown key {quoted(key)}", _near(key, known))

    def _error(self, what: str, hint: str) -> UserError:
        return UserError("bad-project", f"{quoted(self._path.name)}: {what}", hint=hint)


def _near(word: str, known: Mapping[str, object] | Sequence[str]) -> str:
    near = get_close_matches(word, list(known), 1)
    if not known:
        return f"the file has none yet; {HINT}"
    return f"did you mean `{near[0]}`?" if near else f"known: {', '.join(f'`{name}`' for name in known)}"


__all__ = ["NAME", "Firmware", "Job", "ProjectFile", "read_project"]
