"""A neural network as a Python module. It needs numpy and nothing else.

    import NAME

    y = NAME.run(x)                  arrays in the order of NAME.INPUTS, or by name; one output, or a dict of several
    net = NAME.Model()               one with memory of its own: for each thread, or each sequence of a network with a state
    y = net(x)
"""

from __future__ import annotations

import ctypes
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

# Intaglio puts this file into the wheel of a model as its `__init__.py`, beside the library and `model.json`.
_FOLDER = Path(__file__).parent
_FACTS: dict[str, Any] = json.loads((_FOLDER / "model.json").read_text(encoding="utf-8"))
INPUTS: list[dict[str, Any]] = _FACTS["inputs"]
OUTPUTS: list[dict[str, Any]] = _FACTS["outputs"]
__version__: str = _FACTS["version"]


class Model:
    """The network with memory of its own. Not for two threads at the same time."""

    def __init__(self) -> None:
        name = _FACTS["name"]
        self._library = ctypes.CDLL(str(_FOLDER / _FACTS["library"]))
        self._run = getattr(self._library, f"{name}_run_in")
        self._run.restype, self._run.argtypes = ctypes.c_int, [ctypes.c_void_p] * 3
        self._error = getattr(self._library, f"{name}_error")
        self._error.restype, self._error.argtypes = ctypes.c_char_p, [ctypes.c_int]
        size, alignment = _FACTS["arena_bytes"], _FACTS["alignment"]
        self._memory = np.zeros(size + alignment, np.uint8)
        self._arena = self._memory.ctypes.data + -self._memory.ctypes.data % alignment
        self._reset = getattr(self._library, f"{name}_reset_in") if _FACTS["state_bytes"] else None
        self.reset()

    def reset(self) -> None:
        """Start a new sequence: the state of a network that has one is as before the first step."""
        if self._reset is not None:
            self._reset.restype, self._reset.argtypes = None, [ctypes.c_void_p]
            self._reset(self._arena)

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        given, sizes = self._given(arrays, named)
        results = [np.empty(info["shape"], info["numpy"]) for info in OUTPUTS]
        reported = [0 for info in OUTPUTS for _ in info.get("dims", ())]  # C writes the shapes that depend on sizes there
        words = [[a.ctypes.data or 1 for a in part] for part in (given, results)]
        pointers = [(ctypes.c_void_p * max(1, len(part)))(*part) for part in (words[0] + sizes, words[1] + reported)]
        code = self._run(self._arena, pointers[0], pointers[1])
        if code != 0:
            raise RuntimeError((self._error(code) or b"").decode("ascii", "replace"))
        shapes = iter([int(n or 0) for n in pointers[1][len(results) :]])
        for n, info in enumerate(OUTPUTS):
            if info.get("dims"):
                shape = tuple(next(shapes) for _ in info["dims"])
                results[n] = results[n].reshape(-1)[: math.prod(shape)].reshape(shape)
        return results[0] if len(results) == 1 else {info["name"]: r for info, r in zip(OUTPUTS, results, strict=True)}

    def _given(self, arrays: tuple[Any, ...], named: dict[str, Any]) -> tuple[list[Any], list[int]]:
        names = [info["name"] for info in INPUTS]
        fields = {info["field"]: info["name"] for info in INPUTS}
        if len(arrays) > len(names):
            raise TypeError(f"{_FACTS['name']} takes {len(names)} inputs, not {len(arrays)}: {', '.join(names)}")
        table = dict(zip(names, arrays, strict=False))
        for key, value in named.items():
            name = fields.get(key, key)
            if name not in names or name in table:
                raise TypeError(f"{key!r} is {'given twice' if name in table else 'not an input'}: {', '.join(names)}")
            table[name] = value
        if missing := [name for name in names if name not in table]:
            raise TypeError(f"missing: {', '.join(missing)}")
        sizes = _sizes([np.asarray(table[name]).shape for name in names])
        return [_fitted(table[info["name"]], info, sizes) for info in INPUTS], list(sizes.values())


def _sizes(shapes: list[tuple[int, ...]]) -> dict[str, int]:
    """Those that the caller gives, by the shapes of the inputs."""
    found: dict[str, int] = {}
    for info, shape in zip(INPUTS, shapes, strict=True):
        shape = (1, *shape) if len(shape) + 1 == len(info.get("dims", ())) else shape
        for text, n in zip(info.get("dims", ()), shape, strict=False):
            found.setdefault(text, n)
    sizes = {}
    for size in _FACTS.get("sizes", ()):
        n = found.get(size["name"], size["high"])
        if n not in range(size["low"], size["high"] + 1, size["step"]):
            raise ValueError(f"{size['name']} is {n}, which is not within {size['low']}..{size['high']}:{size['step']}")
        sizes[size["name"]] = n
    return sizes


def _shape(info: dict[str, Any], sizes: dict[str, int]) -> tuple[int, ...]:
    """For these sizes: `T*2` and the like are formulas of Python, but for commas."""
    known: dict[str, Any] = {"__builtins__": {}, "min": min, "max": max}
    return tuple(int(eval(text.replace(";", ","), known, sizes)) for text in info["dims"])


def _fitted(value: Any, info: dict[str, Any], sizes: dict[str, int]) -> Any:
    """As the C code reads it: the type and the shape of the model, in order. Numbers are never cut or rounded to fit."""
    array, shape = np.asarray(value), tuple(info["shape"]) if not info.get("dims") else _shape(info, sizes)
    if not np.can_cast(array.dtype, info["numpy"], "same_kind"):
        raise TypeError(f"{info['name']!r} is {array.dtype}, and the network takes {info['numpy']}")
    if array.shape != shape and (1, *array.shape) != shape:
        raise ValueError(f"{info['name']!r} has the shape {array.shape}, and the network takes {shape}")
    return np.ascontiguousarray(array.reshape(shape), info["numpy"])


_shared: list[Model] = []


def run(*arrays: Any, **named: Any) -> Any:
    """One inference in memory that the module keeps."""
    if not _shared:
        _shared.append(Model())
    return _shared[0](*arrays, **named)


__all__ = ["INPUTS", "OUTPUTS", "Model", "__version__", "run"]


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__file__", "__name__"]
