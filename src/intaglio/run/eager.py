"""What PyTorch computes for an exported program, operator by operator.

The file is read by our own reader, and only operators that the front end knows are called: a file decides about numbers, never
about code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from intaglio.errors import ModelError, ToolError, install_hint, quoted
from intaglio.frontends.torch.labels import labels_of
from intaglio.frontends.torch.packed import packed_rnn
from intaglio.frontends.torch.program import Aside, GraphRecord, Kind, NodeRecord, Ref, read_program
from intaglio.frontends.torch.rows.numbers import PYTHON
from intaglio.frontends.torch.walk import fill_table, row_of, split_target
from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.package.manifest import Manifest

DTYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64", 12: "bool", 13: "bfloat16",
    28: "uint16", 34: "uint32", 35: "uint64",
}  # fmt: skip
FORMATS = {1: "contiguous_format", 2: "channels_last", 3: "channels_last_3d", 4: "preserve_format"}
SPACES = ("aten", "quantized_decomposed", "torchao", "python", "higher_order", "intaglio")


class Eager:
    """The program in the package; inputs and outputs by the names of the program. `extra` names tensors to see, by their labels."""

    of_model = True

    def __init__(self, path: Path, manifest: Manifest, extra: tuple[str, ...] = ()) -> None:
        try:
            import torch
        except ImportError:
            hint = f"run {install_hint('torch')}"
            raise ToolError("no-reference", "torch is not installed, nothing to compare with", hint=hint) from None
        fill_table()
        self._torch: Any = torch
        self.about = f"torch {torch.__version__}, eager"
        self._program = read_program(path)
        _refuse_unknown(self._program.graph, self._program.file)
        self._shapes = {info.name: info.shape for info in manifest.inputs}
        self._outputs = [info.name for info in manifest.outputs]
        labels = labels_of(self._program.graph)
        own = set(self._program.inputs)
        given = {info.name for info in manifest.inputs if manifest.options.get("random") == "input"}
        self._drawn = {name: label for name, label in labels.items() if label in given and name not in own}  # with `--random input`
        self._extra = {name: label for name, label in labels.items() if label in set(extra)}
        self._weights: dict[str, Any] = {}
        self.fresh()

    def fresh(self) -> None:
        """Buffers as they are in the file."""
        for name in self._program.weights:
            data, dtype = self._program.tensor(name)
            self._weights[name] = self._tensor(data, dtype)

    def _tensor(self, data: Array, dtype: DType) -> Any:
        array = np.array(data)
        if dtype is DType.BF16:
            return self._torch.from_numpy(array.view(np.int16)).view(self._torch.bfloat16)
        return self._torch.from_numpy(array)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        program, torch = self._program, self._torch
        scope: dict[str, Any] = {**program.fixed, **self._weights}
        self._numbers = {name: torch.from_numpy(np.array(inputs[label])) for name, label in self._drawn.items()}
        for name in program.inputs:
            scope[name] = torch.from_numpy(np.array(inputs[name]).reshape(self._shapes.get(name, np.shape(inputs[name]))))
        seen: dict[str, Array] = {}
        try:
            with torch.no_grad():
                self._run(program.graph, scope, seen)
                for buffer, after in program.mutations:
                    self._weights[buffer] = self._resolve(Ref(after), scope).clone()
                results = [self._resolve(argument, scope) for _, argument in program.outputs]
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError, NotImplementedError) as error:
            lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            raise ModelError("no-reference", f"torch fails on these inputs: {quoted(lines[0], 200)}") from None
        tensors = [r for r in results if isinstance(r, torch.Tensor)]
        found = dict(seen)
        for name, tensor in zip(self._outputs, tensors, strict=True):
            found[name] = _array(torch, tensor)
        return found

    def _run(self, graph: GraphRecord, scope: dict[str, Any], seen: dict[str, Array]) -> None:
        for record in graph.calls:
            answer = self._call(record, scope, seen)
            answers = list(answer) if len(record.outputs) != 1 and isinstance(answer, (tuple, list)) else [answer]
            if len(record.outputs) == 1 and isinstance(record.outputs[0], str) and isinstance(answer, (tuple, list)):
                answers = [answer[0]]
            for output, item in zip(record.outputs, answers, strict=False):
                names = () if output is None else (output,) if isinstance(output, str) else output
                for name, each in zip(names, [item] if isinstance(output, str) else item or (), strict=False):
                    scope[name] = each
                    if name in self._extra:
                        seen[self._extra[name]] = _array(self._torch, each).copy()

    def _call(self, record: NodeRecord, scope: dict[str, Any], seen: dict[str, Array]) -> Any:
        namespace, op, overload = split_target(record.target)
        given = {name: self._resolve(a, scope) for name, a in record.arguments.items() if not _is_aside(name, a)}
        if namespace == "python":
            return PYTHON[op](*given.values()) if op in PYTHON else _python(op, list(given.values()))
        if namespace == "higher_order":
            return self._nested(op, list(given.values()), seen)
        if namespace == "intaglio":
            return packed_rnn(self._torch)(*given.values())
        if namespace != "aten":
            return _quantised(self._torch, op, given)
        if op.startswith("sym_size"):
            return given["self"].shape[given["dim"]] if "dim" in given else list(given["self"].shape)
        if op.startswith("_assert_scalar") and given.get("self") is False:
            raise ValueError(given.get("assert_msg", "a check of the program fails"))
        if "assert" in op or "constrain" in op:
            return None
        if (numbers := self._numbers.get(str(record.outputs[0]) if record.outputs else "")) is not None:
            return given["self"].copy_(numbers) if op.endswith("_") else numbers
        function = getattr(getattr(self._torch.ops.aten, op), overload or "default")
        positional = [given[name] for name in record.positional if name in given]
        return function(*positional, **{name: v for name, v in given.items() if name not in record.positional})

    def _nested(self, op: str, items: list[Any], seen: dict[str, Array]) -> list[Any]:
        graphs = [i for i in items if isinstance(i, GraphRecord)]
        lists = items[items.index(graphs[-1]) + 1 :]
        if op == "while_loop":
            carried, others = lists
            while bool(self._body(graphs[0], [*carried, *others], seen)[0]):
                carried = self._body(graphs[1], [*carried, *others], seen)
            return list(carried)
        if op in ("scan", "map_impl"):
            *before, rows, others = lists
            return self._along(graphs[0], before[0] if before else [], rows, others, seen)
        graph = graphs[0 if len(graphs) == 1 or bool(items[0]) else 1]
        rest: list[Any] = []
        for item in lists:
            rest += item if isinstance(item, list) else [item]
        return self._body(graph, rest[-len(graph.inputs) :] if graph.inputs else [], seen)

    def _along(
        self, body: GraphRecord, carried: list[Any], rows: list[Any], others: list[Any], seen: dict[str, Array]
    ) -> list[Any]:
        """Row by row, with what each turn gives stacked."""
        made: list[list[Any]] = []
        for n in range(len(rows[0])):
            after = self._body(body, [*carried, *(row[n] for row in rows), *others], seen)
            carried, results = after[: len(carried)], after[len(carried) :]
            made.append(results)
        return [*carried, *(self._torch.stack(column) for column in zip(*made, strict=True))]

    def _body(self, graph: GraphRecord, given: list[Any], seen: dict[str, Array]) -> list[Any]:
        inner = dict(zip(graph.inputs, given, strict=True))
        self._run(graph, inner, seen)
        return [self._resolve(argument, inner) for argument in graph.outputs]

    def _resolve(self, argument: Any, scope: dict[str, Any]) -> Any:
        if isinstance(argument, Ref):
            return scope[argument.name]
        if isinstance(argument, list):
            return [self._resolve(a, scope) for a in argument]
        if isinstance(argument, Kind):
            return getattr(self._torch, DTYPES[argument.code])
        if isinstance(argument, Aside):
            return self._torch.device("cpu") if argument.about == "as_device" else getattr(self._torch, FORMATS[argument.code])
        return argument


def _is_aside(name: str, argument: object) -> bool:
    """Where it is stored: all is on the CPU here. The order in memory counts, since views depend on it."""
    kinds = ("as_device", "as_memory_format")
    return name in ("layout", "pin_memory") or (isinstance(argument, Aside) and argument.about not in kinds)


def _refuse_unknown(graph: GraphRecord, file: str) -> None:
    for record in graph.calls:
        if split_target(record.target)[0] not in SPACES or row_of(record.target) is None:
            raise ModelError("no-reference", f"{quoted(record.target)} is not an operator that may be called", where=file)
        for argument in record.arguments.values():
            if isinstance(argument, GraphRecord):
                _refuse_unknown(argument, file)


def _python(op: str, items: list[Any]) -> Any:
    if op == "getitem":
        return items[0][items[1]]
    if op == "pow" and abs(items[1]) <= 64:
        return items[0] ** items[1]
    raise ValueError(f"there is no {op}")


def _quantised(torch: Any, op: str, given: dict[str, Any]) -> Any:
    """The decomposed operators of PT2E, as torch defines them: they multiply by 1 / scale."""
    x = given["input"]
    scale: Any = given.get("scale", given.get("scales"))
    zero: Any = given.get("zero_point", given.get("zero_points"))
    if "axis" in given:
        shape = [x.shape[given["axis"]] if i == given["axis"] % x.dim() else 1 for i in range(x.dim())]
        scale = scale.reshape(shape)
        zero = torch.zeros(shape, dtype=torch.int64) if zero is None else zero.reshape(shape)
    if op.startswith("quantize"):
        rounded = torch.round(x * (1.0 / scale)) + zero
        return torch.clamp(rounded, given["quant_min"], given["quant_max"]).to(given["dtype"])
    real = (x.to(torch.float32) - zero) * scale
    return real.to(given.get("out_dtype") or given.get("output_dtype") or torch.float32)


def _array(torch: Any, tensor: Any) -> Array:
    if not isinstance(tensor, torch.Tensor):
        return np.asarray(tensor)
    plain = tensor.detach().contiguous()
    if plain.dtype is torch.bfloat16:
        return np.asarray(plain.view(torch.int16).numpy()).view(np.uint16)
    return np.array(plain.numpy())
