"""Kernels for cores with MVE (Cortex-M55, M85): sixteen products of bytes per instruction."""

from intaglio.kernels.mve import conv, depthwise, rows

__all__ = ["conv", "depthwise", "rows"]
