"""A check of the duration of a run and of its tools, measured by their spans.

The duration of a run is the duration of its root span. The duration of a conversation is the sum of
its runs, without the time that the user takes. The duration of a tool is the duration of its span.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

from ...base.errors import ConfigError
from ...model import COLUMNS, OutlineRequest, Reference, ToolCall, Trajectory
from ..factories import with_options_of
from ..options import InConfig, Seconds
from .base import (
    Check,
    EvaluationContext,
    EvaluationResult,
    NotEvaluated,
    is_counted,
    listed,
)

__all__ = ["Latency", "create_latency_evaluator"]

_SECOND = 1e9
# Gaps that make the times of a root span unreliable.
_TIME_GAPS = frozenset({"cyclic_parents", "missing_parent", "negative_duration"})


class _Part(NamedTuple):
    """The problems, figures and missing data of one limit."""

    problems: Sequence[str]
    figures: Mapping[str, Any]
    unseen: list[str]


@dataclass(frozen=True, kw_only=True)
class Latency(Check):
    """Fails if a run or a tool took too long.

    Attributes:
        max_seconds: How long the run may take, in seconds or as a text such as ``30s``.
        max_tool_seconds: How long one call of a tool may take.
        tools: The tools whose time counts; ``*`` matches any text, ``?`` any character.
    """

    type: ClassVar[str] = "latency"
    needs_messages: ClassVar[bool] = False

    max_seconds: Annotated[Seconds | None, InConfig("max")] = None
    max_tool_seconds: Annotated[Seconds | None, InConfig("max_tool")] = None
    tools: Sequence[str] | None = None

    def check_combination(self) -> None:
        """Refuse a check without a limit."""
        if self.max_seconds is None and self.max_tool_seconds is None:
            raise ConfigError(
                "give max_seconds or max_tool_seconds; in oteval.yaml give max or max_tool"
            )

    def outline_request(self, references: Sequence[Reference]) -> OutlineRequest | None:  # noqa: ARG002
        """The column of the run's times, unless the times of calls are limited as well."""
        return OutlineRequest(frozenset({"times"})) if self.max_tool_seconds is None else None

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Compare the times with the limits."""
        parts = []
        if self.max_seconds is not None:
            parts.append(self._run(context, self.max_seconds))
        if self.max_tool_seconds is not None:
            parts.append(self._tools(context, self.max_tool_seconds))
        problems = [problem for part in parts for problem in part.problems]
        unseen = [reason for part in parts for reason in part.unseen]
        if not problems and unseen:
            raise NotEvaluated("; ".join(unseen))
        return self.result(problems, {k: v for part in parts for k, v in part.figures.items()})

    def _run(self, context: EvaluationContext, most: float) -> _Part:
        if not context.runs:
            return _Part((), {}, ["messages alone do not tell how long the run took"])
        took = sum(run.end_ns - run.start_ns for run in context.runs if _is_timed(run)) / _SECOND
        problems = [f"the run took {took:.3f} s (at most {most:g} s)"] if took > most else []
        unseen = [why for run in context.runs for why in _untimed(run)]
        return _Part(problems, {"seconds": took}, unseen)

    def _tools(self, context: EvaluationContext, most: float) -> _Part:
        calls = [call for call in context.calls if is_counted(call, self.tools)]
        times = [(call, _seconds(call.call)) for call in calls]
        timed = [(call, seconds) for call, seconds in times if seconds is not None]
        slow = [(call, seconds) for call, seconds in timed if seconds > most]
        problems = [f"{call} took {seconds:.3f} s (at most {most:g} s)" for call, seconds in slow]
        untimed = [call for call, seconds in times if seconds is None]
        unseen = [f"no span shows how long {listed(untimed)} took"] if untimed else []
        try:
            context.require_all_calls()
        except NotEvaluated as reason:
            unseen.append(str(reason))
        took = [seconds for _, seconds in timed]
        return _Part(
            problems,
            {"tool_seconds": sum(took), "slowest_tool_seconds": max(took, default=None)},
            unseen,
        )


def _is_timed(run: Trajectory) -> bool:
    return COLUMNS["seconds"].value(run) is not None


def _untimed(run: Trajectory) -> list[str]:
    """Why a run may have taken longer than its root span shows."""
    gaps = [
        gap for gap in run.gaps if gap.code in _TIME_GAPS and gap.span_id == run.root_span.span_id
    ]
    why = [] if _is_timed(run) else [f"the trace of run {run.id} does not tell how long it took"]
    return why + [f"{gap.code}: {gap.detail}" for gap in gaps]


def _seconds(call: ToolCall) -> float | None:
    return (call.end_ns - call.start_ns) / _SECOND if 0 < call.start_ns <= call.end_ns else None


@with_options_of(Latency)
def create_latency_evaluator(**options: Any) -> Latency:
    """Create an evaluator that fails if a run or a tool took too long.

    Args:
        **options: The options of `Latency`.

    Raises:
        ConfigError: An option is wrong; the text names it.
    """
    return Latency(**options)
