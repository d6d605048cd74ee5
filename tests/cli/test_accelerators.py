"""`intaglio accelerators`, `new-accelerator` and `compile --accelerator`, as typed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from intaglio.errors import UserError
from intaglio.ir.files import write_ir
from support.commands import Intaglio
from support.ir_text import graph_of
from support.outside import install
from support.toy_accelerators import toys  # noqa: F401 (a fixture)

TEXT = """
    input x: f32[16384]
    input z: f32[16384]
    a: f32[16384] = add(x, z)
    y: f32[16384] = softplus(a)
    output y
    """


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_ir(graph_of(TEXT), tmp_path / "m.ig")
    return tmp_path / "m.ig"


@pytest.mark.usefixtures("toys")
def test_a_list_with_those_that_cannot_be_loaded(intaglio: Intaglio, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    from intaglio.targets import plugins

    lost = metadata.EntryPoint("lost", "no_such_module_anywhere:Lost", plugins.GROUP)
    points = {**plugins.installed(), "lost": lost}
    monkeypatch.setattr(plugins, "installed", lambda: points)
    table = intaglio("accelerators", "--json").json["accelerators"]
    rows = {row["name"]: row for row in table}
    assert rows["chains"]["merges"] == 3 and rows["sums"]["overlaps"]
    assert "ModuleNotFoundError" in rows["lost"]["error"]
    assert "takes mul+relu, mul, tanh" in intaglio("accelerators").out


def test_none_is_installed(intaglio: Intaglio, monkeypatch: pytest.MonkeyPatch) -> None:
    from intaglio.targets import plugins

    monkeypatch.setattr(plugins, "installed", dict)
    assert "no accelerator is installed" in intaglio("accelerators").err
    with pytest.raises(UserError) as caught:
        plugins.find_accelerator("nobody")
    assert caught.value.hint.startswith("no accelerator is installed; ")


@pytest.mark.usefixtures("toys")
def test_explain_says_what_went_where_and_why(intaglio: Intaglio, model: Path, tmp_path: Path) -> None:
    done = intaglio("compile", str(model), "-o", str(tmp_path / "p"), "--accelerator", "sums", "--explain")
    assert "sums.0" in done.out and "add: a" in done.out
    assert "it has no pattern for `softplus`" in done.out.replace("\n", " ")
    assert "sums: 1 of 2 operators in 1 region" in done.out
    told = intaglio("compile", model, "-o", tmp_path / "q", "--accelerator", "sums", "--json").json
    assert told["accelerators"]["regions"][0]["ops"] == ["add"]
    assert told["accelerators"]["core"][0]["reasons"] == ["sums: it has no pattern for `softplus`"]
    assert told["accelerators"]["proven"] and told["accelerators"]["seconds"] < 2


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--accelerator", "nobody"], "error[unknown-accelerator]: unknown accelerator `nobody`"),
        (["--accelerator-only", "add"], "`--accelerator-only` needs `--accelerator`"),
        (["--accelerator", "sums", "--accelerator-only", "softplus"], "no accelerator takes `softplus`"),
        (["--accelerator", "crashing"], "error[plugin-failed]: the accelerator `crashing`"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_left(
    intaglio: Intaglio, model: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    done = intaglio("compile", model, "-o", tmp_path / "p", *words)
    assert done.code == 2
    assert said in done.err
    assert not (tmp_path / "p").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("toys")
def test_the_suite_finds_what_is_wrong(intaglio: Intaglio, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from intaglio.accelerator import Code
    from support.toy_accelerators import Garbage

    assert intaglio("accelerators", "test", "chains", "--json").json["ok"]
    monkeypatch.setattr(Garbage, "gives", {"compile": Code("out0[0] = in0[0];")})
    done = intaglio("accelerators", "test", "garbage")
    assert done.code == 1
    assert "away from the reference" in done.err
    monkeypatch.setattr(Garbage, "emulate", lambda self, region, inputs: [np.zeros(v.shape, np.float32) for v in region.outputs])
    assert "failed, emulation" in intaglio("accelerators", "test", "garbage").err


def test_a_new_one_works_as_it_is_written(intaglio: Intaglio, tmp_path: Path) -> None:
    """Written, installed, listed, tested by the suite and by its own tests."""
    folder = tmp_path / "my_npu"
    assert "pip install" in intaglio("new-accelerator", "my_npu", "-o", str(folder)).err
    install([folder], tmp_path / "site")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder / "tests")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


@pytest.mark.parametrize(
    ("name", "line", "ended"),
    [
        ("falls", "import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        pytest.param("aborts", "import os; os.abort()", "SIGABRT", marks=pytest.mark.slow),
    ],
)
def test_one_that_takes_the_process_down_is_named(name: str, line: str, ended: str, intaglio: Intaglio, tmp_path: Path) -> None:
    """A bad pointer in its C, or in what it calls: the parent of the process says whose it was."""
    folder = tmp_path / name
    intaglio("new-accelerator", name, "-o", folder)
    source = folder / "src" / name / "__init__.py"
    source.write_text(source.read_text().replace("        work = region.macs", f"        {line}\n        work = region.macs"))
    install([folder], tmp_path / "site")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    (tmp_path / "out").mkdir()
    command = [sys.executable, "-m", "intaglio", "accelerators", "test", name]
    done = subprocess.run(command, cwd=tmp_path / "out", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "error[plugin-crashed]: " in done.stderr
    assert f"the accelerator `{name} ({name} 0.1.0)` crashed the process in `cost` ({ended})" in done.stderr
    assert not list((tmp_path / "out").iterdir())


def test_names_and_folders_of_new_ones(intaglio: Intaglio, tmp_path: Path) -> None:
    assert "error[bad-name]" in intaglio("new-accelerator", "My-NPU", "-o", tmp_path / "x").err
    assert "the Python module `numpy` already exists" in intaglio("new-accelerator", "numpy", "-o", tmp_path / "x").err
    intaglio("new-accelerator", "npu", "-o", str(tmp_path / "npu"))
    again = intaglio("new-accelerator", "npu", "-o", tmp_path / "npu")
    assert again.code == 2 and "error[exists]" in again.err
    intaglio("new-accelerator", "npu", "-o", str(tmp_path / "npu"), "--force")
    text = "".join(p.read_text() for p in (tmp_path / "npu").rglob("*") if p.is_file())
    assert "my_accelerator" not in text.lower()
