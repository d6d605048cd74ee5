"""What a validation says of one variant, and of one combination of sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VariantCheck:
    """`ok` is None where this machine cannot run it: its processor lacks something."""

    variant: str
    ok: bool | None
    max_rel: float | None = None
    lacking: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SizeCheck:
    """`ok` is None where the reference fails at these sizes: there is nothing to compare with."""

    sizes: Mapping[str, int]
    ok: bool | None
    max_rel: float
    failed: str = ""  # what the reference said
