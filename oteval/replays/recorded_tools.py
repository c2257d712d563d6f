"""The recorded executions of tools: the execution that answers a call, and the tools in an answer.

A call is answered by the first unused execution of the same tool with the same arguments.
`ReplayOrder` compares the order of executions.

An answer of a known API names the tools that it requests. Other answers are searched: a tool is
requested if the request offers it and its name is a value in the response.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.jsontext import canonical, loads
from ..base.patterns import Pattern
from ..model import (
    Exchange,
    RecordedModelCall,
    RecordedRequest,
    RecordedToolCall,
    Recording,
    ToolCall,
)
from ..reconstruct import is_event_stream, offered_tools, read_events
from .divergence import Divergence
from .text_comparison import without_variable_parts

__all__ = [
    "RecordedTools",
    "ToolResults",
    "asking_calls",
    "tools_asked_by",
    "tools_asked_in",
    "without_result",
]


@dataclass(eq=False)
class _Execution:
    """A recorded execution.

    Attributes:
        call: The execution.
        keys: The tool's name with the canonical arguments in the model's request, and with the
            arguments of the function's call, where they differ.
        group: The number of the model call that requested it, or -1.
        is_used: Whether it has answered a call.
    """

    call: RecordedToolCall
    keys: tuple[tuple[str, str], ...]
    group: int
    is_used: bool = False

    def contains(self, start_ns: int, end_ns: int) -> bool:
        """Whether something happened during this execution."""
        return 0 < self.call.start_ns <= start_ns and 0 < end_ns <= self.call.end_ns


class RecordedTools:
    """The recorded executions of a session.

    Args:
        calls: The executions.
        model_calls: The model calls that requested them.
        normalize: Patterns of parts that vary in the text of arguments.
    """

    def __init__(
        self,
        calls: Sequence[RecordedToolCall],
        model_calls: Sequence[RecordedModelCall],
        *,
        normalize: Sequence[Pattern] = (),
    ) -> None:
        self._normalize = normalize
        self._executions = [
            _Execution(call, tuple(self._keys(call)), group)
            for call, group in zip(calls, asking_calls(calls, model_calls), strict=True)
        ]

    def __len__(self) -> int:
        return len(self._executions)

    @property
    def used(self) -> int:
        """The number of executions that have answered a call."""
        return sum(run.is_used for run in self._executions)

    def began_before(self, time_ns: int) -> bool:
        """Whether an execution with a known start began before a time."""
        return any(0 < run.call.start_ns < time_ns for run in self._executions)

    def has(self, name: str, arguments: Any) -> bool:
        """Whether an unused execution answers a call."""
        return self._find(name, arguments, self._key(name, arguments)) is not None

    def take(self, name: str, arguments: Any) -> RecordedToolCall | Divergence:
        """Use up the execution that answers a call; else the difference from the recording."""
        key = self._key(name, arguments)
        run = self._find(name, arguments, key)
        if run is None:
            return self._miss(name, arguments, key)
        run.is_used = True
        return run.call

    def covers(self, start_ns: int, end_ns: int) -> bool:
        """Whether something happened inside an execution that was answered."""
        return any(run.is_used and run.contains(start_ns, end_ns) for run in self._executions)

    def missing(self, *, in_process: bool = True) -> Iterator[tuple[int, RecordedToolCall]]:
        """Yield the executions that the replay lacks, although it intercepts their tools.

        Args:
            in_process: Whether the replay intercepts decorated tools.

        Yields:
            The number of an execution, from 1, and the execution.
        """
        intercepted = {run.call.name for run in self._executions if run.is_used}
        for number, run in enumerate(self._executions, 1):
            call = run.call
            is_seen = call.name in intercepted or (in_process and call.is_decorated)
            if run.is_used or not call.start_ns or not is_seen:
                continue
            # A framework that refuses the arguments of a call never calls the tool.
            if call.is_error and not call.is_decorated:
                continue
            if not self.covers(call.start_ns, call.end_ns):
                yield number, call

    def _find(self, name: str, arguments: Any, key: tuple[str, str]) -> _Execution | None:
        unused = [run for run in self._executions if not run.is_used]
        exact = next((run for run in unused if key in run.keys), None)
        if exact is not None or not isinstance(arguments, Mapping):
            return exact
        # Recorded arguments are the model's. They lack the defaults of the tool, and values that
        # the agent adds.
        same_name = (run for run in unused if run.call.name == name)
        return next((e for e in same_name if self._is_part(e.call.arguments, arguments)), None)

    def _is_part(self, recorded: Any, actual: Mapping[str, Any]) -> bool:
        if not isinstance(recorded, Mapping) or not recorded.keys() <= actual.keys():
            return False
        return self._key("", recorded) == self._key("", {key: actual[key] for key in recorded})

    def _miss(self, name: str, arguments: Any, key: tuple[str, str]) -> Divergence:
        same_name = [run for run in self._executions if run.call.name == name]
        unused = next((run for run in same_name if not run.is_used), None)
        actual = {"name": name, "arguments": arguments}
        times = sum(key in run.keys for run in same_name)
        if unused is not None and not times:
            unused.is_used = True
            return Divergence(
                "tool_call",
                f"the arguments of the tool {name} differ",
                call=unused.group + 1,
                recorded=_shown(unused.call),
                actual=actual,
                suggestion="if they vary in every run: --normalize PATTERN",
            )
        if times:
            how = f"was called with these arguments more often than recorded ({times})"
        elif same_name:
            how = f"was called more often than recorded ({len(same_name)})"
        else:
            how = "was called, but the recording has no run of it"
        return Divergence(
            "tool_call",
            f"the tool {name} {how}",
            actual=actual,
            suggestion="to run tools instead of answering them: --tools run",
        )

    def _keys(self, call: RecordedToolCall) -> Iterator[tuple[str, str]]:
        yield self._key(call.name, call.arguments)
        if call.own_arguments is not None:
            yield self._key(call.name, call.own_arguments)

    def _key(self, name: str, arguments: Any) -> tuple[str, str]:
        text = canonical({} if arguments is None else arguments)
        return name, without_variable_parts(text, self._normalize)


def without_result(name: str, arguments: Any) -> RecordedToolCall:
    """The failed call that answers a tool without a recorded result."""
    text = f"oteval replay: the recording has no result of {name} with these arguments"
    return RecordedToolCall(name, arguments, text, is_error=True)


def asking_calls(
    calls: Iterable[RecordedToolCall], model_calls: Sequence[RecordedModelCall]
) -> Iterator[int]:
    """Yield the index of the model call that requested an execution, or -1, for each execution.

    Args:
        calls: The executions.
        model_calls: The model calls.
    """
    unmatched = [
        (index, call)
        for index, model_call in enumerate(model_calls)
        for call in (model_call.answer.client_calls if model_call.answer else ())
    ]
    for call in calls:
        matching = (at for at, (_, tool) in enumerate(unmatched) if _asks_for(tool, call))
        at = next(matching, None)
        yield -1 if at is None else unmatched.pop(at)[0]


def _asks_for(asked_call: ToolCall, execution: RecordedToolCall) -> bool:
    """Whether an execution belongs to a model's call."""
    if asked_call.id and execution.call_id:
        return asked_call.id == execution.call_id
    same = canonical(asked_call.arguments) == canonical(execution.arguments)
    return same and asked_call.name == execution.name


def _shown(call: RecordedToolCall) -> dict[str, Any]:
    return {"name": call.name, "arguments": call.arguments}


def tools_asked_by(call: RecordedModelCall, recording: Recording) -> list[str]:
    """The names of the tools that a recorded model call requests.

    Args:
        call: The call.
        recording: The recording that has it. If a tool ran before the next model call and no answer
            requests it, the text of this call requests it.
    """
    answers = [call.answer, *call.choices]
    names = [tool.name for answer in answers if answer is not None for tool in answer.client_calls]
    if call.exchange is not None:
        names += tools_asked_in(call.exchange)
    return list(dict.fromkeys([*names, *_unasked_tools(call, recording)]))


def _unasked_tools(call: RecordedModelCall, recording: Recording) -> Iterator[str]:
    requested_names = {
        tool_call.name
        for m in recording.model_calls
        if m.answer is not None
        for tool_call in m.answer.client_calls
    }
    later = (m.start_ns for m in recording.model_calls if m.start_ns > call.end_ns)
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

    If a result has no such call, the tool was not run by the function that was taken over, but by
    something else.
    """

    def __init__(self) -> None:
        self._asked: dict[str, str] = {}
        self._answered: Counter[str] = Counter()
        self._given: Counter[str] = Counter()

    def asked(self, call: RecordedModelCall) -> None:
        """Note the calls of an answer that the agent receives."""
        for answer in (call.answer, *call.choices):
            for tool_call in answer.client_calls if answer is not None else ():
                if tool_call.id:
                    self._asked[tool_call.id] = tool_call.name

    def answered(self, name: str) -> None:
        """Note that a call of a tool was answered."""
        self._answered[name] += 1

    def given(self, request: RecordedRequest) -> list[str]:
        """The tools with more results than calls.

        Args:
            request: A request of the agent.
        """
        for message in request.messages:
            name = self._asked.pop(message.tool_call_id, "") if message.role == "tool" else ""
            if name:
                self._given[name] += 1
        return [name for name, count in self._given.items() if count > self._answered[name]]
