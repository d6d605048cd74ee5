"""Other servers of the same model: ONNX Runtime behind our own front, behind starlette as one writes it, and mlserver.

    python peers.py front|starlette MODEL.onnx PORT
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np


def session(path: str) -> object:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def front(path: str, port: int) -> None:
    """Everything of `intaglio serve` but the package: what is measured is the runtime alone."""
    import intaglio.serve.models as models
    from intaglio.serve.server import Settings, serve

    found = session(path)
    names = [i.name for i in found.get_inputs()]

    class Ort:
        def reset(self) -> None: ...

        def run_into(self, inputs: list, outputs: list) -> None: ...

        def run(self, inputs: list) -> list:
            return found.run(None, dict(zip(names, inputs, strict=True)))

    models._runners = lambda *_: [Ort()]
    folder = Path(path).with_suffix("")
    serve([models.Source.of(str(folder))], Settings(port=port, grpc_port=None, watch_s=0), print)


def starlette(path: str, port: int) -> None:
    import json

    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    found = session(path)

    async def infer(request: Request) -> Response:
        body = await request.body()
        cut = int(request.headers["inference-header-content-length"])
        asked, rest, inputs = json.loads(body[:cut]), body[cut:], {}
        for one in asked["inputs"]:
            size = one["parameters"]["binary_data_size"]
            inputs[one["name"]] = np.frombuffer(rest[:size], np.float32).reshape(one["shape"])
            rest = rest[size:]
        outputs = await run_in_threadpool(found.run, None, inputs)
        rows, tail = [], b""
        for info, array in zip(found.get_outputs(), outputs, strict=True):
            content = array.tobytes()
            row = {"name": info.name, "datatype": "FP32", "shape": list(array.shape)}
            rows.append({**row, "parameters": {"binary_data_size": len(content)}})
            tail += content
        head = json.dumps({"model_name": "m", "outputs": rows}).encode()
        headers = {"inference-header-content-length": str(len(head))}
        return Response(head + tail, headers=headers, media_type="application/octet-stream")

    app = Starlette(routes=[Route("/v2/models/{name}/infer", infer, methods=["POST"])])
    uvicorn.run(app, host="127.0.0.1", port=port, access_log=False, log_level="error", loop="uvloop", http="httptools")


MLSERVER = '''
import numpy as np, onnxruntime
from mlserver import MLModel
from mlserver.types import InferenceRequest, InferenceResponse
from mlserver.codecs import NumpyCodec

class Ort(MLModel):
    async def load(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession("MODEL", options, providers=["CPUExecutionProvider"])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        inputs = {one.name: NumpyCodec.decode_input(one) for one in payload.inputs}
        outputs = self._session.run(None, inputs)
        names = [o.name for o in self._session.get_outputs()]
        encoded = [NumpyCodec.encode_output(n, a) for n, a in zip(names, outputs)]
        return InferenceResponse(model_name=self.name, outputs=encoded)
'''


def mlserver_folder(folder: Path, path: Path, name: str, port: int) -> None:
    import json

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ort_model.py").write_text(MLSERVER.replace("MODEL", str(path)))
    (folder / "model-settings.json").write_text(json.dumps({"name": name, "implementation": "ort_model.Ort"}))
    settings = {"http_port": port, "grpc_port": port + 1, "metrics_port": port + 2, "parallel_workers": 0, "host": "127.0.0.1"}
    (folder / "settings.json").write_text(json.dumps({**settings, "debug": False}))


if __name__ == "__main__":
    {"front": front, "starlette": starlette}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
