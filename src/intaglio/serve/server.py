"""One process, one event loop: uvicorn and grpcio in front of the models, until a signal says stop.

    SIGTERM, SIGINT     not ready any more; no new connections; what was taken is answered; then the end, exit code 0
    SIGHUP              load packages that have changed; `watch_s` does the same by itself
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio
import uvicorn

from intaglio.errors import UserError, quoted
from intaglio.serve.connection import connection_with
from intaglio.serve.grpc_service import GrpcService
from intaglio.serve.metrics import Metrics
from intaglio.serve.models import Models, Sizes, Source
from intaglio.serve.rest import Limits, Rest

BACKLOG = 2048
LINGER_S = 0.3
SWITCH_S = 0.0005  # between Python threads; 5 ms, the default, is longer than most models take


@dataclass(frozen=True, slots=True)
class Settings:
    """`port`, `grpc_port`: 0 is any that is free; `grpc_port` None: no gRPC."""

    host: str = "127.0.0.1"
    port: int = 8000
    grpc_port: int | None = 8001
    sizes: Sizes = field(default_factory=Sizes)
    limits: Limits = field(default_factory=Limits)
    arrive_s: float = 30.0
    grace_s: float = 30.0
    watch_s: float = 1.0
    connections: int = 1024
    certificate: Path | None = None
    key: Path | None = None


class _Server(uvicorn.Server):
    arrive_s = 30.0

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """They are ours."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn's, with a limit on how long a TLS handshake may take: as long as a request."""
        config, loop = self.config, asyncio.get_running_loop()
        await self.lifespan.startup()

        def connection() -> asyncio.Protocol:
            made: asyncio.Protocol = config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )
            return made

        late = None if config.ssl is None else self.arrive_s
        self.servers = [
            await loop.create_server(connection, sock=one, backlog=BACKLOG, ssl=config.ssl, ssl_handshake_timeout=late)
            for one in sockets or []
        ]
        self.started = True


def serve(sources: Sequence[Source], settings: Settings, say: Callable[[str], None]) -> None:
    sys.setswitchinterval(SWITCH_S)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(sources, settings, say))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # there is none for this system
        return None
    return uvloop.new_event_loop


async def _serve(sources: Sequence[Source], settings: Settings, say: Callable[[str], None]) -> None:
    stop, again, state = asyncio.Event(), asyncio.Event(), {"ready": False}
    metrics = Metrics()
    models = Models(sources, settings.sizes, metrics, say)
    await models.start()
    listening = listen(settings.host, settings.port)
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    loop.add_signal_handler(signal.SIGHUP, again.set)
    web = _Server(_web(Rest(models, settings.limits, metrics, lambda: state["ready"]), settings, metrics))
    web.arrive_s = settings.arrive_s
    remote, grpc_port = await _remote(GrpcService(models, settings.limits, metrics, lambda: state["ready"]), settings)
    serving = loop.create_task(web.serve(sockets=[listening]))
    watching = loop.create_task(_watch(models, again, settings.watch_s))
    state["ready"] = True
    _tell(models, listening, grpc_port, settings, say)
    stopped = loop.create_task(stop.wait())
    await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
    state["ready"] = False
    say("stopping: what was taken is answered")
    watching.cancel()
    await _quiet(web, models, settings.grace_s)
    web.should_exit = True
    ending = [serving]
    if remote is not None:
        ending.append(loop.create_task(remote.stop(settings.grace_s)))
    await asyncio.wait(ending, timeout=settings.grace_s + 1)
    with contextlib.suppress(TimeoutError):  # nothing comes in any more
        await asyncio.wait_for(models.drained(), 1)
    stopped.cancel()


async def _quiet(web: _Server, models: Models, grace_s: float) -> None:
    """No new connections, and connections that are there hear of the end with an answer (`connection: close`, UNAVAILABLE) before
    they are closed: grpcio cancels what it has not handed over yet."""
    for one in getattr(web, "servers", []):
        one.close()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.gather(models.idle(), asyncio.sleep(min(LINGER_S, grace_s))), grace_s)


def _web(app: Rest, settings: Settings, metrics: Metrics) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=connection_with(settings.arrive_s, settings.limits.body_bytes, metrics.refused),
        ws="none",
        backlog=BACKLOG,
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=settings.connections,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, round(settings.grace_s)),
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
    )


async def _remote(service: GrpcService, settings: Settings) -> tuple[grpc.aio.Server | None, int]:
    if settings.grpc_port is None:
        return None, 0
    most = settings.limits.body_bytes
    options = [("grpc.max_receive_message_length", most), ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)]
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=settings.connections)
    server.add_generic_rpc_handlers((service.handler(),))
    place = f"[{settings.host}]" if ":" in settings.host else settings.host
    listen(settings.host, settings.grpc_port, "--grpc-port").close()  # grpcio tells less, and on its own
    try:
        if settings.certificate is not None and settings.key is not None:
            pair = (settings.key.read_bytes(), settings.certificate.read_bytes())
            port = server.add_secure_port(f"{place}:{settings.grpc_port}", grpc.ssl_server_credentials([pair]))
        else:
            port = server.add_insecure_port(f"{place}:{settings.grpc_port}")
    except RuntimeError:
        port = 0
    if not port:
        raise _cannot_listen(settings.host, settings.grpc_port, "the port is in use, or not allowed", "--grpc-port")
    await server.start()
    return server, port


def listen(host: str, port: int, option: str = "--port") -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(BACKLOG)
    except OSError as error:
        raise _cannot_listen(host, port, error.strerror or str(error), option) from None
    return made


def _cannot_listen(host: str, port: int, why: str, option: str) -> UserError:
    hint = f"choose another `{option}` or `--host`; 0 is any port that is free"
    return UserError("cannot-listen", f"cannot listen on {quoted(f'{host}:{port}')}: {why.lower()}", hint=hint)


async def _watch(models: Models, again: asyncio.Event, every_s: float) -> None:
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(again.wait(), every_s or None)
        again.clear()
        await models.reload()


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _tell(models: Models, web: socket.socket, grpc_port: int, settings: Settings, say: Callable[[str], None]) -> None:
    for served in models.all():
        how = "on the event loop" if served.lane.quick else "on threads"
        say(f"{served.name} version {served.version}: {served.package.manifest.target}, {how}")
    place = f"[{settings.host}]" if ":" in settings.host else settings.host
    tls = "s" if settings.certificate is not None else ""
    remote = f" and grpc{tls}://{place}:{grpc_port}" if grpc_port else ""
    if not _is_local(settings.host) and not (settings.certificate is not None and settings.limits.token):
        missing = [word for word, there in (("TLS", settings.certificate), ("a token", settings.limits.token)) if not there]
        say(f"warning: {settings.host} can be reached by others, without {' and '.join(missing)}: `--tls-cert`, `--token-file`")
    say(f"serving on http{tls}://{place}:{web.getsockname()[1]}{remote}")


__all__ = ["Settings", "serve"]
