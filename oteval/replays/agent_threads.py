"""The agents of a session, recognised by their requests to models, and the lead agent's trajectory.

Requests do not name the agent that sends them. Two requests are of the same agent if their system
prompts differ only in numbers, such as dates, or if one request continues an answer to the other.
The **lead** agent receives the user's message; of several such agents, it is the one with the most
requests, then the last one. The others are its sub-agents.

A recorded run and its repetition with a live model are compared as trajectories that are made in
the same way, so that the instrumentation never causes a difference. They have no times, because
answered tools take no time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..messages import SYSTEM_ROLES
from ..model import (
    Gap,
    Message,
    RecordedModelCall,
    RecordedRequest,
    RecordedToolCall,
    Recording,
    Span,
    Trajectory,
    Usage,
    normal_finish_reason,
)
from ..reconstruct import AgentRun, ModelCall, Node, TracedRun, key_of, trajectories_of

__all__ = ["LEAD", "AgentThreads", "rerun_trajectory", "threads_of"]

LEAD = 0
"""The number of the lead agent."""

# Settings of requests that have only new messages.
_CONTINUES = ("previous_response_id", "conversation")
_NUMBER = re.compile(r"\d+")

Thread = list[RecordedModelCall]


@dataclass
class _Agent:
    prompts: set[str] = field(default_factory=set)
    answers: set[str] = field(default_factory=set)
    is_seen: bool = False


class AgentThreads:
    """Gives each request of a run the number of its agent.

    A request may have an unknown prompt and the user's message. If the lead agent has sent no
    request yet, the request is the lead agent's: its prompt has been edited. Otherwise the request
    belongs to a new agent.

    Args:
        recording: The recording that shows the agents; without one, the agent of the first request
            is the lead agent.
        lead_prompt: Another system prompt of the lead agent, or None.
    """

    def __init__(self, recording: Recording | None = None, lead_prompt: str | None = None) -> None:
        recorded = threads_of(recording) if recording is not None else []
        self._inputs = recording.inputs if recording is not None else ()
        self._agents = [_Agent({_prompt(call.request) for call in thread}) for thread in recorded]
        self._agents = self._agents or [_Agent()]
        # The agent of the last answer: for requests that continue an answer without a known id.
        self._last: int | None = None
        if lead_prompt is not None:
            self._agents[LEAD].prompts.add(_form(lead_prompt))

    def agent_of(self, request: RecordedRequest) -> int:
        """The number of the agent that sends a request."""
        prompt = _prompt(request)
        same_prompt = next(
            (at for at, agent in enumerate(self._agents) if prompt in agent.prompts), None
        )
        number = same_prompt if prompt else None
        if number is None:
            number = self._continued(request)
        if number is None:
            number = same_prompt
        if number is None:
            is_lead = not self._agents[LEAD].is_seen and _is_asked(request, self._inputs)
            number = LEAD if is_lead else self._new_agent()
        self._agents[number].prompts.add(prompt)
        self._agents[number].is_seen = True
        return number

    def answered(self, number: int, answer: Message, response_id: str = "") -> None:
        """Note a model's answer to an agent, to recognise the agent's next request by it."""
        marks = {call.id for call in answer.client_calls if call.id} | {response_id}
        if not answer.client_calls:
            marks.add(key_of(answer))
        self._agents[number].answers |= marks - {""}
        self._last = number

    def divide(self, calls: Sequence[RecordedModelCall]) -> list[Thread]:
        """Divide model calls into one list for each agent, by its number.

        Args:
            calls: The calls, by their start.
        """
        threads: list[Thread] = []
        for call in calls:
            number = self.agent_of(call.request)
            threads += [[] for _ in range(number + 1 - len(threads))]
            threads[number].append(call)
            if call.answer is not None:
                self.answered(number, call.answer, call.response_id)
        return threads

    def _new_agent(self) -> int:
        self._agents.append(_Agent())
        return len(self._agents) - 1

    def _continued(self, request: RecordedRequest) -> int | None:
        """The agent that got the last answer in a request, or None."""
        marks = {str(request.settings.get("previous_response_id") or "")}
        last = next((m for m in reversed(request.messages) if m.role == "assistant"), None)
        if last is not None:
            calls = last.client_calls
            marks |= {call.id for call in calls} if calls else {key_of(last)}
        marks -= {""}
        number = next((at for at, agent in enumerate(self._agents) if agent.answers & marks), None)
        goes_on = any(request.settings.get(key) for key in _CONTINUES)
        return self._last if number is None and goes_on else number


def _prompt(request: RecordedRequest) -> str:
    texts = [message.content or "" for message in request.messages if message.role in SYSTEM_ROLES]
    return _form("\n".join(texts))


def _is_asked(request: RecordedRequest, inputs: Sequence[str]) -> bool:
    """Whether a request has a message of the user; always true if no message is known."""
    texts = [message.content or "" for message in request.messages if message.role == "user"]
    return not inputs or any(question in text for question in inputs for text in texts)


def _form(prompt: str) -> str:
    return _NUMBER.sub("0", prompt)


def threads_of(recording: Recording) -> list[Thread]:
    """The model calls of a recording by agent, the lead agent's first."""
    threads = AgentThreads().divide(recording.model_calls)

    def rank(thread: Thread) -> tuple[bool, int, int]:
        is_asked = any(_is_asked(call.request, recording.inputs) for call in thread)
        return is_asked, len(thread), thread[-1].start_ns

    lead = max(threads, key=rank, default=None)
    return sorted(threads, key=lambda thread: thread is not lead)


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
        session: The id of the session, which becomes the id of the trajectory.
        threads: The model calls by agent, the lead agent's first.
        tool_calls: The executions of tools, which show the failed results.
        agent: The name of the agent.
        service: The name of the service.
    """
    # A failed attempt was repeated, or was the last attempt.
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
