"""Layers of the user's own, by registration: a file names the class, and the program that compiles says what it computes.

Nothing from the file is executed: the name is looked up here, and the function is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from intaglio.errors import UserError, quoted


@dataclass(frozen=True, slots=True)
class Custom:
    weights: tuple[str, ...]
    row: Callable[..., Any]


CUSTOM: dict[str, Custom] = {}


def register_keras_layer(name: str, *, weights: Sequence[str] = ()) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Say what a custom layer of Keras files computes: a decorator for a function that takes one call of the layer.

    `name` is the class, or `package>Class` as it was registered in Keras. `weights` names its variables in the order in which the
    layer creates them. The function gets `call`: `call.x`, its operand; `call.config`, its options; `call.weight(name, *shape)`;
    `call.like(number, value)`; `call.emit(operator, *values)` with operators of `intaglio.ops`. It returns the result."""
    if not name or not all(isinstance(w, str) and w for w in weights):
        raise UserError("bad-option", f"{quoted(str(name))} is not the name of a layer with weights", hint="give a class name")

    def add(row: Callable[..., Any]) -> Callable[..., Any]:
        CUSTOM[name] = Custom(tuple(weights), row)
        return row

    return add


def registered(kind: str, full: object) -> str:
    """Under which name a class is registered; an empty text: it is not."""
    return next((n for n in (full, kind) if isinstance(n, str) and n in CUSTOM), "")
