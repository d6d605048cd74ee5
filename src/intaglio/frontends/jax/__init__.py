"""Functions of JAX as graphs: files of `jax.export` (`exported.serialize()`), read by JAX itself where it is installed.

JAX parses its own format and hands out StableHLO operations one by one; nothing of the file is executed. Shapes are those that the
function was exported for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from intaglio.errors import ModelError, UserError, quoted
from intaglio.frontends import finishing
from intaglio.frontends.jax.opening import module_of, opened, reason_of
from intaglio.frontends.jax.trial import tried, wrote
from intaglio.frontends.jax.walk import Walk
from intaglio.frontends.onnx.faults import Problem
from intaglio.ir.graph import Graph
from intaglio.ir.spans import Dims, Shapes


def load(path: Path, *, dims: Dims, shapes: Shapes, name: str | None = None) -> tuple[Graph, list[str]]:
    walk = _walked(path, dims, shapes, collect=False)
    outputs = [(f"out{n}", value) for n, value in enumerate(walk.outputs)]
    return finishing.finish(walk.emitter, walk.inputs, outputs, name or path.stem), walk.emitter.notes


def check(path: Path, *, dims: Dims, shapes: Shapes) -> list[Problem]:
    return _walked(path, dims, shapes, collect=True).problems


def _walked(path: Path, dims: Dims, shapes: Shapes, *, collect: bool) -> Walk:
    tried(path)
    exported = opened(path)
    if dims:
        what = f"a function of JAX has no named dimensions, got `--dim {next(iter(dims))}`"
        raise UserError("unknown-dimension", what, hint="export it for the shapes that you need")
    for given, shape in shapes.items():
        place = given.removeprefix("in")
        if not place.isdigit() or int(place) >= len(exported.in_avals):
            names = ", ".join(f"`in{n}`" for n in range(len(exported.in_avals)))
            raise UserError("unknown-input", f"unknown input {quoted(given)}", where=path.name, hint=f"inputs: {names}")
        known = exported.in_avals[int(place)].shape
        if tuple(shape) != tuple(known):
            what = f"the input {quoted(given)} is {list(known)}, not {list(shape)}"
            raise UserError("shape-mismatch", what, where=path.name, hint="export it for the shapes that you need")
    if any(not isinstance(n, int) for aval in exported.in_avals for n in aval.shape):
        hint = "export it with `jax.ShapeDtypeStruct` of known sizes"
        raise ModelError("unsupported-shape", "the function was exported with symbolic sizes", where=path.name, hint=hint)
    walk = Walk(path.name, collect=collect)
    walk.run(module_of(exported))
    return walk


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
