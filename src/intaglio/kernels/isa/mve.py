"""MVE of Cortex-M55 and M85: floats in vectors; bytes are in `kernels/mve`."""

from __future__ import annotations

from dataclasses import replace

from intaglio.kernels.isa.vec4 import VEC4

MVE = replace(
    VEC4,
    name="mve",
    prelude="#include <arm_mve.h>\n\n" + VEC4.prelude,
    table={**VEC4.table, "vfma": "(ig_v4f)vfmaq_f32((float32x4_t){2}, (float32x4_t){0}, (float32x4_t){1})"},
)

ISAS = (MVE,)
