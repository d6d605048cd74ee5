"""LiteRT's reference kernels: what a TFLite model should compute, to the bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from intaglio.errors import ModelError, ToolError, printable
from intaglio.frontends.tflite.unread import unread
from intaglio.ir.graph import Array
from intaglio.ir.strings import is_text
from intaglio.package.manifest import Manifest


class LiteRt:
    """The model in the package, run by the reference kernels; inputs and outputs go by position. `extra` names tensors to see."""

    of_model = True

    def __init__(self, path: Path, manifest: Manifest, extra: tuple[str, ...] = ()) -> None:
        try:
            from ai_edge_litert.interpreter import Interpreter, OpResolverType
        except ImportError:
            hint = "`pip install ai-edge-litert`"
            raise ToolError("no-reference", "ai-edge-litert is not installed, nothing to compare with", hint=hint) from None
        reason = unread(path)
        if reason:
            raise ModelError("no-reference", reason)
        self.about = f"ai-edge-litert {metadata.version('ai-edge-litert')}, reference kernels"
        self._inputs = [info.name for info in manifest.inputs]
        self._outputs = [info.name for info in manifest.outputs]
        self._extra = set(extra)
        self._signature = manifest.options.get("signature", "")  # one of several networks in the file
        self._runner: Any = None
        self._make: Callable[[], Any] = lambda: Interpreter(
            model_path=str(path),
            experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
            experimental_preserve_all_tensors=bool(extra),
        )
        try:
            self._interpreter: Any = self._loaded(path, Interpreter, OpResolverType)
            if self._signature:
                self.fresh()
                return
            for info, detail in zip(manifest.inputs, self._interpreter.get_input_details(), strict=True):
                if not info.text and tuple(info.shape) != tuple(detail["shape"]):  # an open axis was pinned
                    self._interpreter.resize_tensor_input(detail["index"], info.shape)
            self._interpreter.allocate_tensors()
        except (RuntimeError, ValueError) as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            reason = printable(lines[0], 160)  # it repeats itself for every tensor
            raise ModelError("no-reference", f"LiteRT does not load the model: {reason}") from None

    def _loaded(self, path: Path, interpreter: Any, resolvers: Any) -> Any:
        try:
            return self._make()
        except ValueError as error:
            if "HASHTABLE" not in str(error):  # tables are not among the reference kernels, and are exact
                raise
        self._make = lambda: interpreter(
            model_path=str(path), experimental_op_resolver_type=resolvers.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        )
        self.about = self.about.removesuffix(", reference kernels")
        return self._make()

    def fresh(self) -> None:
        if self._signature:  # what resets variables is for the first subgraph alone
            self._interpreter = self._make()
            self._runner = self._interpreter.get_signature_runner(self._signature)
            return
        self._interpreter.reset_all_variables()

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        litert = self._interpreter
        try:
            if self._runner is not None:
                outputs = self._runner(**{name: np.asarray(inputs[name]) for name in self._inputs})
                return {**self._seen(), **{name: np.array(array) for name, array in outputs.items()}}
            for name, detail in zip(self._inputs, litert.get_input_details(), strict=True):
                array = np.asarray(inputs[name])
                litert.set_tensor(detail["index"], (array.astype(object) if is_text(array) else array).reshape(detail["shape"]))
            litert.invoke()
        except (RuntimeError, ValueError) as error:
            raise ModelError("no-reference", f"LiteRT fails on these inputs: {str(error).strip()[:200]}") from None
        found = self._seen()
        for name, detail in zip(self._outputs, litert.get_output_details(), strict=True):
            found[name] = _words(np.array(litert.get_tensor(detail["index"])))
        return found

    def _seen(self) -> dict[str, Array]:
        """Tensors between inputs and outputs."""
        if not self._extra:
            return {}
        litert = self._interpreter
        place = 0 if self._runner is None else litert._interpreter.GetSubgraphIndexFromSignature(self._signature)
        details = [detail for detail in litert.get_tensor_details(place) if detail["name"] in self._extra]
        return {detail["name"]: np.array(litert.get_tensor(detail["index"], place)) for detail in details}


def _words(array: Array) -> Array:
    """Strings as such, which LiteRT gives as objects of bytes."""
    if array.dtype != object:
        return array
    return np.array([word.decode("utf-8", "replace") for word in array.reshape(-1)], str).reshape(array.shape)
