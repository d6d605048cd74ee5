"""Modules that return named tuples, dictionaries, lists and dataclasses, and take named tuples."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from intaglio.frontends.torch import load, save_object  # noqa: E402
from support.torch_running import computed  # noqa: E402

Boxes = namedtuple("Boxes", "corners scores")


@dataclass
class Found:
    boxes: Any
    extra: Any = None
    parts: Any = ()


class Gives(nn.Module):  # type: ignore[misc, unused-ignore]
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def grouped(x: Any) -> Any:
    made = defaultdict(list)
    made["low"], made["high"] = x - 1, x + 1
    return made


KINDS = {
    "topk": (lambda x: x.topk(2), ["values", "indices"]),
    "max": (lambda x: x.max(1), ["values", "indices"]),
    "sort": (lambda x: x.sort(), ["values", "indices"]),
    "two": (lambda x: (x.max(1), x.min(1), x.sin()), ["values", "indices", "values_2", "indices_2", "sin"]),
    "named": (lambda x: Boxes(x * 2, x.sum(1)), ["corners", "scores"]),
    "list": (lambda x: [x * 2, x.sum(1)], ["mul", "sum_1"]),
    "nested": (
        lambda x: ({"a": x * 2, "b": [x + 1, Boxes(x.sin(), x.cos())]}, x.exp()),
        ["a", "b_0", "b_1_corners", "b_1_scores", "exp"],
    ),
    "ordered": (lambda x: OrderedDict(second=x.cos(), first=x.sin()), ["second", "first"]),
    "default": (grouped, ["low", "high"]),
    "dataclass": (lambda x: Found(x * 2, parts=[x.sin(), x.cos()]), ["boxes", "parts_0", "parts_1"]),
    "inside": (lambda x: [Found(x * 2)], ["boxes"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", list(KINDS))
def test_results_have_the_names_of_their_fields(kind: str, tmp_path: Path) -> None:
    function, names = KINDS[kind]
    module, x = Gives(function), torch.tensor([[3.0, -1.0, 7.5], [0.25, 9.0, -4.0]])
    save_object(module, (x,), tmp_path / "m.pt2")
    graph, _ = load(tmp_path / "m.pt2", dims={}, shapes={})
    assert graph.output_names == names
    expected = [np.asarray(v) for v in torch.utils._pytree.tree_leaves(_plain(module(x))) if v is not None]
    made = computed(graph, (x,))
    assert len(made) == len(expected)
    assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(made, expected, strict=True))
    assert not module._forward_hooks


def _plain(value: Any) -> Any:
    if isinstance(value, Found):
        return [_plain(value.boxes), _plain(value.extra), _plain(value.parts)]
    return [_plain(v) for v in value] if type(value) is list else value


def test_an_exported_program_keeps_its_structure(tmp_path: Path) -> None:
    program = torch.export.export(Gives(lambda x: x.topk(2)), (torch.zeros(1, 4),))
    before = program.module_call_graph[0].signature.out_spec
    save_object(program, None, tmp_path / "m.pt2")
    assert program.module_call_graph[0].signature.out_spec is before
    assert load(tmp_path / "m.pt2", dims={}, shapes={})[0].output_names == ["values", "indices"]


def test_inputs_may_be_in_a_named_tuple(tmp_path: Path) -> None:
    module, given = Gives(lambda boxes: boxes.corners * boxes.scores), Boxes(torch.ones(2, 3), torch.full((2, 3), 2.0))
    save_object(module, (given,), tmp_path / "m.pt2")
    graph, _ = load(tmp_path / "m.pt2", dims={}, shapes={})
    assert len(graph.inputs) == 2
    assert np.array_equal(computed(graph, tuple(given))[0], given.corners * given.scores)
