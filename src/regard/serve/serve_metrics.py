"""Metrics of the server in the format of Prometheus: requests, queue, batches, tokens, workers."""

from __future__ import annotations

from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from regard import __version__
from regard.serve.service import Service

disable_created_metrics()  # type: ignore[no-untyped-call]
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024)
CONTENT_TYPE = CONTENT_TYPE_LATEST


class ServeMetrics:
    """Counters and histograms of one server. Also receives the events of its service."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._found: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        by_model: dict[str, Any] = {"labelnames": ("model",), "registry": registry}
        self._requests = Counter(
            "regard_requests", "Answered requests", ("endpoint", "status"), registry=registry
        )
        self._latency = Histogram(
            "regard_request_seconds",
            "Seconds from the headers of a request to the end of its response",
            ("endpoint",),
            buckets=SECONDS,
            registry=registry,
        )
        self.connections = Gauge("regard_connections", "Open connections", registry=registry)
        self._texts = Counter("regard_texts", "Texts accepted", **by_model)
        self._queue = Histogram(
            "regard_queue_seconds", "Seconds that a batch waited", buckets=SECONDS, **by_model
        )
        self._batches = Histogram(
            "regard_batch_texts", "Texts per batch", buckets=SIZES, **by_model
        )
        self._batch_seconds = Histogram(
            "regard_batch_seconds", "Seconds of a batch in a worker", buckets=SECONDS, **by_model
        )
        self._source_tokens = Counter(
            "regard_source_tokens", "Tokens sent to workers, by estimate", **by_model
        )
        self._tokens = Counter("regard_output_tokens", "Tokens of all outputs", **by_model)
        self._rejections = Counter(
            "regard_rejections",
            "Requests that were not answered",
            ("model", "reason"),
            registry=registry,
        )
        self._workers = Gauge("regard_workers", "Worker processes", **by_model)
        self._waiting = Gauge("regard_queue_texts", "Texts that wait for a worker", **by_model)
        self._deaths = Counter("regard_worker_deaths", "Workers that died", **by_model)
        self._info = Gauge(
            "regard_model_info",
            "Served models; the value is the time of loading",
            ("model", "fingerprint", "engine", "device", "version"),
            registry=registry,
        )

    def observe(self, endpoint: str, status: int, seconds: float) -> None:
        """Count a request."""
        key = endpoint, status
        if key not in self._found:  # looking up labels takes longer than counting
            self._found[key] = (
                self._requests.labels(endpoint, str(status)),
                self._latency.labels(endpoint),
            )
        requests, latency = self._found[key]
        requests.inc()
        latency.observe(seconds)

    def expose(self, service: Service) -> bytes:
        """All metrics as text."""
        for name, pids in service.worker_pids.items():
            self._workers.labels(name).set(len(pids))
        for name, texts in service.waiting.items():
            self._waiting.labels(name).set(texts)
        self._info.clear()
        for model in service.models.values():
            facts = (model.name, model.fingerprint, model.engine, model.device, __version__)
            self._info.labels(*facts).set(model.loaded)
        return generate_latest(self.registry)

    def queued(self, model: str, texts: int) -> None:
        """Texts were accepted."""
        self._texts.labels(model).inc(texts)

    def started(self, model: str, texts: int, tokens: int, waited: float) -> None:
        """A batch went to a worker."""
        self._batches.labels(model).observe(texts)
        self._source_tokens.labels(model).inc(tokens)
        self._queue.labels(model).observe(waited)

    def finished(self, model: str, texts: int, tokens: int, seconds: float) -> None:
        """A worker returned a batch."""
        self._tokens.labels(model).inc(tokens)
        self._batch_seconds.labels(model).observe(seconds)

    def rejected(self, model: str, reason: str) -> None:
        """A request was not answered."""
        self._rejections.labels(model, reason).inc()

    def worker_started(self, model: str, pid: int) -> None:
        """A worker can answer; the gauge is set when it is read."""

    def worker_died(self, model: str, pid: int, status: int) -> None:
        """A worker ended without being stopped."""
        self._deaths.labels(model).inc()
