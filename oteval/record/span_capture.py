"""Capture the spans that end inside a `with` block, and their trajectories, without a server.

    with oteval.capture() as run:
        agent.ask("Refund order 17")
    run.trajectory.messages
    run.score("oteval.yaml")

A span processor is added once to the tracer provider in use, and hands each span to the open
captures. If the process has no provider, one is installed; a provider that the agent sets later
takes its place, and is captured as well.

A span belongs to the same captures as its parent. So agents that an earlier block left running
stay out of a later block. A span without a known parent belongs to the captures of its context, as
does a span in a block that was opened inside the captures of its parent. If
the context was lost, in a bare thread, the span belongs to all open captures that take strays.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from weakref import WeakSet

from opentelemetry import _logs, trace
from opentelemetry.sdk._logs import LogRecordProcessor
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from ..base.errors import ConfigError, NotFound
from ..ingest import log_record_of, span_of
from ..model import LogRecord, Score, Selection, Span, Trajectory
from ..reconstruct import reconstruct
from ..scoring import Config, refresh, whole_runs
from ..serve import AnnouncedVerdict, config_and_folder, score_and_announce
from ..store import MEMORY, Store
from .processors import readable_record
from .providers import has_processor, process_providers
from .span_redaction import TelemetryRedactor

__all__ = ["Capture", "capture"]

_HOW_TO_RECORD = (
    "record the agent with 'oteval run -- pytest' (or another command), or call "
    "oteval.instrument('traces.jsonl') before it runs, such as in conftest.py"
)
# The number of spans whose captures are remembered.
_MAX_SPANS = 65_536


class Capture:
    """The recording of a `capture` block, usable while the block runs and afterwards.

    Attributes:
        db: The database that the block's spans are written to, or ":memory:".
        takes_strays: Whether spans whose context was lost belong to this capture. False keeps apart
            captures that are open at the same time.
    """

    def __init__(
        self,
        db: str | Path = MEMORY,
        *,
        takes_strays: bool = True,
        redactor: TelemetryRedactor | None = None,
    ) -> None:
        self.db = db
        self.takes_strays = takes_strays
        self._redactor = redactor
        self._spans: list[Any] = []
        self._logs: list[LogRecord] = []
        self._read: tuple[int, int] = (-1, -1)
        self._trajectories: list[Trajectory] = []
        self._announced: set[AnnouncedVerdict] = set()

    @property
    def spans(self) -> list[Span]:
        """The spans that have ended, in the order of their ends."""
        redact = self._redactor.span if self._redactor is not None else _unchanged
        return [span_of(redact(span)) for span in tuple(self._spans)]

    @property
    def logs(self) -> list[LogRecord]:
        """The log records, in order."""
        return list(self._logs)

    @property
    def trajectories(self) -> list[Trajectory]:
        """The agent runs of the spans so far, in the order of their starts."""
        sizes = (len(self._spans), len(self._logs))
        if self._read != sizes:
            self._trajectories, self._read = reconstruct(self.spans, self.logs), sizes
        return list(self._trajectories)

    @property
    def trajectory(self) -> Trajectory:
        """The only agent run. For a conversation, it is the last turn, which contains all turns.

        Sub-agents and traces without messages do not count.

        Raises:
            NotFound: No agent run was captured, or several were.
        """
        runs = whole_runs(self.trajectories)
        if len(runs) > 1:
            agents = ", ".join(run.agent or "an agent without a name" for run in runs)
            raise NotFound(f"{len(runs)} agent runs were captured ({agents}); use trajectories")
        if not runs:
            raise NotFound(f"no agent run was captured: {self.missing}; {_HOW_TO_RECORD}")
        return runs[0]

    @property
    def missing(self) -> str:
        """Why none of the agent runs has messages, or why there are none."""
        gaps = [f"{gap.code}: {gap.detail}" for run in self.trajectories for gap in run.gaps[:1]]
        spans = f"none of {len(self._spans)} spans is an agent's or a model's"
        return "; ".join(gaps) or (spans if self._spans else "no span has ended")

    def _add_log(self, log_record: Any) -> None:
        # Convert it now: its emitter may change the body later.
        if self._redactor is not None:
            log_record = self._redactor.log_record(readable_record(log_record))
        self._logs.append(log_record_of(log_record))

    def save(self, db: str | Path) -> None:
        """Write the captured spans to a database; spans already stored are not written again.

        Raises:
            StoreError: The database cannot be used.
        """
        with Store(db) as store:
            self._write(store)

    def score(self, config: str | Path | Config, base: str | Path | None = None) -> list[Score]:
        """Score the captured runs with the evaluators of a configuration; gates are ignored.

        Args:
            config: A file as for `oteval score -c`, or the result of `load_config`.
            base: Base directory for paths in the configuration; by default the directory of the
                file, or the current directory.

        Returns:
            The scores. A marked test logs them as feedback. If the capture has a database, it
            stores them.

        Raises:
            ConfigError: The configuration is invalid.
            StoreError: The database cannot be used.
        """
        rules, folder = config_and_folder(config, base)
        with Store(self.db) as store:
            self._write(store)
            runs = self._selection()
            if not runs.ids:
                return []
            return score_and_announce(store, rules, folder, runs, self._announced)

    def _write(self, store: Store) -> None:
        store.spans.write(self.spans, self.logs)
        refresh(store)

    def _selection(self) -> Selection:
        """The selection of the captured runs in a store."""
        runs = self.trajectories
        since = min((run.start_ns for run in runs), default=0)
        return Selection(ids=tuple(run.id for run in runs), since_ns=since)


@contextmanager
def capture(
    db: str | Path = MEMORY, *, tracer_provider: Any = None, logger_provider: Any = None
) -> Iterator[Capture]:
    """Capture the spans and log records of the agents that run inside the block.

    Args:
        db: The database to write them to at the end of the block; by default they stay in memory.
        tracer_provider: The SDK's provider that the agent uses; by default the global one. If
            there is none, one is installed.
        logger_provider: The same for log records.

    Raises:
        ConfigError: The provider accepts no processors, or the SDK is disabled.
        StoreError: The database cannot be used.
    """
    if db != MEMORY:
        Store(db).close()  # fail before the agent runs if the database cannot be used
    with opened(Capture(db), tracer_provider, logger_provider) as run:
        yield run
    if db != MEMORY:
        run.save(db)


@contextmanager
def opened(
    run: Capture, tracer_provider: Any = None, logger_provider: Any = None
) -> Iterator[Capture]:
    """Let a capture have the spans and log records of a block; see `capture`.

    Raises:
        ConfigError: The provider accepts no processors, or the SDK is disabled.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        raise ConfigError("OTEL_SDK_DISABLED is true: unset it, or no span can be captured")
    _REGISTRY.attach(tracer_provider or _tracer_provider(), logger_provider or _logger_provider())
    with _REGISTRY.open(run):
        yield run


def _tracer_provider() -> Any:
    current = trace.get_tracer_provider()
    is_set = not isinstance(current, trace.ProxyTracerProvider)
    return current if is_set else process_providers(sampler=ALWAYS_ON).tracer


def _logger_provider() -> Any:
    current = _logs.get_logger_provider()
    is_set = hasattr(current, "add_log_record_processor") or "Proxy" not in type(current).__name__
    return current if is_set else process_providers(sampler=ALWAYS_ON).logger


def _unchanged(span: Any) -> Any:
    return span


_CONTEXT: ContextVar[tuple[Capture, ...]] = ContextVar("oteval_captures", default=())
_Key = tuple[int, int]


class _CaptureRegistry:
    """The open captures, and the captures that each span belongs to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[Capture] = []
        self._owners: OrderedDict[_Key, tuple[Capture, ...]] = OrderedDict()
        self._providers: WeakSet[Any] = WeakSet()
        self._spans, self._logs = _CaptureSpanProcessor(), _CaptureLogProcessor()

    def attach(self, tracer_provider: Any, logger_provider: Any) -> None:
        """Add processors to providers, to each provider once."""
        if not hasattr(tracer_provider, "add_span_processor"):
            raise ConfigError(
                f"the tracer provider in use ({type(tracer_provider).__name__}) accepts no span "
                "processors: pass a provider of OpenTelemetry's SDK, capture(tracer_provider=...)"
            )
        with self._lock:
            if self._is_new(tracer_provider, self._spans):
                tracer_provider.add_span_processor(self._spans)
            can_log = hasattr(logger_provider, "add_log_record_processor")
            if can_log and self._is_new(logger_provider, self._logs):
                logger_provider.add_log_record_processor(self._logs)

    def _is_new(self, provider: Any, processor: Any) -> bool:
        """Whether a provider lacks a processor; one that replaced ours has it already."""
        is_new = provider not in self._providers and not has_processor(provider, processor)
        self._providers.add(provider)
        return is_new

    @contextmanager
    def open(self, run: Capture) -> Iterator[None]:
        """Keep a capture open inside the block."""
        with self._lock:
            self._open.append(run)
        before = _CONTEXT.get()
        _CONTEXT.set((*(outer for outer in before if outer in self._open), run))
        try:
            yield
        finally:
            # Without a token: a fixture may end in another context than the context where it began.
            _CONTEXT.set(before)
            with self._lock:
                self._open.remove(run)
                if not self._open:
                    self._forget_spans()

    def _forget_spans(self) -> None:
        """Forget the closed captures, but remember that their spans belong to no other."""
        for key in self._owners:
            self._owners[key] = ()

    def started(self, key: _Key, parent: _Key | None) -> None:
        """Record which captures a span that started belongs to."""
        with self._lock:
            owners = self._owners.get(parent) if parent is not None else None
            current = self._current()
            if owners is None or (owners and current[: len(owners)] == owners):
                owners = current
            if owners or self._open or parent in self._owners:
                self._owners[key] = owners
                if len(self._owners) > _MAX_SPANS:
                    self._owners.popitem(last=False)

    def of(self, key: _Key) -> tuple[Capture, ...]:
        """The open captures that a span, or a log record inside it, belongs to."""
        with self._lock:
            owners = self._owners.get(key)
            if owners is None:
                owners = self._current()
            return tuple(run for run in owners if run in self._open)

    def _current(self) -> tuple[Capture, ...]:
        mine = tuple(run for run in _CONTEXT.get() if run in self._open)
        return mine or tuple(run for run in self._open if run.takes_strays)


class _CaptureSpanProcessor(SpanProcessor):
    """Hands ended spans to the open captures."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:  # noqa: ARG002
        context, parent = span.context, span.parent
        own = (context.trace_id, context.span_id)
        _REGISTRY.started(own, (parent.trace_id, parent.span_id) if parent is not None else None)

    def on_end(self, span: Any) -> None:
        context = span.context
        for run in _REGISTRY.of((context.trace_id, context.span_id)):
            run._spans.append(span)

    def shutdown(self) -> None:
        """Do nothing: nothing is buffered."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002
        """Do nothing: nothing is buffered."""
        return True


class _CaptureLogProcessor(LogRecordProcessor):
    """Hands log records to the open captures."""

    def on_emit(self, log_record: Any) -> None:
        record = log_record.log_record
        runs = _REGISTRY.of((record.trace_id or 0, record.span_id or 0))
        if runs:
            for run in runs:
                run._add_log(log_record)

    def shutdown(self) -> None:
        """Do nothing: nothing is buffered."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002
        """Do nothing: nothing is buffered."""
        return True


_REGISTRY = _CaptureRegistry()
