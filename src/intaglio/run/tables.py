"""A table with names and types of its columns, as those of pandas, as the arrays that a package takes."""

from __future__ import annotations

from typing import Any

from intaglio.errors import UserError, quoted
from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.package.manifest import Manifest, TensorInfo


def is_table(given: object) -> bool:
    return hasattr(given, "columns") and hasattr(given, "dtypes") and hasattr(given, "to_numpy")


def columns_of(table: Any, manifest: Manifest) -> dict[str, Array]:
    """Each input is a column, by its name; or the only input is the whole table. Other columns are left out."""
    names = {str(name): name for name in table.columns}
    infos = manifest.inputs
    if len(infos) == 1 and infos[0].name not in names:
        return {infos[0].name: _numbers(table.to_numpy(), infos[0])}
    lost = [quoted(info.name) for info in infos if info.name not in names]
    if lost:
        what = f"the table has no column {', '.join(lost)}"
        raise UserError("wrong-input", what, hint=f"`{manifest.name}` takes {', '.join(quoted(i.name) for i in infos)}")
    return {info.name: _numbers(table[names[info.name]].to_numpy().reshape(-1, 1), info) for info in infos}


def _numbers(array: Array, info: TensorInfo) -> Array:
    if info.text:
        return array
    try:
        return array.astype(DType(info.dtype).numpy)
    except (TypeError, ValueError):
        what = f"the input {quoted(info.name)} takes numbers, and the table has something else there"
        raise UserError("wrong-input", what, hint="give the columns of the example that it was compiled with") from None
