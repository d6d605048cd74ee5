"""A loop that data never ends: its reference has limits of time and memory, and a signal ends the command."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intaglio import Package, compile
from intaglio.errors import UserError
from intaglio.ir.files import read_ir
from intaglio.run.limited import Limited, limit
from intaglio.run.reference import IrReference, OnnxRuntime
from intaglio.run.validate import reference_of
from support.commands import Intaglio
from support.loop_models import TRUE, body
from support.onnx_models import FLOAT, model, node, saved, value

SECONDS = "INTAGLIO_REFERENCE_SECONDS"


def until_large(most: float, size: int = 4, rows: bool = False) -> Any:
    """x is doubled until its sum reaches `most`: never, where x is zero or negative."""
    nodes = [node("Add", "a a", "a2"), node("ReduceSum", "a2", "s", keepdims=0), node("Less", "s most", "again")]
    inside = body([*nodes, node("Neg", "a2", "row")], [("a", "a2", (FLOAT, [1, size]))], ["row"] if rows else [], "again")
    outs = "y kept" if rows else "y"
    loop = node("Loop", "_ true x", outs, body=inside)
    results = [value(name, None) for name in outs.split()]
    return model([loop], [value("x", [1, size])], results, {"true": TRUE, "most": np.float32(most)}, opset=17)


def never() -> Any:
    """What is multiplied by nought stays below any number."""
    proto = until_large(1e30)
    proto.graph.node[0].attribute[0].g.node[0].CopyFrom(node("Mul", "a nought", "a2"))
    proto.graph.initializer.append(model([], constants={"nought": np.float32(0)}).graph.initializer[0])
    return proto


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("endless")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SECONDS, "0.3")
        return compile(saved(never(), folder), output=folder / "p", cflags="-O0").folder


@pytest.mark.slow
def test_a_package_is_made_without_vectors(tmp_path: Path, intaglio: Intaglio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECONDS, "0.3")
    said = intaglio("compile", saved(never(), tmp_path), "-o", tmp_path / "p")
    assert said.code == 0 and not (tmp_path / "p" / "test").exists()
    found = re.search(r"has not ended after (\S+) s on random inputs, so the package has no test vectors", said.err)
    assert found is not None and float(found[1]) <= 0.15  # the second of two, which share the time


def test_validate_says_so(endless: Path, intaglio: Intaglio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECONDS, "0.5")
    said = intaglio("validate", endless)
    assert said.code == 2 and "error[reference-too-long]: the reference (onnxruntime" in said.err
    assert "hint: a loop may not end for such inputs" in said.err and "`--inputs`" in said.err


def test_the_ir_has_the_limit_too(endless: Path) -> None:
    own = IrReference(read_ir(next((endless / "ir").glob("*.ig"))), 0.2)
    with pytest.raises(UserError, match=r"a loop has not ended after 0\.2 s in the numpy references"):
        own.run({"x": np.ones((1, 4), np.float32)})


def test_a_signal_ends_the_command(endless: Path) -> None:
    child = subprocess.Popen(
        (sys.executable, "-m", "intaglio", "validate", str(endless)), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    inner = Path(f"/proc/{child.pid}/task/{child.pid}/children")
    end = time.monotonic() + 60
    while not (inner.exists() and inner.read_text().split()) and child.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    pids = inner.read_text().split() if inner.exists() else []
    child.send_signal(signal.SIGTERM)
    _, told = child.communicate(timeout=30)
    assert child.returncode == 128 + signal.SIGTERM and b"stopped" in told
    assert pids
    end = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_a_signal_ends_a_package_that_does_not_end(endless: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones((1, 4), np.float32))
    command = (sys.executable, "-m", "intaglio", "run", str(endless), "--input", str(tmp_path / "x.npz"))
    child = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    libraries = Path(f"/proc/{child.pid}/maps")
    end = time.monotonic() + 60
    while str(endless) not in libraries.read_text() and child.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.3)
    child.send_signal(signal.SIGTERM)
    _, told = child.communicate(timeout=30)
    assert child.returncode == 128 + signal.SIGTERM and b"stopped" in told


@pytest.mark.slow
def test_a_loop_that_ends_is_compared_as_ever(tmp_path: Path) -> None:
    package = compile(saved(until_large(100.0), tmp_path), output=tmp_path / "p", cflags="-O1")
    x = {"x": np.full((1, 4), 0.7, np.float32)}
    result = package.validate(inputs=x)
    assert result.ok and result.reference.startswith("onnxruntime")
    loaded = Package.load(package.folder)
    reference = reference_of(loaded)
    assert isinstance(reference, Limited)
    want = OnnxRuntime(package.folder / "ir" / "source.onnx").run(x)
    np.testing.assert_array_equal(reference.run(x)["y"], want["y"])
    assert reference.in_double([x]) is not None
    with pytest.raises(UserError, match="ONNX Runtime fails on these inputs"):  # an error of the child is one here, and it goes on
        reference.run({"x": np.zeros((1, 3), np.float32)})
    np.testing.assert_array_equal(reference.run(x)["y"], want["y"])
    reference.close()


@pytest.mark.slow
def test_memory_has_a_limit(tmp_path: Path) -> None:
    """Rows of 16 MB, without end."""
    proto = until_large(100.0, rows=True)
    package = compile(saved(proto, tmp_path), output=tmp_path / "p", max={"kept": 9}, cflags="-O1")
    large = saved(until_large(np.inf, 4 << 20, rows=True), tmp_path, "large.onnx")
    reference = Limited(large, package.manifest, (), 30.0, share=0.02)
    begun = time.monotonic()
    with pytest.raises(UserError) as failed:
        reference.run({"x": np.zeros((1, 4 << 20), np.float32)})
    assert "not ended" not in str(failed.value) and time.monotonic() - begun < 25
    reference.close()


@pytest.mark.parametrize(("told", "seconds"), [("2.5", 2.5), ("", 7.0), ("abc", 7.0), ("-1", 7.0), ("inf", 7.0)])
def test_seconds_are_those_of_the_environment(told: str, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECONDS, told)
    assert limit(7.0) == seconds
