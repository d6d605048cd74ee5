"""One test per message of `intaglio serve`."""

from __future__ import annotations

import socket
from pathlib import Path

import numpy as np
import onnx
import pytest

from support.commands import DIGITS, Intaglio
from support.onnx_models import model, node, value

pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")


def test_what_is_not_there(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("serve", tmp_path / "none", "--port", "0", "--grpc-port", "0")
    assert said.code == 2 and "error[" in said.err and "hint:" in said.err


def test_firmware_is_not_served(intaglio: Intaglio, tmp_path: Path) -> None:
    intaglio("compile", DIGITS, "-o", tmp_path / "p", "--target", "cortex-m4f", "--stop-after", "package")
    said = intaglio("serve", tmp_path / "p")
    assert said.code == 2 and "error[cannot-serve]" in said.err and "compile it for a host" in said.err


def test_state_is_not_shared_by_clients(intaglio: Intaglio, tmp_path: Path) -> None:
    conv = node("Conv", "x w", "y", kernel_shape=[3])
    made = model([conv], [value("x", [1, 2, 16])], [value("y", None)], {"w": np.ones((2, 2, 3), np.float32)})
    onnx.save(made, tmp_path / "m.onnx")
    intaglio("compile", tmp_path / "m.onnx", "-o", tmp_path / "p", "--stream", "2", "--stop-after", "package")
    said = intaglio("serve", tmp_path / "p")
    assert said.code == 2 and "error[cannot-serve]" in said.err and "keeps state" in said.err


def test_a_port_in_use(intaglio: Intaglio, digits: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = intaglio("serve", digits, "--port", str(port))
        assert said.code == 2 and "error[cannot-listen]" in said.err and "`--port`" in said.err
        said = intaglio("serve", digits, "--port", "0", "--grpc-port", str(port))
        assert said.code == 2 and "error[cannot-listen]" in said.err and "`--grpc-port`" in said.err


def test_two_packages_of_one_name(intaglio: Intaglio, digits: Path) -> None:
    said = intaglio("serve", digits, digits, "--port", "0", "--grpc-port", "0")
    assert said.code == 2 and "two packages are called `digits`" in said.err and "NAME=" in said.err


@pytest.mark.parametrize("content", [None, "", "two words", "\x00"])
def test_a_token_file_without_a_token(intaglio: Intaglio, digits: Path, tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    said = intaglio("serve", digits, "--token-file", path)
    assert said.code == 2 and "error[bad-token]" in said.err


def test_certificates(intaglio: Intaglio, digits: Path, tmp_path: Path) -> None:
    path = tmp_path / "cert.pem"
    path.write_text("no certificate")
    said = intaglio("serve", digits, "--tls-cert", path)
    assert said.code == 2 and "error[bad-option]" in said.err and "go together" in said.err
    said = intaglio("serve", digits, "--tls-cert", path, "--tls-key", path)
    assert said.code == 2 and "error[bad-certificate]" in said.err


def test_without_the_extra(intaglio: Intaglio, digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intaglio.cli.inferring.find_spec", lambda name: None if name == "grpc" else name)
    said = intaglio("serve", digits)
    assert said.code == 2 and "error[missing-extra]" in said.err and "[serve]" in said.err


def test_a_limit_that_is_no_size(intaglio: Intaglio, digits: Path) -> None:
    said = intaglio("serve", digits, "--limit-body", "many")
    assert said.code == 2 and "error[bad-option]" in said.err
