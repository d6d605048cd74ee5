"""`intaglio serve` beside ONNX Runtime behind the same web stack and mlserver, in turn; and what it does with bad requests and
overload. Everything runs on 127.0.0.1.

    make bench-serve                                      writes benchmarks/SERVE.md
    .venv/bin/python benchmarks/serve.py speed --seconds 3 --rounds 3
    .venv/bin/python benchmarks/serve.py overload --seconds 60
    .venv/bin/python benchmarks/serve.py malformed --count 10000

Servers and client share the cores, so beside requests per second there are those per second of the server's own processor time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
BUILD = ROOT / "build" / "bench-serve"
HERE = ROOT / "benchmarks" / "serving"
sys.path.insert(0, str(HERE))

from load import Outcome, closed_loop, request  # noqa: E402

import intaglio  # noqa: E402
from models import MODELS  # noqa: E402
from peers import mlserver_folder  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")
NETWORKS = {"KWS (DS-CNN)": "dscnn", "MobileNetV2": "mobilenetv2"}


@dataclass(frozen=True)
class Model:
    name: str
    folder: Path
    onnx: Path
    requests: list[bytes]  # tensors as bytes
    plain: list[bytes]  # tensors as JSON, for mlserver
    answers: list[bytes]


def prepared(name: str, count: int) -> Model:
    BUILD.mkdir(parents=True, exist_ok=True)
    path, folder = BUILD / f"{name}.onnx", BUILD / name
    if not path.is_file():
        onnx.save(MODELS[name](), path)
    package = intaglio.compile(path, output=folder, name=name, force=True)
    info, out = package.manifest.inputs[0], package.manifest.outputs[0]
    maker = np.random.default_rng(5)
    requests, plain, answers = [], [], []
    for _ in range(count):
        x = maker.standard_normal(info.shape).astype(np.float32)
        tensor = {"name": info.name, "shape": list(info.shape), "datatype": "FP32"}
        raw = {**tensor, "parameters": {"binary_data_size": x.nbytes}}
        head = json.dumps({"inputs": [raw], "parameters": {"binary_data_output": True}}).encode()
        requests.append(request(f"/v2/models/{name}/infer", head + x.tobytes(), len(head)))
        flat = json.dumps({"inputs": [{**tensor, "data": x.reshape(-1).tolist()}]}).encode()
        text = request(f"/v2/models/{name}/infer", flat).replace(b"octet-stream", b"json", 1)
        plain.append(text)
        answers.append(package.run({info.name: x})[out.name].tobytes())
    return Model(name, folder, path, requests, plain, answers)


@dataclass
class Running:
    process: subprocess.Popen[bytes]
    port: int

    def cpu_s(self) -> float:
        """Of the process and its children."""
        total, waiting = 0.0, [self.process.pid]
        while waiting:
            pid = waiting.pop()
            with contextlib.suppress(OSError):
                parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += (int(parts[11]) + int(parts[12])) / TICKS
                waiting += [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return total

    def rss_mb(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return 0.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextlib.contextmanager
def running(words: list[str], port: int, where: Path | None = None) -> Iterator[Running]:
    path = BUILD / "server.log"
    with open(path, "ab") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, cwd=where)
    try:
        for _ in range(600):
            if process.poll() is not None:
                raise SystemExit(f"{words[0]} ended; see {path}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.1)
        time.sleep(1)
        yield Running(process, port)
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(40)
        process.kill()


def ours(model: Model, port: int, *more: str) -> list[str]:
    return [sys.executable, "-m", "intaglio", "serve", str(model.folder), "--port", str(port), "--no-grpc", *more]


def commands(model: Model, mlserver: Path | None) -> dict[str, tuple[list[str], int, Path | None]]:
    found: dict[str, tuple[list[str], int, Path | None]] = {}
    port = free_port()
    found["intaglio"] = (ours(model, port, "--workers", str(os.cpu_count() or 1)), port, None)
    for kind, label in (("front", "ONNX Runtime, our front"), ("starlette", "ONNX Runtime, starlette")):
        port = free_port()
        found[label] = ([sys.executable, str(HERE / "peers.py"), kind, str(model.onnx), str(port)], port, None)
    if mlserver is not None:
        port = free_port()
        folder = BUILD / f"mlserver-{model.name}"
        mlserver_folder(folder, model.onnx, model.name, port)
        found["mlserver, ONNX Runtime"] = ([str(mlserver), "start", str(folder)], port, folder)
    return found


@dataclass
class Figure:
    per_s: list[float]
    per_cpu_s: list[float]
    p50: list[float]
    p99: list[float]


def speed(seconds: float, rounds: int, connections: int, mlserver: Path | None) -> list[str]:
    lines = ["| model | server | requests/s | per CPU s | p50 ms | p99 ms |", "| --- | --- | ---: | ---: | ---: | ---: |"]
    for label, name in NETWORKS.items():
        model = prepared(name, 8)
        figures: dict[str, Figure] = {}
        for _ in range(rounds):
            for server, (words, port, where) in commands(model, mlserver).items():
                plain = server.startswith("mlserver")
                with running(words, port, where) as found:
                    bodies = model.plain if plain else model.requests
                    answers = [None] * 8 if server != "intaglio" else list(model.answers)
                    closed_loop(port, bodies, answers, 2, 1.0)
                    before = found.cpu_s()
                    got = closed_loop(port, bodies, answers, connections, seconds)
                    spent = found.cpu_s() - before
                assert got.wrong == 0 and got.lost == 0 and set(got.statuses) == {200}, (server, got.statuses, got.wrong, got.lost)
                figure = figures.setdefault(server, Figure([], [], [], []))
                figure.per_s.append(got.per_second)
                figure.per_cpu_s.append(got.statuses[200] / spent)
                figure.p50.append(got.percentile(0.5))
                figure.p99.append(got.percentile(0.99))
                print(label, server, f"{got.per_second:.0f}/s", f"{got.statuses[200] / spent:.0f}/cpu s", file=sys.stderr)
        for server, f in figures.items():
            cells = [f"{median(f.per_s):,.0f}", f"{median(f.per_cpu_s):,.0f}", f"{median(f.p50):.2f}", f"{median(f.p99):.2f}"]
            lines.append(f"| {label} | {server} | {' | '.join(cells)} |")
    return lines


def overload(seconds: float) -> list[str]:
    """As many connections as twice the queue, each asking at once again."""
    model = prepared("dscnn", 64)
    port = free_port()
    with running(ours(model, port, "--queue", "16"), port) as server:
        closed_loop(port, model.requests, list(model.answers), 8, 3)
        before = server.rss_mb()
        got: Outcome = closed_loop(port, model.requests, list(model.answers), 32, seconds)
        after = server.rss_mb()
        text = metrics(port)
    totals = [line for line in text if line.startswith("intaglio_requests_total") and 'outcome="ok"' in line]
    counted = sum(float(line.rsplit(" ", 1)[1]) for line in totals)
    return [
        f"- {got.seconds:.0f} s, 32 connections on a queue of 16: {got.sent:,} requests, {got.statuses[200]:,} answered,"
        f" {got.statuses[429]:,} refused (429), {got.lost} lost, {got.wrong} wrong, other statuses"
        f" {sorted(set(got.statuses) - {200, 429})}. Memory {before:.1f} MB before, {after:.1f} MB after. The server counts"
        f" {counted:,.0f} answers (warm-up included).",
    ]


def metrics(port: int) -> list[str]:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as asked:
        asked.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return b"".join(iter(lambda: asked.recv(1 << 16), b"")).decode().splitlines()


def malformed(count: int) -> list[str]:
    model = prepared("dscnn", 2)
    port = free_port()
    maker = random.Random(11)
    found: Counter[str] = Counter()
    with running(ours(model, port, "--limit-body", "1M", "--limit-time", "1"), port) as server:
        start = time.perf_counter()
        spoiled = (_spoiled(model.requests[0], model.plain[0], maker) for _ in range(count))
        with ThreadPoolExecutor(64) as pool:  # those that are cut short wait for the limit
            found.update(pool.map(lambda content: _sent(port, content), spoiled))
        slow = [_slow(port, n) for n in range(60)]
        deadline = time.monotonic() + 8
        cut = sum(_is_cut(one, deadline) for one in slow)
        check = closed_loop(port, model.requests, list(model.answers), 2, 1)
        seconds = time.perf_counter() - start
        assert server.process.poll() is None and check.wrong == 0 and check.statuses[200] > 0
    rows = ", ".join(f"{name}: {number:,}" for name, number in sorted(found.items()))
    return [
        f"- {count:,} malformed requests (seed 11, {seconds:.0f} s): {rows}. {cut} of 60 slow senders were cut off within the limit"
        f" of 1 s. The server answers correctly afterwards.",
    ]


def _spoiled(binary: bytes, plain: bytes, maker: random.Random) -> bytes:
    head, _, body = (binary if maker.random() < 0.5 else plain).partition(b"\r\n\r\n")
    kind = maker.randrange(9)
    if kind == 0:  # bytes of the body
        content = bytearray(body)
        for _ in range(maker.randint(1, 20)):
            content[maker.randrange(min(len(content), 200))] = maker.randrange(256)
        return head + b"\r\n\r\n" + bytes(content)
    if kind == 1:  # cut short, and the length with it
        cut = body[: maker.randrange(len(body))]
        return _with_length(head, len(cut)) + b"\r\n\r\n" + cut
    if kind == 2:  # another length of the JSON
        other = b"Inference-Header-Content-Length: %d\r\nA" % maker.randrange(1 << 20)
        return head.replace(b"Content-Type", other) + b"\r\n\r\n" + body
    if kind == 3:  # other shapes and types
        word = maker.choice([b'"FP32"', b"[1,", b"1, ", b'"shape"', b'"name"', b'"inputs"', b"{", b"]"])
        other = maker.choice([b'"INT8"', b"[-1,", b"[1e99,", b"null", b'"x"', b"[[[[", b"99999999999,", b"{}", b""])
        changed = body.replace(word, other, maker.randint(1, 3))
        return _with_length(head, len(changed)) + b"\r\n\r\n" + changed
    if kind == 4:  # too large
        return _with_length(head, 2 << 20) + b"\r\n\r\n" + body
    if kind == 5:  # noise instead of a head
        return maker.randbytes(maker.randint(1, 300)) + b"\r\n\r\n"
    if kind == 6:  # another path or method
        model = b"/v2/models/"
        paths = [model + b"none/infer", model + b"/infer", model + b"dscnn/versions/x/infer", b"/%00", b"/" + b"a" * 3000]
        path = maker.choice(paths)
        return head.replace(b"/v2/models/dscnn/infer", path) + b"\r\n\r\n" + body
    if kind == 7:  # nested without end
        deep = b'{"inputs":' + b"[" * maker.randint(10, 100_000)
        return _with_length(head, len(deep)) + b"\r\n\r\n" + deep
    return _with_length(head, len(body) + 50) + b"\r\n\r\n" + body  # truncated: the rest never comes


def _with_length(head: bytes, size: int) -> bytes:
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
    return b"\r\n".join([*lines, b"Content-Length: %d" % size])


def _sent(port: int, content: bytes) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        try:
            connection.sendall(content)
            found = connection.recv(100)
        except (BrokenPipeError, ConnectionResetError):
            return "closed"
    return found[9:12].decode("ascii", "replace") if found else "closed"


def _slow(port: int, n: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=20)
    head = b"POST /v2/models/dscnn/infer HTTP/1.1\r\n"
    made.sendall((b"", head + b"Ho", head + b"Content-Length: 99\r\n\r\n{")[n % 3])
    return made


def _is_cut(connection: socket.socket, deadline: float) -> bool:
    connection.settimeout(max(0.1, deadline - time.monotonic()))
    try:
        found = connection.recv(1000)
        return found == b"" or b" 408 " in found[:20]
    except TimeoutError:
        return False
    finally:
        connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "overload", "malformed", "all"), nargs="?", default="all")
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--mlserver", type=Path, default=None, help="the command of an environment that has it")
    words = parser.parse_args()
    lines = []
    if words.what in ("speed", "all"):
        lines += [*speed(words.seconds or 4, words.rounds, words.connections, words.mlserver), ""]
    if words.what in ("malformed", "all"):
        lines += malformed(words.count)
    if words.what in ("overload", "all"):
        lines += overload(words.seconds or 60)
    print("\n".join(lines))
    if words.what == "all":
        head = (ROOT / "benchmarks" / "SERVE.md").read_text().split("<!-- figures -->")[0]
        (ROOT / "benchmarks" / "SERVE.md").write_text(head + "<!-- figures -->\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
