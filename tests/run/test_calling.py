"""A package is called like a function, and shows itself in a notebook."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from intaglio import Package, UserError


@pytest.fixture(scope="module")
def package(digits: Path) -> Package:
    return Package.load(digits)


def test_arrays_with_without_and_with_several_samples(package: Package) -> None:
    x = np.random.default_rng(0).random((3, 1, 8, 8), np.float32)
    alone = [package(x[n : n + 1]) for n in range(3)]
    together = package(x)
    assert isinstance(together, np.ndarray) and together.shape == (3, 10)
    for n, one in enumerate(alone):
        np.testing.assert_array_equal(together[n : n + 1], one)
        np.testing.assert_array_equal(package(x[n]), one)
        np.testing.assert_array_equal(package(image=x[n]), one)
        np.testing.assert_array_equal(package.run({"image": x[n : n + 1]})["probabilities"], one)


def test_what_cannot_be_called(package: Package) -> None:
    x = np.zeros((1, 1, 8, 8), np.float32)
    for arguments, named in (((x, x), {}), ((x,), {"image": x}), ((x[..., :4],), {}), ((), {}), ((), {"picture": x})):
        with pytest.raises(UserError):
            package(*arguments, **named)


def test_in_a_notebook(package: Package) -> None:
    shown = package._repr_html_()
    assert "<b>digits</b>" in shown and "image: f32[1, 1, 8, 8]" in shown and "24,448" in shown
