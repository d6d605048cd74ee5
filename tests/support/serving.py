"""An `intaglio serve` of its own, on 127.0.0.1, and requests to it."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import onnx
import pytest

import intaglio
from intaglio.ir.graph import Array
from support.onnx_models import model, node


def adder(folder: Path, add: float, output: Path | None = None, name: str = "adder") -> Path:
    """A package: y = x + add, of four floats."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"add{add:g}.onnx"
    onnx.save(model([node("Add", "x c", "y")], constants={"c": np.full((1, 4), add, np.float32)}), path)
    place = output or folder / f"adder{add:g}"
    intaglio.compile(path, output=place, name=name, cflags="-O0", force=True)
    return place


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    def __init__(self, process: subprocess.Popen[str], port: int, grpc_port: int, said: list[str]) -> None:
        self.process, self.port, self.grpc_port, self.said = process, port, grpc_port, said

    def __call__(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        if tls is not None:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=20, context=tls)
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method, path, content, dict(headers or {}))
        found = connection.getresponse()
        reply = Reply(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read())
        connection.close()
        return reply

    def infer(self, x: Array, name: str = "adder", version: str = "") -> Any:
        place = f"/v2/models/{name}" + (f"/versions/{version}" if version else "")
        reply = self("POST", f"{place}/infer", asked(x))
        assert reply.status == 200, reply.body
        return reply.json["outputs"][0]["data"]

    def socket(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


def asked(x: Array, **more: object) -> dict[str, object]:
    return {"inputs": [{"name": "x", "shape": list(x.shape), "datatype": "FP32", "data": x.reshape(-1).tolist()}], **more}


@contextmanager
def serving(*words: object) -> Iterator[Server]:
    command = [sys.executable, "-m", "intaglio", "serve", *map(str, words), "--port", "0", "--grpc-port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    said: list[str] = []
    try:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            found = re.search(r"serving on https?://127.0.0.1:(\d+)(?: and grpcs?://127.0.0.1:(\d+))?", line)
            if found is not None:
                break
        else:
            raise AssertionError("".join(said))
        Thread(target=said.extend, args=(process.stderr,), daemon=True).start()
        yield Server(process, int(found[1]), int(found[2] or 0), said)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    pytest.importorskip("cryptography", reason="makes the certificate of this test")
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False).sign(key, hashes.SHA256())
    )  # fmt: skip
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(key.private_bytes(*form))
    return folder / "cert.pem", folder / "key.pem"
