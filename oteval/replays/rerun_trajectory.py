"""The trajectory of a session, from its requests to models and their answers.

A recorded run and its repetition with a live model are compared as trajectories that are made in
the same way, so that a difference is never one of the instrumentation. The trajectory is that of
the lead agent; the conversations of its sub-agents are not part of it. It has no times: answered
tools take none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..model import (
    Gap,
    Message,
    RecordedModelCall,
    RecordedToolCall,
    Span,
    Trajectory,
    Usage,
    normal_finish_reason,
)
from ..reconstruct import AgentRun, ModelCall, Node, TracedRun, trajectories_of
from .agent_threads import LEAD

__all__ = ["rerun_trajectory"]

_UNKNOWN = "the recording does not have the model's answer"


def rerun_trajectory(
    session: str,
    threads: Sequence[Sequence[RecordedModelCall]],
    tool_calls: Sequence[RecordedToolCall] = (),
    *,
    agent: str = "",
    service: str = "",
) -> Trajectory:
    """Build the trajectory of a session's lead agent.

    Args:
        session: The id of the session, which becomes the trajectory's.
        threads: The model calls by agent, the lead agent's first.
        tool_calls: The executions of tools, by which failed results are known.
        agent: The name of the agent.
        service: The name of the service.
    """
    # An attempt that failed was repeated, or was the last one.
    lead = [call for call in (threads[LEAD] if threads else ()) if not call.error]
    resource = {"service.name": service} if service else {}
    root = Span(session, session, resource=resource)
    run = TracedRun(
        Node(root),
        agent=AgentRun(root, name=agent) if agent else None,
        model_calls=[_operation(call, number, session) for number, call in enumerate(lead, 1)],
    )
    run.gaps = [gap for call in run.model_calls for gap in call.gaps]
    trajectory = trajectories_of([run])[0].trajectory
    failed = {call.call_id for call in tool_calls if call.is_error and call.call_id}
    calls = [call for thread in threads for call in thread]
    usage = Usage.total(map(_usage, calls))
    tail = tuple(_marked(message, failed) for message in trajectory.tail)
    models = tuple(dict.fromkeys(call.model for call in calls if call.model))
    return replace(
        trajectory, id=session, tail=tail, new_from=0, turn=1, usage=usage, models=models
    )


def _operation(call: RecordedModelCall, number: int, session: str) -> ModelCall:
    # Calls at the same time keep their order.
    start = call.start_ns or number
    span = Span(session, f"{number:016x}", start_ns=start, end_ns=call.end_ns or start)
    is_known = call.answer is not None
    settings = call.request.settings
    return ModelCall(
        span,
        input=call.request.messages,
        output=(call.answer,) if call.answer is not None else (),
        choices=call.choices,
        tools=call.request.tools,
        model=call.model,
        finish_reason=normal_finish_reason(call.finish_reason),
        usage=_usage(call),
        whole=is_known,
        is_delta=bool(settings.get("previous_response_id") or settings.get("conversation")),
        gaps=() if is_known else (Gap("content_not_captured", _UNKNOWN, span.span_id),),
    )


def _usage(call: RecordedModelCall) -> Usage:
    return replace(call.usage, model_calls=1)


def _marked(message: Message, failed: set[str]) -> Message:
    """Mark a tool's result if its execution failed."""
    if message.role != "tool" or message.tool_call_id not in failed:
        return message
    return replace(message, is_error=True, is_outcome_recorded=True)
