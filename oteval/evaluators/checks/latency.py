"""A check of how long a run and its tools took, as the spans tell.

A run takes from the start to the end of its root span; of a conversation, the runs' times are added
up, so that the user's do not count. A tool takes as long as its span.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar, NamedTuple

from ...errors import ConfigError
from ...model import ToolCall, Trajectory
from .base import Call, Check, Found, NotEvaluated, Seen, listed, number, strings

__all__ = ["Latency", "create_latency_evaluator"]

_SECOND = 1e9
# Gaps after which a root span's times may not be the run's.
_TIME_GAPS = frozenset({"cyclic_parents", "missing_parent", "negative_duration"})


class _Part(NamedTuple):
    """What one limit came to: what is over it, figures, and what the trace does not show."""

    problems: Sequence[str]
    figures: Mapping[str, Any]
    unseen: list[str]


@dataclass(frozen=True)
class Latency(Check):
    """Fails where a run or a tool took too long.

    Attributes:
        key: The score's name.
        max_seconds: How long a run may take; None for any time.
        max_tool_seconds: How long one call of a tool may take; None for any time.
        tools: The tools whose time counts; none given counts all.
    """

    type: ClassVar[str] = "latency"
    needs_messages: ClassVar[bool] = False

    key: str = "latency"
    max_seconds: float | None = None
    max_tool_seconds: float | None = None
    tools: tuple[str, ...] | None = None

    def check(self, seen: Seen) -> Found:
        """Look for what took too long."""
        parts = []
        if self.max_seconds is not None:
            parts.append(self._run(seen, self.max_seconds))
        if self.max_tool_seconds is not None:
            parts.append(self._tools(seen, self.max_tool_seconds))
        problems = [problem for part in parts for problem in part.problems]
        unseen = [reason for part in parts for reason in part.unseen]
        if not problems and unseen:
            raise NotEvaluated("; ".join(unseen))
        return Found(problems, {k: v for part in parts for k, v in part.figures.items()})

    def _run(self, seen: Seen, most: float) -> _Part:
        if not seen.runs:
            return _Part((), {}, ["messages alone do not tell how long the run took"])
        took = sum(run.end_ns - run.start_ns for run in seen.runs if _is_timed(run)) / _SECOND
        problems = [f"the run took {took:.3f} s (at most {most:g} s)"] if took > most else []
        unseen = [why for run in seen.runs for why in _untimed(run)]
        return _Part(problems, {"seconds": took}, unseen)

    def _tools(self, seen: Seen, most: float) -> _Part:
        calls = [call for call in seen.calls if self._counts(call)]
        times = [(call, _seconds(call.call)) for call in calls]
        known = [(call, seconds) for call, seconds in times if seconds is not None]
        slow = [(call, seconds) for call, seconds in known if seconds > most]
        problems = [f"{call} took {seconds:.3f} s (at most {most:g} s)" for call, seconds in slow]
        untimed = [call for call, seconds in times if seconds is None]
        unseen = [f"no span shows how long {listed(untimed)} took"] if untimed else []
        try:
            seen.require_all_calls()
        except NotEvaluated as reason:
            unseen.append(str(reason))
        took = [seconds for _, seconds in known]
        return _Part(
            problems,
            {"tool_seconds": sum(took), "slowest_tool_seconds": max(took, default=None)},
            unseen,
        )

    def _counts(self, call: Call) -> bool:
        return self.tools is None or any(fnmatchcase(call.call.name, one) for one in self.tools)


def _is_timed(run: Trajectory) -> bool:
    return 0 < run.start_ns <= run.end_ns


def _untimed(run: Trajectory) -> list[str]:
    """Return why a run may have taken longer than its root span says."""
    root = run.root_span.span_id
    gaps = [gap for gap in run.gaps if gap.code in _TIME_GAPS and gap.span_id == root]
    why = [] if _is_timed(run) else [f"the trace of run {run.id} does not tell how long it took"]
    return why + [f"{gap.code}: {gap.detail}" for gap in gaps]


def _seconds(call: ToolCall) -> float | None:
    return (call.end_ns - call.start_ns) / _SECOND if 0 < call.start_ns <= call.end_ns else None


def create_latency_evaluator(
    *,
    max_seconds: float | None = None,
    max_tool_seconds: float | None = None,
    tools: Any = None,
    feedback_key: str = "latency",
) -> Latency:
    """Create an evaluator that fails where a run or a tool took too long.

    Args:
        max_seconds: How many seconds the run may take.
        max_tool_seconds: How many seconds one call of a tool may take.
        tools: The tools whose time counts; ``*`` and ``?`` stand for any text or character.
        feedback_key: The score's name.

    Returns:
        The evaluator.

    Raises:
        ConfigError: There is no limit, or one is no number.
    """
    if max_seconds is None and max_tool_seconds is None:
        raise ConfigError("give max_seconds or max_tool_seconds")
    return Latency(
        feedback_key,
        None if max_seconds is None else number(max_seconds, "max_seconds"),
        None if max_tool_seconds is None else number(max_tool_seconds, "max_tool_seconds"),
        None if tools is None else strings(tools, "tools"),
    )
