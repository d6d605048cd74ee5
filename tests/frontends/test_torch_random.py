"""Random operators of PyTorch: their numbers are spread as they should be, or, with `--random input`, PyTorch's own results follow
from numbers that are given. And what counts: `bincount`, `histc`, `unique_consecutive`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import intaglio
from intaglio.errors import AnswerIsNo, ModelError
from intaglio.frontends.torch import load
from intaglio.ir.graph import Array
from intaglio.ops.evaluate import evaluate_graph
from intaglio.ops.random import RUN_STATE


class Wrapped(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: Any) -> Any:
        return self.function(*given)


def saved(function: Callable[..., Any], given: tuple[Any, ...], folder: Path) -> Path:
    torch.export.save(torch.export.export(Wrapped(function), given), str(folder / "m.pt2"))
    return folder / "m.pt2"


def drawn(function: Callable[..., Any], folder: Path, *given: Any, runs: tuple[int, ...] = (0,), seed: str = "0") -> list[Array]:
    """What the function gives in some runs."""
    graph, _ = load(saved(function, given, folder), dims={}, shapes={}, random=seed)
    state = next(v for v in graph.inputs if v.origin == RUN_STATE)
    inputs = {v.name: x.numpy() for v, x in zip([v for v in graph.inputs if v is not state], given, strict=True)}
    found = [evaluate_graph(graph, {**inputs, state.name: np.full(1, run, np.uint32)}) for run in runs]
    return [results[graph.outputs[0].name] for results in found]


N = 20_000
BIG = torch.zeros(N)
CHANCES = torch.tensor([0.1, 0.0, 0.6, 0.3])

MOMENTS: dict[str, tuple[Callable[..., Any], float, float]] = {  # function, mean, standard deviation
    "rand": (lambda x: torch.rand(N) + x * 0, 0.5, 12**-0.5),
    "rand_like": (torch.rand_like, 0.5, 12**-0.5),
    "uniform_": (lambda x: torch.empty_like(x).uniform_(2, 5), 3.5, 3 * 12**-0.5),
    "randn": (lambda x: torch.randn(N) + x * 0, 0.0, 1.0),
    "randn_like": (torch.randn_like, 0.0, 1.0),
    "normal": (lambda x: torch.normal(1.0, 2.0, (N,)) + x * 0, 1.0, 2.0),
    "normal_": (lambda x: x.clone().normal_(1, 2), 1.0, 2.0),
    "normal of tensors": (lambda x: torch.normal(x + 3, x + 0.5), 3.0, 0.5),
    "normal of a mean": (lambda x: torch.normal(x + 3, 2.0), 3.0, 2.0),
    "randint": (lambda x: torch.randint(2, 9, (N,)) + x * 0, 5.0, 2.0),
    "randint_like": (lambda x: torch.randint_like(x, 5), 2.0, 2**0.5),
    "bernoulli": (lambda x: torch.bernoulli(x + 0.3), 0.3, 0.21**0.5),
    "bernoulli of a number": (lambda x: torch.bernoulli(x, 0.8), 0.8, 0.4),
    "bernoulli_": (lambda x: x.clone().bernoulli_(0.2), 0.2, 0.4),
    "exponential_": (lambda x: torch.empty_like(x).exponential_(2.0), 0.5, 0.5),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_numbers_are_spread_as_they_should_be(name: str, tmp_path: Path) -> None:
    function, mean, deviation = MOMENTS[name]
    first, second = drawn(function, tmp_path, BIG, runs=(0, 1))
    want = function(BIG)
    assert first.shape == tuple(want.shape) and first.dtype == want.numpy().dtype
    assert not np.array_equal(first, second)
    for found in (first, second, want.numpy()):
        assert abs(found.mean() - mean) < 5 * deviation / N**0.5
        assert abs(found.std() - deviation) < 0.05 * deviation
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.05


def test_a_seed_gives_the_same_numbers(tmp_path: Path) -> None:
    first, again, other = (drawn(torch.rand_like, tmp_path, BIG[:9], seed=seed)[0] for seed in ("3", "3", "4"))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_two_operators_draw_two_kinds_of_numbers(tmp_path: Path) -> None:
    (found,) = drawn(lambda x: torch.stack([torch.rand_like(x), torch.rand_like(x)]), tmp_path, BIG[:50])
    assert not np.array_equal(found[0], found[1])


def test_permutations(tmp_path: Path) -> None:
    found = drawn(lambda x: torch.randperm(6) + x.long(), tmp_path, BIG[:6], runs=tuple(range(200)))
    assert all(sorted(order.tolist()) == list(range(6)) for order in found)
    counts = np.stack(found)
    assert all(10 < (counts[:, place] == n).sum() < 65 for place in range(6) for n in range(6))


@pytest.mark.parametrize("replacement", [True, False])
def test_classes(replacement: bool, tmp_path: Path) -> None:
    rows = CHANCES.repeat(300, 1)
    (found,) = drawn(lambda p: torch.multinomial(p, 2, replacement), tmp_path, rows)
    assert found.shape == (300, 2) and found.dtype == np.int64
    assert not (found == 1).any()
    assert replacement or (found[:, 0] != found[:, 1]).all()
    assert np.abs(np.bincount(found[:, 0], minlength=4) / 300 - CHANCES.numpy()).max() < 0.1


def sampled(x: Any) -> Any:
    noise = torch.randn_like(x) * 0.5
    mask = torch.bernoulli(torch.sigmoid(x + noise))
    order = torch.randperm(4)
    soft = F.gumbel_softmax(x, tau=0.7)
    return x + noise * mask, x[:, order], soft, torch.multinomial(soft, 3), torch.empty(3).uniform_(2, 5) * 2


def numbers(shape: tuple[int, ...], whole: bool) -> Array:
    rng = np.random.default_rng(3)
    found = rng.permutation(4)[: shape[-1]] if whole else rng.random(shape)
    return np.ascontiguousarray(np.broadcast_to(found, shape)).astype(np.int64 if whole else np.float32)


def test_numbers_that_are_given(tmp_path: Path) -> None:
    x = torch.randn(5, 4)
    graph, _ = load(saved(sampled, (x,), tmp_path), dims={}, shapes={}, random="input")
    assert len(graph.inputs) == 7 and not graph.states
    given = {v.name: numbers(v.shape, v.dtype.is_int) for v in graph.inputs[1:]} | {graph.inputs[0].name: x.numpy()}
    made = evaluate_graph(graph, given)
    out = [made[v.name] for v in graph.outputs]
    noise, mask, order, waited, classes, even = (given[v.name] for v in graph.inputs[1:])
    assert np.allclose(out[0], x.numpy() + noise * 0.5 * mask, atol=1e-6)
    assert np.array_equal(out[1], x.numpy()[:, order])
    assert np.allclose(out[2], F.softmax((x - torch.log(torch.tensor(waited))) / 0.7, -1).numpy(), atol=1e-6)
    assert np.array_equal(out[3], classes) and np.array_equal(out[4], even * 2)


@pytest.mark.slow
def test_given_numbers_are_compared_with_pytorch(tmp_path: Path) -> None:
    package = intaglio.compile(saved(sampled, (torch.randn(5, 4),), tmp_path), output=tmp_path / "out", random="input")
    checked = package.validate()
    assert checked.ok and "torch" in str(checked)


def test_a_loop_draws_no_numbers(tmp_path: Path) -> None:
    from torch._higher_order_ops.while_loop import while_loop

    def noisy(x: Any) -> Any:
        return while_loop(lambda n, y: y.sum() < 50, lambda n, y: (n + 1, y + torch.rand_like(y)), (torch.tensor(0), x))

    path = saved(noisy, (torch.zeros(3),), tmp_path)
    with pytest.raises(ModelError, match="in a loop is not supported"):
        load(path, dims={}, shapes={})


# What counts --------------------------------------------------------------------------------------------------------------

WORDS = torch.tensor([3, 3, 0, 5, 5, 5, 0, 3])
VALUES = torch.tensor([0.1, -0.4, 0.9, 1.0, -1.0, 1.5, 0.1999, -3.0, 0.2, float("nan")])

COUNTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "histc": (lambda x: torch.histc(x, 5, -1, 1), (VALUES,)),
    "histc of all": (lambda x: torch.histc(x, 7), (VALUES[:-1].reshape(3, 3),)),
    "histc of equal numbers": (lambda x: torch.histc(x, 4), (torch.full((5,), 2.0),)),
    "runs": (lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True), (WORDS,)),
    "runs of a matrix": (lambda x: torch.unique_consecutive(x, return_inverse=True), (WORDS.reshape(2, 4).float(),)),
    "runs of rows": (
        lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=0),
        (torch.tensor([[1.0, 2.0], [1.0, 2.0], [1.0, 3.0], [1.0, 2.0]]),),
    ),
    "runs of columns": (lambda x: torch.unique_consecutive(x, dim=1), (torch.tensor([[1, 1, 2, 2], [3, 3, 3, 4]]),)),
    "angle": (torch.angle, (VALUES,)),
    "angle of whole numbers": (torch.angle, (WORDS - 3,)),
    "conj": (lambda x: torch.conj_physical(x) + 1, (VALUES,)),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name: str, tmp_path: Path) -> None:
    function, given = COUNTS[name]
    graph, _ = load(saved(function, given, tmp_path), dims={}, shapes={})
    made = evaluate_graph(graph, {v.name: x.numpy() for v, x in zip(graph.inputs, given, strict=True)})
    want = function(*given)
    for value, tensor in zip(graph.outputs, want if isinstance(want, tuple) else (want,), strict=True):
        assert np.array_equal(made[value.name], tensor.numpy(), equal_nan=tensor.is_floating_point()), value


@pytest.mark.slow
def test_a_package_counts(tmp_path: Path) -> None:
    def counted(words: Any, weights: Any) -> Any:
        return torch.bincount(words, minlength=3), torch.bincount(words, weights), torch.unique_consecutive(words)

    weights = torch.rand(8)
    path = saved(counted, (WORDS, weights), tmp_path)
    with pytest.raises(ModelError, match="nothing bounds it") as refused:
        load(path, dims={}, shapes={})
    assert "`--max bincount=N`" in refused.value.hint
    package = intaglio.compile(path, output=tmp_path / "out", max={"bincount": 9, "bincount_1": 9})
    for words in (WORDS, WORDS * 0, WORDS + 3):
        out = package.run({"in0": words.numpy(), "in1": weights.numpy()})
        for got, want in zip(out.values(), counted(words, weights), strict=True):
            assert got.shape == tuple(want.shape) and np.allclose(got, want.numpy(), atol=1e-6)
    with pytest.raises(AnswerIsNo, match="not within its bounds"):
        package.run({"in0": (WORDS * 3).numpy(), "in1": weights.numpy()})
