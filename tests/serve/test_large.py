"""Requests whose tensors are larger than a buffer of the socket: whole, in order, wherever they are cut, aligned or not."""

from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")
pytest.importorskip("grpc", reason="the extra `serve` is not installed")

import intaglio
from intaglio.ir.graph import Array
from intaglio.serve.connection import ALIGNMENT, Body
from support.onnx_models import model, node, value
from support.serving import Server, make_certificate, serving

SIZE = 50_000
PLACE = b"POST /v2/models/large/infer HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    made = model([node("Neg", "x", "y")], [value("x", [1, SIZE])], [value("y", None)])
    onnx.save(made, folder / "m.onnx")
    return intaglio.compile(folder / "m.onnx", output=folder / "p", name="large", cflags="-O0").folder


@pytest.fixture(scope="module")
def server(package: Path) -> Iterator[Server]:
    with serving(package, "--no-grpc", "--limit-body", "1M", "--limit-time", "5") as found:
        yield found


def asked(x: Array, id: str) -> tuple[bytes, bytes]:
    """The headers of a request and its body; `id` moves the tensor by its letters."""
    tensor = {"name": "x", "shape": [1, SIZE], "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}
    head = json.dumps({"id": id, "inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return b"Inference-Header-Content-Length: %d\r\n" % len(head), head + x.tobytes()


def answers(connection: socket.socket, count: int) -> list[Array]:
    """Of that many requests, in order."""
    found: list[Array] = []
    held = b""
    while len(found) < count:
        head, end, rest = held.partition(b"\r\n\r\n")
        told = re.search(rb"content-length: (\d+)", head)
        if not end or told is None or len(rest) < int(told[1]):
            part = connection.recv(1 << 16)
            assert part, held[:300]
            held += part
            continue
        assert head.startswith(b"HTTP/1.1 200"), held[:300]
        found.append(np.frombuffer(rest[int(told[1]) - 4 * SIZE : int(told[1])], np.float32))
        held = rest[int(told[1]) :]
    return found


def numbers(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32)


@pytest.mark.parametrize("id", ["", "1", "22", "333"])
def test_a_tensor_that_begins_anywhere_in_the_body(server: Server, id: str) -> None:
    x = numbers(len(id))
    headers, body = asked(x, id)
    with server.socket() as one:
        one.sendall(PLACE + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert np.array_equal(answers(one, 1)[0], -x)


def test_requests_in_pieces_and_one_behind_the_other_and_chunked(server: Server) -> None:
    several = [numbers(n) for n in range(3)]
    content = b""
    for n, x in enumerate(several):
        headers, body = asked(x, "a" * n)
        if n == 1:
            parts = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (body[:70_000], body[70_000:]))
            content += PLACE + headers + b"Transfer-Encoding: chunked\r\n\r\n" + parts + b"0\r\n\r\n"
        else:
            content += PLACE + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with server.socket() as one:
        for at in range(0, len(content), 33_333):
            one.sendall(content[at : at + 33_333])
        assert all(np.array_equal(found, -x) for found, x in zip(answers(one, 3), several, strict=True))


def test_a_large_body_that_is_refused_or_ends_early_harms_no_other(server: Server) -> None:
    headers, body = asked(numbers(1), "")
    with server.socket() as gone:
        gone.sendall(PLACE + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body[:100_000])
    other = PLACE.replace(b"large", b"none") + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with server.socket() as refused:
        refused.sendall(other)
        assert refused.recv(100).startswith(b"HTTP/1.1 404")
    with server.socket() as wrong:
        wrong.sendall(PLACE + b"Content-Length: %d\r\n\r\n" % len(body) + body)  # no length of the JSON: all of it is JSON
        assert wrong.recv(100).startswith(b"HTTP/1.1 400")
    with server.socket() as one:
        one.sendall(PLACE + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert np.array_equal(answers(one, 1)[0], -numbers(1))


@pytest.mark.slow
def test_large_bodies_over_tls(package: Path, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    context = ssl.create_default_context(cafile=str(certificate))
    context.check_hostname = False
    words = ("--no-grpc", "--tls-cert", certificate, "--tls-key", key)
    with serving(package, *words) as server, server.socket() as plain, context.wrap_socket(plain) as one:
        for n in range(4):
            headers, body = asked(numbers(n), "a" * n)
            one.sendall(PLACE + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            assert np.array_equal(answers(one, 1)[0], -numbers(n))


@pytest.mark.parametrize("aligned", [0, 1, 63, 64, 1000])
def test_bytes_are_put_where_tensors_are_aligned(aligned: int) -> None:
    body = Body(100_000, aligned)
    content = np.random.default_rng(0).bytes(100_000)
    for at in range(0, len(content), 7_777):
        body.add(content[at : at + 7_777])
    tensor = np.frombuffer(body.content[aligned:], np.uint8)
    assert bytes(body.content) == content and tensor.__array_interface__["data"][0] % ALIGNMENT == 0
