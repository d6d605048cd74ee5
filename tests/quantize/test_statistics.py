"""What is learnt about the tensors of a float model from samples."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio.errors import UserError
from intaglio.ir.graph import Array, Graph
from intaglio.ir.operator import BadOperator
from intaglio.ir.text import parse_graph
from intaglio.ir.types import DType
from intaglio.ops.evaluate import LongLoop
from intaglio.quantize import statistics
from intaglio.quantize.ranges import range_of
from intaglio.quantize.statistics import Statistics, observe
from support.ir_text import graph_of

ROWS, COLUMNS = 40, 3


def graph() -> Graph:
    """-x goes into a product; what comes out of it does not."""
    return graph_of(
        """
        input x: f32[40,3]
        const w: f32[3,2] ...
        n: f32[40,3] = neg(x)
        m: f32[40,2] = matmul(n, w)
        y: f32[40,2] = relu(m)
        output y
        """
    )


def samples(count: int, seed: int = 0) -> list[dict[str, Array]]:
    random = np.random.default_rng(seed)
    return [{"x": random.standard_normal((ROWS, COLUMNS)).astype(np.float32)} for _ in range(count)]


def seen(given: list[dict[str, Array]], progress: list[tuple[str, int, int]] | None = None) -> Statistics:
    made = graph()
    values = {value for node in made.nodes for value in node.outputs} | {*made.inputs}

    def note(what: str, done: int, count: int) -> None:
        if progress is not None:
            progress.append((what, done, count))

    return observe(made, values, given, note)


def test_extremes_are_those_of_all_samples() -> None:
    given = samples(5)
    found = seen(given).tensors["n"]
    every = -np.concatenate([one["x"] for one in given])
    assert (found.low, found.high) == (float(every.min()), float(every.max()))
    assert found.channels is not None
    np.testing.assert_array_equal(found.channels, np.abs(every).max(axis=0))


def test_all_numbers_are_kept_where_there_is_room() -> None:
    given = samples(5)
    np.testing.assert_array_equal(seen(given).tensors["x"].sample(), np.concatenate([one["x"].reshape(-1) for one in given]))


def test_there_is_room_for_some_of_each_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_KEPT", 100)
    assert [len(part) for part in seen(samples(4)).tensors["x"].numbers] == [120] * 4  # never below 256


def test_a_sample_has_numbers_of_its_own_tensor_only(monkeypatch: pytest.MonkeyPatch) -> None:
    made = graph_of("input x: f32[600]\ny: f32[600] = relu(x)\noutput y")
    given: list[dict[str, Array]] = [{"x": np.arange(1, 601, dtype=np.float32) + 1000 * n} for n in range(2)]
    monkeypatch.setattr(statistics, "_KEPT", 800)
    found = observe(made, {*made.inputs}, given, lambda *_: None).tensors["x"]
    for n, part in enumerate(found.numbers):
        assert len(part) == 400 and {*part.tolist()} <= {*given[n]["x"].tolist()}
        assert len({*part.tolist()}) > 250  # at random, not a few
    again = observe(made, {*made.inputs}, given, lambda *_: None).tensors["x"]
    np.testing.assert_array_equal(found.sample(), again.sample())


def test_a_tensor_that_just_fits_is_kept_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    made = graph_of("input x: f32[300]\ny: f32[300] = relu(x)\noutput y")
    monkeypatch.setattr(statistics, "_KEPT", 300)
    given: list[dict[str, Array]] = [{"x": np.arange(300, dtype=np.float32)}]
    np.testing.assert_array_equal(observe(made, {*made.inputs}, given, lambda *_: None).tensors["x"].sample(), given[0]["x"])


@pytest.mark.parametrize("shape", [(), (0, 3)])
def test_a_single_number_and_no_number_have_no_channels(shape: tuple[int, ...]) -> None:
    text = ",".join(map(str, shape))
    made = graph_of(f"input x: f32[{text}]\ny: f32[{text}] = relu(x)\noutput y")
    assert observe(made, {*made.inputs}, [{"x": np.full(shape, 2, np.float32)}], lambda *_: None).tensors["x"].channels is None


def test_means_are_of_what_goes_into_products() -> None:
    given = samples(7)
    means = seen(given).means
    assert {*means} == {"n"}
    np.testing.assert_allclose(means["n"], -np.mean([one["x"].astype(np.float64) for one in given], axis=0), rtol=1e-12)


def test_results_are_kept_in_order_and_progress_is_told() -> None:
    given, told = samples(3), list[tuple[str, int, int]]()
    found = seen(given, told)
    weights = next(value.data for value in graph().constants() if value.name == "w")
    for one, result in zip(given, found.results, strict=True):
        np.testing.assert_allclose(result["y"], np.maximum(-one["x"] @ weights, 0), rtol=1e-5, atol=1e-6)
    assert told == [("calibrating", n, 3) for n in range(4)]


def test_numbers_that_are_not_finite_are_refused() -> None:
    given = samples(2)
    given[1]["x"][3, 1] = np.inf
    with pytest.raises(UserError, match="not finite"):
        seen(given)


@pytest.mark.parametrize("method", ["percentile", "entropy", "mse"])
def test_a_few_numbers_have_their_full_range(method: str) -> None:
    """From 16 on, methods may draw it in."""
    few = np.concatenate([np.linspace(-1, 1, 14), [100.0]]).astype(np.float32)
    assert range_of(method, few, -1.0, 100.0, DType.I8) == (-1.0, 100.0)
    if method == "percentile":
        assert range_of(method, np.append(few, np.float32(0.5)), -1.0, 100.0, DType.I8)[1] < 100.0


def test_every_number_of_a_large_tensor_may_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    made = graph_of("input x: f32[300]\ny: f32[300] = relu(x)\noutput y")
    given: list[dict[str, Array]] = [{"x": np.arange(300, dtype=np.float32)} for _ in range(12)]
    monkeypatch.setattr(statistics, "_KEPT", 300)
    found = {*observe(made, {*made.inputs}, given, lambda *_: None).tensors["x"].sample().tolist()}
    assert found == {*range(300)}


def test_only_the_tensors_that_were_asked_for_are_looked_at() -> None:
    made = graph()
    asked = {value for value in made.values() if value.name in ("n", "w")}  # a constant is not computed
    assert {*observe(made, asked, samples(2), lambda *_: None).tensors} == {"n"}


LOOP = """
    input x: f32[4]
    const t: bool[] ...
    const o: f32[] ...
    c: bool[], h: f32[4] = loop_start(t, x)
    e: f32[4] = exp(h)
    s: f32[] = reduce(e, kind="sum", axes=(0), keepdims=false)
    d: bool[] = less(s, o)
    c2: bool[], k: f32[4] = loop_end(c, h, d, e, carried=2)
    y: f32[4] = neg(k)
    output y
"""


def runs_of(
    made: Graph, outcomes: list[Exception | None], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[dict[str, Array] | None], list[bool]]:
    """What the runs give, and of those that began, whether all values were kept."""
    begun: list[bool] = []

    def evaluated(graph: Graph, given: dict[str, Array], *, keep: bool, **_: object) -> dict[str, Array]:
        begun.append(keep)
        outcome = outcomes[len(begun) - 1]
        if outcome is not None:
            raise outcome
        return {v.name: np.zeros(4, np.float32) for v in graph.outputs}

    monkeypatch.setattr(statistics, "evaluate_graph", evaluated)
    given: list[dict[str, Array]] = [{"x": np.zeros(4, np.float32)} for _ in range(3)]
    return list(statistics.run_where_there_is_room(made, given)), begun


def test_where_a_loop_does_not_end_no_later_sample_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found, begun = runs_of(graph_of(LOOP), [None, LongLoop(), None], monkeypatch)
    assert found[0] is not None and found[1:] == [None, None] and begun == [False, False]


def test_a_sample_without_room_is_none_and_the_next_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    found, begun = runs_of(graph_of(LOOP), [BadOperator("too many"), None, None], monkeypatch)
    assert [run is None for run in found] == [True, False, False] and begun == [False] * 3


def test_where_nothing_is_found_in_data_errors_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = graph_of("input x: f32[4]\ny: f32[4] = relu(x)\noutput y")
    assert runs_of(plain, [None] * 3, monkeypatch)[1] == [False] * 3
    with pytest.raises(BadOperator, match="wrong"):
        runs_of(plain, [BadOperator("wrong")], monkeypatch)


def test_the_state_goes_from_one_sample_to_the_next() -> None:
    made = graph_of("input x: f32[2]\ninput h: f32[2]\nstate h = n\nn: f32[2] = add(h, x)\ny: f32[2] = neg(n)\noutput y")
    given: list[dict[str, Array]] = [{"x": np.array([1, 10], np.float32)} for _ in range(3)]
    for run in (statistics.run_all, statistics.run_where_there_is_room):
        found = [one["y"].tolist() for one in run(made, given) if one is not None]
        assert found == [[-1, -10], [-2, -20], [-3, -30]]


def test_sizes_are_those_of_the_inputs_that_a_sample_has() -> None:
    lines = ["intaglio-ir 1", "model m", "size T = 1..8", "input x: f32[T<=8,2]", "input h: f32[3]"]
    lines += ["y: f32[T<=8,2] = relu(x)", "n: f32[3] = neg(h)", "output y", "output n", ""]
    made = parse_graph("\n".join(lines), {})
    assert statistics.sizes_for(made, {"x": np.zeros((5, 2), np.float32)}) == {"T": 5}
    assert statistics.sizes_for(graph(), {"x": np.zeros((40, 3), np.float32)}) == {}


def test_of_many_samples_256_numbers_each_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    made = graph_of("input x: f32[300]\ny: f32[300] = relu(x)\noutput y")
    monkeypatch.setattr(statistics, "_KEPT", 300)
    given: list[dict[str, Array]] = [{"x": np.zeros(300, np.float32)} for _ in range(3)]
    assert [len(part) for part in observe(made, {*made.inputs}, given, lambda *_: None).tensors["x"].numbers] == [256] * 3


def test_values_inside_are_kept_where_that_is_asked_for() -> None:
    plain = graph_of("input x: f32[4]\na: f32[4] = neg(x)\ny: f32[4] = exp(a)\noutput y")
    given: list[dict[str, Array]] = [{"x": np.zeros(4, np.float32)}]
    assert [{*one} for one in statistics.run_all(plain, given)] == [{"x", "y"}]
    assert [{*one} for one in statistics.run_all(plain, given, keep=True)] == [{"x", "a", "y"}]


def test_a_range_is_found_once_for_each_method_and_type() -> None:
    tensor = seen(samples(3)).tensors["n"]
    plain, other = tensor.range_by("minmax", DType.I8), tensor.range_by("percentile", DType.I8)
    assert plain == (tensor.low, tensor.high) != other
    tensor.low -= 1
    assert tensor.range_by("minmax", DType.I8) == plain and tensor.range_by("percentile", DType.I8) == other
