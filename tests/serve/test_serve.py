"""`intaglio serve` as its clients see it: a process, real sockets."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")
pytest.importorskip("grpc", reason="the extra `serve` is not installed")

from intaglio import Package
from intaglio.errors import UserError
from intaglio.serve.grpc_messages import CLASSES, SERVICE
from intaglio.serve.metrics import Metrics
from intaglio.serve.models import Models, Sizes, Source, differing
from intaglio.serve.rest import Limits
from intaglio.serve.server import Settings, _is_local, _tell, listen
from intaglio.serve.tensors import Signature
from support.commands import DIGITS, Intaglio
from support.serving import Server, adder, asked, make_certificate, serving

X = np.array([[1, 2, 3, 4]], np.float32)


@pytest.fixture(scope="module")
def adders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packages 1 and 2, which add as much."""
    folder = tmp_path_factory.mktemp("adders")
    for add in (1, 2):
        adder(folder, add, folder / "versions" / str(add))
    return folder / "versions"


@pytest.fixture(scope="module")
def server(adders: Path) -> Iterator[Server]:
    with serving(adders, f"other:7={adders / '1'}", "--limit-body", "64K", "--limit-time", "0.5") as found:
        yield found


def test_health_and_metadata(server: Server) -> None:
    assert server("GET", "/v2/health/live").status == server("GET", "/v2/health/ready").status == 200
    assert server("GET", "/v2").json["extensions"][:2] == ["binary_tensor_data", "model_repository"]
    assert server("GET", "/v2/models/adder/versions/2/ready").status == 200
    told = server("GET", "/v2/models/adder").json
    assert told["versions"] == ["1", "2"] and told["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [1, 4]}]
    assert {(m["name"], m["version"]) for m in server("POST", "/v2/repository/index").json} == {
        ("adder", "1"), ("adder", "2"), ("other", "7"),
    }  # fmt: skip


def test_the_highest_version_answers_unless_another_is_asked_for(server: Server) -> None:
    assert server.infer(X) == [3, 4, 5, 6] == server.infer(X, version="2")
    assert server.infer(X, version="1") == [2, 3, 4, 5] == server.infer(X, "other")
    assert server("POST", "/v2/models/adder/versions/3/infer", asked(X)).status == 404


def test_tensors_as_bytes_both_ways(server: Server) -> None:
    head = b'{"id":"7","inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","parameters":{"binary_data_size":16}}],'
    head += b'"parameters":{"binary_data_output":true}}'
    reply = server(
        "POST", "/v2/models/adder/infer", head + X.tobytes(), {"Inference-Header-Content-Length": str(len(head))}
    )
    cut = int(reply.headers["inference-header-content-length"])
    assert np.array_equal(np.frombuffer(reply.body[cut:], np.float32), X[0] + 2)
    assert b'"id":"7"' in reply.body[:cut] and b'"binary_data_size":16' in reply.body[:cut]


def one(**changes: object) -> dict[str, object]:
    return {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4], **changes}]}


def test_what_clients_of_triton_ask_besides(server: Server) -> None:
    told = server("GET", "/v2/models/adder/versions/1/config").json
    assert told["max_batch_size"] == 0 and told["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [1, 4]}]
    before = server("GET", "/v2/models/other/stats").json["model_stats"][0]["inference_count"]
    server.infer(X, "other")
    (told,) = server("GET", "/v2/models/other/versions/7/stats").json["model_stats"]
    counts = told["inference_stats"]
    assert told["inference_count"] == counts["success"]["count"] == before + 1 and counts["success"]["ns"] > 0
    assert {m["name"] for m in server("GET", "/v2/models/stats").json["model_stats"]} == {"adder", "other"}
    assert server("GET", "/v2/models/nothing/stats").status == server("GET", "/v2/models/nothing/config").status == 404


def test_other_methods_are_told_which_there_are(server: Server) -> None:
    for path in ("/v2/models/adder/infer", "/v2/models/adder/versions/1/infer", "/v2/repository/index"):
        reply = server("GET", path)
        assert reply.status == 405 and reply.headers["allow"] == "POST" and "methods: POST" in reply.json["error"]


def test_a_load_with_another_configuration_is_refused(server: Server) -> None:
    place = "/v2/repository/models/adder/load"
    assert server("POST", place, {}).status == server("POST", place).status == 200
    reply = server("POST", place, {"parameters": {"config": "{}"}})
    assert reply.status == 400 and "the parameter `config` of a load is not supported" in reply.json["error"]


@pytest.mark.parametrize(
    ("word", "said"),
    [("x:v2=p", "`v2` in `x:v2=p` is not a version"), ("x:0=p", "is not a version"), ("a b=p", "is not a name"),
     ("=p", "is not a name"), ("a=", "names no folder")],
)  # fmt: skip
def test_words_that_name_no_package(word: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        Source.of(word)
    assert said in caught.value.message and "NAME:VERSION=DIR" in caught.value.hint


def test_a_token_whatever_the_case_of_its_scheme() -> None:
    limits = Limits(token=b"Secret")
    assert all(limits.admits(word) for word in (b"Bearer Secret", b"bearer Secret", b"BEARER  Secret"))
    assert not any(limits.admits(word) for word in (b"", b"Secret", b"Bearer secret", b"Basic Secret", b"Bearer "))


def test_another_interface_is_told(adders: Path) -> None:
    first = Signature.of(Package(adders / "1").manifest)
    second = replace(first, inputs=tuple(replace(port, name="z") for port in first.inputs))
    assert differing(first, first) == "" and differing(first, second) == "other inputs, x FP32 [1, 4] -> z FP32 [1, 4]"


MALFORMED: dict[str, tuple[object, str]] = {
    "not JSON": (b"{", "not JSON"),
    "a list": ([], "not a JSON object"),
    "no inputs": ({}, "no list `inputs`"),
    "an input that is a number": ({"inputs": [1]}, "not a JSON object"),
    "another name": (one(name="z"), "unknown input `z`"),
    "no name": (one(name=None), "`name` is not a text"),
    "twice": ({"inputs": [*one()["inputs"], *one()["inputs"]]}, "given twice"),  # type: ignore[misc]
    "another shape": (one(shape=[1, 5], data=[1] * 5), "wrong-input"),
    "more data than shape": (one(data=[1] * 5), "has 5 numbers, and not the shape [1, 4]"),
    "a shape of texts": (one(shape=["1", "4"]), "whole numbers"),
    "a negative shape": (one(shape=[-1, -4]), "whole numbers"),
    "a huge shape": (one(shape=[1 << 39, 1 << 39]), "has 4 numbers, and not the shape"),
    "another type": (one(datatype="INT32"), "wrong-input"),
    "an unknown type": (one(datatype="FP99"), "known: BOOL"),
    "texts as data": (one(data=["a"] * 4), "other values than FP32"),
    "true as data": (one(data=[True, 0, 0, 0]), "other values than FP32"),
    "true in rows": (one(data=[[1, 2, True, 4]]), "other values than FP32"),
    "a sequence": ({**one(), "parameters": {"sequence_id": 7, "sequence_start": True}}, "no state is kept"),
    "null as data": (one(data=[None] * 4), "other values than FP32"),
    "rows of different lengths": (one(data=[[1, 2], [3]]), "not a tensor"),
    "no data": (one(data=None), "no list of numbers"),
    "bytes that are not there": (one(data=None, parameters={"binary_data_size": 16}), "0 are left"),
    "another output": ({**one(), "outputs": [{"name": "q"}]}, "unknown output `q`"),
    "an output twice": ({**one(), "outputs": [{"name": "y"}, {"name": "y"}]}, "asked for twice"),
    "parameters that are a list": ({**one(), "parameters": []}, "`parameters` is not"),
    "an id that is a number": ({**one(), "id": 4}, "`id` is not a text"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_request_is_told_what_is_wrong(server: Server, name: str) -> None:
    body, said = MALFORMED[name]
    reply = server("POST", "/v2/models/adder/infer", body)
    assert reply.status == 400 and said in reply.json["error"]
    assert server.infer(X) == [3, 4, 5, 6]


def test_numbers_that_a_type_does_not_have_are_refused() -> None:
    from intaglio.ir.types import DType
    from intaglio.serve.refusals import Refused
    from intaglio.serve.tensors import from_numbers

    for data, dtype in (([1.5], DType.I8), ([300], DType.U8), ([True], DType.I8), ([1], DType.BOOL), ([1e6], DType.F16)):
        with pytest.raises(Refused, match="values"):
            from_numbers(data, dtype, (1,), "x")
    assert from_numbers([1, 2.5], DType.F32, (2,), "x").tolist() == [1, 2.5]
    assert from_numbers([[1], [0]], DType.U8, (2, 1), "x").shape == (2, 1)


def test_what_is_too_large_or_compressed_or_elsewhere(server: Server) -> None:
    assert server("POST", "/v2/models/adder/infer", b" " * 70_000).status == 413
    assert server("POST", "/v2/models/adder/infer", b"x", {"Content-Encoding": "gzip"}).status == 415
    assert server("GET", "/v2/models/adder/infer").status in (404, 405)
    assert server("GET", "/v3").status == 404
    assert server("POST", "/v2/models/none/infer", asked(X)).status == 404
    assert server("POST", "/v2/models/adder/infer", b"{}", {"Inference-Header-Content-Length": "9"}).status == 400


def test_slow_senders_are_cut_off(server: Server) -> None:
    with server.socket() as silent, server.socket() as head, server.socket() as body:
        head.sendall(b"POST /v2/models/adder/infer HTTP/1.1\r\nHost: x\r\nX-Slow")
        body.sendall(b"POST /v2/models/adder/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        start = time.monotonic()
        for late in (head, body):
            assert late.recv(4096).startswith(b"HTTP/1.1 408 Request Timeout") and late.recv(100) == b""
        assert silent.recv(100) == b""
        assert time.monotonic() - start < 10
    with server.socket() as endless:
        try:
            for _ in range(100):
                endless.sendall(b"GET /v2 HTTP/1.1\r\n" if _ == 0 else b"X-%d: " % _ + b"a" * 4000 + b"\r\n")
            assert endless.recv(100).startswith(b"HTTP/1.1 431 ")
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert server.infer(X) == [3, 4, 5, 6]


def test_figures_for_prometheus(server: Server) -> None:
    server.infer(X)
    text = server("GET", "/metrics").body.decode()
    assert 'intaglio_requests_total{model="adder",outcome="ok",version="2"}' in text
    assert "intaglio_queue_seconds_bucket" in text and 'intaglio_pending_requests{model="adder",version="2"} 0.0' in text


def test_what_is_refused_is_counted_before_it_is_a_request_too(server: Server) -> None:
    def counted(line: str) -> float:
        text = server("GET", "/metrics").body.decode()
        return next((float(row.split()[-1]) for row in text.splitlines() if row.startswith(line)), 0.0)

    lines = (
        'intaglio_requests_total{model="adder",outcome="refused",version="2"}', 'intaglio_refusals_total{status="400"}',
        'intaglio_refusals_total{status="431"}',
    )  # fmt: skip
    before = [counted(line) for line in lines]
    assert server("POST", "/v2/models/adder/infer", b"{").status == 400
    with server.socket() as one:
        one.sendall(b"this is not HTTP\r\n\r\n")
        assert one.recv(100).startswith(b"HTTP/1.1 400 ")
    with server.socket() as one:
        one.sendall(b"GET /v2 HTTP/1.1\r\nX: " + b"a" * 65_600 + b"\r\n\r\n")
        assert one.recv(100).startswith(b"HTTP/1.1 431 ")
    assert [counted(line) for line in lines] == [before[0] + 1, before[1] + 2, before[2] + 1]


@pytest.mark.slow
def test_a_package_that_is_gone_cannot_be_loaded_again(adders: Path, tmp_path: Path) -> None:
    shutil.copytree(adders / "1", tmp_path / "p")
    with serving(tmp_path / "p", "--no-grpc") as server:
        assert server("POST", "/v2/repository/models/adder/load").status == 200
        shutil.rmtree(tmp_path / "p")
        assert server("POST", "/v2/repository/models/adder/load").status == 400
        assert server.infer(X) == [2, 3, 4, 5]
        until = time.monotonic() + 20
        while not any("the one in use stays" in line for line in server.said) and time.monotonic() < until:
            time.sleep(0.02)
        assert any("the one in use stays" in line for line in server.said)


def test_a_served_name_is_not_dropped_for_that_of_another_package(adders: Path, tmp_path: Path) -> None:
    shutil.copytree(adders / "1", tmp_path / "p")
    other = adder(tmp_path, 3, name="other")
    with serving(tmp_path / "p", f"mine={tmp_path / 'p'}", "--watch", "0") as server:
        os.rename(tmp_path / "p", tmp_path / "old")
        os.rename(other, tmp_path / "p")
        reply = server("POST", "/v2/repository/models/adder/load")
        assert reply.status == 400 and "is called `other`, and `adder` is served from there" in reply.json["error"]
        assert f"`adder={tmp_path / 'p'}` on the command line" in reply.json["error"]
        assert server("POST", "/v2/repository/models/mine/load").status == 200
        assert server.infer(X) == [2, 3, 4, 5] and server.infer(X, "mine") == [4, 5, 6, 7]
        assert [m["name"] for m in server("POST", "/v2/repository/index").json] == ["adder", "mine"]


def test_versions_of_one_model_have_one_name(adders: Path, tmp_path: Path, intaglio: Intaglio) -> None:
    shutil.copytree(adders / "1", tmp_path / "v" / "1")
    adder(tmp_path, 3, tmp_path / "v" / "2", name="other")
    said = intaglio("serve", tmp_path / "v", "--port", "0", "--grpc-port", "0")
    assert said.code == 2 and "error[other-name]" in said.err and "hint: `adder=" in said.err


def test_a_device_is_for_packages_that_have_one(adders: Path, intaglio: Intaglio) -> None:
    said = intaglio("serve", adders / "1", "--device", "gpu", "--port", "0")
    assert said.code == 2 and "`--device` is for packages for OpenCL" in said.err and "\nhint: " in said.err


def test_a_package_is_replaced_under_load_and_no_request_is_lost(adders: Path, tmp_path: Path) -> None:
    place, beside = tmp_path / "p", tmp_path / "next"
    shutil.copytree(adders / "1", place)
    answers: list[float] = []
    with serving(place, "--watch", "0.1") as server:
        ends = threading.Event()

        def ask() -> None:
            while not ends.is_set():
                answers.append(server.infer(X)[0])

        clients = [threading.Thread(target=ask) for _ in range(3)]
        for client in clients:
            client.start()
        for version in ("2", "1", "2"):
            shutil.copytree(adders / version, beside)
            os.rename(place, tmp_path / f"old{time.monotonic_ns()}")
            os.rename(beside, place)
            wanted, until = float(version) + 1, time.monotonic() + 15
            while answers[-1:] != [wanted] and time.monotonic() < until:
                time.sleep(0.02)
            assert answers[-1] == wanted
        (place / "lib" / "libadder.so").write_bytes(b"nonsense")  # this one cannot be loaded: the one in use stays
        os.utime(place / "manifest.json")
        time.sleep(0.5)
        ends.set()
        for client in clients:
            client.join()
        assert set(answers) == {2.0, 3.0} and server.infer(X)[0] == 3.0
        assert any("cannot be loaded; the package in use stays" in line for line in server.said)
        assert server("POST", "/v2/repository/models/adder/load").status == 400


def test_a_stop_answers_what_was_taken(adders: Path) -> None:
    with serving(adders / "1", "--no-grpc") as server, server.socket() as taken:
        body = b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}'
        head = b"POST /v2/models/adder/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        taken.sendall(head + body[:20])
        assert server("GET", "/v2/health/live").status == 200  # the head has arrived by now
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert server.process.poll() is None
        with pytest.raises(ConnectionRefusedError):
            server.socket()
        taken.sendall(body[20:])
        assert b'"data":[2.0,3.0,4.0,5.0]' in b"".join(iter(lambda: taken.recv(10000), b""))
        assert server.process.wait(20) == 0


@pytest.mark.slow
def test_a_stop_is_told_to_clients_of_grpc(adders: Path) -> None:
    """What was taken is answered, and what comes after that gets UNAVAILABLE: nothing is cancelled."""
    grpc = pytest.importorskip("grpc")
    request = CLASSES["ModelInferRequest"](model_name="adder")
    request.inputs.add(name="x", datatype="FP32", shape=[1, 4])
    request.raw_input_contents.append(X.tobytes())
    ends: list[str] = []

    def ask(port: int) -> None:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            infer = channel.unary_unary(
                f"/{SERVICE}/ModelInfer",
                request_serializer=lambda made: made.SerializeToString(),
                response_deserializer=CLASSES["ModelInferResponse"].FromString,
            )
            try:
                while True:
                    assert np.frombuffer(infer(request, timeout=10).raw_output_contents[0], np.float32)[0] == 2
            except grpc.RpcError as error:
                ends.append(error.code().name)

    with serving(adders / "1") as server:
        clients = [threading.Thread(target=ask, args=(server.grpc_port,)) for _ in range(4)]
        for client in clients:
            client.start()
        while 'outcome="ok"' not in server("GET", "/metrics").body.decode():
            time.sleep(0.02)
        assert server.stop() == 0
        for client in clients:
            client.join(20)
    assert ends == ["UNAVAILABLE"] * 4


def test_a_package_that_is_gone_is_told_once(adders: Path, tmp_path: Path) -> None:
    shutil.copytree(adders / "1", tmp_path / "p")
    said: list[str] = []

    async def look() -> None:
        models = Models([Source.of(str(tmp_path / "p"))], Sizes(), Metrics(), said.append)
        await models.start()
        shutil.rmtree(tmp_path / "p")
        await models.reload()
        await models.reload()
        models.ignored(["priority", "priority"])
        await models.drained()

    asyncio.run(look())
    assert said == [f"{tmp_path / 'p'}: there is no package any more; the one in use stays",
                    "requests have the parameter `priority`, which is ignored"]  # fmt: skip


def test_who_can_be_reached_by_others_is_warned(adders: Path) -> None:
    assert _is_local("127.0.0.1") and _is_local("::1") and _is_local("localhost") and not _is_local("0.0.0.0")
    models, listening = Models([], Sizes(), Metrics(), print), listen("127.0.0.1", 0)
    said: list[str] = []
    _tell(models, listening, 0, Settings(host="0.0.0.0"), said.append)
    listening.close()
    assert "without TLS and a token" in said[0] and said[0].startswith("warning: ")


@pytest.mark.slow
def test_threads_and_an_opencl_device(tmp_path: Path) -> None:
    """Models that do not run on the event loop: several arenas over one library, and a device."""
    from intaglio import compile
    from intaglio.run.opencl.loader import pip_drivers

    words: list[object] = [f"threads={compile(DIGITS, output=tmp_path / 't', threads=2).folder}", "--workers", "3"]
    if pip_drivers():
        words.insert(0, f"device={compile(DIGITS, output=tmp_path / 'cl', target='opencl').folder}")
    image = np.random.default_rng(1).random((1, 1, 8, 8), np.float32)
    wanted = Package.load(tmp_path / "t").run({"image": image})["probabilities"]
    body = {"inputs": [{"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": image.reshape(-1).tolist()}]}
    with serving(*words) as server, ThreadPoolExecutor(6) as pool:
        for name in ("threads", "device")[: 2 if pip_drivers() else 1]:
            replies = list(pool.map(lambda _, name=name: server("POST", f"/v2/models/{name}/infer", body), range(30)))
            found = [reply.json["outputs"][0]["data"] for reply in replies]
            assert all(np.allclose(one, wanted.reshape(-1), atol=1e-6) for one in found)


def test_probes_have_no_token_and_learn_no_names(adders: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    with serving(adders, "--token-file", token) as server:
        assert server("GET", "/v2/models/adder/ready").json == {"name": "adder", "ready": True}
        for place in ("none/ready", "adder/versions/7/ready", "none/versions/1/ready"):
            reply = server("GET", f"/v2/models/{place}")
            assert reply.status == 404 and reply.json == {"name": place.split("/")[0], "ready": False}
        for place in ("/v2/models/none", "/v2/models/none/infer", "/metrics"):
            assert server("GET", place).status == 401
        grpc = pytest.importorskip("tritonclient.grpc", reason="tritonclient is not installed")
        client = grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        assert client.is_model_ready("adder") and not client.is_model_ready("none")
        with pytest.raises(grpc.InferenceServerException, match="UNAUTHENTICATED"):
            client.get_model_metadata("none")


@pytest.mark.slow
def test_tls_and_a_token(adders: Path, tmp_path: Path) -> None:
    import ssl

    certificate, key = make_certificate(tmp_path)
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    context = ssl.create_default_context(cafile=str(certificate))
    context.check_hostname = False
    words = ("--tls-cert", certificate, "--tls-key", key, "--token-file", token, "--limit-time", "1")
    with serving(adders / "1", *words) as server:
        with server.socket() as silent:  # no handshake
            start = time.monotonic()
            assert silent.recv(100) == b"" and time.monotonic() - start < 10
        assert server("GET", "/v2/health/ready", tls=context).status == 200
        assert server("GET", "/v2/models/adder/ready", tls=context).status == 200
        assert server("GET", "/v2", tls=context).status == server("GET", "/v2/models/adder", tls=context).status == 401
        assert server("GET", "/v2", headers={"Authorization": "Bearer s3cre"}, tls=context).status == 401
        assert server("GET", "/v2", headers={"Authorization": "Bearer s3cret"}, tls=context).status == 200
        grpc = pytest.importorskip("tritonclient.grpc", reason="tritonclient is not installed")
        client = grpc.InferenceServerClient(f"localhost:{server.grpc_port}", ssl=True, root_certificates=str(certificate))
        assert client.is_server_live()
        with pytest.raises(grpc.InferenceServerException, match="UNAUTHENTICATED"):
            client.get_server_metadata()
        assert client.get_server_metadata(headers={"authorization": "Bearer s3cret"}).name == "intaglio"
