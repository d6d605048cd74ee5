"""The machine at fault: a full disk, two processes, a signal. Nothing half-written stays under the name that was asked for."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from intaglio import errors
from intaglio.errors import UserError, install_hint
from intaglio.package.folder import fresh_file, fresh_folder
from support.commands import DIGITS, Intaglio


@contextmanager
def files_end_at(size_bytes: int) -> Iterator[None]:
    """Every file of this process ends there, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


FULL: dict[str, list[str | Path]] = {
    "a package": ["compile", DIGITS, "-o", "out/p", "--stop-after", "package"],
    "a build": ["compile", DIGITS, "-o", "out/p"],
    "an IR file": ["compile", DIGITS, "-o", "out/x.ig", "--stop-after", "memory"],
    "IR files of passes": ["compile", DIGITS, "-o", "out/p", "--dump-ir", "out"],
    "a view": ["view", DIGITS, "-o", "out/v.onnx"],
    "a template": ["template", "export", "posix", "out/t"],
}


@pytest.mark.parametrize("what", FULL)
def test_a_full_disk_leaves_nothing(what: str, intaglio: Intaglio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    with files_end_at(1000):
        said = intaglio(*FULL[what])
    assert said.code == 2
    assert "error[disk-full]" in said.err or "File too large" in said.err
    assert "hint: " in said.err
    assert list((tmp_path / "out").iterdir()) == []


def test_a_compiler_that_fails_on_a_full_disk_is_not_our_fault(
    intaglio: Intaglio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ar` says "unable to copy file; reason: Success" then."""
    monkeypatch.setattr("intaglio.run.build._is_full", lambda _: True)
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--cflags", "-include /nonexistent.h")
    assert said.code == 2
    assert "error[disk-full]" in said.err
    assert list(tmp_path.iterdir()) == []


def test_an_old_ir_file_survives_a_failed_write(intaglio: Intaglio, tmp_path: Path) -> None:
    assert intaglio("compile", DIGITS, "-o", tmp_path / "x.ig", "--stop-after", "memory").code == 0
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with files_end_at(3000):  # the text fits, the weights do not
        assert intaglio("compile", DIGITS, "-o", tmp_path / "x.ig", "--stop-after", "optimise").code == 2
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_an_output_with_an_endless_name(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, "-o", tmp_path / ("a" * 300), "--stop-after", "package")
    assert said.code == 2
    assert "error[cannot-write]" in said.err


def test_a_package_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    def write() -> None:
        with fresh_folder(tmp_path / "p", force=False) as mine:
            (mine / "manifest.json").write_text("mine")
            (tmp_path / "p").mkdir()
            (tmp_path / "p" / "manifest.json").write_text("theirs")

    with pytest.raises(UserError, match="exists and is not empty"):
        write()
    assert (tmp_path / "p" / "manifest.json").read_text() == "theirs"
    assert [p.name for p in tmp_path.iterdir()] == ["p"]


def test_with_force_the_last_one_wins(tmp_path: Path) -> None:
    about = {"format": 1, "name": "mine", "target": "host", "intaglio": "0.1.0", "files": {}}
    with fresh_folder(tmp_path / "p", force=True) as mine:
        (mine / "manifest.json").write_text(json.dumps(about))
        with fresh_folder(tmp_path / "p", force=True) as theirs:
            (theirs / "manifest.json").write_text(json.dumps({**about, "name": "theirs"}))
    assert json.loads((tmp_path / "p" / "manifest.json").read_text())["name"] == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["p"]


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")

    def fail() -> None:
        with fresh_file(tmp_path / "f") as part:
            part.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (tmp_path / "f").read_text() == "old"
    with fresh_file(tmp_path / "f") as part:
        part.write_text("new")
    assert (tmp_path / "f").read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_an_archive_that_exists_needs_force(intaglio: Intaglio, tmp_path: Path) -> None:
    words: list[str | Path] = ["compile", DIGITS, "-o", tmp_path / "p", "--stop-after", "package", "--archive"]
    (tmp_path / "p.tar.gz").write_text("precious")
    said = intaglio(*words)
    assert said.code == 2
    assert "error[output-exists]" in said.err
    assert (tmp_path / "p.tar.gz").read_text() == "precious"
    assert [p.name for p in tmp_path.iterdir()] == ["p.tar.gz"]
    (tmp_path / "p.tar.gz").unlink()
    (tmp_path / "p.tar.gz").mkdir()
    assert "is a folder" in intaglio(*words, "--force").err


SIGNALS = [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]


@pytest.mark.parametrize(("signum", "code"), [*(pytest.param(*s, marks=pytest.mark.slow) for s in SIGNALS[:2]), SIGNALS[2]])
def test_a_signal_leaves_nothing(signum: signal.Signals, code: int, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "tmp").mkdir()
    # A compiler that tells us when it runs, and then waits for the signal that we send.
    waiting = f'case "$*" in *-c*) echo > {tmp_path}/started; exec sleep 3;; esac'
    (tmp_path / "cc").write_text(f'#!/bin/sh\n{waiting}\nexec cc "$@"\n')
    (tmp_path / "cc").chmod(0o755)
    paths = ["-o", str(tmp_path / "out" / "p"), "--cc", str(tmp_path / "cc")]
    words = [sys.executable, "-m", "intaglio", "compile", str(DIGITS), *paths]
    process = subprocess.Popen(
        words, env=os.environ | {"TMPDIR": str(tmp_path / "tmp")}, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signum, signal.SIG_DFL),  # whoever runs the tests in the background may ignore it
    )  # fmt: skip
    while not (tmp_path / "started").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signum)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert list((tmp_path / "out").iterdir()) == []
    assert [p.name for p in (tmp_path / "tmp").iterdir() if p.name.startswith("intaglio")] == []


def test_how_an_extra_is_installed_depends_on_where_intaglio_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert install_hint("emulator") == "`.venv/bin/pip install -e '.[emulator]'` in the checkout"
    monkeypatch.setattr(errors, "__file__", "/usr/lib/python3/site-packages/intaglio/errors.py")
    assert install_hint("emulator") == "`pip install 'intaglio[emulator]'`"
