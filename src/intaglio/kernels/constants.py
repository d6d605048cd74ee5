"""The constants of a program by name: each is called after its first layer and its role there.

    conv1_weight_packed    f32[72], packed for net_conv3x3_1_8, from f32[8,1,3,3]
    conv1_bias             f32[8]; also used by conv4

A layer is called as in the model, without the words that a converter puts around it: `/conv1/Conv` and
`model/conv1/BiasAdd;model/conv1/Conv2D` are `conv1`. The role comes from the name of the kernel's parameter (`ROLES`).
"""

from __future__ import annotations

import hashlib
import re

import numpy as np

from intaglio.ir.graph import Array, Node, Value
from intaglio.kernels.job import Packed
from intaglio.kernels.loop import Kernel
from intaglio.kernels.program import Constant

MOST_CHARACTERS = 48  # of a layer's name inside a C name

# What kernels call their parameters, and what that is for a reader. Names that are not here speak for themselves.
ROLES = {
    "w": "weight", "r": "recurrent_weight", "u": "recurrent_weight", "b": "bias", "c": "bias", "bw": "bias", "rb": "recurrent_bias",
    "br": "recurrent_bias", "e": "operand", "x": "operand", "h": "initial_state", "half": "rounding", "right": "shift",
    "exps": "exp_table", "at": "source_index", "record": "weight_records", "p": "peephole", "z": "zero_point",
}  # fmt: skip
_DENSE = ("matmul", "dense", "gemm", "fc", "linear", "logits")
_CONV = ("conv", "depthwise")
_WORDS = {"conv": _CONV, "qconv": _CONV, "matmul": _DENSE, "qmatmul": _DENSE, "hybrid_matmul": _DENSE}
_AROUND = re.compile(r"(?i)(model|functional|sequential|statefulpartitionedcall|partitionedcall|tfl|serving_default)(_\d+)?(:\d+)?")
_OPERATORS = re.compile(
    r"(?i)(conv(2d|1d|transpose)?|depthwise|separable_conv2d|depthwise_conv2d|depthwiseconv2dnative|gemm|matmul|biasadd|"
    r"relu6?|fusedbatchnormv3|batchnorm(alization)?|readvariableop|resource\d?|tensordot|add|mul|sub|div|softmax)(_\d+)?"
)


def layer_stem(node: Node) -> str:
    """The layer's name in the model as part of a C name."""
    source = node.source or node.output.name
    pieces = [piece for piece in source.split(";") if piece]
    words = _WORDS.get(node.op.NAME, ())
    chosen = next((p for p in pieces if any(word in p.lower() for word in words)), pieces[0] if pieces else source)
    parts = [part for part in chosen.split("/") if part]
    while len(parts) > 1 and _AROUND.fullmatch(parts[0]):
        parts = parts[1:]
    own = parts[:1]
    for part in parts[1:]:
        if _OPERATORS.fullmatch(part):
            break
        own.append(part)
    stem = re.sub(r"\W+", "_", "_".join(own), flags=re.ASCII).strip("_")
    if len(stem) > MOST_CHARACTERS:
        stem = stem[-MOST_CHARACTERS:].partition("_")[2] or stem[-MOST_CHARACTERS:]
    return stem or re.sub(r"\W+", "_", node.output.name, flags=re.ASCII).strip("_")


def role_of(parameter: str, source: Value | Packed, node: Node) -> str:
    """`w`, packed, is `weight_packed`; the second operand of a product, `e0`, is its bias."""
    stem = parameter.rstrip("0123456789_") or parameter
    number = parameter[len(stem) :].strip("_")
    role = ROLES.get(stem, parameter)
    if role == "operand" and "matmul" in node.op.NAME and len(node.inputs) > 2 and node.inputs[2] is source:
        role, number = "bias", ""
    if stem in ROLES and number.strip("0_"):
        role += f"_{number}"
    return f"{role}_packed" if isinstance(source, Packed) and role.startswith(("weight", "recurrent_weight")) else role


class Constants:
    """Equal ones are stored once, under the name of the first."""

    def __init__(self, digests: dict[int, tuple[Array, bytes]] | None) -> None:
        self.found: list[Constant] = []
        self._digests = digests
        self._known: dict[tuple[str, bytes], Constant] = {}
        self._names: set[str] = set()

    def name_of(self, source: Value | Packed, parameter: str, node: Node, kernel: Kernel) -> str:
        """The constant's name; it is added when there is no equal one."""
        assert source.data is not None
        stored = np.ascontiguousarray(source.data)
        key = (f"{source.dtype.value}{stored.shape if stored.ndim == 0 else stored.size}", self._digest(source.data, stored))
        layer = layer_stem(node)
        if key not in self._known:
            name = self._free(f"{layer}_{role_of(parameter, source, node)}")
            self._known[key] = Constant(name, stored, source.dtype, about=_about(source, parameter, node, kernel), used_by=[layer])
            self.found.append(self._known[key])
        constant = self._known[key]
        if layer not in constant.used_by:
            constant.used_by.append(layer)
        return constant.name

    def _free(self, stem: str) -> str:
        stem = stem if stem[0].isalpha() else f"layer_{stem}"
        name, n = stem, 2
        while name.lower() in self._names:
            name, n = f"{stem}_{n}", n + 1
        self._names.add(name.lower())
        return name

    def _digest(self, data: Array, stored: Array) -> bytes:
        if self._digests is not None and (known := self._digests.get(id(data))) is not None:
            return known[1]
        raw = hashlib.sha256(stored.reshape(-1).view(np.uint8).data).digest()
        if self._digests is not None:
            self._digests[id(data)] = (data, raw)
        return raw


def _about(source: Value | Packed, parameter: str, node: Node, kernel: Kernel) -> str:
    """In which order the numbers are: that of the tensor, or the one that a kernel's own comment describes."""
    if isinstance(source, Value):
        return ""
    weight = node.inputs[1] if len(node.inputs) > 1 else None
    of = f", from {weight.type}" if parameter.startswith("w") and weight is not None and weight.is_const else ""
    return f"packed for {kernel.name}{of}"
