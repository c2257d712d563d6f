"""The tools that an agent ran: from the calls that a replay intercepts, and from its requests.

A tool that a replay cannot intercept is known by its result in the next request to the model. Both
kinds are listed together, in the order in which they ran. Executions that overlapped in the
recording may run in any order, and are listed in that of the recording, so that lists can be
compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.jsontext import canonical
from ..model import RecordedModelCall, RecordedToolCall, Recording
from .conversations import Conversation

__all__ = ["ExecutedTools", "ToolExecution", "recorded_executions"]

ToolExecution = tuple[str, Any]
"""The name of a tool, and its arguments."""


@dataclass(eq=False, slots=True)
class _Intercepted:
    """A call of a tool that the replay intercepted.

    Attributes:
        name: The tool's name.
        arguments: The arguments.
        recorded: The recorded execution that answers it, or None.
    """

    name: str
    arguments: Any
    recorded: RecordedToolCall | None


@dataclass(eq=False, slots=True)
class _Found:
    """An execution in the list.

    Attributes:
        name: The tool's name.
        arguments: The arguments.
        place: The index of the recorded execution, or None.
    """

    name: str
    arguments: Any
    place: int | None


class ExecutedTools:
    """Collects the tool calls and requests of a replay.

    Args:
        recorded: The recorded executions of the session.
    """

    def __init__(self, recorded: Sequence[RecordedToolCall]) -> None:
        self._recorded = recorded
        self._events: list[_Intercepted | RecordedModelCall] = []

    def intercepted(self, name: str, arguments: Any, recorded: RecordedToolCall | None) -> None:
        """Add the call of a tool.

        Args:
            name: The tool's name.
            arguments: The arguments, as the agent gave them.
            recorded: The recorded execution that answers it, or None.
        """
        shown = recorded.arguments if recorded is not None else arguments
        self._events.append(_Intercepted(name, {} if shown is None else shown, recorded))

    def requested(self, call: RecordedModelCall) -> None:
        """Add a request to a model, with its answer."""
        self._events.append(call)

    @property
    def model_calls(self) -> list[RecordedModelCall]:
        """The requests with their answers."""
        return [event for event in self._events if isinstance(event, RecordedModelCall)]

    def calls(self) -> list[ToolExecution]:
        """Return the executions in order: names and arguments."""
        found = list(self._found())
        for end in range(1, len(found)):
            at = end
            while at and self._is_swapped(found[at - 1], found[at]):
                found[at - 1], found[at] = found[at], found[at - 1]
                at -= 1
        return [(one.name, one.arguments) for one in found]

    def _found(self) -> Iterator[_Found]:
        free = dict(enumerate(self._recorded))
        hooked = [event for event in self._events if isinstance(event, _Intercepted)]
        names = {event.name for event in hooked}
        ids = {event.recorded.call_id for event in hooked if event.recorded} - {""}
        conversation = Conversation()
        for event in self._events:
            if isinstance(event, _Intercepted):
                place = next((at for at, one in free.items() if one is event.recorded), None)
                free.pop(-1 if place is None else place, None)
                yield _Found(event.name, event.arguments, place)
                continue
            new = conversation.add(event.request.messages, event.answer)
            for message in new:
                call = conversation.call_of(message)
                if message.role != "tool" or call is None or call.name in names or call.id in ids:
                    continue
                arguments = {} if call.arguments is None else call.arguments
                place = _place_of(call.id, call.name, arguments, free)
                free.pop(-1 if place is None else place, None)
                yield _Found(call.name, arguments, place)

    def _is_swapped(self, one: _Found, other: _Found) -> bool:
        """Return whether two executions overlapped in the recording, which has them swapped."""
        if one.place is None or other.place is None or one.place < other.place:
            return False
        first, second = self._recorded[other.place], self._recorded[one.place]
        is_timed = first.start_ns and second.start_ns
        return bool(is_timed) and second.start_ns < first.end_ns


def _place_of(
    call_id: str, name: str, arguments: Any, free: dict[int, RecordedToolCall]
) -> int | None:
    """Return the index of the recorded execution of a call: by its id, else by its content."""
    by_id = (at for at, one in free.items() if call_id and one.call_id == call_id)
    wanted = canonical(arguments)
    same = (
        at
        for at, one in free.items()
        if one.name == name and canonical(one.arguments or {}) == wanted
    )
    return next(by_id, next(same, None))


def recorded_executions(recording: Recording) -> list[ToolExecution]:
    """Return the executions of tools that a replay of a recording has, if it is the same.

    Tools inside of other tools are not among them, because the outer one is answered.
    """
    tools = [
        one
        for one in recording.tool_calls
        if one.start_ns and not _is_inside(one, recording.tool_calls)
    ]
    calls = [one for one in recording.model_calls if not _is_inside(one, recording.tool_calls)]
    executed = ExecutedTools(recording.tool_calls)
    events: list[RecordedToolCall | RecordedModelCall] = [*tools, *calls]
    for event in sorted(events, key=lambda one: one.start_ns):
        if isinstance(event, RecordedToolCall):
            executed.intercepted(event.name, event.arguments, event)
        else:
            executed.requested(event)
    return executed.calls()


def _is_inside(
    one: RecordedToolCall | RecordedModelCall, tools: Sequence[RecordedToolCall]
) -> bool:
    """Return whether something happened inside a tool that a replay answers."""
    return any(
        not tool.runs_agent
        and tool is not one
        and 0 < tool.start_ns <= one.start_ns
        and 0 < one.end_ns <= tool.end_ns
        and (tool.start_ns, tool.end_ns) != (one.start_ns, one.end_ns)
        for tool in tools
    )
