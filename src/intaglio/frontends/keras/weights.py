"""Which weights a layer has, in the order in which Keras creates them, and where a file keeps them.

`.keras` has a group per layer, by its class (`layers/conv2d_1/vars/0`); `.h5` has a list per layer of the outermost model, all that
can be trained first (`_legacy_weights` of Keras). Both are described by one list of leaves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from intaglio.errors import quoted
from intaglio.frontends.keras.config import Config, Layer, Model
from intaglio.frontends.keras.container import KerasFile
from intaglio.frontends.keras.custom import CUSTOM
from intaglio.frontends.keras.hdf5 import Hdf5
from intaglio.frontends.keras.quantised import quantised_of, roles_of
from intaglio.frontends.onnx.faults import Fault
from intaglio.ir.graph import Array


@dataclass(frozen=True, slots=True)
class Leaf:
    role: str
    path: str  # below the group of the layer
    trainable: bool = True


CELLS = ("LSTMCell", "GRUCell", "SimpleRNNCell")
RNN = ("LSTM", "GRU", "SimpleRNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D")
_KERNELS = (
    "Dense", "Conv1D", "Conv2D", "Conv3D", "Convolution1D", "Convolution2D", "Convolution3D", "Conv1DTranspose", "Conv2DTranspose",
    "Conv3DTranspose", "Convolution2DTranspose", "DepthwiseConv1D", "DepthwiseConv2D",
)  # fmt: skip
_SEPARABLE = ("SeparableConv1D", "SeparableConv2D", "SeparableConvolution1D", "SeparableConvolution2D")


def roles(kind: str, config: Config) -> list[tuple[str, bool]]:
    """The layer's own variables: what each is, and whether it is trained."""
    if kind in ("Dense", "EinsumDense", "Embedding") and (found := quantised_of(config)) is not None:
        return roles_of(kind, config, found)
    bias = [("bias", True)] if config.get("use_bias", True) else []
    scale = [("gamma", True)] if config.get("scale", True) else []
    center = [("beta", True)] if config.get("center", True) else []
    if kind in _KERNELS or kind == "LocallyConnected1D":
        return [("kernel", True), *bias]
    if kind in _SEPARABLE:
        return [("depthwise_kernel", True), ("pointwise_kernel", True), *bias]
    if kind in (*RNN, *CELLS):
        return [("kernel", True), ("recurrent_kernel", True), *bias]
    match kind:
        case "EinsumDense":
            return [("kernel", True), *([("bias", True)] if config.get("bias_axes") else [])]
        case "BatchNormalization" | "SyncBatchNormalization":
            return [*scale, *center, ("moving_mean", False), ("moving_variance", False)]
        case "LayerNormalization" if config.get("rms_scaling"):
            return [("gamma", True)]
        case "LayerNormalization" | "GroupNormalization":
            return [*scale, *center]
        case "RMSNormalization":
            return [("scale", True)]
        case "LayerScale":  # of keras.applications
            return [("gamma", True)]
        case "STFTSpectrogram":
            both = (("imag", "real_kernel"), ("real", "imag_kernel"))
            return [(role, True) for without, role in both if config.get("mode", "log") != without]
        case "ReversibleEmbedding":
            return [("embeddings", True), *([] if config.get("tie_weights", True) else [("reverse_embeddings", True)])]
        case "PReLU":
            return [("alpha", True)]
        case "Embedding":
            return [("embeddings", True)]
        case "Normalization" if config.get("mean") is None:
            return [("mean", False), ("variance", False), ("count", False)]
        case "Attention":
            concat = [("concat_score_weight", True)] if config.get("score_mode") == "concat" else []
            return [*([("scale", True)] if config.get("use_scale") else []), *concat]
        case "AdditiveAttention" if config.get("use_scale", True):
            return [("scale", True)]
    return []


def leaves(layer: Layer) -> list[Leaf]:
    if layer.custom:
        return [Leaf(role, f"vars/{n}") for n, role in enumerate(CUSTOM[layer.custom].weights)]
    if layer.kind == "SpectralNormalization":  # its first variable is the kernel of the layer inside
        return [Leaf("vector_u", "vars/1", False)]
    if layer.kind in ("MultiHeadAttention", "GroupQueryAttention"):
        names = ("kernel", "bias") if layer.config.get("use_bias", True) else ("kernel",)
        gate = ("gate",) if layer.config.get("use_gate") else ()
        parts = ("query", "key", *gate, "value", "output")
        return [Leaf(f"{part}_{name}", f"{part}_dense/vars/{n}") for part in parts for n, name in enumerate(names)]
    folder = "cell/vars" if layer.kind in RNN else "vars"
    return [Leaf(role, f"{folder}/{n}", trained) for n, (role, trained) in enumerate(roles(layer.kind, layer.config))]


class Weights:
    """The arrays of every layer, found by layer and role and read when they are asked for."""

    def __init__(self, source: KerasFile, model: Model) -> None:
        self.store: Hdf5 = source.store
        self._words = source.words
        self._legacy = source.legacy
        self._paths: dict[tuple[Layer, str], str] = {}
        self._faults: dict[Layer, Fault] = {}
        if source.legacy:
            for layer in model.layers:
                self._bind(layer)
        else:
            self._find(model)

    def words(self, layer: Layer) -> list[str] | None:
        """A list of words that was learnt, or given as a file."""
        found = self._words.get(layer.group.strip("/"))
        return None if found is None else found.decode("utf-8", "replace").split("\n")

    def read(self, layer: Layer, role: str) -> Array:
        return self.store.array(self._path(layer, role))

    def shape(self, layer: Layer, role: str) -> tuple[int, ...]:
        path = self._path(layer, role)
        shape = self.store.shape(path)
        if shape is None:
            hint = "save the model again after it was built"
            raise Fault("bad-tensor", f"its weights {quoted(role)} are missing from the file", hint)
        return shape

    def _path(self, layer: Layer, role: str) -> str:
        if layer in self._faults:
            raise self._faults[layer]
        own = {leaf.role: leaf.path.rpartition("/") for leaf in leaves(layer)}
        if not self._legacy and role not in own:
            raise Fault("bad-tensor", f"its options do not go with the weights {quoted(role)} that it needs", "save it again")
        path = self._paths.get((layer, role), "/missing")
        if not self._legacy and not layer.custom:
            self._check_count(path, 1 + max(int(number) for folder, _, number in own.values() if folder == own[role][0]))
        return path

    def _check_count(self, path: str, count: int) -> None:
        """Variables that nobody asks for change what a layer computes, such as scales of quantised weights."""
        if self.store.shape(f"{path.rpartition('/')[0]}/{count}") is not None:
            hint = "save the model before it is quantised, and use `--quantize int8 --calibrate DATA`"
            raise Fault("bad-tensor", f"the file has more variables for it than the {count} that its options ask for", hint)

    def _find(self, model: Model) -> None:
        """By the way of naming groups that finds the most arrays: a number means another layer in another way."""
        best: dict[tuple[Layer, str], str] = {}
        for groups in (standard_groups(model), older_groups(model, "", 1), older_groups(model, "", 2)):
            for apart in ("/", "\\"):  # as the system writes paths that saved it
                found = self._found(groups, apart)
                best = found if len(found) > len(best) else best
            if len(best) == sum(len(leaves(layer)) for layer in groups):
                break
        self._paths = best

    def _found(self, groups: dict[Layer, str], apart: str) -> dict[tuple[Layer, str], str]:
        found = {}
        for layer, group in groups.items():
            for leaf in leaves(layer):
                folder, _, number = f"{group}/{leaf.path}".lstrip("/").rpartition("/vars/")
                private = "/".join(f"_{p}" if p.endswith("_dense") else p for p in folder.split("/"))
                for option in (folder, private):
                    path = f"{option.replace('/', apart)}/vars/{number}"
                    if self.store.shape(path) is not None:
                        found[layer, leaf.role] = path
                        break
        return found

    def _bind(self, layer: Layer) -> None:
        """The list of a layer in a `.h5` file, by order; layers inside of it share the list."""
        wanted = tree(layer, True)
        if not wanted or layer.is_op:
            return
        order = [w for w in wanted if w[2]] + [w for w in wanted if not w[2]]
        folder = f"model_weights/{layer.name}"
        names = self.store.texts(folder, "weight_names") or []
        if len(names) != len(order):
            reason = f"the file has {len(names)} arrays for it, its options ask for {len(order)}"
            for owner in {w[0] for w in wanted}:
                self._faults[owner] = Fault("bad-tensor", reason, "save the whole model again")
            return
        for (owner, role, _), name in zip(order, names, strict=True):
            self._paths[owner, role] = f"{folder}/{name}"


def tree(layer: Layer, trainable: bool) -> list[tuple[Layer, str, bool]]:
    """All variables of a layer and of what is inside of it."""
    trained = trainable and layer.trainable
    inside = layer.model.layers if layer.model is not None else layer.inner
    own = [(layer, leaf.role, trained and leaf.trainable) for leaf in leaves(layer)]
    return own + [found for part in inside for found in tree(part, trained)]


def standard_groups(model: Model) -> dict[Layer, str]:
    """Where Keras 3 keeps each layer."""
    return {layer: layer.group for layer in every_layer(model.layers)}


def every_layer(layers: list[Layer]) -> list[Layer]:
    inside = [layer.model.layers if layer.model is not None else layer.inner for layer in layers]
    return [*layers, *(found for part in inside for found in every_layer(part))]


def older_groups(model: Model, group: str, step: int) -> dict[Layer, str]:
    """Where Keras 2.12 to 2.15 keep them: layers are numbered by class in a list that has those with weights twice (`step` 2)."""
    found: dict[Layer, str] = {}
    used: dict[str, int] = {}
    for layer in model.layers:
        stem = re.sub(r"_\d+$", "", layer.group.rpartition("/")[2])
        number = used.get(stem, 0)
        if not layer.is_op:
            used[stem] = number + (step if tree(layer, True) else 1)
        place = f"{group}/_layer_checkpoint_dependencies/{stem}" + (f"_{number}" if number else "")
        found[layer] = place
        found |= {inner: place + inner.group.removeprefix(layer.group) for inner in every_layer(layer.inner)}
        if layer.model is not None:
            found |= older_groups(layer.model, place, step)
    return found
