"""Figures for Prometheus, by model and version."""

from __future__ import annotations

import time
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
LABELS = ("model", "version")


@dataclass(frozen=True, slots=True)
class ModelMetrics:
    """The figures of one version of one model; its labels are bound once."""

    answered: Counter
    refused: Counter
    failed: Counter
    latency: Histogram
    waited: Histogram
    pending: Gauge
    tally: Tally


@dataclass
class Tally:
    """The same for Triton's statistics: times in nanoseconds, the last request in milliseconds since 1970."""

    answered: int = 0
    answered_ns: int = 0
    queue_ns: int = 0
    failed: int = 0
    failed_ns: int = 0
    last_ms: int = 0

    def add(self, seconds: float, waited_s: float, *, ok: bool) -> None:
        self.last_ms = int(time.time() * 1000)
        if ok:
            self.answered += 1
            self.answered_ns += int(seconds * 1e9)
            self.queue_ns += int(waited_s * 1e9)
        else:
            self.failed += 1
            self.failed_ns += int(seconds * 1e9)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._tallies: dict[tuple[str, str], Tally] = {}
        requests = "Inference requests by outcome: ok, refused (queue full, or the request is at fault) or failed."
        self._requests = Counter("intaglio_requests", requests, (*LABELS, "outcome"), registry=self.registry)
        self._latency = Histogram(
            "intaglio_request_seconds", "From the parsed request to its outputs.", LABELS, buckets=BUCKETS, registry=self.registry
        )
        self._waited = Histogram(
            "intaglio_queue_seconds", "In the queue, before it is computed.", LABELS, buckets=BUCKETS, registry=self.registry
        )
        self._pending = Gauge("intaglio_pending_requests", "Taken and not answered yet.", LABELS, registry=self.registry)
        again = "Packages loaded again, by outcome."
        self._reloads = Counter("intaglio_reloads", again, ("model", "outcome"), registry=self.registry)
        self._other = Counter("intaglio_refusals", "Requests that were refused, by status.", ("status",), registry=self.registry)

    def of(self, model: str, version: str) -> ModelMetrics:
        return ModelMetrics(
            answered=self._requests.labels(model, version, "ok"),
            refused=self._requests.labels(model, version, "refused"),
            failed=self._requests.labels(model, version, "failed"),
            latency=self._latency.labels(model, version),
            waited=self._waited.labels(model, version),
            pending=self._pending.labels(model, version),
            tally=self._tallies.setdefault((model, version), Tally()),
        )

    def reloaded(self, model: str, *, ok: bool) -> None:
        self._reloads.labels(model, "ok" if ok else "failed").inc()

    def refused(self, status: int) -> None:
        self._other.labels(str(status)).inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)
