"""Networks of many kinds, from torch.export to the result of eager."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import intaglio  # noqa: E402
import support.torch_attention  # noqa: E402, F401 (registers them)
from support.torch_architectures import ARCHITECTURES  # noqa: E402
from support.torch_operators import FAMILIES, Family  # noqa: E402
from support.torch_running import computed, difference, eager, exported, graph_of, shaken  # noqa: E402

TOLERANCE = 1e-5


def made(name: str) -> tuple[Any, tuple[Any, ...]]:
    make, inputs = ARCHITECTURES[name]
    torch.manual_seed(0)
    return shaken(make().eval()), inputs()


def check(name: str, folder: Path, *, core: bool) -> None:
    module, inputs = made(name)
    graph = graph_of(exported(module, inputs, folder / "m.pt2", core=core))
    for got, want in zip(computed(graph, inputs), eager(module, inputs), strict=True):
        assert difference(got, want) < TOLERANCE


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_graph_computes_what_eager_computes(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, core=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_graph_of_core_aten_too(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, core=True)


def compiled(name: str, folder: Path) -> None:
    module, inputs = made(name)
    package = intaglio.compile(module, example_inputs=inputs, output=folder / "p", library_only=True)
    results = package.run({f"in{n}": np.asarray(x) for n, x in enumerate(inputs)})
    for got, want in zip(results.values(), eager(module, inputs), strict=True):
        assert difference(got.reshape(want.shape), want) < 1e-4


@pytest.mark.parametrize("name", ["resnet", "lstm", "gpt"])
def test_the_compiled_library_computes_what_eager_computes(name: str, tmp_path: Path) -> None:
    compiled(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(ARCHITECTURES) - {"resnet", "lstm", "gpt"}))
def test_every_compiled_library_computes_what_eager_computes(name: str, tmp_path: Path) -> None:
    compiled(name, tmp_path)


def check_family(name: str, folder: Path, *, core: bool) -> None:
    rows, inputs = FAMILIES[name]
    module = Family(rows)
    graph = graph_of(exported(module, inputs, folder / "m.pt2", core=core))
    labels = [row for row, value in module(*inputs).items() for _ in (value if isinstance(value, tuple) else [value])]
    wrong = {
        label: error
        for label, got, want in zip(labels, computed(graph, inputs), eager(module, inputs), strict=True)
        if not (error := difference(got, want)) < TOLERANCE
    }
    assert not wrong


@pytest.mark.parametrize("name", FAMILIES)
def test_operators_mean_what_torch_means(name: str, tmp_path: Path) -> None:
    check_family(name, tmp_path, core=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_decomposed_operators_mean_what_torch_means(name: str, tmp_path: Path) -> None:
    check_family(name, tmp_path, core=True)
