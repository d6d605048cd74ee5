"""Kernels: loop IR, builders per operator family, instruction records, the interpreter and the C printer.

`choice.py` is the table of kernels, `contraction/` the frame of convolutions and products, `loop.py` what they are written in.
"""

from intaglio.kernels.lower import lower
from intaglio.kernels.program import Program

__all__ = ["Program", "lower"]
