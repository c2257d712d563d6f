"""Capture the spans that end inside a `with` block, and their trajectories, without a server.

    with oteval.capture() as run:
        agent.ask("Refund order 17")
    run.trajectory.messages
    run.score("oteval.yaml")

A span processor is added once to the tracer provider in use, and hands each span to the open
captures. If the process has no provider, one is installed.

A span belongs to the same captures as its parent. So agents that an earlier block left running
stay out of a later block. A span without a known parent belongs to the captures of its context. If
the context was lost, in a bare thread, the span belongs to all open captures.
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

from opentelemetry.sdk._logs import LogRecordProcessor
from opentelemetry.sdk.trace import SpanProcessor

from ..base.errors import ConfigError, NotFound
from ..evaluators import observed, unheard
from ..ingest import log_record_of, span_of
from ..model import LogRecord, Score, Selection, Span, Trajectory
from ..reconstruct import reconstruct
from ..scoring import Config, load_config, refresh, require_evaluators, score as score_stored
from ..store import MEMORY, Store

__all__ = [
    "Capture",
    "capture",
    "read_config",
    "scored",
]

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
    """

    def __init__(self, db: str | Path = MEMORY) -> None:
        self.db = db
        self._spans: list[Any] = []
        self._logs: list[LogRecord] = []
        self._read: tuple[int, int] = (-1, -1)
        self._trajectories: list[Trajectory] = []
        self._announced: set[_Verdict] = set()

    @property
    def spans(self) -> list[Span]:
        """The spans that have ended, in the order of their ends."""
        return [span_of(span) for span in tuple(self._spans)]

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
        trajectories = self.trajectories
        spoken = [
            trajectory
            for trajectory in trajectories
            if trajectory.messages and not trajectory.parent_id
        ]
        if not spoken:
            gaps = "; ".join(
                f"{gap.code}: {gap.detail}"
                for trajectory in trajectories
                for gap in trajectory.gaps[:1]
            )
            spans = f"none of {len(self._spans)} spans is an agent's or a model's"
            lacking = gaps or (spans if self._spans else "no span has ended")
            raise NotFound(f"no agent run was captured: {lacking}; {_HOW_TO_RECORD}")
        last, turns = spoken[-1], []
        run: Trajectory | None = last
        while run is not None:
            turns.append(run.id)
            run = run.history
        unlinked = [run for run in spoken if run.id not in turns]
        if unlinked:
            agents = ", ".join(run.agent or "an agent without a name" for run in spoken)
            raise NotFound(f"{len(spoken)} agent runs were captured ({agents}); use trajectories")
        return last

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
        rules, folder = read_config(config, base)
        with Store(self.db) as store:
            self._write(store)
            runs = self._selection()
            return scored(store, rules, folder, runs, self._announced) if runs.ids else []

    def _write(self, store: Store) -> None:
        store.spans.write(self.spans, self.logs)
        refresh(store)

    def _selection(self) -> Selection:
        """The selection of the captured runs in a store."""
        runs = self.trajectories
        since = min((run.start_ns for run in runs), default=0)
        return Selection(ids=tuple(run.id for run in runs), since_ns=since)


# One evaluator's verdict on one revision of a run: trajectory id, revision, evaluator, version.
_Verdict = tuple[str, int, str, str]


def scored(
    store: Store,
    config: Config,
    base: Path,
    selection: Selection,
    announced: set[_Verdict] | None = None,
) -> list[Score]:
    """Score stored runs, and announce each score to the listeners of evaluators.

    Args:
        store: The store of the scores.
        config: The evaluators.
        base: Base directory for paths in the configuration.
        selection: The runs.
        announced: The verdicts announced so far; they are not announced again, and new ones are
            added.

    Raises:
        ConfigError: The configuration is invalid.
    """
    with unheard():
        scores = list(score_stored(store, config, base, selection))
    announced = set() if announced is None else announced
    for score in scores:
        verdict = (score.trajectory_id, score.rev, score.evaluator, score.version)
        if verdict not in announced:
            announced.add(verdict)
            observed(_result(score))
    return scores


def _result(score: Score) -> dict[str, Any]:
    """A score in the form of an evaluator's result."""
    verdict = score.score if score.passed is None else score.passed
    metadata = {**score.metadata, "status": score.status}
    return {
        "key": score.evaluator,
        "score": verdict,
        "value": score.label or None,
        "comment": score.comment or None,
        "metadata": metadata,
    }


def read_config(config: str | Path | Config, base: str | Path | None) -> tuple[Config, Path]:
    """A configuration, read from its file if necessary, and the base directory of its paths.

    Raises:
        ConfigError: The file cannot be read, or is invalid.
    """
    if isinstance(config, Config):
        return require_evaluators(config), Path(base or ".")
    rules = require_evaluators(load_config(config), config)
    return rules, Path(base) if base is not None else Path(config).parent


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
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        raise ConfigError("OTEL_SDK_DISABLED is true: unset it, or no span can be captured")
    _REGISTRY.attach(tracer_provider or _tracer_provider(), logger_provider or _logger_provider())
    run = Capture(db)
    if db != MEMORY:
        Store(db).close()  # fail before the agent runs if the database cannot be used
    with _REGISTRY.open(run):
        yield run
    if db != MEMORY:
        run.save(db)


def _tracer_provider() -> Any:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        trace.set_tracer_provider(TracerProvider(sampler=ALWAYS_ON))
        provider = trace.get_tracer_provider()
    return provider


def _logger_provider() -> Any:
    from opentelemetry import _logs
    from opentelemetry.sdk._logs import LoggerProvider

    provider = _logs.get_logger_provider()
    if not hasattr(provider, "add_log_record_processor") and "Proxy" in type(provider).__name__:
        _logs.set_logger_provider(LoggerProvider())
        provider = _logs.get_logger_provider()
    return provider


_CONTEXT: ContextVar[tuple[Capture, ...]] = ContextVar("oteval_captures", default=())
_Key = tuple[int, int]


class _CaptureRegistry:
    """The open captures, and the captures that each span belongs to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[Capture] = []
        self._owners: OrderedDict[_Key, tuple[Capture, ...]] = OrderedDict()
        self._providers: WeakSet[Any] = WeakSet()

    def attach(self, tracer_provider: Any, logger_provider: Any) -> None:
        """Add processors to providers, to each provider once."""
        if not hasattr(tracer_provider, "add_span_processor"):
            raise ConfigError(
                f"the tracer provider in use ({type(tracer_provider).__name__}) accepts no span "
                "processors: pass a provider of OpenTelemetry's SDK, capture(tracer_provider=...)"
            )
        with self._lock:
            if tracer_provider not in self._providers:
                tracer_provider.add_span_processor(_CaptureSpanProcessor())
                self._providers.add(tracer_provider)
            can_log = hasattr(logger_provider, "add_log_record_processor")
            if can_log and logger_provider not in self._providers:
                logger_provider.add_log_record_processor(_CaptureLogProcessor())
                self._providers.add(logger_provider)

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
            if owners is None:
                owners = self._current()
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
        return mine or tuple(self._open)


_REGISTRY = _CaptureRegistry()


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
            # Convert it now: its emitter may change the body later.
            converted = log_record_of(log_record)
            for run in runs:
                run._logs.append(converted)

    def shutdown(self) -> None:
        """Do nothing: nothing is buffered."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002
        """Do nothing: nothing is buffered."""
        return True
