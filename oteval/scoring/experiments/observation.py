"""Observe a target: the agent runs that it makes while it is called on an example.

`oteval.record`, a room above this one, does the recording: `observing` sets its observer for the
experiments that a block starts. Without one, a run is known only by its outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from ...model import Example, LogRecord, Span, Trajectory

__all__ = ["Observation", "TargetObserver", "current_observer", "observing", "whole_runs"]


@dataclass
class Observation:
    """One call of a target, as it was observed; complete when the call has ended.

    Attributes:
        spans: The spans that ended.
        logs: The log records.
        trajectories: The agent runs.
        missing: Why no agent run was observed; "" if nothing observed the call.
    """

    spans: Sequence[Span] = ()
    logs: Sequence[LogRecord] = ()
    trajectories: Sequence[Trajectory] = ()
    missing: str = ""


class TargetObserver(Protocol):
    """Observes the calls of a target."""

    def ready(self) -> AbstractContextManager[object]:
        """Prepare the process, for the calls inside a block."""

    def observe(self, example: Example) -> AbstractContextManager[Observation]:
        """Observe the call inside a block."""


class _NoObserver:
    def ready(self) -> AbstractContextManager[object]:
        return nullcontext()

    def observe(self, example: Example) -> AbstractContextManager[Observation]:
        del example
        return nullcontext(Observation())


_observer: ContextVar[TargetObserver | None] = ContextVar("oteval_observer", default=None)


def current_observer() -> TargetObserver:
    """The observer of the experiments that are started now."""
    return _observer.get() or _NoObserver()


@contextmanager
def observing(observer: TargetObserver) -> Iterator[None]:
    """Let an observer observe the targets of the experiments that a block starts."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def whole_runs(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """The agent runs with messages; of a conversation, the last turn, which contains all turns.

    Sub-agents do not count.
    """
    runs = [run for run in trajectories if run.messages and not run.parent_id]
    continued = {run.history.id for run in runs if run.history is not None}
    return [run for run in runs if run.id not in continued]
