"""The HTTP paths of the server's status: ``/healthz``, ``/readyz``, ``/metrics`` and ``/api``.

Everything else is a page, except for the receiver's paths. A program that does not request HTML
gets, from ``/``, the address to send traces to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import orjson
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..base.durable_log import LogReader
from ..ingest import Access, RequestRefused, Spool, refusal
from .listener_rules import RedactionRules, TokenRules
from .pages_process import PagesProxy
from .server_config import ServerConfig
from .supervisor import Supervisor

__all__ = [
    "ListenerMetrics",
    "ServerStatus",
    "StatusPages",
    "welcome_text",
]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class ListenerMetrics:
    """Counts requests, and reports the state of the spool and of the storage process.

    Args:
        state: Returns the state of the server, at each scrape; see `ServerStatus.read`.
    """

    def __init__(self, state: Callable[[], Mapping[str, Any]]) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "oteval_received_requests", "Requests by signal and outcome.",
            ("signal", "outcome"), registry=self._registry,
        )  # fmt: skip
        self._items = Counter(
            "oteval_received_items", "Spans and log records acknowledged.",
            ("signal",), registry=self._registry,
        )  # fmt: skip
        self._rejected = Counter(
            "oteval_rejected_items", "Spans without valid ids, reported to their senders.",
            ("signal",), registry=self._registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "oteval_request_seconds", "From a request's headers to its response.",
            ("signal",), buckets=_SECONDS, registry=self._registry,
        )  # fmt: skip
        self._registry.register(_StateCollector(state))

    def observe(self, signal: str, outcome: str, good: int, rejected: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(signal, outcome).inc()
        if outcome == "ok":
            self._items.labels(signal).inc(good)
            self._seconds.labels(signal).observe(seconds)
        if rejected:
            self._rejected.labels(signal).inc(rejected)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)


# From the state that the storage process reports.
_STORED = {
    "spans": ("oteval_stored_spans", "Spans stored since the storage process was started."),
    "logs": ("oteval_stored_logs", "Log records stored since the storage process was started."),
    "duplicates": ("oteval_stored_duplicates", "Spans and log records that the store had already."),
    "lost_bytes": ("oteval_spool_lost_bytes", "Spooled bytes that the disk damaged."),
    "rejected": ("oteval_store_rejected_requests", "Requests kept in rejected/."),
    "commits": ("oteval_store_commits", "Transactions since the storage process was started."),
}
_GAUGES = {
    "spool_bytes": ("oteval_spool_bytes", "Bytes of the spool's segments."),
    "spool_quota": ("oteval_spool_quota_bytes", "Quota of the spool's segments in bytes."),
    "left_bytes": ("oteval_spool_left_bytes", "Spooled bytes that are not stored yet."),
    "oldest_seconds": (
        "oteval_spool_oldest_seconds",
        "Age of the oldest acknowledged request that is not stored.",
    ),
    "lag": (
        "oteval_store_lag_seconds",
        "From receipt to storage, of the oldest request in the last transaction.",
    ),
    "slowest_commit": ("oteval_store_slowest_commit_seconds", "The longest transaction."),
    "is_ready": ("oteval_ready", "1 while traces are accepted and stored."),
    "is_storing": ("oteval_storing", "1 while the storage process runs."),
}


class _StateCollector:
    """Turns the state of the server into metrics."""

    def __init__(self, state: Callable[[], Mapping[str, Any]]) -> None:
        self._state = state

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        state = self._state()
        stored = state.get("stored", {})
        for key, (name, text) in _STORED.items():
            yield CounterMetricFamily(name, text, value=stored.get(key, 0))
        for key, (name, text) in _GAUGES.items():
            value = state.get(key, stored.get(key, 0))
            yield GaugeMetricFamily(name, text, value=float(value or 0))
        yield GaugeMetricFamily(
            "oteval_spool_losses", "Gaps found in the spool when the storage process was started.",
            value=float(len(state.get("losses", ()))),
        )  # fmt: skip
        restarts = CounterMetricFamily(
            "oteval_store_restarts", "How often the storage process ended by itself.",
            value=state.get("restarts", 0),
        )  # fmt: skip
        yield restarts


_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_METRICS_TIMEOUT, _API_TIMEOUT = 5, 60  # seconds
# Seconds that an acknowledged request may wait: while nothing is stored, and while others are.
_STALLED, _LATE = 3.5, 60.0


class ServerStatus:
    """The state of the server, for /readyz and the metrics.

    Args:
        config: The configuration.
        spool: The spool.
        storage: The storage process.
        redaction: The redaction rules.
        tokens: The tokens.
        is_stopping: Returns whether the server stops.
    """

    def __init__(
        self,
        config: ServerConfig,
        spool: Spool,
        storage: Supervisor,
        redaction: RedactionRules,
        tokens: TokenRules,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._config, self._spool, self._storage = config, spool, storage
        self._redaction, self._tokens = redaction, tokens
        self._is_stopping = is_stopping

    def read(self) -> dict[str, Any]:
        """The state; ``is_ready`` is whether requests are accepted and stored."""
        storage = self._storage.state if self._storage.is_up else {}
        reasons = [reason for reason in self._reasons(storage) if reason]
        return {
            "is_ready": not reasons,
            "reasons": reasons,
            "warnings": self._warnings(storage),
            "is_storing": bool(storage),
            "redaction": self._redaction.state(),
            "tokens": self._tokens.state(),
            "restarts": self._storage.restarts,
            "spool_bytes": self._spool.size(),
            "spool_quota": self._spool.quota,
            "left_bytes": self._left(),
            "oldest_seconds": round(self._spool.oldest(), 1),
            **{key: value for key, value in storage.items() if key != "socket"},
        }

    def _reasons(self, storage: Mapping[str, Any]) -> list[str]:
        """Why the server is not ready, with empty strings among the reasons."""
        failure = self._storage.failure
        return [
            "the server is stopping" if self._is_stopping() else self._spool.refusing(),
            self._spool.problem and f"the spool: {self._spool.problem}",
            failure if storage else f"the storage process is away: {failure or 'it is starting'}",
            lateness(self._spool.oldest(), self._storage.unmoved),
            self._redaction.reason(),
        ]

    def _warnings(self, storage: Mapping[str, Any]) -> list[str]:
        """The problems that do not keep the server from being ready."""
        warnings = [f"lost: {loss}" for loss in storage.get("losses", ())]
        stored = storage.get("stored", {})
        if damaged := stored.get("lost_bytes"):
            warnings.append(f"lost: {damaged} bytes of the spool, which the disk damaged")
        if rejected := stored.get("rejected"):
            warnings.append(
                f"{rejected} requests cannot be decoded; they are kept in the spool's rejected/"
            )
        if self._redaction.error:
            warnings.append(f"the old rules stay in force: {self._redaction.error}")
        if self._tokens.error:
            warnings.append(f"the old tokens stay in force: {self._tokens.error}")
        for part in ("scoring", "monitors"):
            warnings += storage.get(part, {}).get("problems", ())
        return warnings

    def _left(self) -> int:
        """How many bytes of the spool are not stored, also when the process is away."""
        if self._storage.position is None:
            return self._spool.size()
        return LogReader(self._config.spool, self._storage.position).unread_bytes()


def lateness(oldest: float, unmoved: float) -> str:
    """Why requests are not stored in time; "" when they are.

    Args:
        oldest: The age (s) of the oldest acknowledged request that is not stored.
        unmoved: The seconds since something was last stored.
    """
    if oldest > _STALLED and unmoved > _STALLED:
        return f"nothing was stored for {min(oldest, unmoved):.0f} s, though requests wait for it"
    if oldest > _LATE:
        return f"the oldest acknowledged request has waited {oldest:.0f} s to be stored"
    return ""


class StatusPages:
    """The pages, as routes of Starlette.

    Args:
        status: The state of the server.
        metrics: The metrics of the listening process.
        storage: The storage process, which answers /api and adds its metrics.
        access: Decides who may read.
        addresses: The addresses of the server: ``http``, a URL, and perhaps ``grpc``.
        pages: Answers requests for pages.
    """

    def __init__(
        self,
        status: ServerStatus,
        metrics: ListenerMetrics,
        storage: Supervisor,
        access: Access,
        addresses: Mapping[str, str],
        pages: PagesProxy,
    ) -> None:
        self._status, self._listener_metrics = status, metrics
        self._storage, self._access, self._addresses = storage, access, addresses
        self._pages = pages

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/", self._welcome),
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/metrics", self._metrics),
            Route("/api/{path:path}", self._api),
            Route("/{path:path}", self._pages.endpoint, methods=["GET", "POST"]),
        ]

    async def _welcome(self, request: Request) -> Response:
        if "text/html" in request.headers.get("accept", ""):
            return await self._pages.endpoint(request)
        text = welcome_text(self._addresses, needs_token=self._access.needs("ingest"))
        return Response(text, media_type="text/plain")

    async def _healthz(self, request: Request) -> Response:  # noqa: ARG002
        return Response(b"ok\n", media_type="text/plain")

    async def _readyz(self, request: Request) -> Response:  # noqa: ARG002
        state = self._status.read()
        status = 200 if state["is_ready"] else 503
        return Response(orjson.dumps(state), status, media_type="application/json")

    async def _metrics(self, request: Request) -> Response:
        if refused := self._refuse_reader(request):
            return refused
        text = self._listener_metrics.text()
        # Without the storage process, the metrics of this process report that it is away.
        with suppress(OSError, KeyError, TimeoutError):
            text += await asyncio.wait_for(self._storage.ask("metrics"), _METRICS_TIMEOUT)
        return Response(text, headers={"content-type": _PROMETHEUS})

    async def _api(self, request: Request) -> Response:
        if refused := self._refuse_reader(request):
            return refused
        query = {name: request.query_params.getlist(name) for name in request.query_params}
        path = request.path_params["path"]
        try:
            body = await asyncio.wait_for(self._storage.ask(path, query), _API_TIMEOUT)
        except (OSError, KeyError, TimeoutError):
            away = RequestRefused(503, "away", "the storage process is away", retry_after=1)
            return refusal(away)
        status = 200
        if body.startswith(b'{"error":'):
            status = int(orjson.loads(body).get("status", 500))
        return Response(body, status, media_type="application/json")

    def _refuse_reader(self, request: Request) -> Response | None:
        try:
            peer = request.client.host if request.client else ""
            self._access.admit_reader(request.headers.get("authorization"), peer)
        except RequestRefused as refused:
            return refusal(refused)
        return None


def welcome_text(addresses: Mapping[str, str], *, needs_token: bool) -> str:
    """The page at ``/``, which shows where to send traces.

    Args:
        addresses: The addresses of the server: ``http``, a URL, and perhaps ``grpc``.
        needs_token: Whether senders need a token.
    """
    url = addresses["http"]
    lines = [
        "oteval receives OpenTelemetry traces and logs here, and scores them.",
        "",
        f"OTLP/HTTP  {url}/v1/traces and {url}/v1/logs",
    ]
    if grpc := addresses.get("grpc"):
        lines.append(f"OTLP/gRPC  {grpc}")
    lines += [
        "",
        "Most OpenTelemetry SDKs read the address from their environment:",
        "",
        f"  OTEL_EXPORTER_OTLP_ENDPOINT={url}",
        "  OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
    ]
    if needs_token:
        lines.append("  OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20INGEST_TOKEN")
    lines += [
        "",
        f"{url}/readyz   whether traces are accepted and stored",
        f"{url}/metrics  metrics for Prometheus",
        "",
        "On this machine `oteval trajectories` lists the runs and `oteval show ID` shows one.",
    ]
    return "\n".join(lines) + "\n"
