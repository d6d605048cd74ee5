"""Which operators there are, asked from the registries that the compiler itself uses."""

from __future__ import annotations

import dataclasses
from typing import Any


def onnx_operators() -> list[str]:
    from intaglio.frontends.onnx.call import TABLE
    from intaglio.frontends.onnx.rows import fill_table
    from intaglio.frontends.onnx.rows.constants import REFUSED

    fill_table()
    rows = {(domain, name) for (domain, name), row in TABLE.items() if row not in REFUSED}
    return sorted(f"{domain}:{name}" if domain else name for domain, name in rows | _with_function_body())


def _with_function_body() -> set[tuple[str, str]]:
    """Operators that ONNX defines by others: these are written out."""
    import onnx

    schemas: list[Any] = list(onnx.defs.get_all_schemas())
    expanded = [s for s in schemas if s.has_function or s.has_context_dependent_function]
    return {(s.domain, s.name) for s in expanded if s.domain in ("", "ai.onnx.preview")}


def tflite_operators() -> list[str]:
    import intaglio.frontends.tflite.rows  # noqa: F401  importing registers
    from intaglio.frontends.tflite.walk import ROWS

    return sorted(ROWS)


def torch_operators() -> list[str]:
    from intaglio.frontends.torch.call import TABLE
    from intaglio.frontends.torch.walk import fill_table

    fill_table()
    return sorted(name.removeprefix("aten.") for name in TABLE if not name.startswith(("python.", "higher_order.")))


def ir_operators() -> dict[str, list[str]]:
    """Each operator with its fields."""
    import intaglio.ops  # noqa: F401  importing registers
    from intaglio.ops.base import REGISTRY

    return {name: [f.name for f in dataclasses.fields(REGISTRY[name])] for name in sorted(REGISTRY)}
