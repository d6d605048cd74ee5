"""Kernels for processors with the DSP extension (Cortex-M4, M7, M33): two products of 16 bits per instruction."""
