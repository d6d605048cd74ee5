"""The gRPC side: the same questions as in REST, on the same event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import numpy as np

from intaglio.errors import quoted
from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.serve.grpc_messages import CLASSES, SERVICE, TYPES
from intaglio.serve.infer import ignored_of
from intaglio.serve.metrics import Metrics
from intaglio.serve.models import Models, Served
from intaglio.serve.refusals import GRPC_CODES, Refused
from intaglio.serve.rest import EXTENSIONS, Limits
from intaglio.serve.tensors import dtype_of, from_bytes, from_numbers, shape_of
from intaglio.version import __version__

OPEN = ("ServerLive", "ServerReady", "ModelReady")  # without a token
_CONTENTS = {
    DType.BOOL: "bool_contents", DType.I8: "int_contents", DType.I16: "int_contents", DType.I32: "int_contents",
    DType.I64: "int64_contents", DType.U8: "uint_contents", DType.U16: "uint_contents", DType.U32: "uint_contents",
    DType.U64: "uint64_contents", DType.F32: "fp32_contents", DType.F64: "fp64_contents",
}  # fmt: skip
Method = Callable[[Any], Awaitable[Any]]


class GrpcService:
    def __init__(self, models: Models, limits: Limits, metrics: Metrics, ready: Callable[[], bool]) -> None:
        self._models, self._limits, self._metrics, self._ready = models, limits, metrics, ready

    def handler(self) -> Any:
        methods: dict[str, tuple[str, Method]] = {
            "ServerLive": ("ServerLive", self._live),
            "ServerReady": ("ServerReady", self._is_ready),
            "ModelReady": ("ModelReady", self._model_ready),
            "ServerMetadata": ("ServerMetadata", self._server),
            "ModelMetadata": ("ModelMetadata", self._model),
            "ModelInfer": ("ModelInfer", self._infer),
            "RepositoryIndex": ("RepositoryIndex", self._index),
            "RepositoryModelLoad": ("RepositoryModelLoad", self._load),
            "ModelConfig": ("ModelConfig", self._config),
            "ModelStatistics": ("ModelStatistics", self._statistics),
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                self._told(name, method),
                request_deserializer=CLASSES[f"{kind}Request"].FromString,
                response_serializer=lambda made: made.SerializeToString(),
            )
            for name, (kind, method) in methods.items()
        }
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _told(self, name: str, method: Method) -> Callable[[Any, Any], Awaitable[Any]]:
        async def call(request: Any, context: Any) -> Any:
            try:
                if self._limits.token and name not in OPEN:
                    told = dict(context.invocation_metadata() or ()).get("authorization", "")
                    if not self._limits.admits(told.encode() if isinstance(told, str) else told):
                        raise Refused(401, "this server needs the metadata `authorization: Bearer TOKEN`")
                return await method(request)
            except Refused as no:
                self._metrics.refused(no.status)
                return await context.abort(getattr(grpc.StatusCode, GRPC_CODES.get(no.status, "UNKNOWN")), no.text)

        return call

    async def _live(self, _: Any) -> Any:
        return CLASSES["ServerLiveResponse"](live=True)

    async def _is_ready(self, _: Any) -> Any:
        return CLASSES["ServerReadyResponse"](ready=self._ready())

    async def _model_ready(self, request: Any) -> Any:
        return CLASSES["ModelReadyResponse"](ready=self._ready() and self._models.has(request.name, request.version))

    async def _server(self, _: Any) -> Any:
        return CLASSES["ServerMetadataResponse"](name="intaglio", version=__version__, extensions=EXTENSIONS)

    async def _model(self, request: Any) -> Any:
        served = self._models.find(request.name, request.version)
        return CLASSES["ModelMetadataResponse"](**served.metadata(self._models.versions(served.name)))

    async def _index(self, _: Any) -> Any:
        rows = [CLASSES["ModelIndex"](name=s.name, version=s.version, state="READY") for s in self._models.all()]
        return CLASSES["RepositoryIndexResponse"](models=rows)

    async def _config(self, request: Any) -> Any:
        told: dict[str, Any] = self._models.find(request.name, request.version).config()
        for key in ("input", "output"):
            told[key] = [{**port, "data_type": TYPES.index(port["data_type"].removeprefix("TYPE_"))} for port in told[key]]
        return CLASSES["ModelConfigResponse"](config=told)

    async def _statistics(self, request: Any) -> Any:
        found = [served.statistics() for served in self._models.asked(request.name, request.version)]
        return CLASSES["ModelStatisticsResponse"](model_stats=found)

    async def _load(self, request: Any) -> Any:
        self._models.find(request.model_name)
        for name in request.parameters:
            raise Refused(400, f"the parameter {quoted(name)} of a load is not supported")
        if reasons := await self._models.reload(request.model_name):
            raise Refused(400, f"the package in use stays: {'; '.join(reasons)}")
        return CLASSES["RepositoryModelLoadResponse"]()

    async def _infer(self, request: Any) -> Any:
        if not self._ready():  # it would be cut off when the server ends
            raise Refused(503, "the server is stopping")
        served = self._models.find(request.model_name, request.model_version)
        with served.refusals():
            if any("classification" in wanted.parameters for wanted in request.outputs):
                raise Refused(400, "the parameter `classification` is not supported")
            chosen = served.signature.chosen([wanted.name for wanted in request.outputs])
            inputs = _inputs(request)
            ignored = ignored_of(_parameters(request)) if request.parameters else ()
        if ignored:
            self._models.ignored(ignored)
        results = await served.infer(inputs)
        return _response(request, served, chosen, results)


def _parameters(request: Any) -> dict[str, object]:
    told = request.parameters.items()
    return {name: getattr(value, value.WhichOneof("parameter_choice") or "bool_param") for name, value in told}


def _inputs(request: Any) -> dict[str, Array]:
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise Refused(400, f"{len(request.inputs)} inputs have {len(raw)} raw contents")
    found: dict[str, Array] = {}
    for n, one in enumerate(request.inputs):
        name = one.name
        if name in found:
            raise Refused(400, f"input {quoted(name)} is given twice")
        dtype, shape = dtype_of(one.datatype, name), shape_of(list(one.shape), name)
        if raw:
            if one.HasField("contents"):
                raise Refused(400, f"input {quoted(name)} has both contents and raw contents")
            found[name] = from_bytes(raw[n], dtype, shape, name)
        else:
            if dtype not in _CONTENTS:
                raise Refused(400, f"input {quoted(name)} is {one.datatype}, which needs raw contents")
            found[name] = from_numbers(list(getattr(one.contents, _CONTENTS[dtype])), dtype, shape, name)
    return found


def _response(request: Any, served: Served, chosen: list[int], results: list[Array]) -> Any:
    made = CLASSES["ModelInferResponse"](model_name=served.name, model_version=served.version, id=request.id)
    for n in chosen:
        port, array = served.signature.outputs[n], results[n]
        made.outputs.add(name=port.name, datatype=port.datatype, shape=array.shape)
        made.raw_output_contents.append(np.ascontiguousarray(array).tobytes())
    return made


__all__ = ["GrpcService"]
