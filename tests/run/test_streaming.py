"""The wake word of MLPerf Tiny, frame by frame: what the model says of every window, for a tenth of the work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intaglio as compiler
from intaglio.ir.graph import Array
from intaglio.run.package import Package
from support.commands import Intaglio
from support.onnx_models import model, node, saved, value
from support.shared import SHARED, needs_shared

WAKE_WORD, RECORDINGS = SHARED / "models" / "mlperf_sww_int8.tflite", SHARED / "data" / "sww_calib.npz"
STEP, ZERO = 0.003701042616739869, -128  # of the input
WINDOW = 30


def recorded() -> Array:
    """Frames of the 45 spectrograms joined, as the model takes them: [1350, 1, 1, 1, 40]."""
    frames = np.load(RECORDINGS)["specs"].reshape(-1, 1, 1, 1, 40)
    return np.asarray(np.clip(np.round(frames / STEP) + ZERO, -128, 127), np.int8)


def on_windows(frames: Array) -> Array:
    """LiteRT on every window, from the first whole one on."""
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    found = litert.Interpreter(str(WAKE_WORD), experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF)
    found.allocate_tensors()
    given, told = found.get_input_details()[0]["index"], found.get_output_details()[0]["index"]
    results = []
    for end in range(WINDOW, len(frames) + 1):
        found.set_tensor(given, frames[end - WINDOW : end].reshape(1, WINDOW, 1, 40))
        found.invoke()
        results.append(found.get_tensor(told))
    return np.stack(results)


def streamed(output: Path, **words: str) -> Package:
    return compiler.compile(WAKE_WORD, output=output, stream=1, **words)  # type: ignore[arg-type]


@pytest.mark.slow
@needs_shared
def test_all_recordings_joined_give_what_the_model_says_of_each_window(tmp_path: Path) -> None:
    frames = recorded()
    package = streamed(tmp_path / "out")
    info = package.manifest.stream
    assert info is not None and (info.axis, info.hop, info.window, info.goes_on) == (1, 1, WINDOW, False)
    got = next(iter(package.run_steps({"in0": frames}).values()))[WINDOW - 1 :]
    want = on_windows(frames)
    assert len(want) == 1321 and len(np.unique(want.reshape(-1, 3), axis=0)) > 50
    np.testing.assert_array_equal(got, want)
    again = next(iter(package.run_steps({"in0": frames[:40]}).values()))[WINDOW - 1 :]
    np.testing.assert_array_equal(again, want[:11], "a reset forgets the frames before")


@needs_shared
@pytest.mark.slow
def test_a_frame_costs_a_tenth_of_a_window_on_a_core(tmp_path: Path) -> None:
    pytest.importorskip("unicorn")
    frames = recorded()[: WINDOW + 3]
    package = streamed(tmp_path / "stream", board="nucleo-l4r5zi")
    got = next(iter(package.run_steps({"in0": frames}).values()))[WINDOW - 1 :]
    np.testing.assert_array_equal(got, on_windows(frames))
    whole = compiler.compile(WAKE_WORD, output=tmp_path / "whole", board="nucleo-l4r5zi")
    frame, window = package.profile().total.instructions, whole.profile().total.instructions
    assert frame and window and frame <= 0.1 * window
    assert package.manifest.memory.arena_bytes < whole.manifest.memory.arena_bytes


@needs_shared
def test_validate_compares_with_the_model_on_windows(tmp_path: Path) -> None:
    told = streamed(tmp_path / "out").validate()
    assert told.ok and told.reference.endswith("on each window") and told.samples == 4


def test_a_step_may_have_more_rows_than_the_window(intaglio: Intaglio, tmp_path: Path) -> None:
    """`a` has one row per window and one per frame; the stride of `b` makes a step of two frames."""
    rng = np.random.default_rng(1)
    constants = {"v": rng.standard_normal((2, 3, 5)).astype(np.float32), "w": rng.standard_normal((2, 3, 1)).astype(np.float32)}
    nodes = [node("Conv", "x v", "a"), node("Conv", "x w", "b", strides=[2])]
    path = saved(model(nodes, [value("x", [1, 3, 5])], [value("a", None), value("b", None)], constants), tmp_path)
    assert intaglio("compile", path, "--stream", "2", "-o", tmp_path / "out").code == 0
    made = Package.load(tmp_path / "out")
    assert [(o.name, o.shape) for o in made.manifest.outputs] == [("a", (2, 2, 1)), ("b", (1, 2, 1))]
    told = intaglio("validate", tmp_path / "out", "--json")
    assert told.code == 0 and told.json["samples"] == 3
    short = intaglio("validate", tmp_path / "out", "--inputs", saved_steps(tmp_path, 2), "--steps")
    assert short.code == 2 and "there are 2 steps; the first result comes after 3" in short.err


def saved_steps(folder: Path, count: int) -> Path:
    np.savez(folder / "steps.npz", x=np.zeros((count, 1, 3, 2), np.float32))
    return folder / "steps.npz"


def test_a_stream_that_was_quantised_is_also_compared_with_the_float_model(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    constants = {"v": rng.standard_normal((4, 3, 3)).astype(np.float32), "w": rng.standard_normal((4, 4, 3)).astype(np.float32)}
    nodes = [node("Conv", "x v", "a"), node("Conv", "a w", "y")]
    path = saved(model(nodes, [value("x", [1, 3, 8])], constants=constants), tmp_path)
    data = {"x": rng.standard_normal((16, 1, 3, 8)).astype(np.float32)}
    package = compiler.compile(path, output=tmp_path / "out", stream=2, quantize="int8", calibrate=data, sensitivity=False)
    told = package.validate()
    assert told.ok and len(told.against_float) == 1 and told.against_float[0].cosine > 0.98


def test_a_model_with_a_state_of_its_own_is_compared_step_by_step(tmp_path: Path) -> None:
    constants = {"w": np.ones((2, 3, 3), np.float32), "one": np.ones((1, 2), np.float32)}
    nodes = [node("Conv", "x w", "y"), node("Add", "s one", "t")]
    inputs, outputs = [value("x", [1, 3, 8]), value("s", [1, 2])], [value("y", None), value("t", None)]
    path = saved(model(nodes, inputs, outputs, constants), tmp_path)
    package = compiler.compile(path, output=tmp_path / "out", stream=2, states={"s": "t"})
    told = package.validate()
    assert told.ok and told.reference.startswith("numpy")
