"""Intaglio compiles trained neural networks, ahead of time, into readable C.

    import intaglio
    package = intaglio.compile("model.onnx", output="out")
    package.run({"x": array})

Names are imported when they are first used, so that `import intaglio` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intaglio.version import __version__

if TYPE_CHECKING:
    from intaglio.errors import AnswerIsNo, IntaglioError, OurFault, UserError
    from intaglio.frontends.keras.custom import register_keras_layer
    from intaglio.pipeline import compile, compile_entries
    from intaglio.run.entry_points import EntryPoints
    from intaglio.run.package import Package

__all__ = [
    "AnswerIsNo", "EntryPoints", "IntaglioError", "OurFault", "Package", "UserError", "__version__", "compile", "compile_entries",
    "register_keras_layer",
]  # fmt: skip

_HOME = {
    "compile": "intaglio.pipeline",
    "compile_entries": "intaglio.pipeline",
    "EntryPoints": "intaglio.run.entry_points",
    "Package": "intaglio.run.package",
    "register_keras_layer": "intaglio.frontends.keras.custom",
    "AnswerIsNo": "intaglio.errors",
    "IntaglioError": "intaglio.errors",
    "OurFault": "intaglio.errors",
    "UserError": "intaglio.errors",
}


def __getattr__(name: str) -> object:
    import importlib

    if name not in _HOME:
        raise AttributeError(f"module 'intaglio' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
