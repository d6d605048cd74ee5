"""Commands for many models, boards and machines: fleet, search, serve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from intaglio.cli.options import with_options
from intaglio.cli.words import JsonOption, Model

many_app = typer.Typer()


@many_app.command()
def fleet(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="A project file with `[fleet]`.")] = Path("intaglio.toml"),
    set_: Annotated[
        Optional[list[str]], typer.Option("--set", metavar="KEY=VALUE", help="Replace a value, e.g. fleet.quick=true.")
    ] = None,
    jobs: Annotated[
        Optional[int], typer.Option("--jobs", "-j", metavar="N", help="Processes. Default: one for each core.", min=1, max=4096)
    ] = None,
    scheduler: Annotated[
        Optional[str], typer.Option("--scheduler", metavar="ADDRESS", help="Dask scheduler, e.g. tcp://head:8786.")
    ] = None,
    cluster: Annotated[
        Optional[str], typer.Option("--cluster", metavar="KIND", help="Start Dask: local, slurm, ssh or kubernetes.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also try again what failed.")] = False,
    report: Annotated[Optional[Path], typer.Option("--report", metavar="R.html", help="Write a page over all results.")] = None,
    export: Annotated[
        Optional[Path], typer.Option("--export", metavar="F.json", help="Write the figures, to compare with later.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Fit, compile, validate and profile many models for many boards. What is known is not done again."""
    from intaglio.cli.fleets import FleetWords, fleet_words

    words = FleetWords(set_ or [], jobs, scheduler, cluster, again, report, export, json)
    raise typer.Exit(fleet_words(file, words))


@many_app.command()
@with_options("target", "board", "ram", "flash", "dims", "shapes", "signature", "stream")
def search(
    model: Model,
    accuracy: Annotated[
        Optional[Path], typer.Option("--accuracy", metavar="DATA", help="Data to calibrate with; accuracy by its array `labels`.")
    ] = None,
    least: Annotated[
        Optional[float], typer.Option("--least-accuracy", metavar="A", help="Budget, e.g. 0.95.", min=0.0, max=1.0)
    ] = None,
    latency: Annotated[Optional[float], typer.Option("--latency", metavar="MS", help="Budget of one inference.")] = None,
    trials: Annotated[int, typer.Option("--trials", metavar="N", help="Points to build and measure.", min=1, max=100000)] = 24,
    jobs: Annotated[
        Optional[int], typer.Option("--jobs", "-j", metavar="N", help="Processes. Default: one for each core.", min=1, max=4096)
    ] = None,
    store: Annotated[Path, typer.Option("--store", metavar="DIR", help="Results and packages.")] = Path("build/search"),
    scheduler: Annotated[Optional[str], typer.Option("--scheduler", metavar="ADDRESS", help="Dask scheduler.")] = None,
    cluster: Annotated[Optional[str], typer.Option("--cluster", metavar="KIND", help="Start Dask, as for `fleet`.")] = None,
    report: Annotated[Optional[Path], typer.Option("--report", metavar="R.html", help="Draw the front on a page.")] = None,
    json: JsonOption = False,
    **options: object,
) -> None:
    """Search quantisation, optimisation and stripes for the best of RAM, flash, time and accuracy. `--ram`, `--flash`,
    `--latency` and `--least-accuracy` are budgets. Exit code 1 if nothing is within them."""
    from intaglio.cli.searching import SearchWords, search_words

    words = SearchWords(accuracy, least, latency, trials, jobs, store, scheduler, cluster, report, json)
    raise typer.Exit(search_words(model, options, words))


@many_app.command()
def serve(
    packages: Annotated[
        list[str],
        typer.Argument(metavar="PACKAGE...", help="DIR, NAME=DIR, NAME:VERSION=DIR, or a folder with versions 1, 2, ..."),
    ],
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", help="Port of REST; 0: any.", min=0, max=65535)] = 8000,
    grpc_port: Annotated[int, typer.Option("--grpc-port", metavar="N", help="Port of gRPC; 0: any.", min=0, max=65535)] = 8001,
    no_grpc: Annotated[bool, typer.Option("--no-grpc", help="REST alone.")] = False,
    queue: Annotated[
        int, typer.Option("--queue", metavar="N", help="Requests of a model that may wait; more get 429.", min=1, max=100000)
    ] = 64,
    workers: Annotated[
        Optional[int],
        typer.Option("--workers", metavar="N", help="Requests computed at once. Default: threads of the package.", min=1, max=256),
    ] = None,
    device: Annotated[Optional[str], typer.Option("--device", metavar="D", help="OpenCL device, as for `run`.")] = None,
    limit_body: Annotated[str, typer.Option("--limit-body", metavar="SIZE", help="Largest request.")] = "64M",
    limit_time: Annotated[
        float, typer.Option("--limit-time", metavar="S", help="Seconds within which a request must arrive.", min=0.1, max=3600.0)
    ] = 30.0,
    grace: Annotated[
        float, typer.Option("--grace", metavar="S", help="Seconds for what was taken, when it is stopped.", min=0.0, max=3600.0)
    ] = 30.0,
    watch: Annotated[
        float, typer.Option("--watch", metavar="S", help="Look for changed packages so often; 0: on SIGHUP.", min=0.0, max=3600.0)
    ] = 1.0,
    certificate: Annotated[Optional[Path], typer.Option("--tls-cert", metavar="F.pem", help="Certificate, for TLS.")] = None,
    key: Annotated[Optional[Path], typer.Option("--tls-key", metavar="F.pem", help="Its private key.")] = None,
    token_file: Annotated[
        Optional[Path], typer.Option("--token-file", metavar="F", help="Ask for the token in this file (`Authorization: Bearer`).")
    ] = None,
) -> None:
    """Serve packages by the Open Inference Protocol (V2): REST and gRPC. SIGTERM stops it after what was taken."""
    from intaglio.cli.inferring import ServeWords, serve_words

    words = ServeWords(
        host, port, grpc_port, no_grpc, queue, workers, device, limit_body, limit_time, grace, watch, certificate, key, token_file
    )
    serve_words(packages, words)
