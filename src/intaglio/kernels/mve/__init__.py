"""Kernels for cores with MVE (Cortex-M55, M85): sixteen products of bytes per instruction."""
