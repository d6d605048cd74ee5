"""Which name was meant: one that contains what was written, or is spelled nearly so."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from importlib import resources

LEAST = 2  # characters that a part of a name must have
CLOSE = 0.7  # below, what is spelled alike is rarely what was meant: `stm32f4` and `wasm32`


@cache
def files_of(folder: str) -> tuple[str, ...]:
    """Names of the TOML files in a folder of this package, `boards` or `cores`: those of the boards or targets."""
    entries = resources.files("intaglio.targets").joinpath(folder).iterdir()
    return tuple(sorted(e.name.removesuffix(".toml") for e in entries if e.name.endswith(".toml")))


def holding(word: str, names: Iterable[str], most: int = 4) -> list[str]:
    """Names with this word in them, the shortest first."""
    word = word.lower()
    return sorted((n for n in names if word in n), key=lambda n: (len(n), n))[:most] if len(word) >= LEAST else []


def nearest(word: str, names: Iterable[str], most: int = 4, cutoff: float = CLOSE) -> list[str]:
    names = list(names)
    return holding(word, names, most) or get_close_matches(word.lower(), names, most, cutoff)


def listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{n}`" for n in names)


__all__ = ["files_of", "holding", "listed", "nearest"]
