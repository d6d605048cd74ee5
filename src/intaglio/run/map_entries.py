"""An input that is a map is two arrays of a package: `NAME_keys` and `NAME_values`."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from intaglio.errors import UserError, quoted
from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.package.manifest import Manifest, TensorInfo

NamedInputs = Mapping[str, Array | Mapping[str, object] | Mapping[int, object]]  # arrays by name; a map as it is


def is_of_map(info: TensorInfo, manifest: Manifest) -> bool:
    """Keys of a map, or values?"""
    stem, _, part = info.name.rpartition("_")
    other = {"keys": "values", "values": "keys"}.get(part)
    return any(other is not None and one.name == f"{stem}_{other}" and one.shape[:1] == info.shape[:1] for one in manifest.inputs)


def as_map(inputs: Mapping[str, Array], name: str) -> dict[Any, Any]:
    """The entries of a map: of equal keys the first counts."""
    pairs = zip(inputs[f"{name}_keys"].tolist(), inputs[f"{name}_values"].tolist(), strict=True)
    return dict(reversed(list(pairs)))


def with_entries(given: NamedInputs, manifest: Manifest) -> dict[str, Any]:
    """Maps among the inputs as arrays of keys and values. Where there is room for more entries, the first is repeated."""
    infos = {info.name: info for info in manifest.inputs}
    found: dict[str, Any] = {}
    for name, value in given.items():
        keys, values = infos.get(f"{name}_keys"), infos.get(f"{name}_values")
        if not isinstance(value, Mapping) or keys is None or values is None:
            found[name] = value
            continue
        room, entries = values.shape[0], list(value.items())
        if len(entries) > room:
            what = f"the map {quoted(name)} has {len(entries)} entries, at most {room} fit"
            raise UserError("wrong-input", what, hint=f"compile with `--length {name}=N` for more entries")
        entries += (entries[:1] or [("" if keys.text else 0, "" if values.text else 0)]) * (room - len(entries))
        for info, column in zip((keys, values), zip(*entries, strict=True), strict=True):
            found[info.name] = _column(column, info, name)
    return found


def _column(items: tuple[object, ...], info: TensorInfo, name: str) -> Array:
    kind = "strings" if info.text else "numbers"
    if not all(isinstance(item, str if info.text else Real) for item in items):
        raise UserError("wrong-input", f"the map {quoted(name)} needs {kind} for {quoted(info.name)}", hint=f"give {kind} there")
    try:
        return np.array(items, np.str_ if info.text else DType(info.dtype).numpy)
    except OverflowError as error:
        what = f"the map {quoted(name)} does not fit {quoted(info.name)}: {error}"
        raise UserError("wrong-input", what, hint=f"it takes numbers of type {info.dtype}") from None
