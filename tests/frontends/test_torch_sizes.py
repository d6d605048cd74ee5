"""Sizes of exported programs: bounds that they have themselves, and results whose number depends on data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.export import Dim

import intaglio
from intaglio.errors import AnswerIsNo, ModelError, UserError
from intaglio.frontends.torch import load
from intaglio.frontends.torch.expressions import NotAFormula, shown, symbols_of, value_of
from intaglio.ir.graph import Graph
from intaglio.ir.sizes import Bounds
from intaglio.ir.spans import BY_MODEL, Span
from intaglio.ops.evaluate import evaluate_graph
from intaglio.run.package import Package
from support.commands import Intaglio


def saved(module: Any, inputs: tuple[Any, ...], path: Path, **sizes: Any) -> Path:
    torch.export.save(torch.export.export(module.eval(), inputs, dynamic_shapes=sizes or None), str(path))
    return path


def agrees(package: Package, module: Any, *inputs: tuple[Any, ...]) -> None:
    for given in inputs:
        got = list(package.run({f"in{n}": x.numpy() for n, x in enumerate(given)}).values())
        with torch.no_grad():
            answer = module(*[x.clone() for x in given])
        want = [x.numpy() for x in (answer if isinstance(answer, tuple) else (answer,))]
        assert [a.shape for a in got] == [a.shape for a in want]
        assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(got, want, strict=True))


# Bounds of the program ----------------------------------------------------------------------------------------------------


class Rows(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.relu(x).sum(1)


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One dimension, `s77` in torch's words, from 2 to 40."""
    return saved(Rows(), (torch.zeros(7, 4),), tmp_path_factory.mktemp("m") / "m.pt2", x={0: Dim("rows", min=2, max=40)})


def symbol(graph: Graph) -> str:
    assert graph.bounds is not None
    return next(iter(graph.bounds.ranges))


def test_the_bounds_of_a_program_are_used_and_said(bounded: Path) -> None:
    graph, notes = load(bounded, dims={}, shapes={})
    assert graph.bounds is not None
    assert list(graph.bounds.ranges.values()) == [Span(2, 40)]
    assert f"`{symbol(graph)}` is 2..40, the bounds of the program" in notes[0]


def test_a_least_size_of_0_is_left_to_the_user(tmp_path: Path) -> None:
    """torch writes 0 for dimensions that have no least size, too."""
    path = saved(Rows(), (torch.zeros(7, 4),), tmp_path / "m.pt2", x={0: Dim("rows", max=40)})
    graph, notes = load(path, dims={}, shapes={})
    name = symbol(graph)
    assert graph.bounds is not None and graph.bounds.ranges[name] == Span(1, 40)
    assert f"`{name}` is 1..40, the bounds of the program without 0, which `--dim {name}=0..40` adds" in notes[0]


def test_a_narrower_range_and_one_size_are_taken(bounded: Path) -> None:
    name = symbol(load(bounded, dims={}, shapes={})[0])
    graph, notes = load(bounded, dims={name: Span(3, 9)}, shapes={})
    assert graph.bounds is not None
    assert (graph.bounds.ranges[name], notes) == (Span(3, 9), [])
    assert load(bounded, dims={name: 9}, shapes={})[0].inputs[0].shape == (9, 4)
    assert load(bounded, dims={}, shapes={"in0": (5, 4)})[0].inputs[0].shape == (5, 4)


@pytest.mark.parametrize("size", [Span(2, 41), Span(0, 40), 41, 0])
def test_sizes_beyond_the_bounds_of_the_program_are_refused(bounded: Path, size: Span | int) -> None:
    name = symbol(load(bounded, dims={}, shapes={})[0])
    for asked in ({"dims": {name: size}, "shapes": {}}, {"dims": {}, "shapes": {"in0": (size, 4)}}):
        with pytest.raises(UserError, match=rf"`{name}={size}` is beyond the bounds .* of 2\.\.40") as caught:
            load(bounded, **asked)
        assert f"`--dim {name}=..` takes its bounds" in str(caught.value.hint)


def test_a_range_beyond_the_bounds_is_exit_code_2(bounded: Path, intaglio: Intaglio, tmp_path: Path) -> None:
    out = intaglio("compile", str(bounded), "--shape", "in0=1..64,4", "-o", str(tmp_path / "p"))
    assert out.code == 2
    assert "was exported for `s" in out.err
    assert "of 2..40" in out.err
    assert not (tmp_path / "p").exists()


def test_1_below_the_least_size_of_torch_is_noted(bounded: Path) -> None:
    name = symbol(load(bounded, dims={}, shapes={})[0])
    graph, notes = load(bounded, dims={name: Span(1, 40)}, shapes={})
    assert graph.bounds is not None
    assert "exported for `" in notes[0]
    assert "of 2 or more" in notes[0]


def test_a_program_without_an_upper_bound_has_the_size_of_its_example(tmp_path: Path) -> None:
    path = saved(Rows(), (torch.zeros(7, 4),), tmp_path / "m.pt2", x={0: Dim("rows", min=2)})
    graph, notes = load(path, dims={}, shapes={})
    assert graph.inputs[0].shape == (7, 4)
    assert "is 7, as in the example" in notes[0]


class Pair(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return x.sum(0) + y.sum(0)


def test_a_dimension_follows_from_another(tmp_path: Path) -> None:
    rows = Dim("rows", min=2, max=6)
    path = saved(Pair(), (torch.zeros(3, 4), torch.zeros(6, 4)), tmp_path / "m.pt2", x={0: rows}, y={0: 2 * rows})
    graph, _ = load(path, dims={}, shapes={})
    name = symbol(graph)
    assert [str(v.shape[0]) for v in graph.inputs] == [name, f"{name}*2"]
    assert [v.shape[0] for v in load(path, dims={name: 5}, shapes={})[0].inputs] == [5, 10]
    with pytest.raises(UserError, match=rf"axis 0 of the input `y` is `2\*{name}`, which cannot be 4\.\.12") as caught:
        load(path, dims={}, shapes={"in1": (Span(4, 12), 4)})
    assert f"with `--dim {name}=2..6`, it is 4..12:2" in str(caught.value.hint)
    graph, _ = load(path, dims={}, shapes={"in1": (Span(8, 12, 2), 4)})
    assert graph.bounds is not None and graph.bounds.ranges == {name: Span(4, 6)}
    package = intaglio.compile(path, output=tmp_path / "p")
    agrees(package, Pair(), *[(torch.randn(n, 4), torch.randn(2 * n, 4)) for n in (2, 5, 6)])


class Halved(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        half = torch.nn.functional.max_pool2d(x, 2)
        return torch.cat([torch.nn.functional.interpolate(half, scale_factor=2), x], 1)


@pytest.fixture(scope="module")
def halved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Height in steps of 2, as torch writes it. The symbol itself is no axis."""
    path = tmp_path_factory.mktemp("m") / "m.pt2"
    return saved(Halved(), (torch.zeros(1, 3, 16, 4),), path, x={2: 2 * Dim("h", max=16)})


def halved_symbol(notes: list[str]) -> str:
    return notes[0].split("`")[3]


def test_a_dimension_of_which_there_is_only_a_multiple_is_a_size(halved: Path, tmp_path: Path) -> None:
    graph, notes = load(halved, dims={}, shapes={})
    name = halved_symbol(notes)
    assert graph.bounds is not None and graph.bounds.ranges == {"x_2": Span(4, 32, 2)}
    assert str(graph.inputs[0].shape[2]) == "x_2"
    assert f"`{name}` is 2..16, the bounds of the program, so `2*{name}` is 4..32:2" in notes[0]
    for asked, span in ((Span(1, 16), Span(2, 32, 2)), (Span(4, 8, 2), Span(8, 16, 4)), (BY_MODEL, Span(4, 32, 2))):
        found = load(halved, dims={name: asked}, shapes={})[0].bounds
        assert found is not None and found.ranges == {"x_2": span}
    assert load(halved, dims={name: 5}, shapes={})[0].inputs[0].shape == (1, 3, 10, 4)
    package = intaglio.compile(halved, output=tmp_path / "p", dims={name: (1, 6)})
    agrees(package, Halved(), *[(torch.randn(1, 3, 2 * n, 4),) for n in (1, 4, 6)])


def test_the_shape_may_have_the_range_of_a_multiple(halved: Path) -> None:
    name = halved_symbol(load(halved, dims={}, shapes={})[1])
    for asked in (Span(2, 32, 2), Span(8, 24, 4), BY_MODEL):
        found = load(halved, dims={}, shapes={"x": (1, 3, asked, 4)})[0].bounds
        assert found is not None and found.ranges == {"x_2": Span(4, 32, 2) if asked == BY_MODEL else asked}
    found = load(halved, dims={"H": Span(2, 32, 2)}, shapes={"x": (1, 3, Span(0, 0, name="H"), 4)})[0].bounds
    assert found is not None and found.ranges == {"H": Span(2, 32, 2)}
    assert load(halved, dims={}, shapes={"in0": (1, 3, 6, 4)})[0].inputs[0].shape == (1, 3, 6, 4)
    for wrong in (Span(2, 32), Span(2, 64, 2), 7):
        with pytest.raises(UserError, match=rf"axis 2 of the input `x` is `2\*{name}`, which cannot be {wrong}") as caught:
            load(halved, dims={}, shapes={"x": (1, 3, wrong, 4)})
        assert f"`--dim {name}=" in str(caught.value.hint)
    with pytest.raises(UserError, match=f"the dimension `{name}` is 1..4 and 1..16"):
        load(halved, dims={name: Span(1, 4)}, shapes={"x": (1, 3, Span(2, 32, 2), 4)})
    with pytest.raises(ModelError) as unknown:
        load(halved, dims={"h": 4}, shapes={})
    assert str(unknown.value.hint) == f"the symbolic dimensions are: `{name}`"


def test_the_bounds_of_an_axis_that_is_not_open_are_named(halved: Path) -> None:
    with pytest.raises(UserError, match="axis 1 of the input `x` is 3 in the program") as caught:
        load(halved, dims={}, shapes={"x": (1, BY_MODEL, BY_MODEL, 4)})
    assert str(caught.value.hint) == "write 3 there"


class Twice(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return x.sum(0) + y.sum(0), x[::2] + y[::3]


def test_multiples_of_one_symbol_move_together(tmp_path: Path) -> None:
    s = Dim("s", max=6)
    path = saved(Twice(), (torch.zeros(6, 4), torch.zeros(9, 4)), tmp_path / "m.pt2", x={0: 2 * s}, y={0: 3 * s})
    graph, _ = load(path, dims={}, shapes={"y": (Span(6, 12, 3), 4)})
    assert [str(v.shape[0]) for v in graph.inputs] == ["x_0", "x_0//2*3"]
    package = intaglio.compile(path, output=tmp_path / "p")
    agrees(package, Twice(), *[(torch.randn(2 * n, 4), torch.randn(3 * n, 4)) for n in (2, 5, 6)])


def test_formulas_of_torch_are_read_and_never_run() -> None:
    text = "Add(Mul(Integer(2), Symbol('s1', positive=True)), FloorDiv(Symbol('s2'), Integer(3)), Integer(-1))"
    assert value_of(text, {"s1": 5, "s2": 7}) == 11
    assert symbols_of(text) == {"s1", "s2"}
    assert shown(text) == "2*s1+FloorDiv(s2, 3)-1"
    assert value_of("Max(2*s1, 8)", {"s1": 3}) == 8
    size = Bounds({"s1": (1, 9)}).size("s1")
    assert str(value_of("Mul(Integer(2), Symbol('s1'))", {"s1": size})) == "s1*2"
    for bad in ("__import__('os').getcwd()", "s1.x", "Mul(", "s3 + 1", "exit(1)", "(" * 300):
        with pytest.raises(NotAFormula):
            value_of(bad, {"s1": 5})


class Statistics(torch.nn.Module):
    """As in the pooling of a network for voices."""

    def forward(self, x: Any) -> Any:
        mean, variance = torch.var_mean(x, 1), x.var((1, 2), correction=3, keepdim=True)
        return x.std(1), x.var(1, unbiased=False), mean[0], mean[1], variance, *torch.std_mean(x, correction=0.5)


def test_the_spread_over_a_range_is_computed_when_it_runs(tmp_path: Path) -> None:
    path = saved(Statistics(), (torch.randn(1, 9, 4),), tmp_path / "m.pt2", x={1: Dim("T", min=2, max=64)})
    package = intaglio.compile(path, output=tmp_path / "p")
    agrees(package, Statistics(), *[(torch.randn(1, n, 4),) for n in (2, 17, 64)])
    graph, _ = load(saved(Spread(), (torch.randn(9, 4),), path, x={0: Dim("T", max=9)}), dims={}, shapes={})
    assert graph.bounds is not None
    (got,) = evaluate_graph(graph.pinned({symbol(graph): 1}), {graph.inputs[0].name: np.ones((1, 4), np.float32)}).values()
    assert np.isnan(got).all()  # as in torch: nothing divided by nothing


class Spread(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x.std(0)


class Causal(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)


def test_a_causal_mask_over_a_range(tmp_path: Path) -> None:
    path = saved(Causal(), (torch.randn(1, 2, 9, 4),), tmp_path / "m.pt2", x={2: Dim("T", min=2, max=24)})
    package = intaglio.compile(path, output=tmp_path / "p")
    agrees(package, Causal(), *[(torch.randn(1, 2, n, 4),) for n in (2, 17, 24)])


# Results whose number depends on data -------------------------------------------------------------------------------------


class Finder(torch.nn.Module):
    """All that finds something, and what is computed with it."""

    def forward(self, x: Any, k: Any) -> Any:
        count = k.item()
        torch._check(count >= 1)
        torch._check(count <= 20)
        once, inverse, often = torch.unique(torch.round(x), return_inverse=True, return_counts=True)
        rows = torch.unique(torch.round(x[:, :1]), dim=0)
        changed = x.clone()
        changed[x > 1] = changed[x > 1] * 3
        return (
            torch.nonzero(x > 0), x[x > 0], torch.masked_select(x, x[:1] > 0.5), *torch.where(x > 1), torch.arange(count) + count,
            x.reshape(-1)[:count], once, inverse, often, rows, x[(x > 0.5).any(1)].sum(1), changed,
            x.masked_scatter(x > 0, torch.arange(32.0)), x[x > 0].shape[0] * x[0],
        )  # fmt: skip


def test_what_is_found_in_data_is_as_torch_finds_it(tmp_path: Path) -> None:
    module = Finder()
    package = intaglio.compile(saved(module, (torch.randn(4, 8), torch.tensor(3)), tmp_path / "m.pt2"), output=tmp_path / "p")
    assert package.validate().ok
    agrees(package, module, *[(torch.randn(4, 8) - n / 2, torch.tensor(4 * n + 1)) for n in range(5)])
    agrees(package, module, (torch.full((4, 8), -1.0), torch.tensor(20)))
    with pytest.raises(AnswerIsNo, match=r"item 1\.\.20"):
        package.run({"in0": np.zeros((4, 8), np.float32), "in1": np.asarray(21)})


class Masked(torch.nn.Module):
    def forward(self, x: Any, mask: Any) -> Any:
        return torch.relu(x[mask]) @ torch.ones(3, 2)


def test_a_mask_chooses_among_rows_of_a_range(tmp_path: Path) -> None:
    rows = Dim("rows", min=2, max=12)
    path = saved(Masked(), (torch.randn(6, 3), torch.rand(6) > 0.5), tmp_path / "m.pt2", x={0: rows}, mask={0: rows})
    package = intaglio.compile(path, output=tmp_path / "p")
    agrees(package, Masked(), *[(torch.randn(n, 3), torch.rand(n) > share) for n, share in ((2, 0.5), (9, 2.0), (12, -1.0))])


class Up(torch.nn.Module):
    """The number is at most that of the rows."""

    def forward(self, x: Any, k: Any) -> Any:
        count = k.item()
        torch._check(count >= 0)
        torch._check(count <= x.shape[0])
        return x[:count] * 2


def test_a_check_between_sizes_is_one_of_the_running_program(tmp_path: Path) -> None:
    path = saved(Up(), (torch.randn(6, 3), torch.tensor(2)), tmp_path / "m.pt2", x={0: Dim("rows", min=2, max=12)}, k=None)
    package = intaglio.compile(path, output=tmp_path / "p")
    agrees(package, Up(), *[(torch.randn(n + 2, 3), torch.tensor(n)) for n in (0, 3, 10)])
    with pytest.raises(AnswerIsNo):
        package.run({"in0": np.zeros((4, 3), np.float32), "in1": np.asarray(5)})


class Zeros(torch.nn.Module):
    def forward(self, x: Any, k: Any) -> Any:
        count = k.item()
        torch._check(count >= 0)
        return torch.zeros(count, 3) + x[0], x * k.item()


@pytest.fixture(scope="module")
def unbounded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(Zeros(), (torch.randn(6, 3), torch.tensor(2)), tmp_path_factory.mktemp("m") / "m.pt2")


def test_a_number_without_a_bound_is_refused_with_the_option_that_gives_one(unbounded: Path) -> None:
    with pytest.raises(ModelError, match="depends on `item`, a number that data gives and nothing bounds") as caught:
        load(unbounded, dims={}, shapes={})
    assert "`--max item=N" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["item", "u0"])
def test_max_bounds_a_number(unbounded: Path, name: str, tmp_path: Path) -> None:
    asked = {name: 16}
    package = intaglio.compile(unbounded, output=tmp_path / "p", max=asked)
    agrees(package, Zeros(), *[(torch.randn(6, 3), torch.tensor(n)) for n in (0, 3, 16)])
    with pytest.raises(AnswerIsNo, match=r"item 0\.\.16"):
        package.run({"in0": np.zeros((6, 3), np.float32), "in1": np.asarray(17)})


def test_a_wrong_name_of_max_comes_before_what_it_should_prevent(unbounded: Path) -> None:
    with pytest.raises(ModelError, match="`--max` names `itme`, which is no number") as caught:
        load(unbounded, dims={}, shapes={}, most={"itme": 16})
    assert "did you mean `item`?" in str(caught.value.hint)


class Lengths(torch.nn.Module):
    """As in the length regulator of a speech synthesiser."""

    def forward(self, x: Any, counts: Any) -> Any:
        return x.repeat_interleave(counts, dim=0) * 2


def test_rows_are_repeated_as_often_as_data_says(tmp_path: Path) -> None:
    path = saved(Lengths(), (torch.randn(4, 3), torch.tensor([1, 2, 0, 3])), tmp_path / "m.pt2")
    with pytest.raises(ModelError, match="how many rows `repeat_interleave` gives") as caught:
        load(path, dims={}, shapes={})
    assert "`--max repeat_interleave=N`" in str(caught.value.hint)
    package = intaglio.compile(path, output=tmp_path / "p", max={"repeat_interleave": 20})
    counts = ([1, 2, 0, 3], [0, 0, 0, 0], [5, 5, 5, 5], [0, 0, 20, 0])
    agrees(package, Lengths(), *[(torch.randn(4, 3), torch.tensor(n)) for n in counts])
    assert package.validate().ok
    for wrong in ([3, -1, 0, 2], [-1, 0, 0, 0], [21, 0, 0, 0], [2**62, 2**62, 2**62, 2**62], [2**63 - 1, 2**63 - 1, 1, 3]):
        with pytest.raises(AnswerIsNo) as refused:
            package.run({"in0": np.zeros((4, 3), np.float32), "in1": np.asarray(wrong)})
        assert refused.value.slug == "size-out-of-bounds", wrong


class Enlarged(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        resize = torch.nn.functional.interpolate
        return (
            resize(x, scale_factor=2, mode="bilinear", align_corners=True),
            resize(x, size=(8, 7), mode="bilinear", align_corners=True),
            resize(x, size=(8, 7), mode="bilinear"), resize(x, size=(8, 7)), resize(x, size=(8, 7), mode="nearest-exact"),
        )  # fmt: skip


@pytest.mark.slow
def test_pictures_of_a_range_are_enlarged_between_corners_and_to_a_size(tmp_path: Path) -> None:
    path = saved(Enlarged(), (torch.randn(1, 2, 6, 5),), tmp_path / "m.pt2", x={2: Dim("H", min=2, max=19)})
    package = intaglio.compile(path, output=tmp_path / "p", cflags="-O1")
    agrees(package, Enlarged(), *[(torch.randn(1, 2, height, 5),) for height in (2, 7, 8, 13, 19)])


class Unread(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        x[x > 0].sum()  # nobody reads it
        return x * 2, torch.nonzero(x < 0)


def test_a_size_that_nobody_reads_is_not_asked_for(tmp_path: Path) -> None:
    path = saved(Unread(), (torch.randn(3, 4),), tmp_path / "m.pt2", x={0: Dim("rows", min=2, max=5)})
    package = intaglio.compile(path, output=tmp_path / "p")
    assert [size.found for size in package.manifest.sizes] == [False, True]
    agrees(package, Unread(), (torch.randn(3, 4),), (torch.randn(5, 4),))
