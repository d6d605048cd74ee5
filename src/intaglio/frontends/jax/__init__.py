"""Functions of JAX as graphs: files of `jax.export` (`exported.serialize()`), read by JAX itself where it is installed.

JAX parses its own format and hands out StableHLO operations one by one; nothing of the file is executed. Shapes are those that the
function was exported for, and names among them are made numbers by `--dim`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from intaglio.errors import ModelError, UserError, quoted
from intaglio.frontends import finishing
from intaglio.frontends.jax.opening import module_of, opened, reason_of, unreadable
from intaglio.frontends.jax.trial import tried, wrote
from intaglio.frontends.jax.walk import Walk
from intaglio.frontends.onnx.faults import Problem
from intaglio.frontends.onnx.pinning import Declared, Follows, pin
from intaglio.ir.graph import Graph
from intaglio.ir.spans import Dims, Shapes
from intaglio.ir.types import DType


def load(path: Path, *, dims: Dims, shapes: Shapes, name: str | None = None) -> tuple[Graph, list[str]]:
    walk = _walked(path, dims, shapes, collect=False)
    outputs = [(f"out{n}", value) for n, value in enumerate(walk.outputs)]
    return finishing.finish(walk.emitter, walk.inputs, outputs, name or path.stem), walk.emitter.notes


def check(path: Path, *, dims: Dims, shapes: Shapes) -> list[Problem]:
    return _walked(path, dims, shapes, collect=True).problems


def _walked(path: Path, dims: Dims, shapes: Shapes, *, collect: bool) -> Walk:
    tried(path)
    exported = opened(path)
    taken = list(exported.in_avals)
    inputs = [Declared(f"in{n}", _type(aval.dtype, path), tuple(map(_size, aval.shape))) for n, aval in enumerate(taken)]
    formulas = {str(size): size for aval in taken for size in aval.shape if not isinstance(size, int)}
    named = {name for size in formulas.values() for name in size.get_vars()}
    follows = {text: _computed(size) for text, size in formulas.items() if text not in named}
    one = " ".join(f"`--dim {name}=8`" for name in sorted(named))
    try:
        pinned = pin(inputs, dims, shapes, path.name, follows, hint="export it for the shapes that you need", names=named)
    except ModelError as error:
        if error.slug != "dynamic-dimension":
            raise
        raise ModelError(error.slug, error.message, where=path.name, hint=f"give a size for each name, such as {one}") from None
    if pinned.bounds is not None:
        hint = f"give one size for each name, such as {one}" if named else "give the shapes that it was exported for"
        raise ModelError("unsupported-shape", "a range of sizes is not supported for JAX", where=path.name, hint=hint)
    walk = Walk(path.name, collect=collect)
    walk.emitter.notes.extend(pinned.notes)
    walk.run(_module(exported, pinned.shapes, path, bool(named)))
    return walk


def _module(exported: Any, shapes: Sequence[Sequence[int]], path: Path, symbolic: bool) -> Any:
    try:
        return module_of(exported, shapes)
    except ImportError:
        hint = "export it with `jax.ShapeDtypeStruct` of known sizes, or install another version of JAX"
        raise ModelError("unsupported-shape", "this version of JAX does not make symbolic sizes known", hint=hint) from None
    except Exception as error:  # sizes that the function does not take, or damage that lowering finds
        if symbolic:
            what = f"JAX does not take these sizes: {quoted(reason_of(error), 300)}"
            hint = "give sizes that the function was exported for"
            raise ModelError("shape-mismatch", what, where=path.name, hint=hint) from None
        raise unreadable(path, quoted(reason_of(error))) from None


def _size(told: Any) -> int | str:
    """Of an exported shape: a number, or a name or a formula of names."""
    return told if isinstance(told, int) else str(told)


def _computed(formula: Any) -> Follows:
    """A size that follows from others, where those are known."""

    def found(known: Mapping[str, int]) -> int | None:
        names = formula.get_vars()
        return int(formula._evaluate({n: known[n] for n in names})) if all(n in known for n in names) else None

    return found


def _type(told: Any, path: Path) -> DType:
    names = {"bool": DType.BOOL, "float16": DType.F16, "bfloat16": DType.BF16, "float32": DType.F32, "float64": DType.F64}
    name = str(told)
    if name in names:
        return names[name]
    short = name.replace("uint", "U").replace("int", "I").upper()
    if short not in DType.__members__:
        raise ModelError("unsupported-type", f"an input of the type {quoted(name)} is not supported", where=path.name)
    return DType[short]


def save_object(model: Any, example_inputs: tuple[object, ...] | None, path: Path) -> None:
    """An exported function, or a jitted one with example inputs, as a file."""
    import jax
    from jax import export

    if not isinstance(model, export.Exported):
        if example_inputs is None:
            hint = "pass `example_inputs=(...)`: arrays, or `jax.ShapeDtypeStruct`"
            raise UserError("no-example", "a function of JAX has no shapes of its own", hint=hint)
        shapes = jax.tree_util.tree_map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), example_inputs)
        try:
            model = export.export(model)(*shapes)
        except Exception as error:
            raise ModelError("cannot-convert", f"JAX does not export the function: {quoted(reason_of(error), 300)}") from None
    path.write_bytes(bytes(model.serialize()))
    wrote(path)
