"""The `intaglio` command. Every function imports what it needs when it runs, so that `--help` answers at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Optional

import typer

from intaglio.cli.caching import cache_app
from intaglio.cli.many import many_app
from intaglio.cli.options import GroupedCommand, with_options
from intaglio.cli.products import products_app
from intaglio.cli.words import (
    BaudOption,
    BudgetOption,
    CcOption,
    CheckOption,
    DeviceOption,
    EmulatorOption,
    EntryOption,
    Folder,
    JsonOption,
    Model,
    Models,
    NoCacheOption,
    SerialOption,
    SizeOption,
    TimeoutOption,
    VariantOption,
)
from intaglio.errors import IntaglioError, UserError

app = typer.Typer(
    name="intaglio",
    help="Compile trained neural networks, ahead of time, into readable C.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
def _print_version(asked: bool) -> None:
    if asked:
        from intaglio.version import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Options before a command."""


template_app = typer.Typer(help="Network templates: the C around the generated layers.", no_args_is_help=True)
app.add_typer(template_app, name="template")
accelerators_app = typer.Typer(help="List the installed accelerators, or test one.", invoke_without_command=True)
app.add_typer(accelerators_app, name="accelerators")
app.add_typer(cache_app, name="cache")
app.add_typer(products_app)
app.add_typer(many_app)

@app.command("compile", cls=GroupedCommand)
@with_options()
def compile_command(
    models: Models,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Package folder (or .ig file) to write.")],
    json: JsonOption = False,
    report: Annotated[
        Optional[Path], typer.Option("--report", metavar="R.html", help="Also write a page about it; see `intaglio report`.")
    ] = None,
    budget: BudgetOption = None,
    entry: Annotated[
        Optional[list[str]],
        typer.Option("--entry", metavar="MODEL=NAME", help="Name of an entry point, by its file or signature."),
    ] = None,
    **options: object,
) -> None:
    """Compile a model into a package: C sources, libraries, application, tests. Several models, several signatures of one, or
    several sizes of a dimension (`--dim T=32,128`), become entry points of one package that share weights."""
    from intaglio.cli.compiling import compile_words
    from intaglio.options.entries import several

    if several(models, options, entry or []):
        from intaglio.cli.entries import compile_entry_words

        raise typer.Exit(compile_entry_words(models, output, json, options, entry or [], report, budget))
    raise typer.Exit(compile_words(models[0], output, json, options, report, budget))


@app.command()
@with_options("target", "dims", "shapes", "most", "lengths", "signature")
def check(model: Model, json: JsonOption = False, **options: object) -> None:
    """List everything that is unsupported, with node names and hints."""
    from intaglio.cli.asking import check_model

    raise typer.Exit(check_model(model, options, json))


@app.command()
@with_options(
    "target", "board", "ram", "flash", "memory", "weights", "dims", "shapes", "most", "lengths", "signature", "feed_rows", "stream",
    "quantize", "calibrate", "accelerators",
)  # fmt: skip
def fit(
    model: Model,
    plot: Annotated[
        Optional[Path], typer.Option(metavar="P.svg", help="Draw the memory plan: layers across, addresses up.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Estimate code, stack and time; build and emulate nothing.")
    ] = False,
    json: JsonOption = False,
    **options: object,
) -> None:
    """Report RAM, flash and time, what sets the peak, and which boards fit. Without `--board` and `--target`: all
    microcontrollers, and what would make it fit. Exit code 1 if it does not fit."""
    from intaglio.cli.fit_answer import How
    from intaglio.cli.fitting import fit_model

    raise typer.Exit(fit_model(model, options, How(plot, quick, json)))


@app.command()
def run(
    package: Folder,
    input: Annotated[
        Optional[Path], typer.Option("--input", metavar="X.npz", help="Input arrays, by name or as in0, in1, ...")
    ] = None,
    output: Annotated[Optional[Path], typer.Option("--output", metavar="Y.npz", help="File to write the outputs to.")] = None,
    steps: Annotated[bool, typer.Option("--steps", help="Arrays have a leading axis of steps; run them in order.")] = False,
    emulator: EmulatorOption = None,
    device: DeviceOption = None,
    cache_check: CheckOption = "first",
    no_cache: NoCacheOption = False,
    variant: VariantOption = None,
    serial: SerialOption = None,
    baud: BaudOption = 115200,
    timeout: TimeoutOption = 60.0,
    entry: EntryOption = None,
    json: JsonOption = False,
) -> None:
    """Run a package on this machine, on an OpenCL device, on an emulated core, or on a board."""
    from intaglio.cli.running import Place, run_package, serial_line
    from intaglio.package.entries import entry_folder

    line = serial_line(serial, baud, timeout)
    place = Place(emulator, device, cache_check, no_cache, variant, line)
    run_package(entry_folder(package, entry), input, output, steps, place, json)


@app.command()
def validate(
    package: Folder,
    inputs: Annotated[Optional[Path], typer.Option("--inputs", metavar="X.npz", help="Input arrays. Default: random.")] = None,
    steps: Annotated[bool, typer.Option("--steps", help="Arrays have a leading axis of steps.")] = False,
    labels: Annotated[Optional[Path], typer.Option(metavar="L.npy", help="Classes of the inputs; prints the accuracy.")] = None,
    layers: Annotated[bool, typer.Option("--layers", help="Compare every layer and name the first one that differs.")] = False,
    tolerance: Annotated[
        Optional[float],
        typer.Option(metavar="T", help="Pass if error <= T x largest value. Default: 1e-4 for f32, 1e-3 on OpenCL."),
    ] = None,
    threshold: Annotated[
        Optional[float],
        typer.Option(metavar="X", help="Pass if cosine >= X. Default on OpenCL: 0.999 (CPU), 0.995 (GPU), 0.98 (int8)."),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the random inputs.", min=0)] = 1,
    cc: CcOption = None,
    emulator: EmulatorOption = None,
    device: DeviceOption = None,
    cache_check: CheckOption = "first",
    no_cache: NoCacheOption = False,
    variant: VariantOption = None,
    serial: SerialOption = None,
    baud: BaudOption = 115200,
    timeout: TimeoutOption = 60.0,
    size: SizeOption = None,
    entry: EntryOption = None,
    json: JsonOption = False,
) -> None:
    """Compare a package with the reference runtime; all entry points without `--entry`. Exit code 1 if they differ."""
    from intaglio.cli.running import Given, Limits, Place, each_entry, read_sizes, serial_line, validate_package

    line = serial_line(serial, baud, timeout)
    place, limits = Place(emulator, device, cache_check, no_cache, variant, line), Limits(tolerance, threshold)
    given = Given(inputs, steps, labels, read_sizes(size))
    code = each_entry(package, entry, json, lambda one: validate_package(one, given, layers, limits, seed, cc, place, json))
    raise typer.Exit(code)


@app.command()
def profile(
    package: Folder,
    inputs: Annotated[
        Optional[Path], typer.Option("--inputs", metavar="X.npz", help="Input arrays. Default: its test vectors, or random.")
    ] = None,
    runs: Annotated[
        Optional[int],
        typer.Option(metavar="N", help="Number of runs; the least time counts. Default: 20, on a board 3.", min=1, max=100000),
    ] = None,
    cc: CcOption = None,
    emulator: EmulatorOption = None,
    wait_states: Annotated[
        Optional[str],
        typer.Option(metavar="N", help="Wait states of flash: a number, or `board`. Default: as the board's file says, or 0."),
    ] = None,
    device: DeviceOption = None,
    cache_check: CheckOption = "first",
    no_cache: NoCacheOption = False,
    variant: VariantOption = None,
    serial: SerialOption = None,
    baud: BaudOption = 115200,
    timeout: TimeoutOption = 60.0,
    clock: Annotated[
        Optional[float], typer.Option(metavar="MHZ", help="Clock of the board's core. Default: as the firmware says.")
    ] = None,
    save: Annotated[
        Optional[Path], typer.Option(metavar="R.json", help="Keep the board's cycles in this file, for `report --measured`.")
    ] = None,
    label: Annotated[
        Optional[str], typer.Option(metavar="NAME", help="Name of the board in that file. Default: the package's board.")
    ] = None,
    size: SizeOption = None,
    entry: EntryOption = None,
    json: JsonOption = False,
) -> None:
    """Measure the time per layer. For firmware: estimate cycles on an emulated core, or measure them on a board."""
    from intaglio.cli.running import Given, Keep, Place, each_entry, profile_package, read_sizes, serial_line

    line = serial_line(serial, baud, timeout, clock)
    place = Place(emulator, device, cache_check, no_cache, variant, line)
    keep, given = Keep(save, label), Given(inputs, sizes=read_sizes(size))
    each_entry(package, entry, json, lambda one: profile_package(one, runs, cc, place, wait_states, keep, given, json))


@app.command(cls=GroupedCommand)
@with_options("target", "exact", "threads", "tuning", "dims", "shapes", "signature", "stream", "quantize", "calibrate", "cc")
def tune(
    paths: Annotated[list[Path], typer.Argument(metavar="MODEL|DIR", help="A model, or a package for OpenCL.")],
    device: Annotated[
        Optional[list[str]],
        typer.Option("--device", metavar="D", help="OpenCL device to tune on. May be repeated. Default: as for `run`."),
    ] = None,
    limit_kernel_time: Annotated[Optional[float], typer.Option(metavar="MS", help="Split OpenCL kernels that take longer.")] = None,
    time_limit: Annotated[Optional[float], typer.Option(metavar="S", help="Start no layer after this time, in seconds.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Measure again what the database has.")] = False,
    merge: Annotated[bool, typer.Option("--merge", help="Merge databases: `--merge A B -o C`.")] = False,
    output: Annotated[Optional[Path], typer.Option("--output", "-o", metavar="F", help="Database that `--merge` writes.")] = None,
    scheduler: Annotated[
        Optional[str], typer.Option("--scheduler", metavar="ADDRESS", help="Measure on the workers of this Dask scheduler.")
    ] = None,
    processor: Annotated[
        Optional[str], typer.Option("--processor", metavar="P", help="Only workers whose processor has this in its name.")
    ] = None,
    json: JsonOption = False,
    **options: object,
) -> None:
    """Measure kernels and tiles of a model's layers on this machine, for later compiles; or tune a package for OpenCL."""
    from intaglio.cli.tuning import Words, tune_words

    tune_words(paths, merge, Words(device or [], limit_kernel_time, time_limit, again, output, json, scheduler, processor), options)


@app.command()
def link(
    packages: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Packages for one board, with `--arena caller`.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder of the firmware project to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing project.")] = False,
    cc: CcOption = None,
    json: JsonOption = False,
) -> None:
    """Combine several networks into one firmware with one arena."""
    from intaglio.cli.linking import link_words

    link_words(packages, output, cc, force, json)


@app.command()
def view(
    model: Annotated[Path, typer.Argument(metavar="FILE.ig", help="An IR file or a model.")],
    output: Annotated[Optional[Path], typer.Option("--output", "-o", help="Default: the same name with .onnx.")] = None,
    json: JsonOption = False,
) -> None:
    """Export IR as ONNX, to view it in Netron."""
    from intaglio.cli.asking import view_model

    view_model(model, output, json)


@app.command()
def targets(json: JsonOption = False) -> None:
    """List the targets."""
    from intaglio.cli.asking import list_targets

    list_targets(json)


@app.command()
def boards(json: JsonOption = False) -> None:
    """List the boards with their cores, clocks and memories."""
    from intaglio.cli.asking import list_boards

    list_boards(json)


@accelerators_app.callback()
def accelerators(context: typer.Context, json: JsonOption = False) -> None:
    """List the installed accelerators and what they take. `test NAME` tests one."""
    if context.invoked_subcommand is None:
        from intaglio.cli.accelerating import list_accelerators

        list_accelerators(json)


@accelerators_app.command("test")
def accelerators_test(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An installed accelerator.")],
    cc: CcOption = None,
    json: JsonOption = False,
) -> None:
    """Test that emulation, generated C and reference agree on edge cases. Exit code 1 if they do not."""
    from intaglio.cli.accelerating import test_accelerator

    raise typer.Exit(test_accelerator(name, cc=cc, json=json))


@app.command("new-accelerator")
def new_accelerator_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the accelerator, in Python and in C.")],
    output: Annotated[Optional[Path], typer.Option("--output", "-o", metavar="DIR", help="Default: a folder of that name.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the files of an existing skeleton.")] = False,
) -> None:
    """Write a working accelerator plug-in with tests, as a starting point."""
    from intaglio.cli.accelerating import new_accelerator
    from intaglio.cli.terminal import note

    folder = new_accelerator(name, output, force=force)
    note(f"wrote {folder}; `pip install -e {folder}`, then `intaglio accelerators test {name}`")


@app.command()
def ops(json: JsonOption = False) -> None:
    """List the supported operators of each format, and those of the IR."""
    from intaglio.cli.asking import list_ops

    list_ops(json)


@app.command()
def passes(json: JsonOption = False) -> None:
    """List the passes in order. `--disable-pass NAME` skips one."""
    from intaglio.cli.asking import list_passes

    list_passes(json)


@template_app.command("list")
def template_list(json: JsonOption = False) -> None:
    """List the templates."""
    from intaglio.cli.asking import list_templates

    list_templates(json)


@template_app.command("export")
def template_export(name: str, folder: Annotated[Path, typer.Argument(metavar="DIR")], json: JsonOption = False) -> None:
    """Write a template to DIR. Edit it and compile with `--template DIR`."""
    from intaglio.cli.terminal import note, print_json
    from intaglio.package.template import export_template

    export_template(name, folder)
    print_json({"template": name, "folder": str(folder)}) if json else note(f"wrote the template `{name}` to {folder}")


@app.command()
def demo(
    output: Annotated[Optional[Path], typer.Option("--output", "-o", metavar="DIR", help="Default: a temporary folder.")] = None,
    cc: CcOption = None,
) -> None:
    """Compile, build, run and validate a small network for handwritten digits."""
    from intaglio.cli.demo import run_demo

    raise typer.Exit(run_demo(output, cc))


@app.command()
def version(json: JsonOption = False) -> None:
    """Print the version."""
    from intaglio.cli.terminal import print_json
    from intaglio.version import __version__

    print_json({"version": __version__}) if json else print(f"intaglio {__version__}")


class Ended(BaseException):
    """SIGTERM, SIGHUP or SIGINT: like Ctrl-C, temporary folders are removed on the way out."""


_heard: list[int] = []  # signals so far: Python drops what a handler raises when it happens to run inside of a finalizer


def _end(signum: int, _: object) -> None:
    signal.signal(signum, signal.SIG_IGN)  # once is enough; the way out must not be cut short
    _heard.append(signum)
    raise Ended(signum)


@cache
def _command() -> Callable[..., object]:
    """Typer reads the signatures of all commands, which takes 35 ms: once is enough for a process that calls `main` again."""
    return typer.main.get_command(app)


def main() -> None:
    """Exit codes: 0 done, 1 the answer is no, 2 the request is at fault, 3 our fault; 128 + N: ended by signal N."""
    from intaglio.cli.guarding import end_in_c, in_child

    ended_as = in_child(sys.argv[1:])
    if ended_as is not None:
        sys.exit(ended_as)
    try:
        for signum, usual in (
            (signal.SIGTERM, signal.SIG_DFL),
            (signal.SIGHUP, signal.SIG_DFL),
            (signal.SIGINT, signal.default_int_handler),
        ):
            if signal.getsignal(signum) is usual:
                signal.signal(signum, _end)
        end_in_c(sys.argv[1:], lambda: bool(_heard))
        code = _command()(standalone_mode=False)
        sys.stdout.flush()
    except IntaglioError as error:
        code = error.exit_code
        if _heard:  # whatever failed then, failed because of it
            code = 128 + _heard[0]
            if Path(error.where or "").name.startswith("intaglio-compiler-"):
                Path(error.where or "").unlink(missing_ok=True)
        _say("stopped" if _heard else str(error))
        if not _heard:
            _error_as_json(error)
    except Ended as ended:
        _say("stopped")
        code = 128 + int(ended.args[0])
    except KeyboardInterrupt:
        _say("stopped")
        code = 130
    except BrokenPipeError:
        # Who reads us has gone (`intaglio ops | head`); Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 0
    except Exception as error:  # nothing of ours reaches the user as a traceback
        code = _foreign_error(error)
    sys.exit(code if isinstance(code, int) else 0)


def _foreign_error(error: Exception) -> int:
    from intaglio.cli.faults import usage_error, write_report

    usage = usage_error(error)
    if usage is not None:
        _say(str(usage))
        if isinstance(usage, IntaglioError):
            _error_as_json(usage)
        return 2
    if isinstance(error, MemoryError):
        hint = "set smaller dimensions with `--dim` or `--shape`, or use a machine with more memory"
        _say(str(UserError("out-of-memory", "there is not enough memory for this model", hint=hint)))
        return 2
    fault = write_report(error)
    _say(str(fault))
    _error_as_json(fault)
    return 3


def _error_as_json(error: IntaglioError) -> None:
    """With `--json`, stdout is one object in every case: that of the answer, or that of the error."""
    from intaglio.cli.terminal import json_was_printed, print_json

    if "--json" in sys.argv[1:] and not json_was_printed():
        parts = {"slug": error.slug, "message": error.message, "where": error.where, "hint": error.hint}
        print_json({"error": {**parts, "exit_code": error.exit_code}})


def _say(text: str) -> None:
    print(text, file=sys.stderr)
