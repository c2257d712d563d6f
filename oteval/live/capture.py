"""The spans that end inside a `with` block, and the trajectories they tell: no server, no file.

    with oteval.capture() as run:
        agent.ask("Refund order 17")
    run.trajectory.messages
    run.score("oteval.yaml")

A processor is added once to the tracer provider in use, and hands each span to the captures that
are open. Where the process has none yet, one is installed. A span belongs to the captures that
its parent belongs to, so that what an earlier block left running stays out of a later one; a
span without a known parent belongs to the captures of its context, and where the context was
lost, in a bare thread, to all open ones.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ..config import Config, load_config
from ..errors import ConfigError, NotFound
from ..evaluators.observed import observed, unheard
from ..ingest.sdk_objects import log_record_of, span_of
from ..model import LogRecord, Score, Span, Trajectory
from ..pipeline import refresh, score_trajectories
from ..reconstruct import reconstruct
from ..selection import Selection
from ..store import MEMORY, Store

if TYPE_CHECKING:
    from opentelemetry.sdk._logs import LogRecordProcessor as LogProcessorBase
    from opentelemetry.sdk.trace import SpanProcessor as SpanProcessorBase

    _HAS_SDK = True
else:
    # The SDK is optional. Its classes are the base classes where it is installed, so that hooks
    # that a newer SDK calls are there.
    try:
        from opentelemetry.sdk._logs import LogRecordProcessor as LogProcessorBase
        from opentelemetry.sdk.trace import SpanProcessor as SpanProcessorBase

        _HAS_SDK = True
    except ImportError:
        LogProcessorBase = SpanProcessorBase = object
        _HAS_SDK = False

__all__ = [
    "Capture",
    "LogProcessorBase",
    "SpanProcessorBase",
    "capture",
    "read_config",
    "require_sdk",
    "scored",
]

# Of how many spans it is remembered which captures they belong to.
_REMEMBERED = 65_536


def require_sdk() -> None:
    """Check that OpenTelemetry's SDK is installed.

    Raises:
        ConfigError: It is not; the message says how to install it.
    """
    if not _HAS_SDK:
        raise ConfigError("recording spans needs OpenTelemetry's SDK: pip install 'oteval[sdk]'")


class Capture:
    """What was recorded inside a `capture` block; also usable while the block runs.

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
        """The spans that have ended, in that order."""
        return [span_of(span) for span in tuple(self._spans)]

    @property
    def logs(self) -> list[LogRecord]:
        """The log records, in order."""
        return list(self._logs)

    @property
    def trajectories(self) -> list[Trajectory]:
        """The agent runs that the spans so far tell of, in order of start."""
        sizes = (len(self._spans), len(self._logs))
        if self._read != sizes:
            self._trajectories, self._read = reconstruct(self.spans, self.logs), sizes
        return list(self._trajectories)

    @property
    def trajectory(self) -> Trajectory:
        """The one agent run there is; of a conversation's turns the last, which holds all.

        Sub-agents and traces without messages do not count.

        Raises:
            NotFound: There is none, or there are several.
        """
        found = self.trajectories
        spoken = [one for one in found if one.messages and not one.parent_id]
        if not spoken:
            gaps = "; ".join(f"{gap.code}: {gap.detail}" for one in found for gap in one.gaps[:1])
            raise NotFound(f"no agent run was captured: {gaps or 'no span has ended'}")
        last, turns = spoken[-1], []
        run: Trajectory | None = last
        while run is not None:
            turns.append(run.id)
            run = run.history
        others = [one for one in spoken if one.id not in turns]
        if others:
            agents = ", ".join(one.agent or "an agent without a name" for one in spoken)
            raise NotFound(f"{len(spoken)} agent runs were captured ({agents}); use trajectories")
        return last

    def save(self, db: str | Path) -> None:
        """Write what was captured into a database; what it has already is not written again.

        Raises:
            StoreError: The database cannot be used.
        """
        with Store(db) as store:
            self._write(store)

    def score(self, config: str | Path | Config, base: str | Path | None = None) -> list[Score]:
        """Score the captured runs as a configuration says; gates are not looked at.

        Args:
            config: A file as `oteval score -c` takes it, or what `load_config` returns.
            base: The folder that paths of the configuration are relative to; by default the
                file's, or the current one.

        Returns:
            The scores, which a marked test logs as feedback; the capture's database, if it has
            one, keeps them.

        Raises:
            ConfigError: The configuration is wrong.
            StoreError: The database cannot be used.
        """
        known, folder = read_config(config, base)
        with Store(self.db) as store:
            self._write(store)
            return scored(store, known, folder, self._stored(store), self._announced)

    def _write(self, store: Store) -> None:
        store.spans.write(self.spans, self.logs)
        refresh(store)

    def _stored(self, store: Store) -> list[Trajectory]:
        """Return the captured runs as a store has them, with the turns before them."""
        runs = self.trajectories
        wanted = {run.id for run in runs}
        since = min((run.start_ns for run in runs), default=0)
        stored = store.trajectories.read(Selection(since_ns=since))
        return [run for run in stored if run.id in wanted]


# One evaluator's verdict on one revision of a run: trajectory id, revision, evaluator, version.
_Verdict = tuple[str, int, str, str]


def scored(
    store: Store,
    config: Config,
    base: Path,
    trajectories: Iterable[Trajectory],
    announced: set[_Verdict] | None = None,
) -> list[Score]:
    """Score trajectories and announce each score to those who listen to evaluators.

    Args:
        store: The store that keeps the scores.
        config: The evaluators.
        base: Base directory for paths in the configuration.
        trajectories: The runs.
        announced: The verdicts announced so far; they are not announced again, and new ones are
            added.

    Raises:
        ConfigError: The configuration is wrong.
    """
    with unheard():
        found = score_trajectories(store, config, base, trajectories)
    announced = set() if announced is None else announced
    for one in found:
        verdict = (one.trajectory_id, one.rev, one.evaluator, one.version)
        if verdict not in announced:
            announced.add(verdict)
            observed(_result(one))
    return found


def _result(score: Score) -> dict[str, Any]:
    """Return a score in the form of an evaluator's result."""
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
    """Return a configuration, read where need be, and the folder its paths are relative to.

    Raises:
        ConfigError: The file cannot be read, or is wrong.
    """
    if isinstance(config, Config):
        return config, Path(base or ".")
    return load_config(config), Path(base) if base is not None else Path(config).parent


@contextmanager
def capture(
    db: str | Path = MEMORY, *, tracer_provider: Any = None, logger_provider: Any = None
) -> Iterator[Capture]:
    """Capture the spans and log records of the agents that run inside the block.

    Args:
        db: The database to write them to at the block's end; by default they stay in memory.
        tracer_provider: The SDK's provider that the agent uses; by default the global one,
            which is installed where there is none.
        logger_provider: The same for log records.

    Raises:
        ConfigError: The provider takes no processors, or the SDK is switched off or not there.
        StoreError: The database cannot be used.
    """
    require_sdk()
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        raise ConfigError("OTEL_SDK_DISABLED is true: no span is made that could be captured")
    _TAPS.tap(tracer_provider or _tracer_provider(), logger_provider or _logger_provider())
    run = Capture(db)
    if db != MEMORY:
        Store(db).close()  # what is wrong with it is better known before the agent runs
    with _TAPS.open(run):
        yield run
    if db != MEMORY:
        run.save(db)


def _tracer_provider() -> Any:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    found = trace.get_tracer_provider()
    if isinstance(found, trace.ProxyTracerProvider):
        trace.set_tracer_provider(TracerProvider(sampler=ALWAYS_ON))
        found = trace.get_tracer_provider()
    return found


def _logger_provider() -> Any:
    from opentelemetry import _logs
    from opentelemetry.sdk._logs import LoggerProvider

    found = _logs.get_logger_provider()
    if not hasattr(found, "add_log_record_processor") and "Proxy" in type(found).__name__:
        _logs.set_logger_provider(LoggerProvider())
        found = _logs.get_logger_provider()
    return found


_CONTEXT: ContextVar[tuple[Capture, ...]] = ContextVar("oteval_captures", default=())
_Key = tuple[int, int]


class _Taps:
    """Which captures are open, and which of them each span belongs to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[Capture] = []
        self._owners: OrderedDict[_Key, tuple[Capture, ...]] = OrderedDict()
        self._tapped: WeakSet[Any] = WeakSet()

    def tap(self, tracer_provider: Any, logger_provider: Any) -> None:
        """Hear of the spans and log records of two providers, of each once."""
        if not hasattr(tracer_provider, "add_span_processor"):
            raise ConfigError(
                f"the tracer provider in use ({type(tracer_provider).__name__}) takes no span "
                "processor; give capture(tracer_provider=...) one of OpenTelemetry's SDK"
            )
        with self._lock:
            if tracer_provider not in self._tapped:
                tracer_provider.add_span_processor(_SpanTap())
                self._tapped.add(tracer_provider)
            can_log = hasattr(logger_provider, "add_log_record_processor")
            if can_log and logger_provider not in self._tapped:
                logger_provider.add_log_record_processor(_LogTap())
                self._tapped.add(logger_provider)

    @contextmanager
    def open(self, run: Capture) -> Iterator[None]:
        """Hand spans to a capture inside the block."""
        with self._lock:
            self._open.append(run)
        before = _CONTEXT.get()
        _CONTEXT.set((*(one for one in before if one in self._open), run))
        try:
            yield
        finally:
            # Not by a token: a fixture may end in another context than it began in.
            _CONTEXT.set(before)
            with self._lock:
                self._open.remove(run)
                if not self._open:
                    self._forget_spans()

    def _forget_spans(self) -> None:
        """Let go of closed captures, but remember that their spans were not anybody else's."""
        for key in self._owners:
            self._owners[key] = ()

    def started(self, key: _Key, parent: _Key | None) -> None:
        """Note which captures a span belongs to."""
        with self._lock:
            owners = self._owners.get(parent) if parent is not None else None
            if owners is None:
                owners = self._current()
            if owners or self._open or parent in self._owners:
                self._owners[key] = owners
                if len(self._owners) > _REMEMBERED:
                    self._owners.popitem(last=False)

    def of(self, key: _Key) -> tuple[Capture, ...]:
        """Return the open captures that a span, or what was logged inside it, belongs to."""
        with self._lock:
            owners = self._owners.get(key)
            if owners is None:
                owners = self._current()
            return tuple(run for run in owners if run in self._open)

    def _current(self) -> tuple[Capture, ...]:
        mine = tuple(run for run in _CONTEXT.get() if run in self._open)
        return mine or tuple(self._open)


_TAPS = _Taps()


class _SpanTap(SpanProcessorBase):
    """Hands spans to the open captures."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:  # noqa: ARG002
        context, parent = span.context, span.parent
        own = (context.trace_id, context.span_id)
        _TAPS.started(own, (parent.trace_id, parent.span_id) if parent is not None else None)

    def on_end(self, span: Any) -> None:
        context = span.context
        for run in _TAPS.of((context.trace_id, context.span_id)):
            run._spans.append(span)

    def shutdown(self) -> None:
        """Nothing is held back."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002
        """Nothing is held back."""
        return True


class _LogTap(LogProcessorBase):
    """Hands log records to the open captures."""

    def on_emit(self, log_record: Any) -> None:
        record = log_record.log_record
        runs = _TAPS.of((record.trace_id or 0, record.span_id or 0))
        if runs:
            # At once: who emitted the body may change it afterwards.
            kept = log_record_of(log_record)
            for run in runs:
                run._logs.append(kept)

    def shutdown(self) -> None:
        """Nothing is held back."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002
        """Nothing is held back."""
        return True
