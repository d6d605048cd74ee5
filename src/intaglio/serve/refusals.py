"""What a request is refused for: an HTTP status with its gRPC twin, and a sentence for the client."""

from __future__ import annotations

from intaglio.errors import IntaglioError, printable

GRPC_CODES = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 404: "NOT_FOUND", 413: "RESOURCE_EXHAUSTED",
    415: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE",
}  # fmt: skip


class Refused(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = printable(text)


def refusal_of(error: IntaglioError) -> Refused:
    """An error of the package: the data of the request causes it. Hints speak of the command line and of Python: they are for the
    log."""
    return Refused(400 if error.exit_code in (1, 2) else 500, f"{error.slug}: {error.message}")
