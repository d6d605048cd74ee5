"""What the result should be: ONNX Runtime without its optimisations, or the IR by its numpy references."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from intaglio.errors import ModelError, ToolError, quoted
from intaglio.ir.graph import Array, Graph
from intaglio.ir.strings import decoded, encoded, is_text
from intaglio.ir.types import DType
from intaglio.ops.random import RUN_STATE
from intaglio.package.manifest import Manifest, TensorInfo
from intaglio.run.double import widened
from intaglio.run.map_entries import as_map
from intaglio.run.maps import may_make_maps, without_maps
from intaglio.run.near_ties import with_moved_scores
from intaglio.run.saturation import may_saturate, without_saturation

LONG_RUN = "reference-too-long"
RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")


class Reference(Protocol):
    """Arrays by the names of the model, in and out."""

    about: str
    of_model: bool  # it runs the model file; otherwise, the package's own IR

    def fresh(self) -> None: ...

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]: ...


class OnnxRuntime:
    """`extra` names intermediate tensors to see as well; those that ONNX Runtime cannot show are left out. `given`: inputs of the
    package; results of random operators among them are inputs of the model too."""

    of_model = True

    def __init__(self, path: Path, extra: tuple[str, ...] = (), given: tuple[TensorInfo, ...] = ()) -> None:
        try:
            import onnxruntime
        except ImportError:
            hint = "`pip install onnxruntime`"
            raise ToolError("no-reference", "onnxruntime is not installed, nothing to compare with", hint=hint) from None
        self.about = f"onnxruntime {onnxruntime.__version__}, optimisations off"
        self._made_from = (path, extra, given)
        try:
            self._session = _session(_changed(path, extra, given))
        except Exception as error:  # its errors share no type but Exception
            raise ModelError("no-reference", f"ONNX Runtime does not load the model: {_first_line(error)}") from None
        self.outputs = [o.name for o in self._session.get_outputs()]
        self._inputs = {i.name: list(i.shape) for i in self._session.get_inputs()}
        self._several = {i.name for i in self._session.get_inputs() if "seq(" in i.type}
        self._maps = {i.name for i in self._session.get_inputs() if i.type.startswith("map(")}
        if any(i.name in self._maps and "(float)" not in i.type for i in self._session.get_inputs()):
            raise ModelError("no-reference", "from Python, ONNX Runtime takes maps of floats only")

    def in_double(self, steps: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]] | None:
        """The results in double precision, where ONNX Runtime can compute them."""
        import onnx

        model = _changed(*self._made_from)
        try:
            wide = widened(onnx.load(model) if isinstance(model, str) else onnx.load_from_string(model))
            session = None if wide is None else _session(wide)
            if session is None:
                return None
            known = {i.name: list(i.shape) for i in session.get_inputs()}
            asked = [{n: _shaped(_wide(a), known[n]) for n, a in step.items() if n in known} for step in steps]
            return [dict(zip(self.outputs, session.run(None, feeds), strict=True)) for feeds in asked]
        except Exception:  # an operator without a kernel for doubles, an input that it does not take
            return None

    def near_ties(self, steps: Sequence[Mapping[str, Array]], seed: int) -> list[dict[str, Array]] | None:
        """The results where scores move by a few ulps before boxes are chosen by them; None where none are."""
        import onnx

        model, before = _changed(*self._made_from), self._session
        try:
            changed = onnx.load(model) if isinstance(model, str) else onnx.load_from_string(model)
            if not with_moved_scores(changed, float(seed)):
                return None
            self._session = _session(bytes(changed.SerializeToString()))
            return [self.run(step) for step in steps]
        except Exception:  # its errors share no type but Exception
            return None
        finally:
            self._session = before

    def optimised(self, steps: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]] | None:
        """The results with optimisations: quantised layers are computed in integers, not in floats between two roundings."""
        before = self._session
        try:
            self._session = _session(_changed(*self._made_from), optimised=True)
            return [self.run(step) for step in steps]
        except Exception:  # its errors share no type but Exception
            return None
        finally:
            self._session = before

    def fresh(self) -> None:
        """Nothing is kept from run to run: states are inputs and outputs."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        feeds: dict[str, object] = {n: _shaped(array, self._inputs[n]) for n, array in inputs.items() if n in self._inputs}
        feeds |= {name: _members(inputs, name) for name in self._several}
        feeds |= {name: as_map(inputs, name) for name in self._maps}
        try:
            results = self._session.run(self.outputs, feeds)
        except Exception as error:
            hint = "give inputs that the model accepts, with `--inputs`"
            reason = f"ONNX Runtime fails on these inputs: {_first_line(error)}"
            raise ModelError("no-reference", reason, hint=hint) from None
        found: dict[str, Array] = {}
        for name, result in zip(self.outputs, results, strict=True):
            if isinstance(result, list):
                found |= {f"{name}.{n}": np.asarray(member) for n, member in enumerate(result)}
            elif result is not None:
                found[name] = np.asarray(result)
        return found


def _members(inputs: Mapping[str, Array], name: str) -> list[Array]:
    """A sequence of the inputs `name.0`, `name.1`, ..."""
    found: list[Array] = []
    while (member := inputs.get(f"{name}.{len(found)}")) is not None:
        found.append(member)
    return found


class IrReference:
    """The graph itself, by the numpy references of its operators. Slow, and the definition of the integer result. A loop that runs
    for more than `seconds` is an error: it may not end for these inputs."""

    of_model = False

    def __init__(self, graph: Graph, seconds: float | None = None) -> None:
        self._graph = graph
        self.seconds = seconds
        self.about = "numpy references of the operators"

    def fresh(self) -> None:
        """Nothing is kept from run to run: states are inputs and outputs."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        from intaglio.ops.evaluate import LongLoop, evaluate_graph

        graph = self._graph
        given = {v.name: inputs[v.origin or v.name] for v in graph.inputs}
        try:
            values = evaluate_graph(graph, given, keep=True, seconds=self.seconds)
        except LongLoop as error:
            hint = "give inputs for which the loop ends, with `--inputs`, or more time, with INTAGLIO_REFERENCE_SECONDS"
            raise ToolError(LONG_RUN, f"{error} in the numpy references of the operators", hint=hint) from None
        found: dict[str, Array] = {}
        names = graph.output_names or [v.origin or v.name for v in graph.outputs]
        for name, value in [
            *zip(names, graph.outputs, strict=True),
            *((s.output.origin, s.output) for s in graph.states),
        ]:
            found[name or value.name] = values[value.name] if value.data is None else value.data
        return found


def run_steps(reference: Reference, manifest: Manifest, steps: list[dict[str, Array]]) -> list[dict[str, Array]]:
    """Feed a reference step by step, from a fresh state."""
    state = {s.input: np.full(s.shape, s.fill, DType(s.dtype).numpy) for s in manifest.states}
    results = []
    reference.fresh()
    for inputs in steps:
        given = as_in_model(inputs, manifest) if reference.of_model else inputs
        outputs = as_bytes(reference.run({**given, **state}), manifest)
        for s in manifest.states:
            if s.output in outputs:  # LiteRT keeps its variables itself
                state[s.input] = np.asarray(outputs[s.output])
        results.append(dict(outputs))
    return results


def as_in_model(inputs: Mapping[str, Array], manifest: Manifest) -> dict[str, Array]:
    """Arrays with their axes where the model has them."""
    turned = {info.name for info in manifest.inputs if info.turned}
    text = {info.name for info in manifest.inputs if info.text}
    words = {name: decoded(array).astype(object) for name, array in inputs.items() if name in text and not is_text(array)}
    return {name: np.moveaxis(array, -1, -3) if name in turned else array for name, array in inputs.items()} | words


def as_bytes(outputs: dict[str, Array], manifest: Manifest) -> dict[str, Array]:
    """Strings of the reference as a package has them."""
    widths = {info.name: info.shape[-1] for info in manifest.outputs if info.text}
    return {name: encoded(a, widths[name]) if name in widths and is_text(a) else a for name, a in outputs.items()}


def cannot_compare(manifest: Manifest) -> bool:
    """numpy has no bf16, so ONNX Runtime cannot be fed from here; a package draws other random numbers than a runtime, and LiteRT
    takes none as inputs."""
    source = manifest.model.source or ""
    given = manifest.options.get("random") == "input" and source.endswith(".tflite")
    drawn = given or any(state.input == RUN_STATE for state in manifest.states)
    return drawn or any(info.dtype == "bf16" for info in (*manifest.inputs, *manifest.outputs))


def _changed(path: Path, extra: tuple[str, ...], given: tuple[TensorInfo, ...]) -> str | bytes:
    """The model with intermediate tensors among its outputs, to look at them, and with others as inputs; with weights that
    ONNX Runtime multiplies exactly, and rows in place of maps."""
    import onnx

    numbers = list(given)
    if not extra and not numbers and not may_saturate(path) and not may_make_maps(path):
        return str(path)
    model = onnx.load(str(path))
    changes = [without_saturation(model), without_maps(model)]
    if not any(changes) and not extra and not numbers:
        return str(path)
    for info in numbers:
        random = (node for node in model.graph.node if node.op_type in RANDOM)
        node = next((node for node in random if info.name in node.output), None)
        if node is not None:
            model.graph.node.remove(node)
            kind = onnx.helper.np_dtype_to_tensor_dtype(DType(info.dtype).numpy)
            model.graph.input.append(onnx.helper.make_tensor_value_info(info.name, kind, list(info.shape)))
    have = {o.name for o in model.graph.output}
    made = {name for node in model.graph.node for name in node.output}
    for name in extra:
        if name in made and name not in have:
            model.graph.output.append(onnx.ValueInfoProto(name=name))
            have.add(name)
    return bytes(model.SerializeToString())


def _session(model: str | bytes, *, optimised: bool = False) -> Any:
    import onnxruntime

    options, levels = onnxruntime.SessionOptions(), onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype == np.float32 else array


def _shaped(array: Array, shape: list[object]) -> Array:
    """ONNX Runtime insists on the rank that the model declares. It says of an unknown rank what it says of a single number."""
    sizes = [n for n in shape if isinstance(n, int)]
    if len(shape) == array.ndim or len(sizes) < len(shape) or math.prod(sizes) != array.size:
        return array
    return array.reshape(sizes)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return quoted(lines[0] if lines else type(error).__name__, 300)


def model_reference(path: Path, manifest: Manifest, extra: tuple[str, ...] = ()) -> Reference:
    """The vendor's runtime for the model in a package."""
    if path.suffix == ".tflite":
        from intaglio.run.litert import LiteRt

        return LiteRt(path, manifest, extra)
    if path.suffix == ".pt2":
        from intaglio.run.eager import Eager

        return Eager(path, manifest, extra)
    if path.suffix in (".keras", ".h5"):
        from intaglio.run.keras_model import KerasModel

        return KerasModel(path, manifest, extra)
    if path.suffix == ".jax":
        from intaglio.run.jax_model import JaxModel

        return JaxModel(path)
    if path.suffix in (".savedmodel", ".pb"):
        from intaglio.run.tensorflow_model import TensorFlowModel

        return TensorFlowModel(path, manifest)
    return OnnxRuntime(path, extra, manifest.inputs if manifest.options.get("random") == "input" else ())
