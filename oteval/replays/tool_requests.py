"""The tools that a model's answer asks for, and those that a request offers to a model.

An answer of a known API says which tools it asks for. Other answers are searched: a name that the
request offers among its tools, and that is a value in the response, is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..base.jsontext import loads
from ..model import Exchange, RecordedModelCall, RecordedRequest, Recording
from ..reconstruct import is_event_stream, offered_tools, read_events

__all__ = ["ToolResults", "tools_asked_by", "tools_asked_in"]


def tools_asked_by(call: RecordedModelCall, recording: Recording) -> list[str]:
    """The names of the tools that run after a recorded model call.

    Args:
        call: The call.
        recording: The recording that has it. Tools that ran before the next model call, and that no
            answer asks for, are asked for in the text of this one.
    """
    answers = [call.answer, *call.choices]
    names = [
        tool_call.name
        for answer in answers
        if answer is not None
        for tool_call in answer.client_calls
    ]
    if call.exchange is not None:
        names += tools_asked_in(call.exchange)
    return list(dict.fromkeys([*names, *_unasked_tools(call, recording)]))


def _unasked_tools(call: RecordedModelCall, recording: Recording) -> Iterator[str]:
    requested_names = {
        tool_call.name
        for model_call in recording.model_calls
        if model_call.answer is not None
        for tool_call in model_call.answer.client_calls
    }
    later = (
        model_call.start_ns
        for model_call in recording.model_calls
        if model_call.start_ns > call.end_ns
    )
    end_ns = min(later, default=0)
    for tool in recording.tool_calls:
        is_after = 0 < call.end_ns <= tool.start_ns and (not end_ns or tool.start_ns < end_ns)
        if is_after and tool.name not in requested_names and not tool.is_decorated:
            yield tool.name


def tools_asked_in(exchange: Exchange) -> list[str]:
    """The names of offered tools that are values in a response."""
    offered = offered_tools(exchange.request_body)
    if not offered or exchange.status >= 400:
        return []
    values = set(_texts(_response(exchange.response_body)))
    return [name for name in offered if name in values]


def _response(body: bytes) -> Any:
    if is_event_stream(body):
        return list(read_events(body))
    try:
        return loads(body)
    except ValueError:
        return None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for item in value:
            yield from _texts(item)


class ToolResults:
    """Compares the results that reach a model with the calls that a replay has answered.

    A result without such a call comes from elsewhere: something else than the function that was
    taken over has run the tool.
    """

    def __init__(self) -> None:
        self._asked: dict[str, str] = {}
        self._answered: Counter[str] = Counter()
        self._given: Counter[str] = Counter()

    def asked(self, call: RecordedModelCall) -> None:
        """Note the calls of an answer that the agent gets."""
        for answer in (call.answer, *call.choices):
            for tool_call in answer.client_calls if answer is not None else ():
                if tool_call.id:
                    self._asked[tool_call.id] = tool_call.name

    def answered(self, name: str) -> None:
        """Note that a call of a tool was answered."""
        self._answered[name] += 1

    def given(self, request: RecordedRequest) -> list[str]:
        """The tools that gave more results than they had calls.

        Args:
            request: A request of the agent.
        """
        for message in request.messages:
            name = self._asked.pop(message.tool_call_id, "") if message.role == "tool" else ""
            if name:
                self._given[name] += 1
        return [name for name, count in self._given.items() if count > self._answered[name]]
