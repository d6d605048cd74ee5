"""Which operators there are, asked from the registries that the compiler itself uses."""

from __future__ import annotations


def onnx_operators() -> list[str]:
    from intaglio.frontends.onnx.call import TABLE
    from intaglio.frontends.onnx.rows import fill_table

    fill_table()
    return sorted(f"{domain}:{name}" if domain else name for domain, name in TABLE)


def ir_operators() -> list[str]:
    import intaglio.ops  # noqa: F401  importing registers
    from intaglio.ops.base import REGISTRY

    return sorted(REGISTRY)
