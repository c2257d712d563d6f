"""Stored spans and scores sent to an OTLP endpoint, once: ``oteval export --otlp``.

In batches, each tried again while the endpoint is busy or away, for a limited time. What it refuses
is counted and does not keep the rest from being sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from ..attach import (
    Answer,
    Poster,
    event_request,
    log_request,
    rejected,
    score_attributes,
    span_request,
)
from ..model import LogRecord, Score, Span, Trajectory
from ..selection import EVERYTHING, Selection
from ..store import Store

__all__ = ["SendReport", "send_events", "send_logs", "send_spans"]

_BATCH = 512
_PAGE = 200
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0

Item = TypeVar("Item")
Extra = dict[tuple[str, str], dict[str, Any]]
OnProgress = Callable[[int, int | None], None]


@dataclass
class SendReport:
    """What became of what was to be sent.

    Attributes:
        sent: How many spans or log events the endpoint took.
        failed: How many it did not.
        reasons: Why, each reason once; the first five.
    """

    sent: int = 0
    failed: int = 0
    reasons: list[str] = field(default_factory=list)

    def fail(self, count: int, reason: str) -> None:
        """Count some as not sent."""
        self.failed += count
        if reason not in self.reasons and len(self.reasons) < 5:
            self.reasons.append(reason)


class _Sender:
    """Sends batches to one endpoint, gives each so much time (s), and says how far it is."""

    def __init__(
        self,
        poster: Poster,
        signal: str,
        patience: float,
        on_progress: OnProgress | None,
        sleep: Callable[[float], None],
    ) -> None:
        self.report = SendReport()
        self._poster, self._signal = poster, signal
        self._patience, self._on_progress, self._sleep = patience, on_progress, sleep
        self._is_gone = False

    def send_all(
        self,
        items: Sequence[Item],
        body: Callable[[Sequence[Item]], bytes],
        total: int | None = None,
    ) -> None:
        """Send items batch by batch, of so many that there are in all, where that is known."""
        for batch in _batches(items):
            self.send(batch, body)
            if self._on_progress:
                self._on_progress(self.report.sent + self.report.failed, total)

    def send(self, items: Sequence[Any], body: Callable[[Sequence[Any]], bytes]) -> None:
        """Send items as one request; in halves, if the endpoint refuses them together."""
        if not items:
            return
        if self._is_gone:
            self.report.fail(len(items), "not tried after that")
            return
        answer = self._asked(body(items))
        if answer.is_taken:
            left_out, reason = rejected(answer.body)
            left_out = min(left_out, len(items))
            self.report.sent += len(items) - left_out
            if left_out:
                self.report.fail(left_out, f"rejected: {reason}")
        elif answer.is_refused and len(items) > 1:
            half = len(items) // 2
            self.send(items[:half], body)
            self.send(items[half:], body)
        else:
            self._is_gone = not answer.is_refused
            self.report.fail(len(items), f"{answer.status or 'no answer'}: {answer.reason}")

    def _asked(self, body: bytes) -> Answer:
        until = time.monotonic() + self._patience
        wait = _FIRST_WAIT
        while True:
            answer = self._poster.post(self._signal, body)
            pause = max(answer.wait, wait)
            if answer.is_taken or answer.is_refused or time.monotonic() + pause > until:
                return answer
            self._sleep(pause)
            wait = min(wait * 2, _LONGEST_WAIT)


def send_spans(
    store: Store,
    poster: Poster,
    selection: Selection = EVERYTHING,
    *,
    with_scores: bool = True,
    patience: float = 60.0,
    on_progress: OnProgress | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> SendReport:
    """Send the spans of a selection's traces, archived ones too.

    Args:
        store: The store.
        poster: The endpoint.
        selection: Which runs' traces; without one, every span that is stored.
        with_scores: Whether a judged span gets its scores as attributes.
        patience: For how long (s) a batch is tried again before all is given up.
        on_progress: Called with the number of spans done, and to do where it is known.
        sleep: Waits so many seconds.
    """
    sender = _Sender(poster, "traces", patience, on_progress, sleep)
    total = store.spans.count()[0] if selection == EVERYTHING else None
    for page in _spans(store, selection):
        body = partial(_span_body, _extra(store, page) if with_scores else {})
        sender.send_all(page, body, total)
    return sender.report


def send_logs(
    store: Store,
    poster: Poster,
    selection: Selection = EVERYTHING,
    *,
    patience: float = 60.0,
    on_progress: OnProgress | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> SendReport:
    """Send the log records of a selection's traces; several dialects keep content in them.

    Args:
        store: The store.
        poster: The endpoint.
        selection: Which runs' traces; without one, every log record that is stored.
        patience: For how long (s) a batch is tried again before all is given up.
        on_progress: Called with the number of records done, and to do where it is known.
        sleep: Waits so many seconds.
    """
    sender = _Sender(poster, "logs", patience, on_progress, sleep)
    total = store.spans.count()[1] if selection == EVERYTHING else None
    for page in _logs(store, selection):
        sender.send_all(page, lambda some: log_request(some).SerializeToString(), total)
    return sender.report


def send_events(
    store: Store,
    poster: Poster,
    selection: Selection = EVERYTHING,
    *,
    version: str = "",
    patience: float = 60.0,
    on_progress: OnProgress | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> SendReport:
    """Send the scores of a selection's runs as ``gen_ai.evaluation.result`` log events.

    Args:
        store: The store.
        poster: The endpoint.
        selection: Which runs.
        version: The version of oteval, for the scope.
        patience: For how long (s) a batch is tried again before all is given up.
        on_progress: Called with the number of events done.
        sleep: Waits so many seconds.
    """
    sender = _Sender(poster, "logs", patience, on_progress, sleep)
    runs = store.trajectories.read(selection)

    def body(some: Sequence[tuple[Score, Trajectory]]) -> bytes:
        return event_request(some, version=version).SerializeToString()

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
    """Yield pages of the traces of a selection's runs, each trace once."""
    runs = store.trajectories.read(selection)
    seen: set[str] = set()
    while page := list(islice(runs, _PAGE)):
        traces = {name for run in page for name in (run.root_span.trace_id, *run.trace_ids)} - seen
        seen |= traces
        if traces:
            yield sorted(traces)


def _extra(store: Store, spans: Sequence[Span]) -> Extra:
    """Return the attributes that scores add, by trace and span id."""
    scores: dict[tuple[str, str], list[Score]] = {}
    traces = sorted({span.trace_id for span in spans})
    for found in store.scores.on_traces(traces).values():
        for score in found:
            scores.setdefault((score.trace_id, score.span_id), []).append(score)
    return {key: dict(score_attributes(found)) for key, found in scores.items()}
