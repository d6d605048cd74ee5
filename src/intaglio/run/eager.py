"""What PyTorch computes for an exported program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from intaglio.errors import ToolError
from intaglio.ir.graph import Array
from intaglio.package.manifest import Manifest


class Eager:
    of_model = True
    about = ""

    def __init__(self, path: Path, manifest: Manifest, extra: tuple[str, ...] = ()) -> None:
        raise ToolError("no-reference", "there is no reference for this model yet")

    def fresh(self) -> None: ...

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        raise NotImplementedError
