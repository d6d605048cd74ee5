"""What a file of `jax.export` holds, as JAX's own bindings read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from intaglio.errors import ModelError, ToolError, install_hint, quoted

HINT = "write it with `jax.export.export(f)(...).serialize()`"


def opened(path: Path) -> Any:
    """The exported function of a file."""
    try:
        return deserialized(path)
    except ImportError:
        what = f"{quoted(str(path), 200)} is a function of JAX, which is not installed"
        raise ToolError("no-framework", what, hint=f"run {install_hint('jax')}") from None
    except Exception as error:  # what JAX says of a damaged file
        raise unreadable(path, quoted(reason_of(error))) from None


def deserialized(path: Path) -> Any:
    from jax import export

    return export.deserialize(bytearray(path.read_bytes()))


def module_of(exported: Any) -> Any:
    """Its StableHLO."""
    import jax

    given = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in exported.in_avals]
    args, kwargs = jax.tree_util.tree_unflatten(exported.in_tree, given)
    return jax.jit(exported.call).lower(*args, **kwargs).compiler_ir("stablehlo")


def unreadable(path: Path, reason: str) -> ModelError:
    return ModelError("bad-file", f"JAX does not read {quoted(str(path), 200)}: {reason}", hint=HINT)


def reason_of(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
