"""Arrays in: by name or position, of exactly the type and shape that the model has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from intaglio.errors import AnswerIsNo, UserError
from intaglio.ir.graph import Array
from intaglio.run.package import Package
from support.building import build, square_of_sum
from support.programs import add_then_square

X = np.ones((1, 8), np.float32)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    return build(add_then_square(fallible=True), tmp_path_factory.mktemp("host") / "p")


@pytest.mark.parametrize("name", ["the input", "x", "in0"])
def test_an_input_has_its_name_its_c_name_and_its_position(package: Package, name: str) -> None:
    np.testing.assert_array_equal(package.run({name: X})["the/output:0"], square_of_sum(X))


@pytest.mark.parametrize("array", [X.reshape(8), X.reshape(8, 1), np.repeat(X, 2, axis=1)[:, ::2], X.astype("<f4")])
def test_axes_of_length_1_and_strides_do_not_matter(package: Package, array: Array) -> None:
    np.testing.assert_array_equal(package.run({"in0": array})["the/output:0"], square_of_sum(X))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "input `the input` is missing"),
        ({"in0": X, "x": X}, "input `the input` is given twice"),
        ({"in0": X, "in1": X}, "unknown input `in1`"),
        ({"in0": X.astype(np.float64)}, "has type `float64`, the model takes `f32[1,8]`"),
        ({"in0": X.astype(">f4")}, "has type `>f4`"),
        ({"in0": np.ones((1, 9), np.float32)}, "has shape `[1,9]`, the model takes `f32[1,8]`"),
        ({"in0": np.ones((2, 4), np.float32)}, "has shape `[2,4]`"),
    ],
)
def test_a_wrong_input_is_explained(package: Package, given: dict[str, Array], says: str) -> None:
    with pytest.raises(UserError, match=r"error\[wrong-input\]") as caught:
        package.run(given)
    assert says in caught.value.message


def test_what_the_data_breaks_is_an_answer_and_not_a_crash(package: Package) -> None:
    with pytest.raises(AnswerIsNo, match=r"index-out-of-range") as caught:
        package.run({"in0": -X})
    assert caught.value.exit_code == 1


def test_steps_are_stacked(package: Package) -> None:
    steps = np.arange(24, dtype=np.float32).reshape(3, 1, 8)
    np.testing.assert_array_equal(
        package.run_steps({"x": steps})["the/output:0"], np.stack([square_of_sum(s) for s in steps])
    )


def test_steps_need_a_leading_axis(package: Package) -> None:
    with pytest.raises(UserError, match="after the leading axis of steps"):
        package.run_steps({"x": np.ones((8,), np.float32)})


def test_profile_has_a_time_for_every_layer(package: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intaglio.run.timing.random_inputs", lambda types, seed: [X])
    result = package.profile(runs=2)
    assert [layer.name for layer in result.layers] == ["add", "square"]
    assert all(layer.time_ms is not None and layer.time_ms >= 0 for layer in result.layers)
    assert result.total.macs == 16
    assert result.total.code_bytes


def test_a_folder_that_is_no_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not-a-package"):
        Package.load(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 99}', "\x00", "[" * 100_000])
def test_a_damaged_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(UserError, match="not-a-package"):
        Package.load(tmp_path)
