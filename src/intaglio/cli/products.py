"""Commands around finished packages and projects: report, compare, build, wheel, cmsis-pack, verify, slot, dossier, firmware."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from intaglio.cli.words import BudgetOption, CcOption, Folder, JsonOption, RunOption

products_app = typer.Typer()


@products_app.command()
def report(
    first: Annotated[Path, typer.Argument(metavar="A", help="The folder of a package; with B, of the earlier one.")],
    second: Annotated[
        Optional[Path], typer.Argument(metavar="[B]", help="The folder of the later package: the page is about B and what changed.")
    ] = None,
    output: Annotated[
        Optional[Path], typer.Option("--output", "-o", metavar="R.html", help="Page to write. Default: A.html or B.html, here.")
    ] = None,
    budget: BudgetOption = None,
    measured: Annotated[
        Optional[Path],
        typer.Option("--measured", metavar="R.json", help="Show the cycles of a board, kept by `profile --serial PORT --save`."),
    ] = None,
    run: RunOption = True,
    json: JsonOption = False,
) -> None:
    """Write one HTML page about a package: memory, layers, graph, code, numerics. Of two, A is before, B after."""
    from intaglio.cli.reporting import write_report
    from intaglio.report.gather import Wanted

    package, before = (first, None) if second is None else (second, first)
    raise typer.Exit(write_report(package, before, output, budget, Wanted(run, measured=measured), json=json))


@products_app.command()
def firmware(
    package: Folder,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="F.elf", help="File to write.")],
    cc: CcOption = None,
    json: JsonOption = False,
) -> None:
    """Build firmware that answers on the board's UART, with cycles per layer: for `validate` and `profile --serial PORT`."""
    from intaglio.cli.serving import write_firmware

    write_firmware(package, output, cc, json)


@products_app.command()
def emulate(package: Folder, cc: CcOption = None) -> None:
    """Run firmware on an emulated core with its UART on a pseudo-terminal, for `--serial`. Prints its path; Ctrl-C ends it."""
    from intaglio.cli.serving import emulate_board

    emulate_board(package, cc)


@products_app.command()
def build(
    names: Annotated[Optional[list[str]], typer.Argument(metavar="[NAME]...", help="Packages and firmware. Default: all.")] = None,
    file: Annotated[Path, typer.Option("--file", "-f", metavar="F.toml", help="The project file.")] = Path("intaglio.toml"),
    set_: Annotated[
        Optional[list[str]], typer.Option("--set", metavar="KEY=VALUE", help="Replace a value, e.g. defaults.optimize=size.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", metavar="N", help="Packages at the same time.", min=1, max=256)] = 2,
    force: Annotated[bool, typer.Option("--force", help="Also make what is up to date.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of the project file.")] = False,
    json: JsonOption = False,
) -> None:
    """Make every package of a project file, in parallel, if it changed."""
    if schema:
        from intaglio.cli.terminal import print_json
        from intaglio.project.schema import schema as made

        print_json(made())
        return
    from intaglio.cli.building import build_words

    raise typer.Exit(build_words(file, names or [], set_ or [], jobs, force=force, json=json))


@products_app.command()
def wheel(
    package: Folder,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder to write the wheel to.")] = Path("dist"),
    wheel_version: Annotated[str, typer.Option("--wheel-version", metavar="V", help="Version of the wheel.")] = "0.1.0",
) -> None:
    """Write a package for a host as a Python wheel that needs numpy alone."""
    from intaglio.package.manifest import read_manifest
    from intaglio.package.wheel import write_wheel

    print(f"wheel: {write_wheel(package, read_manifest(package), output, wheel_version)}")


@products_app.command("cmsis-pack")
def cmsis_pack(
    package: Folder,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder to write the pack to.")] = Path("dist"),
    vendor: Annotated[str, typer.Option("--vendor", metavar="V", help="Vendor of the pack.")] = "Intaglio",
    pack_version: Annotated[str, typer.Option("--pack-version", metavar="V", help="Version of the pack.")] = "0.1.0",
) -> None:
    """Write a package for a Cortex-M core as a CMSIS-Pack."""
    from intaglio.package.cmsis_pack import write_cmsis_pack
    from intaglio.package.manifest import read_manifest

    print(f"pack: {write_cmsis_pack(package, read_manifest(package), output, vendor, pack_version)}")


@products_app.command()
def verify(
    package: Folder,
    key: Annotated[
        Optional[Path], typer.Option("--key", metavar="PUBLIC.pem", help="Public key that the package must be signed with.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check that a package is whole and unchanged, and signed by a key. Exit code 1 if it is not."""
    from intaglio.cli.verifying import verify_words

    raise typer.Exit(verify_words(package, key, json))


@products_app.command()
def slot(
    package: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a package; with `--check`, an image.")],
    output: Annotated[Optional[Path], typer.Option("--output", "-o", metavar="F.bin", help="Image to write.")] = None,
    version: Annotated[int, typer.Option("--version", metavar="N", help="Version of the weights, from 1; it must grow.")] = 0,
    sign: Annotated[Optional[Path], typer.Option("--sign", metavar="KEY.pem", help="Private key of Ed25519.")] = None,
    encrypt: Annotated[
        Optional[Path], typer.Option("--encrypt", metavar="KEY.bin", help="Key of AES, 16 or 32 bytes: encrypt the weights.")
    ] = None,
    replaces: Annotated[
        Optional[Path], typer.Option("--for", metavar="DIR", help="Refuse if the code of this package cannot use the weights.")
    ] = None,
    check: Annotated[
        Optional[Path], typer.Option("--check", metavar="PUBLIC.pem", help="Is the image whole, and signed by this key?")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write the weights of a package (`compile --safety slots`) as a signed image, for updates over the air; or check an image."""
    from intaglio.cli.slots import check_slot, write_slot

    if check is not None:
        raise typer.Exit(check_slot(package, check, json))
    write_slot(package, output, version, (sign, encrypt), replaces, json)


@products_app.command()
def dossier(
    package: Folder,
    output: Annotated[
        Optional[Path], typer.Option("--output", "-o", metavar="DIR", help="Folder to write. Default: NAME-dossier, here.")
    ] = None,
    inputs: Annotated[
        int, typer.Option("--inputs", metavar="N", help="Inputs that firmware runs on, for the observed time.", min=1, max=1000000)
    ] = 100,
    pdf: Annotated[bool, typer.Option("--pdf", help="Also print the page to dossier.pdf; needs Chromium.")] = False,
    run: RunOption = True,
    json: JsonOption = False,
) -> None:
    """Write evidence for a certification file: trace, error bounds, memory, time, coverage. Exit code 1 if a proof fails."""
    from intaglio.cli.dossiers import dossier_words
    from intaglio.dossier.facts import Wanted

    raise typer.Exit(dossier_words(package, output, Wanted(inputs, run), pdf, json))


@products_app.command()
def compare(
    before: Annotated[Path, typer.Argument(metavar="A", help="The earlier package; or a run of a fleet: STORE, STORE@N, F.json.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="The later one, of the same kind.")],
    fail_if: Annotated[
        Optional[list[str]],
        typer.Option("--fail-if", metavar="RULE", help="Exit code 1 if this holds, e.g. `ram>+2%`. May be repeated."),
    ] = None,
    budget: BudgetOption = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    run: RunOption = True,
    json: JsonOption = False,
) -> None:
    """Show what changed from A to B: figures and layers of two packages, or the results of two runs of a fleet."""
    from intaglio.cli.reporting import compare_packages, compare_runs
    from intaglio.errors import UserError
    from intaglio.fleet.changes import is_run
    from intaglio.report.gather import Wanted

    if is_run(before) or is_run(after):
        if budget is not None:
            hint = "rules such as `--fail-if ram>+2%`; budgets of a fleet are in its project file"
            raise UserError("bad-option", "`--budget` is for packages, not for runs of a fleet", hint=hint)
        raise typer.Exit(compare_runs(before, after, fail_if or [], json=json, markdown=markdown))
    raise typer.Exit(compare_packages(before, after, fail_if or [], budget, Wanted(run), json=json, markdown=markdown))
