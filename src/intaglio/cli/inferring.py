"""`intaglio serve`: packages behind the Open Inference Protocol."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from intaglio.cli.terminal import note
from intaglio.errors import ToolError, UserError, install_hint, quoted
from intaglio.options.kinds import size_bytes

NEEDED = ("starlette", "uvicorn", "httptools", "grpc", "prometheus_client", "orjson")


@dataclass(frozen=True, slots=True)
class ServeWords:
    """What the command line says."""

    host: str
    port: int
    grpc_port: int
    no_grpc: bool
    queue: int
    workers: int | None
    device: str | None
    limit_body: str
    limit_time: float
    grace: float
    watch: float
    certificate: Path | None
    key: Path | None
    token_file: Path | None


def serve_words(packages: Sequence[str], words: ServeWords) -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        what = f"`intaglio serve` needs {', '.join(f'`{name}`' for name in missing)}"
        raise ToolError("missing-extra", what, hint=f"install it: {install_hint('serve')}")
    from intaglio.serve.models import Sizes, Source
    from intaglio.serve.rest import Limits
    from intaglio.serve.server import Settings, serve

    _check_certificate(words.certificate, words.key)
    limits = Limits(size_bytes([words.limit_body], "--limit-body"), _token(words.token_file))
    settings = Settings(
        host=words.host,
        port=words.port,
        grpc_port=None if words.no_grpc else words.grpc_port,
        sizes=Sizes(words.queue, words.workers, words.device),
        limits=limits,
        arrive_s=words.limit_time,
        grace_s=words.grace,
        watch_s=words.watch,
        certificate=words.certificate,
        key=words.key,
    )
    serve([Source.of(word) for word in packages], settings, note)


def _check_certificate(certificate: Path | None, key: Path | None) -> None:
    if (certificate is None) != (key is None):
        raise UserError("bad-option", "`--tls-cert` and `--tls-key` go together", hint="give both, as PEM files")
    if certificate is None or key is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        what = f"{quoted(str(certificate), 200)} and {quoted(str(key), 200)} are not a certificate and its key: {error}"
        raise UserError("bad-certificate", what, hint="PEM files, the key without a password") from None


def _no_password() -> str:
    raise ValueError("the key has a password")


def _token(path: Path | None) -> bytes:
    """By a file: arguments and the environment of a process can be read by others."""
    if path is None:
        return b""
    try:
        token = path.read_bytes().strip()
    except OSError as error:
        what = f"cannot read the token file {quoted(str(path), 200)}: {error.strerror}"
        raise UserError("bad-token", what, hint="a file with one line") from None
    if not token or len(token) > 4096 or any(byte <= 32 or byte > 126 for byte in token):
        what = f"{quoted(str(path), 200)} has no token"
        raise UserError("bad-token", what, hint="one line of letters, digits and signs, without spaces")
    return token


__all__ = ["ServeWords", "serve_words"]
