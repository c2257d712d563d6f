"""Runs, messages and scores as JSON rows. Everything empty is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...model import COLUMNS, Message, RunRow, Score, ToolCall, Trajectory
from ..text import clock

__all__ = [
    "LISTED_COLUMNS",
    "given",
    "message_row",
    "run_head",
    "run_row",
    "score_row",
]

LISTED_COLUMNS = ("agent", "service", "seconds", "asked", "tool", "errors", "gap")
"""The columns that a run in a list is made of."""
_MAX_CALLS = 20


def given(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without its empty entries; zeros and False stay."""
    return {name: cell for name, cell in row.items() if cell not in (None, "", [], {}, ())}


def run_row(row: RunRow, scores: Sequence[Score], columns: Sequence[str] = ()) -> dict[str, Any]:
    """A run in a list of runs, with the reason of each score that did not pass.

    Args:
        row: The run, with `LISTED_COLUMNS` and the columns.
        scores: The newest score of each evaluator.
        columns: Further columns, under names that the others do not have.
    """
    calls = list(row["tool"])
    if len(calls) > _MAX_CALLS:
        calls = [*calls[:_MAX_CALLS], f"… ({len(calls) - _MAX_CALLS:,} more)"]
    return given(
        {
            **{name: _rounded(row[name]) for name in columns},
            "run": row.id,
            "started": clock(row["started"]),
            "seconds": _rounded(row["seconds"]),
            "agent": row.agent,
            "asked": row["asked"],
            "calls": calls,
            "failed_calls": row["errors"] or None,
            "gaps": sorted(row["gap"]),
            "scores": [score_row(score) for score in scores if score.passed is not True],
            "passed": [score.evaluator for score in scores if score.passed is True],
        }
    )


def _rounded(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


def run_head(
    run: Trajectory, scores: Sequence[Score], unscored: Mapping[str, str]
) -> dict[str, Any]:
    """Everything about a run but its messages.

    Args:
        run: The run.
        scores: The newest score of each evaluator.
        unscored: Why other evaluators gave no score, by name.
    """
    usage = run.usage
    failed = [
        at for at, message in enumerate(run.messages) if message.is_error and at >= run.new_from
    ]
    return given(
        {
            "run": run.id,
            "started": clock(run.start_ns),
            "seconds": _rounded(COLUMNS["seconds"].value(run)),
            "agent": run.agent,
            "service": run.service,
            "conversation": run.conversation_id,
            "turn": run.turn,
            "called_by": run.parent_id,
            "models": list(run.models),
            "tokens": usage.as_dict() if usage.is_known else None,
            "root_span": f"{run.root_span.trace_id}/{run.root_span.span_id}",
            "failed_messages": failed,
            "gaps": [{"code": gap.code, "detail": gap.detail} for gap in run.gaps],
            "scores": [{**score_row(score), "figures": dict(score.metadata)} for score in scores],
            "not_scored": dict(unscored),
        }
    )


def score_row(score: Score) -> dict[str, Any]:
    """A score with its reason."""
    outcome: str = score.status
    if score.status == "ok":
        outcome = {True: "pass", False: "fail", None: "no verdict"}[score.passed]
    return given(
        {
            "evaluator": score.evaluator,
            "outcome": outcome,
            "score": score.score,
            "label": score.label if score.label != outcome else "",
            "reason": score.comment,
        }
    )


def message_row(
    number: int | None, message: Message, tools: Mapping[str, str], text: str | None
) -> dict[str, Any]:
    """A message.

    Args:
        number: Its number in the conversation.
        message: The message.
        tools: The names of tools by the ids of calls.
        text: Its text, as much as is shown.
    """
    is_empty = message.content is None and not message.tool_calls and not message.parts
    return given(
        {
            "n": number,
            "role": message.role,
            "tool": message.name or tools.get(message.tool_call_id, ""),
            "failed": message.is_error or None,
            "text": "(content not captured)" if is_empty else text,
            "calls": [_call_row(call) for call in message.tool_calls],
            "parts": list(message.parts),
        }
    )


def _call_row(call: ToolCall) -> dict[str, Any]:
    arguments = "(not captured)" if call.arguments is None else call.arguments
    return {"tool": call.name, "arguments": arguments}
