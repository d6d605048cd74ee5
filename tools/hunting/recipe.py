"""A model as a list of steps that can be shortened: what is generated, built as ONNX, and reduced.

Values are numbered: the inputs first, then one for each step. A step that is left out becomes an input of its type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from intaglio.ir.graph import Array

KINDS = {"f": TensorProto.FLOAT, "b": TensorProto.INT8, "u": TensorProto.UINT8, "l": TensorProto.INT64, "?": TensorProto.BOOL}
NUMPY = {"f": np.float32, "b": np.int8, "u": np.uint8, "l": np.int64, "?": np.bool_}


@dataclass(frozen=True, slots=True)
class Type:
    shape: tuple[int, ...]
    kind: str = "f"


@dataclass(frozen=True, slots=True)
class Step:
    """Operands are numbers of values, arrays, or None where one is absent."""

    op: str
    operands: tuple[int | Array | None, ...]
    type: Type
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recipe:
    inputs: tuple[Type, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    def type_of(self, number: int) -> Type:
        return self.inputs[number] if number < len(self.inputs) else self.steps[number - len(self.inputs)].type

    def model(self) -> bytes:
        nodes, constants = [], []
        for n, step in enumerate(self.steps):
            names = []
            for k, operand in enumerate(step.operands):
                if isinstance(operand, np.ndarray):
                    names.append(f"c{n}_{k}")
                    constants.append(numpy_helper.from_array(operand, names[-1]))
                else:
                    names.append("" if operand is None else f"v{operand}")
            while names and not names[-1]:
                names.pop()
            nodes.append(helper.make_node(step.op, names, [f"v{len(self.inputs) + n}"], name=f"n{n}", **step.attributes))
        used = {o for step in self.steps for o in step.operands if isinstance(o, int)} | set(self.outputs)
        given = [_info(n, t) for n, t in enumerate(self.inputs) if n in used]
        graph = helper.make_graph(nodes, "g", given, [_info(n, self.type_of(n)) for n in self.outputs], constants)
        return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString())

    def feeds(self, seed: int) -> dict[str, Array]:
        """Some of them extreme for their type, many of them special."""
        rng = np.random.default_rng(seed)
        made: dict[str, Array] = {}
        used = {o for step in self.steps for o in step.operands if isinstance(o, int)} | set(self.outputs)
        for n, type in enumerate(self.inputs):
            if n not in used:
                continue
            if type.kind == "f":
                drawn = rng.standard_normal(type.shape) * rng.choice([0.1, 1.0, 10.0])
                special = rng.random(type.shape) < 0.1
                made[f"v{n}"] = np.where(special, rng.choice([0.0, -0.0, 1.0, -1.0, 0.5], type.shape), drawn).astype(np.float32)
            elif type.kind == "?":
                made[f"v{n}"] = rng.random(type.shape) < 0.5
            else:
                info = np.iinfo(NUMPY[type.kind])
                drawn = rng.integers(max(info.min, -9), min(info.max, 9) + 1 if type.kind == "l" else info.max + 1, type.shape)
                if type.kind != "l" and seed % 3 == 0:
                    drawn = rng.choice([info.min, info.max], type.shape)
                made[f"v{n}"] = drawn.astype(NUMPY[type.kind])
        return made

    def without(self, number: int) -> Recipe:
        """The step as an input: numbers of all values behind it are the same, as the input comes in its place at the front."""
        at = number - len(self.inputs)
        moved = {n: n for n in range(len(self.inputs))} | {number: len(self.inputs)}
        for n in range(len(self.inputs), len(self.inputs) + len(self.steps)):
            moved.setdefault(n, n + (n < number))
        steps = tuple(
            replace(s, operands=tuple(moved[o] if isinstance(o, int) else o for o in s.operands))
            for n, s in enumerate(self.steps)
            if n != at
        )
        outputs = tuple(dict.fromkeys(moved[o] for o in self.outputs if o != number))
        return Recipe((*self.inputs, self.steps[at].type), steps, outputs)

    def pruned(self) -> Recipe:
        """Steps that no output needs are left out."""
        first, needed = len(self.inputs), set(self.outputs)
        for n in reversed(range(len(self.steps))):
            if first + n in needed:
                needed |= {o for o in self.steps[n].operands if isinstance(o, int)}
        kept = [n for n in range(len(self.steps)) if first + n in needed]
        moved = {n: n for n in range(first)} | {first + n: first + k for k, n in enumerate(kept)}
        steps = tuple(
            replace(self.steps[n], operands=tuple(moved[o] if isinstance(o, int) else o for o in self.steps[n].operands))
            for n in kept
        )
        return Recipe(self.inputs, steps, tuple(moved[o] for o in self.outputs))


def _info(number: int, type: Type) -> Any:
    return helper.make_tensor_value_info(f"v{number}", KINDS[type.kind], type.shape)
