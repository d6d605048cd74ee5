"""All operators, found in the modules of this package: a new operator is a class in one of them, or in a new module.

Importing any module of this package imports all of them, so that the registry of names is always complete.
Import an operator from its own module: `from intaglio.ops.binary import Add`.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

_MODULES = [import_module(f"{__name__}.{name}") for name in sorted(found.name for found in iter_modules(__path__))]


def __getattr__(name: str) -> object:
    """Plug-ins may still import an operator from the package: `from intaglio.ops import Add`."""
    for module in _MODULES:
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
