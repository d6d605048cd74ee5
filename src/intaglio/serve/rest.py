"""The REST side: an ASGI application. Requests for inference are answered here; everything else is a route of starlette.

    GET  /v2/health/live, /v2/health/ready, /v2/models/NAME[/versions/V]/ready
    GET  /v2, /v2/models/NAME[/versions/V]
    GET  /v2/models/stats, /v2/models/NAME[/versions/V]/config, .../stats           as Triton has them
    POST /v2/models/NAME[/versions/V]/infer
    POST /v2/repository/index, /v2/repository/models/NAME/load         what is there; load it again if it has changed
    GET  /metrics

Health, that of a model too, needs no token: whoever watches the process has none.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from intaglio.errors import quoted
from intaglio.serve.connection import BODY
from intaglio.serve.infer import HEADER, answer, read_question
from intaglio.serve.metrics import Metrics
from intaglio.serve.models import Models
from intaglio.serve.refusals import Refused
from intaglio.version import __version__

EXTENSIONS = ["binary_tensor_data", "model_repository", "model_configuration", "statistics"]
_INFER = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?/infer")
_OPEN = re.compile(r"/v2/health/\w+|/v2/models/[^/]+(?:/versions/[^/]+)?/ready")
_HEADER = HEADER.encode()
Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one request. `token`: b"" where none is asked for."""

    body_bytes: int = 64 << 20
    token: bytes = b""

    def admits(self, authorization: bytes) -> bool:
        """The name of the scheme may have any case (RFC 9110, 11.1)."""
        scheme, _, token = authorization.partition(b" ")
        return not self.token or (scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(b" "), self.token))


def as_json(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(value), status, headers, media_type="application/json")


class Rest:
    def __init__(self, models: Models, limits: Limits, metrics: Metrics, ready: Callable[[], bool]) -> None:
        self._models, self._limits, self._metrics, self._ready = models, limits, metrics, ready
        self._others = Starlette(routes=self._routes(), exception_handlers={404: self._no_page, 405: self._no_page})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"`{scope['type']}` is not served")
        try:
            path = scope["path"]
            if not _OPEN.fullmatch(path) and not self._limits.admits(_of(scope, b"authorization")):
                raise Refused(401, "this server needs `Authorization: Bearer TOKEN`")
            found = _INFER.fullmatch(path) if scope["method"] == "POST" else None
            if found is None:
                await self._others(scope, receive, send)  # these read no bodies
            else:
                await self._infer(unquote(found[1]), unquote(found[2] or ""), scope, receive, send)
        except Refused as no:
            self._metrics.refused(no.status)
            headers = {"connection": "close"} if no.status == 413 else {}
            headers |= {"retry-after": "1"} if no.status == 429 else {"www-authenticate": "Bearer"} if no.status == 401 else {}
            await as_json({"error": no.text}, no.status, headers)(scope, receive, send)

    async def _infer(self, name: str, version: str, scope: Scope, receive: Receive, send: Send) -> None:
        served = self._models.find(name, version)
        with served.refusals():
            if _of(scope, b"content-encoding") not in (b"", b"identity"):
                raise Refused(415, "compressed requests are not supported")
            body = await read_body(scope, receive, self._limits)
            question = read_question(body, _json_bytes(_of(scope, _HEADER)))
            chosen = served.signature.chosen(question.outputs)
        if question.ignored:
            self._models.ignored(question.ignored)
        results = await served.infer(question.inputs)
        parts, head = answer(question, (served.name, served.version), [(served.signature.outputs[n], results[n]) for n in chosen])
        size = b"%d" % sum(map(len, parts))
        kind = b"application/json" if head is None else b"application/octet-stream"
        headers = [(b"content-type", kind), (b"content-length", size)]
        if not self._ready():  # the server is about to end: whoever sends more gets a new connection elsewhere
            headers.append((b"connection", b"close"))
        if head is not None:
            headers.append((_HEADER, b"%d" % head))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": parts[0] if len(parts) == 1 else b"".join(parts)})

    def _routes(self) -> list[Route]:
        model, version = "/v2/models/{name}", "/v2/models/{name}/versions/{version}"
        routes: list[tuple[str, str, Endpoint]] = [
            ("GET", "/v2/health/live", self._live),
            ("GET", "/v2/health/ready", self._is_ready),
            ("GET", "/v2", self._server),
            ("GET", "/metrics", self._figures),
            ("POST", "/v2/repository/index", self._index),
            ("POST", "/v2/repository/models/{name}/load", self._load),
            ("GET", "/v2/models/stats", self._statistics),
            *(("GET", f"{place}/ready", self._model_ready) for place in (model, version)),
            *(("GET", f"{place}/config", self._config) for place in (model, version)),
            *(("GET", f"{place}/stats", self._statistics) for place in (model, version)),
            *(("POST", f"{place}/infer", self._config) for place in (model, version)),  # never called: what is not POST gets 405
            *(("GET", place, self._model) for place in (model, version)),
        ]
        return [Route(path, self._told(endpoint), methods=[method]) for method, path, endpoint in routes]

    def _told(self, endpoint: Endpoint) -> Endpoint:
        async def call(request: Request) -> Response:
            try:
                return await endpoint(request)
            except Refused as no:
                self._metrics.refused(no.status)
                return as_json({"error": no.text}, no.status)

        return call

    async def _no_page(self, request: Request, error: Any) -> Response:
        self._metrics.refused(error.status_code)
        told = f"{request.method} {request.url.path} is not served"
        allowed = dict(error.headers or {})
        told += f"; methods: {allowed['Allow']}" if "Allow" in allowed else ""
        return as_json({"error": told}, error.status_code, allowed)

    async def _live(self, _: Request) -> Response:
        return as_json({"live": True})

    async def _is_ready(self, _: Request) -> Response:
        ready = self._ready()
        return as_json({"ready": ready}, 200 if ready else 503)

    async def _server(self, _: Request) -> Response:
        return as_json({"name": "intaglio", "version": __version__, "extensions": EXTENSIONS})

    async def _figures(self, _: Request) -> Response:
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")

    async def _model_ready(self, request: Request) -> Response:
        """For probes, which have no token: it names no other model."""
        name, version = _asked(request)
        ready = self._ready() and self._models.has(name, version)
        return as_json({"name": name, "ready": ready}, 200 if ready else 503 if not self._ready() else 404)

    async def _model(self, request: Request) -> Response:
        served = self._models.find(*_asked(request))
        return as_json(served.metadata(self._models.versions(served.name)))

    async def _index(self, _: Request) -> Response:
        return as_json([{"name": s.name, "version": s.version, "state": "READY", "reason": ""} for s in self._models.all()])

    async def _config(self, request: Request) -> Response:
        return as_json(self._models.find(*_asked(request)).config())

    async def _statistics(self, request: Request) -> Response:
        return as_json({"model_stats": [served.statistics() for served in self._models.asked(*_asked(request))]})

    async def _load(self, request: Request) -> Response:
        name = request.path_params["name"]
        self._models.find(name)
        self._check_load(await read_body(request.scope, request.receive, self._limits))
        if reasons := await self._models.reload(name):
            raise Refused(400, f"the package in use stays: {'; '.join(reasons)}")
        return as_json({})

    def _check_load(self, body: bytes | memoryview) -> None:
        """Triton's clients may send a configuration, or the files of a model."""
        try:
            told = orjson.loads(body) if len(body) else {}
        except orjson.JSONDecodeError as error:
            raise Refused(400, f"the request is not JSON: {error}") from None
        parameters = told.get("parameters") if isinstance(told, dict) else None
        if isinstance(parameters, dict) and parameters:
            raise Refused(400, f"the parameter {quoted(next(iter(parameters)))} of a load is not supported")


def _asked(request: Request) -> tuple[str, str]:
    return request.path_params.get("name", ""), request.path_params.get("version", "")


def _of(scope: Scope, name: bytes) -> bytes:
    """The first header of this name."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return b""


def _json_bytes(header: bytes) -> int | None:
    if not header:
        return None
    if not header.isdigit() or len(header) > 12:
        raise Refused(400, f"`{HEADER}` is not a number")
    return int(header)


async def read_body(scope: Scope, receive: Receive, limits: Limits) -> bytes | memoryview:
    """At most `body_bytes`. One that comes too slowly ends with its connection (`connection.py`)."""
    told = _of(scope, b"content-length")
    if told.isdigit() and int(told) > limits.body_bytes:
        raise Refused(413, f"the request has {int(told)} bytes, the limit is {limits.body_bytes}")
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "the client has gone")
        part = message.get("body", b"")
        size += len(part)
        if size > limits.body_bytes:
            raise Refused(413, f"the request has more than {limits.body_bytes} bytes")
        parts.append(part)
        if not message.get("more_body", False):
            if (large := scope.get(BODY)) is not None:
                whole: memoryview = large.content
                return whole
            return parts[0] if len(parts) == 1 else b"".join(parts)


__all__ = ["Limits", "Rest", "as_json"]
