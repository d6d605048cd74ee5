"""A package that is what the request asks for is left alone; anything else is refused or compiled."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from intaglio.options.request import Request
from intaglio.stages import current
from intaglio.stages.current import is_current, request_digest
from support.commands import DIGITS, Intaglio
from support.onnx_models import model, node, saved, value


@pytest.fixture
def package(digits: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(digits, tmp_path / "digits"))


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_nothing_is_done_and_said_so(intaglio: Intaglio, package: Path) -> None:
    before = times(package)
    said = intaglio("compile", DIGITS, "-o", package)
    assert said.code == 0
    assert "is up to date, nothing was compiled; `--force` compiles it again" in said.out
    assert times(package) == before


def test_json_says_so_too(intaglio: Intaglio, package: Path) -> None:
    said = intaglio("compile", DIGITS, "-o", package, "--json").json
    assert said["up_to_date"] is True and said["name"] == "digits" and said["layers"] == 6


def test_force_compiles_it_again(intaglio: Intaglio, package: Path) -> None:
    before = (package / "manifest.json").stat().st_ino
    said = intaglio("compile", DIGITS, "-o", package, "--force")
    assert said.code == 0 and "compiled `digits`" in said.out
    assert (package / "manifest.json").stat().st_ino != before


@pytest.mark.parametrize("file", ["src/digits.c", "lib/libdigits.so", "bin/digits", "ir/source.onnx", "test/in0.npy"])
def test_a_package_with_an_edited_file_is_refused(file: str, intaglio: Intaglio, package: Path) -> None:
    with open(package / file, "ab") as stream:
        stream.write(b" ")
    said = intaglio("compile", DIGITS, "-o", package)
    assert said.code == 2 and "error[output-exists]" in said.err and f"its file `{file}` is missing or was changed" in said.err


def test_what_is_shown_or_written_beside_it_needs_no_force(intaglio: Intaglio, package: Path) -> None:
    said = intaglio("compile", DIGITS, "-o", package, "--explain")
    assert said.code == 0 and "used: " in said.out
    assert "error[output-exists]" in intaglio("compile", DIGITS, "-o", package, "--explain", "--exact").err


def test_a_package_without_a_file_is_refused(intaglio: Intaglio, package: Path) -> None:
    (package / "include" / "digits.h").unlink()
    assert "error[output-exists]" in intaglio("compile", DIGITS, "-o", package).err


@pytest.mark.parametrize("words", [("--optimize", "size"), ("--name", "other"), ("--cflags", "-O1")])
def test_other_options_are_another_package(words: tuple[str, ...], intaglio: Intaglio, package: Path) -> None:
    said = intaglio("compile", DIGITS, "-o", package, *words)
    assert said.code == 2 and "error[output-exists]" in said.err


def test_another_model_of_the_same_name_is_another_package(package: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "digits.onnx"
    other.parent.mkdir()
    request = Request(other, package)
    other.write_bytes(DIGITS.read_bytes())
    assert is_current(request)
    other.write_bytes(DIGITS.read_bytes() + b"\x08\x08")
    assert not is_current(request)


def test_another_compiler_or_intaglio_is_another_package(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = Request(DIGITS, package)
    assert is_current(request)
    with monkeypatch.context() as patch:
        patch.setattr(current, "tool_versions", lambda _: {"compiler": "another"})
        assert not is_current(request)
    monkeypatch.setattr(current, "_own_digest", lambda: "another")
    assert not is_current(request)


def test_a_package_that_runs_caches_and_builds_is_still_current(package: Path) -> None:
    (package / "build").mkdir()
    (package / "build" / "digits.o").write_bytes(b"")
    assert is_current(Request(DIGITS, package))


def test_a_model_with_weights_beside_it_is_always_compiled(intaglio: Intaglio, tmp_path: Path) -> None:
    import onnx

    made = model([node("Add", "x w", "y")], [value("x", [4])], [value("y", [4])], {"w": np.ones(4, np.float32)})
    path = saved(made, tmp_path)
    onnx.save(onnx.load(path), path, save_as_external_data=True, size_threshold=0, location="w.bin")
    words = ("compile", path, "-o", tmp_path / "out", "--stop-after", "package")
    assert intaglio(*words).code == 0
    assert "error[output-exists]" in intaglio(*words).err


def test_files_of_options_count_by_their_content(tmp_path: Path) -> None:
    (tmp_path / "t" / "src").mkdir(parents=True)
    (tmp_path / "t" / "src" / "a.c").write_text("1")
    (tmp_path / "board.toml").write_text("1")
    array = {"x": np.ones(3, np.float32)}
    plain = Request(DIGITS, tmp_path)
    requests = [
        plain, replace(plain, template=tmp_path / "t"), replace(plain, board=str(tmp_path / "board.toml")),
        replace(plain, calibrate=array), replace(plain, disabled=frozenset({"a", "b"})), replace(plain, dims={"n": 3}),
    ]  # fmt: skip
    first = [request_digest(r) for r in requests]
    assert len(set(first)) == len(first) and first == [request_digest(r) for r in requests]
    (tmp_path / "t" / "src" / "a.c").write_text("2")
    (tmp_path / "board.toml").write_text("2")
    array["x"][1] = 2
    changed = [request_digest(r) for r in requests]
    assert [a == b for a, b in zip(first, changed, strict=True)] == [True, False, False, False, True, True]
    assert request_digest(replace(plain, output=tmp_path / "elsewhere", cc="gcc")) == first[0]


def test_what_is_shown_or_written_beside_a_package_does_not_change_it(intaglio: Intaglio, tmp_path: Path) -> None:
    beside = ("--explain", "--export-plan", tmp_path / "plan.csv", "--dump-ir", tmp_path / "passes")
    assert intaglio("compile", DIGITS, "-o", tmp_path / "p", *beside).code == 0
    assert is_current(Request(DIGITS, tmp_path / "p"))
