"""The conversation of an agent with its models, and the tools that it ran.

Most requests repeat the messages of an earlier one and its answer. `Conversation` keeps only the
new messages, in the order of the requests and answers.

A tool that a replay cannot intercept is known by its result in the next request to the model.
`ExecutedTools` lists both kinds together, in the order of their execution. Executions that
overlapped in the recording may run in any order; they are listed in the order of the recording, so
that lists can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.jsontext import canonical
from ..messages import SYSTEM_ROLES
from ..model import Message, RecordedModelCall, RecordedToolCall, Recording, ToolCall

__all__ = [
    "Conversation",
    "ExecutedTools",
    "ToolExecution",
    "conversation_of",
    "last_answer",
    "recorded_executions",
]

_Key = tuple[str, str, tuple[tuple[str, str], ...]]


class Conversation:
    """Collects the new messages of requests and answers.

    Attributes:
        messages: The messages so far. System instructions are among them once.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._threads = _Threads()
        self._instructions: set[str | None] = set()
        self._calls: dict[str, ToolCall] = {}

    def add(self, request: Sequence[Message], answer: Message | None) -> list[Message]:
        """Add a request and its answer, and return the messages of the request that are new.

        Args:
            request: The messages of the request.
            answer: The answer; None if the call failed.
        """
        spoken = [message for message in request if message.role not in SYSTEM_ROLES]
        repeated_count = self._threads.shared(spoken)
        new = [*self._new_instructions(request), *spoken[repeated_count:]]
        self.messages += new
        answers = [] if answer is None else [answer]
        self.messages += answers
        self._threads.add([*spoken, *answers])
        for message in (*new, *answers):
            self._calls |= {call.id: call for call in message.tool_calls if call.id}
        return new

    def _new_instructions(self, request: Sequence[Message]) -> list[Message]:
        new_instructions = [
            message
            for message in request
            if message.role in SYSTEM_ROLES and message.content not in self._instructions
        ]
        self._instructions |= {message.content for message in new_instructions}
        return new_instructions

    def call_of(self, result: Message) -> ToolCall | None:
        """The call that a tool's message answers, if the messages so far have it."""
        return self._calls.get(result.tool_call_id)


def _key(message: Message) -> _Key:
    """Key a message by the parts that agents repeat unchanged; ids may change."""
    calls = tuple((call.name, canonical(call.arguments)) for call in message.tool_calls)
    return message.role, message.content or "", calls


class _Threads:
    """Lists of messages as a tree; lists with the same beginning share its nodes."""

    def __init__(self) -> None:
        self._next: dict[tuple[int, int], int] = {}
        self._ends: set[int] = set()
        self._numbers: dict[_Key, int] = {}
        # Requests share objects. The objects are kept, so that their ids stay unique.
        self._seen: dict[int, tuple[Message, int]] = {}

    def add(self, messages: Sequence[Message]) -> None:
        """Add a list."""
        node = 0
        for message in messages:
            node = self._next.setdefault((node, self._number(message)), len(self._next) + 1)
        self._ends.add(node)

    def shared(self, messages: Sequence[Message]) -> int:
        """The length of the beginning that a list shares with another list.

        One of the two must be the whole beginning.
        """
        node = longest = 0
        for length, message in enumerate(messages):
            if node in self._ends:
                longest = length
            next_node = self._next.get((node, self._number(message)))
            if next_node is None:
                return longest
            node = next_node
        return len(messages)

    def _number(self, message: Message) -> int:
        numbered = self._seen.get(id(message))
        if numbered is not None:
            return numbered[1]
        number = self._numbers.setdefault(_key(message), len(self._numbers))
        self._seen[id(message)] = (message, number)
        return number


def conversation_of(calls: Iterable[RecordedModelCall]) -> tuple[Message, ...]:
    """The messages that an agent and its models exchanged, without instructions.

    Args:
        calls: The model calls, in order.
    """
    conversation = Conversation()
    for call in calls:
        conversation.add(call.request.messages, call.answer)
    return tuple(message for message in conversation.messages if message.role not in SYSTEM_ROLES)


def last_answer(calls: Iterable[RecordedModelCall]) -> str:
    """The text of the last answer that requests no tools; "" if there is none."""
    answers = [call.answer for call in calls if call.answer and not call.answer.client_calls]
    return (answers[-1].content or "") if answers else ""


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
            arguments: The arguments, as the agent passed them.
            recorded: The recorded execution that answers it, or None.
        """
        if recorded is not None:
            arguments = recorded.arguments
        self._events.append(_Intercepted(name, {} if arguments is None else arguments, recorded))

    def requested(self, call: RecordedModelCall) -> None:
        """Add a request to a model, with its answer."""
        self._events.append(call)

    @property
    def model_calls(self) -> list[RecordedModelCall]:
        """The requests with their answers."""
        return [event for event in self._events if isinstance(event, RecordedModelCall)]

    def calls(self) -> list[ToolExecution]:
        """The executions in order, as names and arguments."""
        executions = list(self._executions())
        for end in range(1, len(executions)):
            at = end
            while at and self._is_swapped(executions[at - 1][1], executions[at][1]):
                executions[at - 1], executions[at] = executions[at], executions[at - 1]
                at -= 1
        return [execution for execution, _ in executions]

    def _executions(self) -> Iterator[tuple[ToolExecution, int | None]]:
        """Yield each execution with the index of the recorded execution, or None."""
        free = dict(enumerate(self._recorded))
        hooked = [event for event in self._events if isinstance(event, _Intercepted)]
        names = {event.name for event in hooked}
        ids = {event.recorded.call_id for event in hooked if event.recorded} - {""}
        conversation = Conversation()
        for event in self._events:
            if isinstance(event, _Intercepted):
                same = (index for index, call in free.items() if call is event.recorded)
                index = next(same, None)
                free.pop(-1 if index is None else index, None)
                yield (event.name, event.arguments), index
                continue
            for message in conversation.add(event.request.messages, event.answer):
                call = conversation.call_of(message)
                if message.role != "tool" or call is None or call.name in names or call.id in ids:
                    continue
                arguments = {} if call.arguments is None else call.arguments
                index = _recorded_index(call.id, call.name, arguments, free)
                free.pop(-1 if index is None else index, None)
                yield (call.name, arguments), index

    def _is_swapped(self, earlier: int | None, later: int | None) -> bool:
        """Whether two executions overlapped in the recording, and are in reverse order there."""
        if earlier is None or later is None or earlier < later:
            return False
        first, second = self._recorded[later], self._recorded[earlier]
        is_timed = first.start_ns and second.start_ns
        return bool(is_timed) and second.start_ns < first.end_ns


def _recorded_index(
    call_id: str, name: str, arguments: Any, free: dict[int, RecordedToolCall]
) -> int | None:
    """The index of the recorded execution of a call: by its id, else by its content."""
    by_id = (index for index, call in free.items() if call_id and call.call_id == call_id)
    content = name, canonical(arguments)
    same = (
        index
        for index, call in free.items()
        if call.name == name and (name, canonical(call.arguments or {})) == content
    )
    return next(by_id, next(same, None))


def recorded_executions(recording: Recording) -> list[ToolExecution]:
    """The executions of tools in a replay that does the same as its recording.

    Tools inside other tools are not among them, because the outer tool is answered.
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
