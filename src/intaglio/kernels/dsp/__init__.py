"""Kernels for processors with the DSP extension (Cortex-M4, M7, M33): two products of 16 bits per instruction."""

from intaglio.kernels.dsp import conv, depthwise, hybrid, pool, sums

__all__ = ["conv", "depthwise", "hybrid", "pool", "sums"]
