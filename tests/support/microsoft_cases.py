"""One operator of com.microsoft as a model, what it computes here and what ONNX Runtime makes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ValueInfoProto, helper, numpy_helper

from intaglio.errors import ModelError
from intaglio.frontends.onnx import load
from intaglio.ir.graph import Array
from intaglio.ops.evaluate import evaluate_graph
from intaglio.run.saturation import without_saturation
from support.onnx_models import saved

RNG = np.random.default_rng(9)
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]


def floats(*shape: int, scale: float = 1.0) -> Array:
    return np.asarray(RNG.standard_normal(shape) * scale, np.float32)


def whole(low: int, high: int, *shape: int, dtype: Any = np.int32) -> Array:
    return np.asarray(RNG.integers(low, high, shape)).astype(dtype)


@dataclass(frozen=True)
class Case:
    """Operands by position: data (`given`) or constants; None is absent."""

    op: str
    given: tuple[Any, ...]
    constants: tuple[Any, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1

    def model(self) -> Any:
        names = ["" if a is None else f"a{n}" for n, a in enumerate((*self.given, *self.constants))]
        results = [f"y{n}" for n in range(self.outputs)]
        one = helper.make_node(self.op, names, results, domain="com.microsoft", **self.fields)
        inputs = [helper.make_tensor_value_info(f"a{n}", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
                  for n, a in enumerate(self.given) if a is not None]  # fmt: skip
        held = [numpy_helper.from_array(a, f"a{n}") for n, a in enumerate(self.constants, len(self.given)) if a is not None]
        graph = helper.make_graph([one], "g", inputs, [ValueInfoProto(name=r) for r in results], held)
        return helper.make_model(graph, opset_imports=OPSETS, ir_version=10)

    def feeds(self) -> dict[str, Array]:
        return {f"a{n}": a for n, a in enumerate(self.given) if a is not None}


def expected(case: Case) -> list[Any]:
    model = case.model()
    without_saturation(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, case.feeds()))


def computed(case: Case, folder: Path) -> list[Array]:
    """The results of the numpy references."""
    graph, _ = load(saved(case.model(), folder))
    values = evaluate_graph(graph, dict(zip([v.name for v in graph.inputs], case.feeds().values(), strict=True)))
    return [v.data if v.data is not None else values[v.name] for v in graph.outputs]


def agree(got: list[Array], want: list[Any], bound: float = 2e-4) -> None:
    assert len(got) == len(want)
    for mine, theirs in zip(got, want, strict=True):
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
        if theirs.dtype.kind == "f":
            np.testing.assert_allclose(mine, theirs, rtol=bound, atol=bound)
        else:
            assert np.array_equal(mine, theirs)


def is_refused(case: Case, reason: str, folder: Path) -> None:
    with pytest.raises(ModelError, match=reason) as caught:
        load(saved(case.model(), folder))
    assert caught.value.hint
