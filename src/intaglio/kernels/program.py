"""The program of `ir/program.py`, made of this package's kernels."""

from __future__ import annotations

from intaglio.ir import program as shared
from intaglio.ir.program import Argument, Constant, ConstantArg, ScratchArg, ValueArg
from intaglio.kernels.loop import Kernel

Layer = shared.Layer[Kernel]
Program = shared.Program[Kernel]

__all__ = ["Argument", "Constant", "ConstantArg", "Layer", "Program", "ScratchArg", "ValueArg"]
