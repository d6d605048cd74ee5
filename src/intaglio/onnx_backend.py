"""ONNX's backend interface, so that ONNX's own test suite (and anybody who speaks it) runs on Intaglio.

    import intaglio.onnx_backend as backend
    outputs = backend.run_model(onnx.load("model.onnx"), [x])

A model whose input shapes are open is compiled when the first inputs are there, for their shapes; where shapes follow
from the values of small inputs (the second one of Reshape), for these values too.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

from intaglio.errors import UserError
from intaglio.ir.graph import Array
from intaglio.ir.types import DType, Shape
from intaglio.pipeline import compile_request
from intaglio.run.package import Package
from intaglio.stages import Request, Watch

MOST = (64, 8)  # of sizes that depend on data, as `--max` would say: the smaller where several together have too many


class NotSupported(BackendIsNotSupposedToImplementIt):
    """The model is fine, but Intaglio does not compile it; the text says why."""


class IntaglioRep(BackendRep):
    """A model, compiled for the shapes of its inputs. Inputs and outputs by position, or inputs by name."""

    def __init__(self, model: bytes, inputs: list[str], cflags: tuple[str, ...], cc: str | None) -> None:
        self._model = model
        self._inputs = inputs
        self._cflags = cflags
        self._cc = cc
        self._kinds = _output_kinds(model)
        self._open = _open_inputs(model)
        self._lengths: dict[str, int] = {}
        self._packages: dict[str, Package] = {}

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Array, ...]:
        named = self._named(inputs)
        given = {name: array for member in named.items() for name, array in _members(*member)}
        self._lengths = {name: _length(value) for name, value in named.items() if name in self._open}
        package = self._package_for(given)
        package.reset()
        taken = {info.name for info in package.manifest.inputs}
        outputs = package.run({name: _stored(array) for name, array in given.items() if name in taken})
        kinds = self._kinds
        found = {i.name: _as_onnx(outputs[i.name], DType(i.dtype), kinds.get(i.name, 0)) for i in package.manifest.outputs}
        return tuple(_gathered(found, name, kind == SEVERAL) for name, kind in kinds.items())

    def compile_as_declared(self) -> None:
        """For the shapes in the model. What fails here is tried again with the inputs at hand, which say more."""
        with contextlib.suppress(NotSupported):
            self._packages["declared"] = self._compile({}, {})

    def _package_for(self, given: dict[str, Array]) -> Package:
        if "declared" in self._packages:
            return self._packages["declared"]
        shapes = {name: array.shape for name, array in given.items()}
        key = repr([shapes, self._lengths])
        if key in self._packages:
            return self._packages[key]
        try:
            self._packages[key] = self._compile(shapes, {})
            return self._packages[key]
        except NotSupported as refused:
            return self._specialised(given, shapes, refused)

    def _specialised(self, given: dict[str, Array], shapes: dict[str, Shape], refused: NotSupported) -> Package:
        """Shapes that follow from the data of an input (Reshape, Tile, ...): compiled for these very values.

        As few inputs as possible are fixed, and never all of them: that would leave nothing to run."""
        for chosen in _LADDER:
            fixed = {name: array for name, array in given.items() if chosen(array)}
            if not fixed or len(fixed) == len(given):
                continue
            key = repr([shapes, self._lengths, [(name, array.dtype, array.tolist()) for name, array in fixed.items()]])
            if key not in self._packages:
                open_shapes = {name: shape for name, shape in shapes.items() if name not in fixed}
                try:
                    self._packages[key] = self._compile(open_shapes, fixed)
                except NotSupported:
                    continue
            return self._packages[key]
        for most in MOST:
            with contextlib.suppress(NotSupported):
                self._packages[repr([shapes, self._lengths])] = self._compile(shapes, {}, most)
                return self._packages[repr([shapes, self._lengths])]
        raise refused from None

    def _compile(self, shapes: dict[str, Shape], constants: dict[str, Array], most: int = 0) -> Package:
        """`most`: of sizes that depend on data and have no bound of their own, for every tensor."""
        temporary = tempfile.TemporaryDirectory(prefix="intaglio-onnx-")
        path, folder = Path(temporary.name) / "model.onnx", Path(temporary.name) / "package"
        path.write_bytes(self._model)
        request = Request(
            path, folder, name="model", shapes=shapes, constants=constants, library_only=True, lengths=self._lengths,
            cflags=self._cflags, cc=self._cc, most=dict.fromkeys(self._tensors(), most) if most else {},
        )  # fmt: skip
        try:
            compile_request(request, Watch())
        except UserError as error:
            raise NotSupported(str(error)) from error
        return Package(folder, temporary)

    def _tensors(self) -> list[str]:
        import onnx

        return [name for node in onnx.load_from_string(self._model).graph.node for name in node.output if name]

    def _named(self, inputs: Any) -> dict[str, Any]:
        if isinstance(inputs, dict):
            return {str(name): value for name, value in inputs.items()}
        values = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        return dict(zip(self._inputs, values, strict=True))


def _output_kinds(model: bytes) -> dict[str, int]:
    """Element types of the outputs, as ONNX numbers them."""
    import onnx

    outputs = onnx.load_from_string(model).graph.output
    return {o.name: SEVERAL if _is_sequence(o.type) else o.type.tensor_type.elem_type for o in outputs}


def _is_sequence(type_: Any) -> bool:
    inner = type_.optional_type.elem_type if type_.HasField("optional_type") else type_
    return bool(inner.HasField("sequence_type"))


def _open_inputs(model: bytes) -> set[str]:
    """Sequences and optionals: how many members they have is known when the inputs are there."""
    import onnx

    inputs = onnx.load_from_string(model).graph.input
    return {i.name for i in inputs if i.type.WhichOneof("value") in ("sequence_type", "optional_type")}


def _length(value: Any) -> int:
    return len(value) if isinstance(value, (list, tuple)) else int(value is not None)


def _members(name: str, value: Any) -> list[tuple[str, Array]]:
    """The tensors of an input, by the names that they have as inputs of compiled code."""
    if value is None:
        return []
    if isinstance(value, (list, tuple)):
        return [found for n, member in enumerate(value) for found in _members(f"{name}.{n}", member)]
    return [(name, _as_array(value))]


def _gathered(found: dict[str, Array], name: str, several: bool) -> Any:
    """An output as ONNX has it: a tensor, a list of these, or None."""
    if not several:
        return found.get(name)
    return [array for key, array in found.items() if key.startswith(f"{name}.")]


def _is_whole(array: Array) -> bool:
    return array.dtype.kind in "iub"


# Which inputs could be lengths, axes, pads, scales: from the fewest to the most.
_LADDER: tuple[Callable[[Array], bool], ...] = (
    lambda a: _is_whole(a) and a.size == 1,
    lambda a: _is_whole(a) and a.ndim <= 1 and a.size <= 64,
    lambda a: a.size == 1,
    lambda a: a.size == 1 or (_is_whole(a) and a.ndim <= 1 and a.size <= 64),
    lambda a: a.ndim <= 1 and a.size <= 16,
)


def _as_array(value: Any) -> Array:
    if isinstance(value, dict):
        raise NotSupported("maps are not inputs of compiled code")
    return np.asarray(value)


SEVERAL = -1  # a sequence
STRING = 8
SMALL_TYPES = {
    17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz", 21: "uint4", 22: "int4",
    23: "float4_e2m1fn", 24: "float8_e8m0fnu", 25: "uint2", 26: "int2",
}  # fmt: skip


def _stored(array: Array) -> Array:
    """Types that numpy has not are bytes here: the codes of floats, or the numbers."""
    name = array.dtype.name
    if name not in SMALL_TYPES.values():
        return array
    return array.view(np.uint8) if name.startswith("float") else array.astype(np.int8 if name.startswith("int") else np.uint8)


def _as_onnx(array: Array, dtype: DType, kind: int = 0) -> Array:
    if kind == STRING or array.dtype.kind == "U":
        return array.astype(object)
    if dtype is not DType.BF16 and kind not in SMALL_TYPES:
        return array
    import ml_dtypes

    if kind in SMALL_TYPES:
        type_ = np.dtype(getattr(ml_dtypes, SMALL_TYPES[kind]))
        return array.view(type_) if "float" in type_.name else array.astype(type_)
    return array.view(ml_dtypes.bfloat16)


class IntaglioBackend(Backend):
    REP = IntaglioRep

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> IntaglioRep:
        """`cc` names the compiler, `cflags` its flags; the default makes a build fast rather than its result."""
        constants = {t.name for t in model.graph.initializer} | {t.values.name for t in model.graph.sparse_initializer}
        inputs = [i for i in model.graph.input if i.name not in constants]
        cflags = tuple(kwargs.get("cflags", ("-O1",)))
        rep = cls.REP(model.SerializeToString(), [i.name for i in inputs], cflags, kwargs.get("cc"))
        if all(_is_static(i) for i in inputs):
            rep.compile_as_declared()
        return rep

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Array, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: Any, inputs: Sequence[Any], device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Array, ...]:
        """One operator on its own; its types are inferred from the arrays given."""
        from onnx import ValueInfoProto, helper

        arrays = [np.asarray(a) for a in inputs]
        given = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), list(a.shape))
            for name, a in zip([n for n in node.input if n], arrays, strict=True)
        ]
        wanted = [ValueInfoProto(name=n) for n in node.output if n]
        model = helper.make_model(helper.make_graph([node], "node", given, wanted))
        return cls.run_model(model, arrays, device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.split(":")[0] == "CPU"


def _is_static(info: Any) -> bool:
    if not info.type.HasField("tensor_type"):
        return False
    shape = info.type.tensor_type
    return shape.HasField("shape") and all(d.HasField("dim_value") and d.dim_value > 0 for d in shape.shape.dim)


prepare = IntaglioBackend.prepare
run_model = IntaglioBackend.run_model
run_node = IntaglioBackend.run_node
supports_device = IntaglioBackend.supports_device
