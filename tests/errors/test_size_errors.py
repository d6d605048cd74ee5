"""Messages about sizes: they echo what the user wrote, and their hints help."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from intaglio import compile
from intaglio.errors import AnswerIsNo, ModelError, UserError
from intaglio.options.entries import each_of_lists, entry_words
from intaglio.run.package import Package
from support.commands import DIGITS, Intaglio, Said
from support.onnx_models import model, node, saved, value
from support.pt2_files import Pt2


def compiled(intaglio: Intaglio, folder: Path, *words: str) -> Said:
    path = saved(model([node("Relu", "x", "y")], [value("x", [1, 1, "H", "W"])]), folder)
    said = intaglio("compile", path, *words, "-o", folder / "p")
    assert said.code == 2, said
    return said


ECHOED = {
    "--shape x=1,1,32..64:32,32 --dim H=32": "`H` is 32 by `--dim H=32` and 32..64:32 by `--shape x=1,1,32..64:32,32`",
    "--shape in0=1,1,48,32 --dim H=32..64": "`H` is 32..64 by `--dim H=32..64` and 48 by `--shape in0=1,1,48,32`",
    "--shape x=1..2,1,8,8": "`--shape x=1..2,1,8,8` contradicts the model, which has [1, 1, H, W]",
    "--shape x=T,1,8,8 --dim T=1..4": "`--shape x=T,1,8,8` contradicts the model, which has [1, 1, H, W]",
}


@pytest.mark.parametrize("words", ECHOED)
def test_options_are_echoed_as_they_were_written(words: str, intaglio: Intaglio, tmp_path: Path) -> None:
    assert ECHOED[words] in compiled(intaglio, tmp_path, *words.split()).err


def test_a_range_for_a_program_without_one_says_how_to_export_it(intaglio: Intaglio, tmp_path: Path) -> None:
    path = Pt2().save(tmp_path / "m.pt2")
    said = intaglio("compile", path, "--shape", "x=1..2,4", "-o", tmp_path / "p")
    assert said.code == 2 and "`--shape x=1..2,4` contradicts the model, which has [2, 4]" in said.err
    assert "dynamic_shapes" in said.err and "torch.export.Dim" in said.err


WRITTEN = {
    "--dim H=512..32:32": "write `32..512:32`",
    "--dim H=9999999999999999999": "`9999999999999999999` in `--dim H=9999999999999999999` is too large for a size",
    "--dim H=W --dim W=H": "`H` and `W` name each other",
    "--dim H=H --dim W=8": "`H` names itself",
    "--dim H=1..5,,7": "the list of sizes in `--dim H=1..5,,7` has an empty place\n\nhint: write `--dim H=1..5,7`",
    "--dim H=a..b --dim W=8": "`a` in `--dim H=a..b` is not a size",
    "--max y=0": "`--max y=96`), or the least and the largest (`--max y=16..96`)",
}


@pytest.mark.parametrize("words", WRITTEN)
def test_what_is_wrong_with_a_size_is_said(words: str, intaglio: Intaglio, tmp_path: Path) -> None:
    assert WRITTEN[words] in compiled(intaglio, tmp_path, *words.split()).err


def test_a_keyword_says_what_is_wrong_with_a_range() -> None:
    with pytest.raises(UserError, match=r"the range `512..32` is empty") as error:
        compile("m.onnx", dims={"H": "512..32"})
    assert error.value.hint == "write `32..512`"


def test_entry_points_of_a_dimension_that_ends_in_a_digit_have_readable_names() -> None:
    words = {"dims": ["s27=1,1..64"]}
    assert list(entry_words([DIGITS], words, [])) == ["s27_1", "s27_1to64"]
    assert list(each_of_lists({"s27": [1, (1, 64)], "T": [2]})) == ["s27_1_T2", "s27_1to64_T2"]


@pytest.mark.parametrize("times", [1, 2])
def test_one_file_may_be_several_entry_points(times: int) -> None:
    words = {"dims": ["prefill:T=64", "step:T=1"]}
    found = entry_words([DIGITS] * times, words, ["digits=prefill", "digits.onnx=step"])
    assert {name: given["dims"] for name, (_, given) in found.items()} == {"prefill": ["T=64"], "step": ["T=1"]}


def halved_and_doubled(folder: Path) -> Path:
    """Shapes of a small U-Net: they fit together for even sizes."""
    nodes = [
        node("MaxPool", "x", "half", kernel_shape=[2, 2], strides=[2, 2]),
        node("Resize", "half _ scales", "again", mode="nearest"),
        node("Concat", "x again", "y", axis=1),
    ]
    scales = np.array([1, 1, 2, 2], np.float32)
    return saved(model(nodes, [value("x", [1, 1, "H", 8])], constants={"scales": scales}), folder)


def test_sizes_that_would_fit_are_the_hint(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("check", halved_and_doubled(tmp_path), "--dim", "H=4..16")
    assert "`--dim H=4..16:2` takes these" in said.out
    assert "hint: give sizes for which the shapes fit together" in said.out and "export" not in said.out


def test_numbers_of_axes_agree_with_their_noun(intaglio: Intaglio, tmp_path: Path) -> None:
    path = halved_and_doubled(tmp_path)
    assert intaglio("compile", path, "--dim", "H=4..16:2", "-o", tmp_path / "p").code == 0
    np.savez(tmp_path / "x.npz", x=np.zeros(3, np.float32))
    assert "input `x` has 1 axis, the model takes" in intaglio("run", tmp_path / "p", "--input", tmp_path / "x.npz").err


def test_a_note_about_the_reference_is_said_once(intaglio: Intaglio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise ModelError("no-reference", "ONNX Runtime does not load the model: no")

    monkeypatch.setattr("intaglio.run.expect.reference_within", refused)
    said = intaglio("compile", halved_and_doubled(tmp_path), "--dim", "H=4..16:2", "-o", tmp_path / "p")
    assert said.code == 0 and said.err.count("does not load the model") == 1


def cropped(folder: Path) -> Path:
    """A picture that is cut by a computed box, then convolved."""
    nodes = [node("Slice", "x starts ends axes", "crop"), node("Conv", "crop w", "y")]
    inputs = [value("x", [1, 1, 24, 32]), value("starts", [2], TensorProto.INT64), value("ends", [2], TensorProto.INT64)]
    constants = {"axes": np.array([2, 3]), "w": np.ones((1, 1, 3, 5), np.float32)}
    return saved(model(nodes, inputs, constants=constants), folder)


def test_the_hint_for_a_crop_has_the_sizes_that_are_possible(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("check", cropped(tmp_path))
    assert "`--max crop=3..32` gives all axes that it cuts a range" in said.out
    assert "`--max crop=5..32`" in intaglio("check", cropped(tmp_path), "--max", "crop=3..32").out


def indices(folder: Path) -> Path:
    nodes = [node("Exp", "x", "e"), node("NonZero", "e", "sel"), node("Squeeze", "sel axes", "idx")]
    return saved(model(nodes, [value("x", [64])], [value("idx", None, TensorProto.INT64)], {"axes": np.array([0])}), folder)


def test_the_tensor_that_has_the_size_is_named(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", indices(tmp_path), "--max", "idx=50", "--stop-after", "import", "-o", tmp_path / "p")
    assert said.code == 0 and "`--max idx=50` is ignored: `idx` has the size of `sel`; give `--max sel=50`" in said.err


def test_what_refuses_random_inputs_is_said_and_what_is_beyond_its_bounds(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", indices(tmp_path), "--max", "sel=5", "-o", tmp_path / "p")
    assert "random inputs are beyond `--max sel=5`, not beyond what the model takes, so the package has no test vectors" in said.err
    with pytest.raises(AnswerIsNo) as error:
        Package.load(tmp_path / "p").run({"x": np.ones(64, np.float32)})
    assert "a size that follows from data is not within its bounds: sel_count 0..5" in error.value.message
    assert error.value.hint == "the input data causes this"


def test_room_that_is_too_large_names_its_option(intaglio: Intaglio, tmp_path: Path) -> None:
    nodes = [node("Range", "zero n one", "steps")]
    constants = {"zero": np.array(0), "one": np.array(1)}
    path = saved(model(nodes, [value("n", [], TensorProto.INT64)], [value("steps", None, TensorProto.INT64)], constants), tmp_path)
    said = intaglio("compile", path, "--max", "steps=99999999999", "-o", tmp_path / "p")
    assert said.code == 2 and "at most 131072 are possible; give a smaller `--max steps=N`" in said.err


def test_a_size_outside_of_its_range_is_told_apart_from_one_that_is_not_there(intaglio: Intaglio, tmp_path: Path) -> None:
    path = saved(model([node("Relu", "x", "y")], [value("x", [1, "T"])]), tmp_path)
    assert intaglio("compile", path, "--dim", "T=1..64", "-o", tmp_path / "p").code == 0
    assert "`T=65`: 65 is not within 1..64" in intaglio("profile", tmp_path / "p", "--size", "T=65").err
    assert "has no size `S`" in intaglio("profile", tmp_path / "p", "--size", "S=6").err


def test_room_for_more_than_there_can_be_is_noted(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", cropped(tmp_path), "--max", "crop=5..96", "--stop-after", "import", "-o", tmp_path / "p")
    assert said.code == 0 and "`--max crop=5..96` has no effect above 32, the largest possible size" in said.err
    said = intaglio("compile", cropped(tmp_path), "--max", "crop=5..32", "--stop-after", "import", "-o", tmp_path / "p", "--force")
    assert said.code == 0 and "no effect" not in said.err
