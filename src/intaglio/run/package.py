"""A package as an object: run it, compare it, time it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from intaglio.ir.graph import Array
from intaglio.run.loaded import LoadedPackage

if TYPE_CHECKING:
    from intaglio.run.timing import Profile
    from intaglio.run.validate import Validation


class Package(LoadedPackage):
    """`Package.load(folder)`; `compile()` returns one."""

    def validate(
        self, inputs: Mapping[str, Array] | None = None, *, layers: bool = False, threshold: float | None = None
    ) -> Validation:
        from intaglio.run.validate import ValidateOptions, validate

        return validate(self, ValidateOptions(inputs=inputs, layers=layers, threshold=threshold))

    def profile(self, runs: int = 20) -> Profile:
        from intaglio.run.profile import profile

        return profile(self, runs)
