"""What the JSON of a model says: layers with their options and calls, checked and in one form for Keras 2 and 3.

A name of a class is a key of our table, a name of a module only a reason to refuse: nothing is imported or called because of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from intaglio.frontends.keras.custom import registered
from intaglio.frontends.onnx.faults import Fault

Config = dict[str, Any]
MODELS = ("Sequential", "Functional", "Model", "Pipeline")
WRAPPERS = ("Bidirectional", "TimeDistributed", "SpectralNormalization")
_OWN = re.compile(r"(keras|tf_keras|tensorflow\.(python\.)?keras|tensorflow_core\.(python\.)?keras)(\.[A-Za-z0-9_]+)*$")
_OPERATION = re.compile(r"keras\.(src\.)?(ops|activations)(\.|$)")
_CELLS = {"LSTMCell": "LSTM", "GRUCell": "GRU", "SimpleRNNCell": "SimpleRNN"}
_PUBLIC = {"GroupedQueryAttention": "GroupQueryAttention"}  # by the name of the class, which `.h5` files have
_STEMS = {"model": "functional", "group_query_attention": "grouped_query_attention"}  # groups are called by the class
_MOST_LAYERS = 100_000
_MOST_NESTED = 32


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor of the graph: a result of one call of a layer."""

    layer: str
    call: int
    result: int


@dataclass(frozen=True, slots=True)
class Invocation:
    args: list[Any]  # as in the file, with Ref in place of tensors
    kwargs: dict[str, Any]


@dataclass(slots=True, eq=False)
class Layer:
    name: str
    kind: str
    config: Config
    is_op: bool = False  # keras.ops.*, which has no weights
    foreign: str = ""  # why it cannot be one of Keras's own
    calls: list[Invocation] = field(default_factory=list)
    model: Model | None = None
    inner: list[Layer] = field(default_factory=list)  # of a wrapper
    group: str = ""  # where its weights are in a .keras file
    build: Config = field(default_factory=dict)
    custom: str = ""  # the name under which it is registered

    @property
    def trainable(self) -> bool:
        return bool(self.config.get("trainable", True))


@dataclass(slots=True, eq=False)
class Model:
    name: str
    layers: list[Layer]
    sequential: bool
    inputs: list[Ref] = field(default_factory=list)
    outputs: list[Ref] = field(default_factory=list)
    output_names: list[str] = field(default_factory=list)
    shape: Any = None  # of the input, where a Sequential model has no input layer


def snake(name: str) -> str:
    """`Conv2DTranspose` as Keras spells it in a weights file."""
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def read_config(config: Config) -> Model:
    top = _layer(config, "", 0)
    if top.model is None:
        if top.foreign:
            raise Fault("unsupported-operator", top.foreign, "compile the model object itself: `intaglio.compile(model)`")
        hint = "compile the model object itself: `intaglio.compile(model, example_inputs=(...))`"
        raise Fault("unsupported-operator", f"the model is of the class `{top.kind[:80]}`, which is not one of Keras's", hint)
    return top.model


def _layer(data: Any, group: str, depth: int) -> Layer:
    if not isinstance(data, dict) or not isinstance(data.get("class_name"), str):
        raise Fault("bad-graph", "an entry of the layers has no class")
    if depth > _MOST_NESTED:
        raise Fault("bad-graph", f"models are nested over {_MOST_NESTED} deep")
    kind, config = data["class_name"].rpartition(">")[2], data.get("config")
    kind = _PUBLIC.get(kind, kind)
    listed = kind == "Sequential" and isinstance(config, list)  # before Keras 2.2.3
    config = {"layers": config} if listed else config
    if not isinstance(config, dict):
        raise Fault("bad-graph", f"a layer of class `{kind[:80]}` has no options")
    name = data.get("name", config.get("name", snake(kind)))
    if not isinstance(name, str):
        raise Fault("bad-graph", f"a layer of class `{kind[:80]}` has a name that is not a text")
    module = data.get("module")
    is_op = isinstance(module, str) and _OPERATION.match(module) is not None
    if module is None and "trainable" not in config and "layers" not in config:  # .h5 has no modules
        is_op = not kind.startswith(("InputLayer", "Lambda", "SpatialDropout", "Discretization"))
    layer = Layer(name, kind, config, is_op=is_op, group=group)
    if isinstance(data.get("build_config"), dict):
        layer.build = data["build_config"]
    layer.foreign = _foreign(data, module)
    if layer.foreign:
        full = data.get("registered_name")
        layer.custom = registered(kind, full if full is not None else data["class_name"])
        layer.foreign, layer.is_op = ("", False) if layer.custom else (layer.foreign, layer.is_op)
        return layer
    cell = config.get("cell")
    if kind == "RNN" and isinstance(cell, dict) and cell.get("class_name") in _CELLS and isinstance(cell.get("config"), dict):
        layer.foreign = _foreign(cell, cell.get("module"))
        layer.kind, layer.config = _CELLS[cell["class_name"]], {**cell["config"], **config}
    elif kind == "RNN" and isinstance(cell, dict) and cell.get("class_name") == "StackedRNNCells":
        layer.foreign, layer.inner = _foreign(cell, cell.get("module")), _cells(cell.get("config"), f"{group}/cell", depth)
        for n, inner in enumerate(layer.inner):
            asked = {"stateful": config.get("stateful"), "go_backwards": n == 0 and config.get("go_backwards")}
            inner.config = {**inner.config, **asked, "return_sequences": True}
    elif kind == "StackedRNNCells":
        layer.inner = _cells(config, group, depth)
    if kind in MODELS:
        layer.model = _model(layer, group, depth)
    elif kind in WRAPPERS:
        both = kind == "Bidirectional"
        layer.inner.append(_layer(config.get("layer"), f"{group}/{'forward_layer' if both else 'layer'}", depth + 1))
        if both:
            backward = config.get("backward_layer") or _turned(config["layer"])
            layer.inner.append(_layer(backward, f"{group}/backward_layer", depth + 1))
    return layer


def _cells(config: Any, group: str, depth: int) -> list[Layer]:
    """One above the other; the file numbers those of a class."""
    told = config.get("cells") if isinstance(config, dict) else None
    if not isinstance(told, list) or not told:
        raise Fault("bad-graph", "stacked cells have no cells")
    used: dict[str, int] = {}
    cells = []
    for cell in told:
        stem = snake(str(cell.get("class_name"))) if isinstance(cell, dict) else ""
        number = used.get(stem, 0)
        used[stem] = number + 1
        cells.append(_layer(cell, f"{group}/cells/{stem}_{number}" if number else f"{group}/cells/{stem}", depth + 1))
    return cells


def _turned(forward: Config) -> Config:
    """The layer that runs backwards, where the file leaves it to the wrapper."""
    options = dict(forward["config"])
    options["go_backwards"] = not options.get("go_backwards")
    return {**forward, "config": options}


def _foreign(data: Config, module: Any) -> str:
    """Why an object is not Keras's own; nothing is asked of it then."""
    kind = data["class_name"]
    registered = data.get("registered_name")
    if module is not None and (not isinstance(module, str) or not _OWN.match(module)):
        return f"the class `{kind[:80]}` is of the module `{str(module)[:80]}`, which is not Keras's"
    if ">" in kind or (isinstance(registered, str) and ">" in registered):
        return f"the class `{(registered or kind)[:80]}` is custom: the file does not define what it computes"
    return ""


def _model(layer: Layer, group: str, depth: int) -> Model:
    config = layer.config
    entries = config.get("layers")
    if not isinstance(entries, list) or not entries:
        raise Fault("bad-graph", f"the model `{layer.name[:80]}` has no layers")
    if len(entries) > _MOST_LAYERS:
        raise Fault("too-large", f"the model `{layer.name[:80]}` has {len(entries)} layers")
    used: dict[str, int] = {}
    layers: list[Layer] = []
    for entry in entries:
        stem = snake(str(entry.get("class_name"))) if isinstance(entry, dict) else ""
        stem = _STEMS.get(stem, stem)
        number = used.get(stem, 0)
        made = _layer(entry, f"{group}/layers/{stem}_{number}" if number else f"{group}/layers/{stem}", depth + 1)
        if not made.is_op:
            used[stem] = number + 1
        layers.append(made)
    model = Model(layer.name, layers, layer.kind in ("Sequential", "Pipeline"))
    names = [made.name for made in layers]
    if len(set(names)) != len(names) and not model.sequential:
        twice = next(n for n in names if names.count(n) > 1)
        raise Fault("bad-graph", f"two layers are called `{twice[:80]}`")
    if model.sequential:
        shape = config.get("build_input_shape") or layer.build.get("input_shape")
        model.shape = layers[0].config.get("batch_input_shape") or layers[0].config.get("batch_shape") or shape
        return model
    dictionaries = False
    for made, entry in zip(layers, entries, strict=True):
        nodes = entry.get("inbound_nodes", [])
        if not isinstance(nodes, list):
            raise Fault("bad-graph", f"the calls of the layer `{made.name[:80]}` are not a list")
        dictionaries = dictionaries or any(isinstance(n, dict) for n in nodes)
        made.calls = [_invocation(node) for node in nodes]
    # Keras 2 counts the call that made an inner model, everywhere; Keras 3 in the outputs and for functional models only.
    counted = {made.name for made in layers if made.model is not None and not (dictionaries and made.model.sequential)}
    model.inputs = [r for _, r in _refs(config.get("input_layers"))]
    outputs = _refs(config.get("output_layers"))
    model.outputs = [_based(r, counted) for _, r in outputs]
    model.output_names = _distinct([key or r.layer for key, r in outputs])
    if not dictionaries:
        for made in layers:
            made.calls = [Invocation(_based(c.args, counted), _based(c.kwargs, counted)) for c in made.calls]
    if not model.outputs:
        raise Fault("bad-graph", f"the model `{layer.name[:80]}` has no outputs")
    return model


def _distinct(names: list[str]) -> list[str]:
    seen: dict[str, int] = {}
    out = []
    for name in names:
        number = seen.get(name, 0)
        seen[name] = number + 1
        out.append(f"{name}_{number}" if number else name)
    return out


def _based(item: Any, counted: set[str]) -> Any:
    """The same with calls counted from 0."""
    if isinstance(item, Ref):
        return Ref(item.layer, max(item.call - 1, 0), item.result) if item.layer in counted else item
    if isinstance(item, list):
        return [_based(i, counted) for i in item]
    if isinstance(item, dict):
        return {k: _based(v, counted) for k, v in item.items()}
    return item


def _refs(item: Any, key: str = "") -> list[tuple[str, Ref]]:
    """Tensors as `input_layers` and `output_layers` name them: one, a list, a dictionary."""
    if isinstance(item, dict):
        return [found for name, part in item.items() for found in _refs(part, str(name))]
    if isinstance(item, list):
        if _is_ref(item):
            return [(key, _ref(item))]
        return [found for part in item for found in _refs(part, key)]
    raise Fault("bad-graph", "the inputs or outputs of the model are malformed")


def _is_ref(item: Any) -> bool:
    return isinstance(item, list) and len(item) >= 3 and isinstance(item[0], str) and all(type(n) is int for n in item[1:3])


def _ref(item: list[Any]) -> Ref:
    if min(item[1], item[2]) < 0:
        raise Fault("bad-graph", f"a tensor of the layer `{item[0][:80]}` has a negative number")
    return Ref(item[0], item[1], item[2])


def _invocation(node: Any) -> Invocation:
    if isinstance(node, dict):  # Keras 3
        args, kwargs = node.get("args", []), node.get("kwargs", {})
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            raise Fault("bad-graph", "a call of a layer is malformed")
        return Invocation([_argument(a) for a in args], {str(k): _argument(v) for k, v in kwargs.items()})
    if not isinstance(node, list):
        raise Fault("bad-graph", "a call of a layer is malformed")
    if _is_ref(node):  # Keras 2 for a layer of one tensor
        node = [node]
    tensors: list[Any] = []
    more: dict[str, Any] = {}
    for entry in node:
        if not _is_ref(entry):
            raise Fault("bad-graph", "a call of a layer is malformed")
        tensors.append(_ref(entry))
        if len(entry) > 3 and isinstance(entry[3], dict):
            more.update({str(k): _old_argument(v) for k, v in entry[3].items()})
    return Invocation([tensors[0] if len(tensors) == 1 else tensors], more)


def _old_argument(item: Any) -> Any:
    """Keras 2 writes a tensor among the options as its three numbers."""
    if _is_ref(item) and len(item) == 3:
        return _ref(item)
    return [_old_argument(i) for i in item] if isinstance(item, list) else item


def _argument(item: Any) -> Any:
    """An argument of a call: tensors, numbers, slices, lists of these. Everything else has no meaning here."""
    if isinstance(item, list):
        return [_argument(i) for i in item]
    if not isinstance(item, dict):
        return item
    kind, config = item.get("class_name"), item.get("config")
    if kind == "__keras_tensor__" and isinstance(config, dict) and _is_ref(config.get("keras_history")):
        return _ref(config["keras_history"])
    if kind == "__slice__" and isinstance(config, dict):
        parts = [config.get(n) for n in ("start", "stop", "step")]
        if all(p is None or type(p) is int for p in parts):
            return slice(*parts)
    if kind == "__ellipsis__":
        return Ellipsis
    if kind in ("__numpy__", "__tensor__") and isinstance(config, dict):
        return config.get("value")
    if kind is None:
        return {str(k): _argument(v) for k, v in item.items()}
    raise Fault("unsupported-operator", f"an argument of a call is an object of class `{str(kind)[:80]}`")
