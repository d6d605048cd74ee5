"""What `halves.py` and `halves_row.py` share: when sums of two halves fit, and how a sum becomes a byte."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from intaglio.ir.graph import Array
from intaglio.kernels.c_template import render
from intaglio.kernels.dsp.primitives import BASE
from intaglio.kernels.dsp.variants import Finish, How
from intaglio.kernels.job import Job
from intaglio.kernels.routines import Routine, no_meaning, routine_of

C = Path(__file__).parents[1] / "c"
THUMB = Routine("thumb", render(C / "thumb.c"))
RECORD = 3  # words: start, multiplier, shift to the right; above its five bits, when halves are split
REACH = 2**29  # of sums, for products of 16 by 16 bits in `halves_scaled.c`


def other_core(job: Job) -> str | None:
    """Why the target does not gain: its core multiplies two numbers of 16 bits at once, or is no microcontroller."""
    if job.target.arch not in ("arm", "riscv32") or not job.target.bare or job.isa.dsp or job.isa.lanes > 1:
        return "the target is neither a Cortex-M without the DSP extension nor a 32-bit RISC-V"
    return None


def finishes(finish: Finish, reach: Array) -> bool:
    """Does `finish_part` take sums of this reach?"""
    return finish.how in (How.TWICE, How.ONCE) and int(reach.max(initial=0)) < REACH


def fits_each(weights: Array, together: int) -> Array:
    """[channels, numbers / together]: do sums of so many neighbours fit 16 bits, whatever bytes they are multiplied by?"""
    parts = weights.reshape(len(weights), -1, together)
    above, below = np.maximum(parts, 0).sum(axis=2), np.maximum(-parts, 0).sum(axis=2)
    most, least = 127 * above + 128 * below, 128 * above + 127 * below
    return np.asarray((most < 2**15) & (least <= 2**15))


def fits(weights: Array, together: int) -> bool:
    """Do they everywhere?"""
    return bool(fits_each(weights, together).all())


def signed(x: Array) -> Array:
    """Bytes without a sign are moved by 128."""
    return np.asarray(x.astype(np.int64) - (128 if x.dtype == np.uint8 else 0))


def full_records(scale: Array, outs: int, zero: int) -> Array:
    """Records of four words, for `finished`."""
    start, multiplier, shift = scale[: outs * RECORD].reshape(outs, RECORD).astype(np.int64).T
    right = shift & 31
    return np.stack([start, multiplier, (1 << (right - 1)) + (zero << right), right], axis=1)


@cache
def scaled_part(how: How) -> Routine:
    """`ig_halves_scaled_HOW(sum, multiplier, offset, right)`: before it is clipped."""
    twice = how is How.TWICE
    half = {"HALF": 1 << 14 if twice else 0, "HALF64": 1 << 30 if twice else 0}
    return routine_of(C / "halves_scaled.c", f"halves_scaled_{how}", no_meaning, (BASE,), TWICE=twice, **half)


@cache
def finish_part(finish: Finish, apart: bool = False) -> Routine:
    """`ig_halves_finish_VARIANT(sum, multiplier, offset, right)`; `apart`: a function that is called, else an inline one."""
    (low, high), part = finish.out.bounds, scaled_part(finish.how)
    name, linkage = (f"halves_finish_apart_{finish}", "IG_ROUTINE") if apart else (f"halves_finish_{finish}", "IG_INLINE")
    macros = {"LINKAGE": linkage, "SCALED": f"ig_{part.name}"}
    return routine_of(C / "halves_finish.c", name, no_meaning, (BASE, part), LOW=low, HIGH=high, **macros)
