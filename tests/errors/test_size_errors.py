"""Messages about sizes: they echo what the user wrote, and their hints help."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.commands import Intaglio, Said
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
