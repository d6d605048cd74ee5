"""One test per message of the command line: slug, exit code, and something to do about it."""

from __future__ import annotations

import errno
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from support.commands import DIGITS, Intaglio


def test_output_folder_not_empty(intaglio: Intaglio, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    said = intaglio("compile", DIGITS, "-o", tmp_path)
    assert said.code == 2
    assert "error[output-exists]" in said.err
    assert "--force" in said.err


def test_force_does_not_replace_what_is_not_a_package(intaglio: Intaglio, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    said = intaglio("compile", DIGITS, "-o", tmp_path, "--force")
    assert said.code == 2
    assert "is not a package" in said.err
    assert (tmp_path / "file").exists()


def test_output_below_a_file(intaglio: Intaglio, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    said = intaglio("compile", DIGITS, "-o", tmp_path / "file" / "p")
    assert said.code == 2
    assert "error[cannot-write]" in said.err


def test_disk_full_leaves_nothing(intaglio: Intaglio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("intaglio.package.write.write_kernels", full)
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p")
    assert said.code == 2
    assert "error[disk-full]" in said.err
    assert not any(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder(intaglio: Intaglio, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p")
    assert said.code == 2
    assert "error[cannot-write]" in said.err


def test_a_failed_build_leaves_nothing_and_says_where_the_log_is(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--cflags", "-include /nonexistent.h")
    assert said.code == 2
    assert "error[compiler-failed]" in said.err
    log = next(line for line in said.err.splitlines() if line.startswith("  --> ")).removeprefix("  --> ")
    assert Path(log).is_file()
    Path(log).unlink()
    assert not any(tmp_path.iterdir())


def test_no_such_compiler(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--cc", "nocc")
    assert said.code == 2
    assert "error[no-compiler]" in said.err
    assert not any(tmp_path.iterdir())


def test_a_broken_template_is_shown_with_its_line(intaglio: Intaglio, tmp_path: Path) -> None:
    assert intaglio("template", "export", "posix", tmp_path / "t").code == 0
    (tmp_path / "t" / "README.md.j2").write_text("one\ntwo {{ three }}\n")
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--template", tmp_path / "t")
    assert said.code == 2
    assert "error[template]" in said.err
    assert "README.md.j2, line 2" in said.err
    assert not (tmp_path / "p").exists()


def test_a_template_does_not_follow_links_out_of_it(intaglio: Intaglio, tmp_path: Path) -> None:
    assert intaglio("template", "export", "posix", tmp_path / "t").code == 0
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "t" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "t" / "README.md.j2").write_text("{% include 'link' %}")
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--template", tmp_path / "t")
    assert said.code == 2
    assert "error[template]" in said.err
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--shape image=1,1,4x", "`4x` in `--shape image=1,1,4x` is not a size"),
        ("--shape image=1,1,x", "`x` is not a size, nor the name of one\n\nhint: say what it is: `--dim x=1..64`"),
        ("--shape image=1,,8", "`--shape image=1,,8` has an empty size"),
        ("--weights fp8", "values: `mapped` (the default), `fp16`, `read`, `ram`, `staged`, `packed`, `fp16,read`, `fp16,ram`"),
        ("--quantize int9", "hint: use int8, int16x8, int4, palette or weights\n"),
        ("--disable-pass fuse_epilog", "hint: did you mean `fuse_epilogue`?\n"),
        ("--disable-pass magic", "hint: `intaglio passes` lists them\n"),
        ("--export-plan FOLDER/nodir/p.csv", "nodir/p.csv` does not exist"),
    ],
)
def test_a_refusal_says_what_would_work(intaglio: Intaglio, tmp_path: Path, words: str, said: str) -> None:
    given = words.replace("FOLDER", str(tmp_path)).split()
    found = intaglio("compile", DIGITS, "-o", tmp_path / "p", *given)
    assert found.code == 2
    assert said in found.err
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "slug"),
    [
        (["--target", "zx81"], "unknown-target"),
        (["--stop-after", "lunch"], "unknown-stage"),
        (["--disable-pass", "magic"], "unknown-pass"),
        (["--dim", "N"], "bad-option"),
        (["--dim", "N=-1"], "bad-option"),
        (["--dim", "batch=1", "--dim", "batch=2"], "bad-option"),
        (["--shape", "image=1,one,8,8"], "bad-option"),
        (["--shape", "image=99999999999999999999,1,8,8"], "bad-option"),
        (["--name", "a-b"], "bad-name"),
        (["--name", "../x"], "bad-name"),
        (["--name", "while"], "bad-name"),
        (["--template", "/nonexistent"], "template"),
        (["--archive", "--archive-format", "rar"], "bad-option"),
        (["--cflags", "'open"], "bad-option"),
    ],
)
def test_a_wrong_option(intaglio: Intaglio, tmp_path: Path, words: list[str], slug: str) -> None:
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", *words)
    assert said.code == 2
    assert f"error[{slug}]" in said.err
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words", [["compile"], ["nothing"], ["compile", "x", "--nothing"], ["profile", ".", "--runs", "x"]]
)
def test_a_mistyped_command(intaglio: Intaglio, words: list[str]) -> None:
    said = intaglio(*words)
    assert said.code == 2
    assert "error[usage]" in said.err
    assert "--help" in said.err


@pytest.mark.parametrize(
    ("name", "content", "slug"),
    [
        ("model.tflite", b"\x1c\0\0\0TFL3", "truncated-model"),
        ("model.onnx", b"\x1c\0\0\0TFL3", "truncated-model"),
        ("model.pt2", b"PK\x03\x04", "truncated-model"),
        ("model.pt", b"\x80\x02}q\x00.", "unsupported-format"),
        ("model.keras", b"PK\x03\x04", "not-a-model"),
        ("model.h5", b"\x89HDF\r\n", "not-a-model"),
        ("model.ig", b"hello", "not-ir"),
        ("model.onnx", b"", "not-a-model"),
        ("model.onnx", b"hello world, this is not a model", "not-a-model"),
    ],
)
def test_a_file_that_is_no_model_of_ours(
    intaglio: Intaglio, tmp_path: Path, name: str, content: bytes, slug: str
) -> None:
    (tmp_path / name).write_bytes(content)
    for said in (
        intaglio("compile", tmp_path / name, "-o", tmp_path / "p"),
        intaglio("check", tmp_path / name),
    ):
        assert said.code == 2
        assert f"error[{slug}]" in said.err


def test_a_folder_a_pipe_and_nothing_are_no_models(intaglio: Intaglio, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "error[not-a-model]" in intaglio("check", tmp_path).err
    assert "error[not-a-model]" in intaglio("check", tmp_path / "pipe").err
    assert "error[no-such-file]" in intaglio("check", tmp_path / "nothing").err
    assert "error[not-a-model]" in intaglio("check", "/dev/zero").err


def test_shapes_are_not_given_to_an_ir_file(intaglio: Intaglio, tmp_path: Path) -> None:
    intaglio("compile", DIGITS, "-o", tmp_path / "x.ig", "--stop-after", "import")
    said = intaglio("compile", tmp_path / "x.ig", "-o", tmp_path / "p", "--dim", "N=1")
    assert said.code == 2
    assert "its shapes are fixed" in said.err


def test_an_ir_file_is_not_exported_over_itself(intaglio: Intaglio, tmp_path: Path) -> None:
    intaglio("compile", DIGITS, "-o", tmp_path / "x.ig", "--stop-after", "import")
    assert "error[output-exists]" in intaglio("view", tmp_path / "x.ig", "-o", tmp_path / "x.ig").err


def test_run_without_inputs_says_which(intaglio: Intaglio, digits: Path) -> None:
    said = intaglio("run", digits)
    assert said.code == 2
    assert "`image`" in said.err


def test_run_with_a_wrong_shape(intaglio: Intaglio, digits: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", image=np.zeros((1, 1, 8, 9), np.float32))
    said = intaglio("run", digits, "--input", tmp_path / "x.npz")
    assert said.code == 2
    assert "error[wrong-input]" in said.err
    assert "`[1,1,8,9]`" in said.err


def test_labels_of_another_length(intaglio: Intaglio, digits: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "l.npy", np.zeros(7, np.int64))
    said = intaglio("validate", digits, "--labels", tmp_path / "l.npy")
    assert said.code == 2
    assert "7 labels for 3 samples" in said.err


def test_not_a_package(intaglio: Intaglio, tmp_path: Path) -> None:
    for command in ("run", "validate", "profile"):
        said = intaglio(command, tmp_path)
        assert said.code == 2
        assert "error[not-a-package]" in said.err


def test_a_package_that_was_not_built(intaglio: Intaglio, tmp_path: Path) -> None:
    intaglio("compile", DIGITS, "-o", tmp_path / "p", "--stop-after", "package")
    said = intaglio("validate", tmp_path / "p")
    assert said.code == 2
    assert "error[not-built]" in said.err


def test_a_bug_is_reported_with_a_file_to_send(
    intaglio: Intaglio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("intaglio.stages.lowering.lower", bug)
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p")
    assert said.code == 3
    assert "error[internal]" in said.err
    report = Path(next(line for line in said.err.splitlines() if line.startswith("  --> ")).removeprefix("  --> "))
    assert "ZeroDivisionError" in report.read_text()
    report.unlink()
    assert not any(tmp_path.iterdir())


def test_ctrl_c_ends_with_130_and_leaves_nothing(
    intaglio: Intaglio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("intaglio.stages.building.build_project", stop)
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p")
    assert said.code == 130
    assert not any(tmp_path.iterdir())


def test_an_output_where_no_folder_can_be(intaglio: Intaglio) -> None:
    said = intaglio("compile", DIGITS, "-o", "/proc/x")
    assert said.code == 2
    assert "error[cannot-write]" in said.err


def test_a_limit_of_the_object_cache_that_is_no_size(intaglio: Intaglio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTAGLIO_OBJECT_CACHE_SIZE", "many")
    said = intaglio("cache", "objects")
    assert said.code == 2
    assert "error[bad-option]: `INTAGLIO_OBJECT_CACHE_SIZE` is `many`" in said.err and "512M" in said.err


def test_a_bundle_of_models_names_what_it_holds(intaglio: Intaglio, tmp_path: Path) -> None:
    bundle = tmp_path / "face.task"
    with zipfile.ZipFile(bundle, "w") as archive:
        archive.writestr("face_detector.tflite", b"...")
        archive.writestr("face_landmarks.tflite", b"...")
    said = intaglio("fit", bundle)
    assert said.code == 2 and "`face.task` holds 2 models" in said.err and "`face_detector`, `face_landmarks`" in said.err
    said = intaglio("fit", bundle, "--signature", "nose")
    assert said.code == 2 and "holds no model `nose`" in said.err
    bundle.write_bytes(b"PK\x03\x04 and no more")
    said = intaglio("compile", bundle, "-o", tmp_path / "out")
    assert said.code == 2 and "damaged, or has no TFLite model" in said.err
    assert not (tmp_path / "out").exists()
