"""Single instructions of the DSP extension as inline C functions, and what all routines stand on."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from intaglio.kernels.c_template import functions, render
from intaglio.kernels.job import Job
from intaglio.kernels.routines import Routine

C = Path(__file__).parent / "c"
BASE = Routine("base", render(C / "base.c"), functions=("ig_rolled",))


@cache
def operation(name: str) -> Routine:
    """A function of `operations.c`."""
    return Routine(name, functions(C / "operations.c")[f"ig_{name}"], needs=(BASE,))


def operations(*names: str) -> tuple[Routine, ...]:
    return (BASE, *(operation(name) for name in names))


def no_dsp(job: Job) -> str | None:
    return None if job.isa.dsp else "the core has no DSP extension"
