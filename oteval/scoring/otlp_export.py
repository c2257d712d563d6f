"""One-time export of stored spans and scores to an OTLP endpoint: ``oteval export --otlp``.

Items are sent in batches. While the endpoint is busy or away, a batch is retried for a limited
time. Items that the endpoint refuses are counted, and the others are still sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from ..base.clients.otlp_client import ExportResult, OtlpClient
from ..model import EVERYTHING, LogRecord, Score, Selection, Span, Trajectory
from ..store import Store
from .otlp_requests import log_request, span_request
from .score_events import event_request
from .span_attributes import score_attributes

__all__ = ["SendReport", "send_events", "send_logs", "send_observed", "send_spans"]

_BATCH = 512
_PAGE = 200
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0

Item = TypeVar("Item")
Extra = dict[tuple[str, str], dict[str, Any]]
OnProgress = Callable[[int, int | None], None]


@dataclass
class SendReport:
    """The outcome of an export.

    Attributes:
        sent: The number of items that the endpoint accepted.
        failed: The number of items that it did not accept.
        reasons: The first five reasons, each once.
    """

    sent: int = 0
    failed: int = 0
    reasons: list[str] = field(default_factory=list)

    def fail(self, count: int, reason: str) -> None:
        """Count items as not sent."""
        self.failed += count
        if reason not in self.reasons and len(self.reasons) < 5:
            self.reasons.append(reason)


class _BatchSender:
    """Sends items of one signal in batches.

    Args:
        client: The endpoint.
        signal: ``traces`` or ``logs``.
        patience: How long (s) a batch is retried before the export is given up.
        on_progress: Called with the number of items done, and the total if it is known.
    """

    def __init__(
        self,
        client: OtlpClient,
        signal: str,
        patience: float,
        on_progress: OnProgress | None,
    ) -> None:
        self.report = SendReport()
        self._client, self._signal = client, signal
        self._patience, self._on_progress = patience, on_progress
        self._is_given_up = False

    def send_all(
        self,
        items: Sequence[Item],
        body: Callable[[Sequence[Item]], bytes],
        total: int | None = None,
    ) -> None:
        """Send items batch by batch; `body` makes a request of each batch."""
        for batch in _batches(items):
            self.send(batch, body)
            if self._on_progress:
                self._on_progress(self.report.sent + self.report.failed, total)

    def send(self, items: Sequence[Any], body: Callable[[Sequence[Any]], bytes]) -> None:
        """Send items as one request; if the endpoint refuses it, send its halves."""
        if not items:
            return
        if self._is_given_up:
            self.report.fail(len(items), "not tried after that")
            return
        result = self._export(body(items))
        if result.is_accepted:
            rejected, reason = result.rejected(self._signal)
            rejected = min(rejected, len(items))
            self.report.sent += len(items) - rejected
            if rejected:
                self.report.fail(rejected, f"rejected: {reason}")
        elif result.is_refused and len(items) > 1:
            half = len(items) // 2
            self.send(items[:half], body)
            self.send(items[half:], body)
        else:
            self._is_given_up = not result.is_refused
            self.report.fail(len(items), f"{result.status or 'no answer'}: {result.reason}")

    def _export(self, body: bytes) -> ExportResult:
        until = time.monotonic() + self._patience
        wait = _FIRST_WAIT
        while True:
            result = self._client.export(self._signal, body)
            pause = max(result.retry_after, wait)
            if result.is_accepted or result.is_refused or time.monotonic() + pause > until:
                return result
            time.sleep(pause)
            wait = min(wait * 2, _LONGEST_WAIT)


def send_observed(
    client: OtlpClient,
    spans: Sequence[Span],
    logs: Sequence[LogRecord],
    *,
    patience: float = 60.0,
) -> SendReport:
    """Send spans and log records that are not stored.

    Args:
        client: The endpoint.
        spans: The spans.
        logs: The log records.
        patience: How long (s) a batch is retried before the export is given up.
    """
    sender = _BatchSender(client, "traces", patience, on_progress=None)
    sender.send_all(spans, partial(_span_body, {}))
    log_sender = _BatchSender(client, "logs", patience, on_progress=None)
    log_sender.report = sender.report
    log_sender.send_all(logs, lambda records: log_request(records).SerializeToString())
    return sender.report


def send_spans(
    store: Store,
    client: OtlpClient,
    selection: Selection = EVERYTHING,
    *,
    with_scores: bool = True,
    patience: float = 60.0,
    on_progress: OnProgress | None = None,
) -> SendReport:
    """Send the spans of a selection's traces, including archived spans.

    Args:
        store: The store.
        client: The endpoint.
        selection: The runs whose traces are sent; by default, every stored span is sent.
        with_scores: Whether to add scores to spans as attributes.
        patience: How long (s) a batch is retried before the export is given up.
        on_progress: Called with the number of spans done, and the total if it is known.
    """
    sender = _BatchSender(client, "traces", patience, on_progress)
    total = store.spans.count()[0] if selection == EVERYTHING else None
    for page in _spans(store, selection):
        body = partial(_span_body, _extra(store, page) if with_scores else {})
        sender.send_all(page, body, total)
    return sender.report


def send_logs(
    store: Store,
    client: OtlpClient,
    selection: Selection = EVERYTHING,
    *,
    patience: float = 60.0,
    on_progress: OnProgress | None = None,
) -> SendReport:
    """Send the log records of a selection's traces: several dialects keep messages in them.

    Args:
        store: The store.
        client: The endpoint.
        selection: The runs whose traces are sent; by default, every stored log record is sent.
        patience: How long (s) a batch is retried before the export is given up.
        on_progress: Called with the number of records done, and the total if it is known.
    """
    sender = _BatchSender(client, "logs", patience, on_progress)
    total = store.spans.count()[1] if selection == EVERYTHING else None
    for page in _logs(store, selection):
        sender.send_all(page, lambda records: log_request(records).SerializeToString(), total)
    return sender.report


def send_events(
    store: Store,
    client: OtlpClient,
    selection: Selection = EVERYTHING,
    *,
    version: str = "",
    patience: float = 60.0,
    on_progress: OnProgress | None = None,
) -> SendReport:
    """Send the scores of a selection's runs as ``gen_ai.evaluation.result`` log events.

    Args:
        store: The store.
        client: The endpoint.
        selection: The runs whose scores are sent.
        version: The version of oteval, for the instrumentation scope.
        patience: How long (s) a batch is retried before the export is given up.
        on_progress: Called with the number of events done.
    """
    sender = _BatchSender(client, "logs", patience, on_progress)
    runs = store.trajectories.read(selection)

    def body(scored_runs: Sequence[tuple[Score, Trajectory]]) -> bytes:
        return event_request(scored_runs, version=version).SerializeToString()

    while page := list(islice(runs, _PAGE)):
        scores = store.scores.of([run.id for run in page])
        pairs = [(score, run) for run in page for score in scores[run.id]]
        sender.send_all([pair for pair in pairs if pair[0].status != "not_evaluated"], body)
    return sender.report


def _span_body(extra: Extra, spans: Sequence[Span]) -> bytes:
    return span_request(spans, extra).SerializeToString()


def _batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), _BATCH):
        yield items[start : start + _BATCH]


def _spans(store: Store, selection: Selection) -> Iterator[list[Span]]:
    if selection == EVERYTHING:
        return store.spans.pages()
    return (store.spans.of_traces(traces)[0] for traces in _traces(store, selection))


def _logs(store: Store, selection: Selection) -> Iterator[list[LogRecord]]:
    if selection == EVERYTHING:
        return store.spans.log_pages()
    return (store.spans.of_traces(traces)[1] for traces in _traces(store, selection))


def _traces(store: Store, selection: Selection) -> Iterator[list[str]]:
    """Yield the trace ids of a selection's runs page by page, each id once."""
    runs = store.trajectories.read(selection)
    written: set[str] = set()
    while page := list(islice(runs, _PAGE)):
        traces = {
            name for run in page for name in (run.root_span.trace_id, *run.trace_ids)
        } - written
        written |= traces
        if traces:
            yield sorted(traces)


def _extra(store: Store, spans: Sequence[Span]) -> Extra:
    """The attributes that scores add, by trace and span id."""
    scores: dict[tuple[str, str], list[Score]] = {}
    traces = sorted({span.trace_id for span in spans})
    for trace_scores in store.scores.on_traces(traces).values():
        for score in trace_scores:
            scores.setdefault((score.trace_id, score.span_id), []).append(score)
    return {key: dict(score_attributes(span_scores)) for key, span_scores in scores.items()}
