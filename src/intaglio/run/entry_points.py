"""A package with several entry points as an object: a package for each, by name."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from intaglio.errors import UserError, quoted
from intaglio.ir.graph import Array
from intaglio.package.entries import entry_folder, read_entries
from intaglio.run.package import Package
from intaglio.run.timing import Profile
from intaglio.run.validate import Validation


class EntryPoints(Mapping[str, Package]):
    """`EntryPoints.load(folder)`; `compile_entries()` returns one. `points["step"]` is the package of an entry point."""

    notes: tuple[str, ...] = ()

    def __init__(self, folder: str | Path, temporary: tempfile.TemporaryDirectory[str] | None = None) -> None:
        self.folder = Path(folder)
        found = read_entries(self.folder)
        if found is None:
            what = f"{quoted(str(self.folder), 200)} has one entry point"
            raise UserError("not-a-package", what, hint="use `Package.load(folder)`")
        self.about = found
        self._temporary = temporary
        self._entries: dict[str, Package] = {}

    @classmethod
    def load(cls, folder: str | Path) -> EntryPoints:
        return cls(folder)

    @property
    def name(self) -> str:
        return self.about.name

    @property
    def entries(self) -> dict[str, Package]:
        return {name: self[name] for name in self}

    def __getitem__(self, entry: str) -> Package:
        if entry not in self._entries:
            if entry not in list(self):
                raise KeyError(entry)
            self._entries[entry] = Package(entry_folder(self.folder, entry))
        return self._entries[entry]

    def __iter__(self) -> Iterator[str]:
        return iter([row.name for row in self.about.entries])

    def __len__(self) -> int:
        return len(self.about.entries)

    def run(self, inputs: Mapping[str, Array] | Array, entry: str) -> dict[str, Array]:
        """One inference of an entry point."""
        return Package.load(self.folder, entry=entry).run(inputs) if entry not in list(self) else self[entry].run(inputs)

    def validate(self) -> dict[str, Validation]:
        """By entry point."""
        return {name: package.validate() for name, package in self.entries.items()}

    def profile(self, runs: int | None = None) -> dict[str, Profile]:
        return {name: package.profile(runs) for name, package in self.entries.items()}

    def __repr__(self) -> str:
        return f"<EntryPoints {', '.join(self)} of {self.name} for {self.about.target} in {self.folder}>"
