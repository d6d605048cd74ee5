"""What a file of `jax.export` holds, as JAX's own bindings read it."""

from __future__ import annotations

from collections.abc import Sequence
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


def module_of(exported: Any, shapes: Sequence[Sequence[int]] = ()) -> Any:
    """Its StableHLO, for inputs of these shapes; without them, sizes that have names stay open."""
    import jax

    known = all(isinstance(n, int) for aval in exported.in_avals for n in aval.shape)
    if not known and not shapes:
        return exported.mlir_module()
    sizes = [tuple(shape) for shape in shapes] or [aval.shape for aval in exported.in_avals]
    given = [jax.ShapeDtypeStruct(shape, aval.dtype) for shape, aval in zip(sizes, exported.in_avals, strict=True)]
    args, kwargs = jax.tree_util.tree_unflatten(exported.in_tree, given)
    lowered = jax.jit(exported.call).lower(*args, **kwargs).compiler_ir("stablehlo")
    if known:
        return lowered
    # What XLA does before it compiles such a module: sizes go from the inputs into every type.
    from jax._src.interpreters.mlir import refine_polymorphic_shapes

    return refine_polymorphic_shapes(lowered)


def unreadable(path: Path, reason: str) -> ModelError:
    return ModelError("bad-file", f"JAX does not read {quoted(str(path), 200)}: {reason}", hint=HINT)


def reason_of(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
