"""Whole packages of a few models: firmware on emulated cores, and OpenCL where a device is. Building one takes seconds."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from hunting.compare import Case, Failure, wrong
from intaglio.errors import IntaglioError, UserError
from intaglio.pipeline import compile_request
from intaglio.run.host import ordered_inputs
from intaglio.run.loaded import LoadedPackage
from intaglio.stages import Request, Watch

CORES = ("cortex-m4f", "cortex-m7", "cortex-m0+", "hazard3")  # with an FPU, reordered assembly, soft floats, RISC-V


@cache
def devices() -> tuple[str, ...]:
    """Targets that this machine can run."""
    found = [] if _missing("unicorn") else list(CORES)
    if not _missing("intaglio.run.opencl.devices"):
        from intaglio.run.opencl.devices import list_devices

        with contextlib.suppress(IntaglioError):
            found += ["opencl"] if list_devices() else []
    return tuple(found)


def _missing(module: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(module) is None


def on_device(case: Case, target: str) -> Iterator[Failure]:
    with tempfile.TemporaryDirectory(prefix="intaglio-hunt-") as place:
        output = Path(place) / "out"
        try:
            compile_request(Request(case.model, output, target=target, **case.options), Watch())
            package = LoadedPackage(output)
            package.library.reset()
            for step, feed in enumerate(case.feeds):
                if told := wrong(case, step, package.library.run(ordered_inputs(package.manifest, feed))):
                    yield Failure(case.seed, f"on:{target}", told)
                    return
        except (IntaglioError, subprocess.SubprocessError) as error:
            if target == "opencl" and isinstance(error, UserError):  # streams, sizes and loops are refused on OpenCL
                return
            yield Failure(case.seed, f"on:{target}", f"{type(error).__name__}: {error}")
        finally:
            shutil.rmtree(output, ignore_errors=True)
