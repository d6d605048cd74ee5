"""The clients that people use: tritonclient and kserve."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")
pytest.importorskip("grpc", reason="the extra `serve` is not installed")

from support.serving import Server, adder, serving

PYTHON_OF_KSERVE = Path(sys.prefix) / "kserve" / "bin" / "python"
X = np.array([[1, 2, 3, 4]], np.float32)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(adder(tmp_path_factory.mktemp("adder"), 1)) as found:
        yield found


@pytest.mark.parametrize("binary", [True, False])
def test_tritonclient_over_http(server: Server, binary: bool) -> None:
    triton = pytest.importorskip("tritonclient.http", reason="tritonclient is not installed")
    client = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("adder")
    assert client.get_model_metadata("adder")["inputs"][0]["shape"] == [1, 4]
    given = triton.InferInput("x", [1, 4], "FP32")
    given.set_data_from_numpy(X, binary_data=binary)
    wanted = [triton.InferRequestedOutput("y", binary_data=binary)]
    for outputs in (None, wanted):
        result = client.infer("adder", [given], outputs=outputs, request_id="4")
        assert np.array_equal(result.as_numpy("y"), X + 1) and result.get_response()["id"] == "4"
    assert client.get_model_repository_index()[0]["name"] == "adder"
    client.load_model("adder")
    with pytest.raises(triton.InferenceServerException, match="`config` of a load is not supported"):
        client.load_model("adder", config="{}")
    assert client.get_model_config("adder")["max_batch_size"] == 0
    assert client.get_inference_statistics("adder")["model_stats"][0]["inference_stats"]["success"]["count"] >= 2
    with pytest.raises(triton.InferenceServerException, match="no state is kept"):
        client.infer("adder", [given], sequence_id=4, sequence_start=True)
    given = triton.InferInput("x", [1, 5], "FP32")
    given.set_data_from_numpy(np.zeros((1, 5), np.float32))
    with pytest.raises(triton.InferenceServerException, match="wrong-input"):
        client.infer("adder", [given])


def test_tritonclient_over_grpc(server: Server) -> None:
    triton = pytest.importorskip("tritonclient.grpc", reason="tritonclient is not installed")
    client = triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("adder")
    assert not client.is_model_ready("none")
    assert list(client.get_model_metadata("adder").outputs[0].shape) == [1, 4]
    given = triton.InferInput("x", [1, 4], "FP32")
    given.set_data_from_numpy(X)
    result = client.infer("adder", [given], request_id="5")
    assert np.array_equal(result.as_numpy("y"), X + 1) and result.get_response().id == "5"
    assert client.get_model_repository_index().models[0].name == "adder"
    config = client.get_model_config("adder").config
    assert (config.name, config.max_batch_size, config.input[0].data_type, list(config.input[0].dims)) == ("adder", 0, 11, [1, 4])
    (stats,) = client.get_inference_statistics("adder").model_stats
    assert stats.inference_stats.success.count == stats.inference_count >= 1 and stats.inference_stats.compute_infer.ns > 0
    with pytest.raises(triton.InferenceServerException, match="no state is kept"):
        client.infer("adder", [given], sequence_id=4, sequence_start=True)
    with pytest.raises(triton.InferenceServerException, match="`config` of a load is not supported"):
        client.load_model("adder", config="{}")
    with pytest.raises(triton.InferenceServerException, match="no model `none`"):
        client.infer("none", [given])
    with pytest.raises(triton.InferenceServerException, match="`classification` is not supported"):
        client.infer("adder", [given], outputs=[triton.InferRequestedOutput("y", class_count=2)])
    heard: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
    for _ in range(20):
        client.async_infer("adder", [given], lambda result, error: heard.put((result, error)))
    several = [heard.get(timeout=20) for _ in range(20)]
    assert all(error is None and np.array_equal(one.as_numpy("y"), X + 1) for one, error in several)


KSERVE = """
import asyncio, sys
import kserve
import numpy as np

async def go(port, grpc_port):
    x = np.array([[1, 2, 3, 4]], np.float32)
    client = kserve.InferenceRESTClient(kserve.RESTConfig(protocol="v2"))
    base = f"http://127.0.0.1:{port}"
    assert await client.is_server_ready(base) and await client.is_server_live(base)
    for binary in (True, False):
        given = kserve.InferInput("x", [1, 4], "FP32")
        given.set_data_from_numpy(x, binary_data=binary)
        asked = kserve.InferRequest(model_name="adder", infer_inputs=[given])
        result = await client.infer(base, asked, model_name="adder")
        assert np.array_equal(result.outputs[0].as_numpy().reshape(1, 4), x + 1)
    remote = kserve.InferenceGRPCClient(url=f"127.0.0.1:{grpc_port}")
    assert await remote.is_server_ready()
    result = await remote.infer(asked)
    assert np.array_equal(result.outputs[0].as_numpy().reshape(1, 4), x + 1)
    await client.close()
    await remote.close()

asyncio.run(go(*sys.argv[1:]))
"""


@pytest.mark.skipif(not PYTHON_OF_KSERVE.is_file(), reason="kserve is not installed; `make test-all` installs it")
def test_kserve_over_rest_and_grpc(server: Server) -> None:
    """In an environment of its own: kserve pins what the server needs, and tritonclient has the same protobuf files."""
    words = [str(PYTHON_OF_KSERVE), "-c", KSERVE, str(server.port), str(server.grpc_port)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
