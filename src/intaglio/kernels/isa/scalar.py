"""One lane: plain C, with a fused multiply-add where the core has one; pairs of 16 bits in general registers (`kernels/dsp`)."""

from __future__ import annotations

from dataclasses import replace

from intaglio.kernels.isa.record import Isa

SCALAR = Isa("scalar", 1, "float", "int32_t", "int", "", "", {}, "")
DSP = replace(SCALAR, name="dsp", dsp=True)  # Cortex-M4 and later

ISAS = (
    SCALAR,
    replace(SCALAR, name="scalar_fpu", fused=True),
    DSP,
    replace(DSP, name="dsp_fpu", fused=True),
    replace(SCALAR, name="opencl", fused=True),  # one lane here; `kernels/opencl` has vectors
)
