"""The recorded ends of agents' runs in a session, from the spans of its agents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..base.jsontext import dumps
from ..model import RecordedAnswer, Span, Trajectory
from ..reconstruct import AgentRun, TracedTrajectory
from ..record import AGENT_RETURNED
from .reported_errors import reported_text

__all__ = ["answers_of"]

_DECORATOR_SCOPE = "oteval"  # of the spans of `@oteval.agent`
# Spans of agents that were left before their end.
_UNFINISHED = ("GeneratorExit", "ReplayDiverged")


def answers_of(
    spans: Iterable[Span], tops: Sequence[TracedTrajectory], own: Mapping[str, bool]
) -> tuple[RecordedAnswer, ...]:
    """The ends of the runs of a session's agents, by their start.

    Args:
        spans: The spans of its traces.
        tops: The trajectories of the session that none of it started.
        own: Whether a span belongs to the session, by its id.
    """
    decorated = [_decorated(span) for span in spans if _is_agent(span) and own.get(span.span_id)]
    answers = decorated or list(_of_frameworks(tops))
    return tuple(sorted(answers, key=lambda answer: answer.start_ns))


def _is_agent(span: Span) -> bool:
    is_agent = span.attributes.get("gen_ai.operation.name") == "invoke_agent"
    return is_agent and span.scope == _DECORATOR_SCOPE and _error(span) not in _UNFINISHED


def _error(span: Span) -> str:
    return str(span.attributes.get("error.type", "")).rpartition(".")[2]


def _decorated(span: Span) -> RecordedAnswer:
    attributes: Mapping[str, Any] = span.attributes
    answer = attributes.get("gen_ai.output.messages")
    return RecordedAnswer(
        agent=str(attributes.get("gen_ai.agent.name", "")),
        question=str(attributes.get("gen_ai.input.messages", "")),
        answer=None if answer is None else str(answer),
        type=str(attributes.get(AGENT_RETURNED, "")),
        error=span.status_message if span.is_error else "",
        is_decorated=True,
        start_ns=span.start_ns,
    )


def _answer_of(agent: AgentRun, trajectory: Trajectory) -> str | None:
    """The answer in an agent's span; where it has none, the last one of its model."""
    final = agent.span.attributes.get("final_result")  # of Pydantic AI
    if final is not None:
        return str(final)
    last = trajectory.messages[-1:]
    answers = agent.output or (() if not last or last[0].client_calls else last)
    return next((m.content for m in reversed(answers) if m.role == "assistant"), None)


def _of_frameworks(tops: Sequence[TracedTrajectory]) -> Iterator[RecordedAnswer]:
    for top in tops:
        agent = top.runs[0].agent if top.runs else None
        if agent is None:
            continue
        text = _answer_of(agent, top.trajectory)
        message = {"role": "assistant", "parts": [{"type": "text", "content": text}]}
        yield RecordedAnswer(
            agent=agent.name,
            answer=dumps([message]) if text else None,
            error=reported_text(agent.span),
            start_ns=agent.span.start_ns,
        )
