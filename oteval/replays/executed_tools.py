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
        recorded_index: The index of the recorded execution, or None.
    """

    name: str
    arguments: Any
    recorded_index: int | None


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
        executed_arguments = recorded.arguments if recorded is not None else arguments
        self._events.append(
            _Intercepted(name, {} if executed_arguments is None else executed_arguments, recorded)
        )

    def requested(self, call: RecordedModelCall) -> None:
        """Add a request to a model, with its answer."""
        self._events.append(call)

    @property
    def model_calls(self) -> list[RecordedModelCall]:
        """The requests with their answers."""
        return [event for event in self._events if isinstance(event, RecordedModelCall)]

    def calls(self) -> list[ToolExecution]:
        """The executions in order, as names and arguments."""
        executions = list(self._found())
        for end in range(1, len(executions)):
            at = end
            while at and self._is_swapped(executions[at - 1], executions[at]):
                executions[at - 1], executions[at] = executions[at], executions[at - 1]
                at -= 1
        return [(execution.name, execution.arguments) for execution in executions]

    def _found(self) -> Iterator[_Found]:
        free = dict(enumerate(self._recorded))
        hooked = [event for event in self._events if isinstance(event, _Intercepted)]
        names = {event.name for event in hooked}
        ids = {event.recorded.call_id for event in hooked if event.recorded} - {""}
        conversation = Conversation()
        for event in self._events:
            if isinstance(event, _Intercepted):
                index = next(
                    (
                        recorded_index
                        for recorded_index, recorded_call in free.items()
                        if recorded_call is event.recorded
                    ),
                    None,
                )
                free.pop(-1 if index is None else index, None)
                yield _Found(event.name, event.arguments, index)
                continue
            new = conversation.add(event.request.messages, event.answer)
            for message in new:
                call = conversation.call_of(message)
                if message.role != "tool" or call is None or call.name in names or call.id in ids:
                    continue
                arguments = {} if call.arguments is None else call.arguments
                index = _place_of(call.id, call.name, arguments, free)
                free.pop(-1 if index is None else index, None)
                yield _Found(call.name, arguments, index)

    def _is_swapped(self, earlier: _Found, later: _Found) -> bool:
        """Whether two executions overlapped in the recording, which has them swapped."""
        if (
            earlier.recorded_index is None
            or later.recorded_index is None
            or earlier.recorded_index < later.recorded_index
        ):
            return False
        first, second = self._recorded[later.recorded_index], self._recorded[earlier.recorded_index]
        is_timed = first.start_ns and second.start_ns
        return bool(is_timed) and second.start_ns < first.end_ns


def _place_of(
    call_id: str, name: str, arguments: Any, free: dict[int, RecordedToolCall]
) -> int | None:
    """The index of the recorded execution of a call: by its id, else by its content."""
    by_id = (
        index
        for index, recorded_call in free.items()
        if call_id and recorded_call.call_id == call_id
    )
    arguments_json = canonical(arguments)
    same = (
        index
        for index, recorded_call in free.items()
        if recorded_call.name == name and canonical(recorded_call.arguments or {}) == arguments_json
    )
    return next(by_id, next(same, None))


def recorded_executions(recording: Recording) -> list[ToolExecution]:
    """The executions of tools that a replay of a recording has, if it is the same.

    Tools inside of other tools are not among them, because the outer one is answered.
    """
    tools = [
        tool
        for tool in recording.tool_calls
        if tool.start_ns and not _is_inside(tool, recording.tool_calls)
    ]
    calls = [call for call in recording.model_calls if not _is_inside(call, recording.tool_calls)]
    executed = ExecutedTools(recording.tool_calls)
    events: list[RecordedToolCall | RecordedModelCall] = [*tools, *calls]
    for event in sorted(events, key=lambda event: event.start_ns):
        if isinstance(event, RecordedToolCall):
            executed.intercepted(event.name, event.arguments, event)
        else:
            executed.requested(event)
    return executed.calls()


def _is_inside(
    event: RecordedToolCall | RecordedModelCall, tools: Sequence[RecordedToolCall]
) -> bool:
    """Whether something happened inside a tool that a replay answers."""
    return any(
        not tool.runs_agent
        and tool is not event
        and 0 < tool.start_ns <= event.start_ns
        and 0 < event.end_ns <= tool.end_ns
        and (tool.start_ns, tool.end_ns) != (event.start_ns, event.end_ns)
        for tool in tools
    )
