"""`intaglio tune`: the fastest kernels of a model on this machine, kept in a database; or those of a package for OpenCL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from intaglio.cli.terminal import ending, fitted, note, print_json, print_table, progress_bar, us_text
from intaglio.errors import UserError, counted, quoted
from intaglio.options.reading import request_of_words
from intaglio.options.request import Request
from intaglio.pipeline import graph_to_lower
from intaglio.run.toolchains import find_toolchain
from intaglio.run.tuning.database import default_file, make_room, merged, read_database, read_if_there, write_database
from intaglio.run.tuning.search import Measured, Plan, Shape, Step, search, shapes_of
from intaglio.stages.tuned import OFF
from intaglio.stages.watch import Watch
from intaglio.targets.target import Target, processor_name, runs_here

LONGEST_SECONDS = 1e6
OF_DEVICES = ("--device", "--limit-kernel-time")


@dataclass(frozen=True, slots=True)
class Words:
    """What `tune` has beside the options of a compile."""

    devices: Sequence[str]
    limit_ms: float | None
    time_limit: float | None
    again: bool
    output: Path | None
    json: bool
    scheduler: str | None = None
    processor: str | None = None


def tune_words(paths: list[Path], merge: bool, words: Words, options: Mapping[str, object]) -> None:
    if merge:
        merge_files(paths, words)
        return
    if len(paths) != 1:
        raise UserError("bad-option", "`intaglio tune` takes one model, or one package", hint="`--merge A B -o C` merges databases")
    if words.output is not None:
        raise UserError("bad-option", "`-o` needs `--merge`", hint="`--tuning FILE` names the database that `tune` writes")
    if words.processor is not None and words.scheduler is None:
        hint = "it chooses workers of a Dask scheduler: `--scheduler ADDRESS`"
        raise UserError("bad-option", "`--processor` needs `--scheduler`", hint=hint)
    (path,) = paths
    if path.is_dir() and path.suffix not in (".keras", ".savedmodel") and (path / "manifest.json").exists():
        from intaglio.cli.tuning_devices import tune_package

        target = options.get("target")
        tune_package(path, str(target) if target else None, list(words.devices), words.limit_ms, words.json)
        return
    if given := [word for word, value in zip(OF_DEVICES, (words.devices, words.limit_ms), strict=True) if value]:
        hint = f"`intaglio compile {path.name} --target opencl -o DIR`, then `intaglio tune DIR {given[0]} ...`"
        raise UserError("bad-option", f"`{given[0]}` is for packages for OpenCL, and {quoted(str(path), 200)} is none", hint=hint)
    _tune_model(request_of_words(path, Path("-"), options), words)


def _tune_model(request: Request, words: Words) -> None:
    if words.time_limit is not None and not 0 < words.time_limit < LONGEST_SECONDS:
        raise UserError("bad-option", f"`--time-limit {words.time_limit:g}` is not a time", hint="use seconds, for example 60")
    if request.tuning == OFF:
        raise UserError("bad-option", "`--tuning off` has no place for results", hint="name a file, or omit it")
    file = request.tuning or default_file()
    read_if_there(file)  # before anything is measured
    if words.scheduler is not None:
        _tune_remotely(request, file, words)
        return
    # What is known must not decide what is measured.
    model = graph_to_lower(replace(request, tuning=None), Watch(note=lambda text: note(f"note: {text}")))
    _check_target(model.target)
    make_room(file)
    plan = Plan(file, model.target, find_toolchain(request.cc, model.target.arch), words.again, words.time_limit)
    shapes = shapes_of(model.graph, model.target)
    note(f"{counted(len(shapes), 'shape')} of layers with a choice of kernels, on {processor_name()} ({model.target.name})")
    with progress_bar("tuning") as progress:

        def report(step: Step) -> None:
            left = "" if step.seconds_left is None else f", about {step.seconds_left:.0f} s left"
            said = f"layer {step.number} of {step.total}{left}"
            if progress is not None:
                progress(said, step.number - 1, step.total)
            else:
                note(f"{said}: {ending(_name(step.shape), 40)}")

        try:
            found = search(shapes, plan, report)
        except BaseException as error:
            if not isinstance(error, Exception):  # Ctrl-C
                kept = f"what was measured is kept in {file}" if file.exists() else "nothing was measured yet"
                note(f"{kept}; run it again to go on")
            raise
    _tell(found, len(shapes), plan, words.json)


def _tune_remotely(request: Request, file: Path, words: Words) -> None:
    """On the workers of a Dask scheduler, one processor after the other."""
    from intaglio.fleet.crews import connect
    from intaglio.fleet.tuning import slots_of, tune_remotely

    if words.time_limit is not None or request.threads > 1:
        what = "`--scheduler` measures each layer on one core, without a limit of time"
        raise UserError("bad-option", what, hint="omit `--threads` and `--time-limit`; what is measured stays if you stop it")
    make_room(file)
    crew = connect(words.scheduler or "")
    try:
        done = []
        for processor, slots in slots_of(crew.client, words.processor).items():
            note(f"{counted(len(slots), 'core')} of {processor}")
            done.append(tune_remotely(crew.client, request, file, slots, note, again=words.again))
    finally:
        crew.close()
    if words.json:
        print_json({"database": str(file), "processors": [asdict(one) for one in done]})
    for one in done:
        for problem in one.problems:
            note(f"not measured: {problem}")
        note(f"{one.processor}: {one.new} measured now, {one.known} known before; stored in {file}")


def _check_target(target: Target) -> None:
    if target.device:
        hint = "`intaglio compile MODEL --target opencl -o DIR`, then `intaglio tune DIR`"
        raise UserError("bad-option", f"`{target.name}` has a device, which is tuned for a package", hint=hint)
    if not runs_here(target):
        hint = "tune on a machine that has it, and give its file to `compile` with `--tuning`"
        raise UserError("bad-option", f"this machine cannot run code for `{target.name}`", hint=hint)


def _tell(found: list[Measured], total: int, plan: Plan, json: bool) -> None:
    new = sum(measured.new for measured in found)
    if json:
        rows = [_row(measured) for measured in found]
        told = {"database": str(plan.database), "processor": processor_name(), "target": plan.target.name}
        print_json({**told, "shapes": total, "measured": new, "layers": rows})
    else:
        _print(found)
    for measured in found:
        if measured.problem:
            note(f"not measured: {measured.shape.text}: {measured.problem}")
    left = total - len(found)
    if left:
        note(f"the time is used up, {counted(left, 'shape')} of {total} left: run it again to go on")
    note(f"{new} measured now, {len(found) - new} known before; stored in {plan.database}")


def _row(measured: Measured) -> dict[str, object]:
    ranked = sorted(measured.times.items(), key=lambda item: (item[1], item[0]))
    return {
        "layer": measured.shape.text,
        "count": len(measured.shape.nodes),
        "new": measured.new,
        "usual": measured.shape.usual,
        "best": ranked[0][0] if ranked else None,
        "times_us": dict(ranked),
    }


def _print(found: list[Measured]) -> None:
    """The usual kernel against the best, of all layers together in the last row."""
    rows, before, after = [], 0.0, 0.0
    for measured in found:
        if not measured.times:
            continue
        best, least = min(measured.times.items(), key=lambda item: (item[1], item[0]))
        usual, count = measured.times.get(measured.shape.usual, least), len(measured.shape.nodes)
        before, after = before + usual * count, after + least * count
        name = _name(measured.shape) + (f" and {count - 1} more" if count > 1 else "")
        rows.append([name, us_text(usual), us_text(least), f"{usual / least:.2f}", best])
    if rows:
        rows.append(["total", us_text(before), us_text(after), f"{before / after:.2f}", ""])
        columns = ["layer", ">untuned, us", ">best, us", ">speed-up", "kernel"]
        print_table(columns, fitted(columns, rows))


def _name(shape: Shape) -> str:
    """Of its first layer, as `--explain`, `profile` and the C have it."""
    return shape.nodes[0].output.name


def merge_files(paths: list[Path], words: Words) -> None:
    """Records of all files in one."""
    if words.output is None:
        raise UserError("bad-option", "`--merge` needs `-o FILE`", hint="`intaglio tune --merge A B -o C`")
    made = merged([read_database(path) for path in paths])
    make_room(words.output)
    write_database(words.output, made)
    if words.json:
        print_json({"database": str(words.output), "processors": len(made.places), "layers": made.layers})
    processors = f"{counted(len(made.places), 'processor')}, {counted(made.layers, 'layer')}"
    note(f"merged {counted(len(paths), 'file')} into {words.output}: {processors}")
