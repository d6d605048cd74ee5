"""Instruction sets: a file each, found by its place in this folder. A new one is a file here and a target's TOML file.

`avx512.py`, `avx2.py` use intrinsics; `vec4.py` is written in vector extensions, which `neon.py`, `sse2.py` and `mve.py` refine.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from intaglio.kernels.isa.meaning import MEANING, REPEATS
from intaglio.kernels.isa.record import Dot, Integers, Isa


def _found() -> dict[str, Isa]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return {isa.name: isa for module in modules for isa in getattr(module, "ISAS", ())}


ISAS: Mapping[str, Isa] = _found()
__all__ = ["ISAS", "MEANING", "REPEATS", "Dot", "Integers", "Isa"]
