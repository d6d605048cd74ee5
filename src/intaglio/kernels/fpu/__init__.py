"""Kernels for cores with a single-precision FPU and no vectors: Cortex-M4F, M7, M33."""
