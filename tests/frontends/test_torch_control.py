"""Branches and loops of torch.export: `cond`, `while_loop`, `scan`, `map`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan as torch_scan
from torch._higher_order_ops.while_loop import while_loop

import intaglio
from intaglio.errors import ModelError, UserError
from intaglio.frontends.torch import load, save_object
from intaglio.ops.control import Select
from intaglio.ops.loops import LoopStart
from support.torch_running import computed, eager, exported, graph_of

RANDOM = np.random.default_rng(7)


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.linear = torch.nn.Linear(4, 4)


class Until(Layer):
    """As long as the sum is small and there are turns left."""

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> Any:
        def again(i: torch.Tensor, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
            return (i < n) & (x.sum() < 20)

        def body(i: torch.Tensor, x: torch.Tensor, n: torch.Tensor) -> Any:
            return i + 1, x + self.linear(x).abs(), n.clone()

        return while_loop(again, body, (torch.zeros((), dtype=torch.int64), x, n))[:2]


class Times(Layer):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, x: torch.Tensor) -> Any:
        start = (torch.zeros((), dtype=torch.int64), x)
        return while_loop(lambda i, x: i < self.count, lambda i, x: (i + 1, torch.tanh(self.linear(x))), start)[1]


class Branch(Layer):
    def forward(self, x: torch.Tensor) -> Any:
        def inner(x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.mean() > 1, lambda x: x * 2, lambda x: self.linear(x), (x,))

        return torch.cond(x.sum() > 0, inner, lambda x: x - 1, (x,))


class Longer(Layer):
    def forward(self, x: torch.Tensor) -> Any:
        y = torch.cond(x.sum() > 0, lambda x: x[:2].sin(), lambda x: self.linear(x)[:3], (x,))
        return y * 2, y.sum(0)


class Recurrent(Layer):
    def forward(self, x: torch.Tensor) -> Any:
        def step(state: torch.Tensor, row: torch.Tensor) -> Any:
            state = torch.tanh(self.linear(state) + row)
            return state, state * 2

        return torch_scan(step, torch.zeros(4), x, dim=0)


class Rows(Layer):
    def forward(self, x: torch.Tensor) -> Any:
        return torch_map(lambda row: self.linear(row).relu(), x)


def floats(*shape: int) -> torch.Tensor:
    return torch.from_numpy(RANDOM.standard_normal(shape).astype(np.float32))


def same(module: Any, path: Path, *feeds: tuple[torch.Tensor, ...], **options: Any) -> None:
    """The compiled package computes what torch does."""
    package = intaglio.compile(path, **options)
    for feed in feeds:
        with torch.no_grad():
            wanted = module(*feed)
        names = [info.name for info in package.manifest.inputs]
        got = package.run({name: x.numpy() for name, x in zip(names, feed, strict=True)})
        for a, b in zip(got.values(), wanted if isinstance(wanted, tuple) else [wanted], strict=True):
            assert a.shape == tuple(b.shape) and np.allclose(a, b.numpy(), atol=1e-5)


def test_a_loop_that_data_ends_stays_a_loop(tmp_path: Path) -> None:
    module = Until()
    path = exported(module, (floats(1, 4), torch.tensor(9)), tmp_path / "m.pt2")
    assert sum(isinstance(node.op, LoopStart) for node in graph_of(path).nodes) == 1
    feeds = [(floats(1, 4), torch.tensor(n)) for n in (0, 1, 5, 1000)] + [(floats(1, 4) + 100, torch.tensor(5))]
    same(module, path, *feeds)


@pytest.mark.parametrize(("count", "loops"), [(3, 0), (200, 1)])
def test_few_turns_that_are_known_are_written_out(count: int, loops: int, tmp_path: Path) -> None:
    module = Times(count)
    path = exported(module, (floats(1, 4),), tmp_path / "m.pt2")
    assert sum(isinstance(node.op, LoopStart) for node in graph_of(path).nodes) == loops
    same(module, path, (floats(1, 4),))


def test_only_the_branch_that_is_taken_is_computed(tmp_path: Path) -> None:
    module = Branch()
    path = exported(module, (floats(1, 4),), tmp_path / "m.pt2")
    graph = graph_of(path)
    assert any(isinstance(node.op, Select) for node in graph.nodes)
    assert all(node.when is not None for node in graph.nodes if node.op.NAME == "matmul")
    same(module, path, (floats(1, 4) + 5,), (floats(1, 4) + 0.5,), (floats(1, 4) - 5,))


def test_the_branch_that_is_taken_says_how_many_rows_there_are(tmp_path: Path) -> None:
    module = Longer()
    path = exported(module, (floats(4, 4),), tmp_path / "m.pt2")
    same(module, path, (floats(4, 4) + 5,), (floats(4, 4) - 5,))


ROWS = [
    (Recurrent, 5, 0), (Rows, 80, 1), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((Recurrent, 80, 1), (Rows, 5, 0))),
]  # fmt: skip


@pytest.mark.parametrize(("module", "rows", "loops"), ROWS)
def test_rows_are_written_out_or_looped_over(module: Callable[[], Any], rows: int, loops: int, tmp_path: Path) -> None:
    made = module()
    path = exported(made, (floats(rows, 4),), tmp_path / "m.pt2")
    assert sum(isinstance(node.op, LoopStart) for node in graph_of(path).nodes) == loops
    same(made, path, (floats(rows, 4),))


@pytest.mark.parametrize("module", [pytest.param(Recurrent, marks=pytest.mark.slow), Rows])
def test_the_number_of_rows_may_have_a_range(module: Callable[[], Any], tmp_path: Path) -> None:
    made = module()
    rows = torch.export.Dim("rows", min=2, max=40)
    program = torch.export.export(made.eval(), (floats(7, 4),), dynamic_shapes={"x": {0: rows}})
    torch.export.save(program, str(tmp_path / "m.pt2"))
    graph, _ = load(tmp_path / "m.pt2", dims={}, shapes={})
    assert graph.bounds is not None
    same(made, tmp_path / "m.pt2", *[(floats(n, 4),) for n in (2, 7, 40)], shapes={"in0": ("..", 4)})


class Speech(Layer):
    """Several methods of one module."""

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x))

    def step(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x) + state)


class Method(torch.nn.Module):
    def __init__(self, module: torch.nn.Module, name: str) -> None:
        super().__init__()
        self.module, self.name = module, name

    def forward(self, *inputs: torch.Tensor) -> Any:
        return getattr(self.module, self.name)(*inputs)


def test_methods_of_a_module_are_entry_points_that_share_weights(tmp_path: Path) -> None:
    speech, x, state = Speech(), floats(2, 4), floats(2, 4)
    program = torch.export.export(Method(speech, "encode").eval(), (x,))
    step: dict[str, object] = {"model": Method(speech, "step"), "example_inputs": (x, state)}
    points = intaglio.compile_entries({"encode": program, "step": step}, output=tmp_path / "speech")
    assert list(points) == ["encode", "step"]
    with torch.no_grad():
        wanted = speech.encode(x).numpy(), speech.step(x, state).numpy()
    encoded = points["encode"].run(x.numpy())
    stepped = points["step"].run({"in0": x.numpy(), "in1": state.numpy()})
    assert np.allclose(next(iter(encoded.values())), wanted[0], atol=1e-6)
    assert np.allclose(next(iter(stepped.values())), wanted[1], atol=1e-6)
    assert points.about.weight_bytes < points.about.separate_weight_bytes == 2 * points.about.weight_bytes
    assert all(check.ok for check in points.validate().values())


def test_several_objects_are_for_compile_entries() -> None:
    with pytest.raises(UserError, match="are several models"):
        intaglio.compile({"encode": Speech(), "step": Speech()})


class Branched(torch.nn.Module):
    """A branch that makes a constant, and runs a loop."""

    def __init__(self, start: Any) -> None:
        super().__init__()
        self.start = start

    def forward(self, x: Any) -> Any:
        def loop(x: Any) -> Any:
            return while_loop(lambda n, y: n < 4, lambda n, y: (n + 1, y * 1.5 + x), (self.start(), x))[1]

        return torch.cond(x.sum() > 0, loop, lambda x: x - 1, (x,))


def test_a_loop_in_a_branch(tmp_path: Path) -> None:
    module, x = Branched(lambda: torch.tensor(0)), torch.ones(3)
    save_object(module, (x,), tmp_path / "m.pt2")
    program = torch.export.export(module, (x,))
    before = str(program.graph_module.true_graph_0.graph)
    save_object(program, None, tmp_path / "n.pt2")
    assert str(program.graph_module.true_graph_0.graph) == before
    for given in (x, -x):
        for name in ("m.pt2", "n.pt2"):
            assert np.allclose(computed(graph_of(tmp_path / name), (given,))[0], eager(module, (given,))[0])


def test_a_number_that_a_loop_carries_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not save the exported program") as caught:
        save_object(Branched(lambda: 0), (torch.ones(3),), tmp_path / "m.pt2")
    assert "`torch.tensor(0)` instead of `0`" in caught.value.hint
