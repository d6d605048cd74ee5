"""A package is called like a function, and shows itself in a notebook."""

from __future__ import annotations

import builtins
import inspect
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio import Package, UserError
from support.commands import DIGITS, DIGITS_DATA


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
        np.testing.assert_array_equal(package(x[n].astype(np.float64)), one)
        np.testing.assert_array_equal(package.run({"image": x[n : n + 1]})["probabilities"], one)


def test_what_cannot_be_called(package: Package) -> None:
    x = np.zeros((1, 1, 8, 8), np.float32)
    for arguments, named in (((x, x), {}), ((x,), {"image": x}), ((x[..., :4],), {}), ((), {}), ((), {"picture": x})):
        with pytest.raises(UserError):
            package(*arguments, **named)


def test_the_array_of_a_single_input_needs_no_name(package: Package) -> None:
    x = np.random.default_rng(0).random((2, 1, 8, 8), np.float32)
    np.testing.assert_array_equal(package.run(x[:1])["probabilities"], package(x[:1]))
    np.testing.assert_array_equal(package.run_steps(x[:, None])["probabilities"][:, 0], package(x))
    with pytest.raises(UserError, match="takes arrays by name, not a `list`"):
        package.run([1.0])  # type: ignore[arg-type]


def test_the_hint_for_several_samples_is_for_several_samples(package: Package) -> None:
    for shape, said in (((5, 1, 8, 8), True), ((5, 1, 1, 8, 8), True), ((1, 1, 8, 9), False), ((64,), False)):
        with pytest.raises(UserError) as caught:
            package.run({"image": np.zeros(shape, np.float32)})
        assert ("several samples" in (caught.value.hint or "")) is said


def test_inspect_looks_at_every_member(package: Package) -> None:
    assert "run" in dict(inspect.getmembers(package)) and not hasattr(package, "opencl_library")


def test_in_a_notebook(package: Package) -> None:
    shown = package._repr_html_()
    assert "<b>digits</b>" in shown and "image: f32[1, 1, 8, 8]" in shown and "24,448" in shown


def test_results_are_attributes(tmp_path: Path) -> None:
    with np.load(DIGITS_DATA) as data:
        images, labels = data["image"][:16], data["labels"][:16]
    heard: list[tuple[str, int, int]] = []
    made = intaglio.compile(
        DIGITS, output=tmp_path / "p", quantize="int8", calibrate={"image": images}, labels=labels,
        progress=lambda what, done, total: heard.append((what, done, total)),
    )  # fmt: skip
    assert any("batch dimension" in note for note in made.notes) and heard and all(done <= total for _, done, total in heard)
    account = made.quantization
    assert account is not None and (account.scheme, account.samples, account.random_data) == ("int8", 16, False)
    assert account == Package.load(tmp_path / "p").quantization and account.layers[0].stored == "i8" and 0 < account.error < 0.5
    assert made.accuracy is not None and made.accuracy.package > 0.8 and made.accuracy.samples == 16
    assert made.validation is None
    result = made.validate()
    assert made.validation is result and result.ok
    (tmp_path / "p" / "ir" / "quantization.json").write_text("{}")
    with pytest.raises(UserError, match="damaged"):
        _ = made.quantization


def test_a_float_package_has_no_quantisation(package: Package) -> None:
    assert package.quantization is None and package.accuracy is None


def test_a_notebook_shows_the_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class ZMQInteractiveShell:  # what IPython calls the shell of a notebook
        pass

    class Handle:
        def update(self, text: str) -> None:
            shown.append(text)

    display = types.ModuleType("IPython.display")
    vars(display).update(HTML=lambda text: text, display=lambda _, display_id: Handle())
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    intaglio.compile(DIGITS, output=tmp_path / "p")
    assert any("<progress value='1'" in text for text in shown) and shown[-1] == ""
