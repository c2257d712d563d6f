"""The recorded executions of tools, and which of them answers a call of the agent.

A call is answered by the first execution of the same tool with the same arguments that has not been
used. `ReplayOrder` compares the order of executions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.jsontext import canonical
from ..model import RecordedModelCall, RecordedToolCall, ToolCall
from .divergence import Divergence

__all__ = ["RecordedTools", "ToolMatch", "asking_calls"]


@dataclass(eq=False)
class _Execution:
    """A recorded execution.

    Attributes:
        call: The execution.
        keys: The tool's name with the canonical arguments that the model asked for, and with those
            that the function was called with, where they differ.
        group: The number of the model call that asked for it, or -1.
        is_used: Whether it has answered a call.
    """

    call: RecordedToolCall
    keys: tuple[tuple[str, str], ...]
    group: int
    is_used: bool = False

    def contains(self, start_ns: int, end_ns: int) -> bool:
        """Whether something happened during this execution."""
        return 0 < self.call.start_ns <= start_ns and 0 < end_ns <= self.call.end_ns


@dataclass(frozen=True, slots=True)
class ToolMatch:
    """The result of looking for the recorded execution of a call.

    Attributes:
        call: The recorded execution, or None.
        divergence: The difference from the recording, or None.
    """

    call: RecordedToolCall | None = None
    divergence: Divergence | None = None


class RecordedTools:
    """The recorded executions of a session.

    Args:
        calls: The executions.
        model_calls: The model calls that asked for them.
        normalized: Replaces variable parts in the text of arguments.
    """

    def __init__(
        self,
        calls: Sequence[RecordedToolCall],
        model_calls: Sequence[RecordedModelCall],
        *,
        normalized: Callable[[str], str] = str,
    ) -> None:
        self._normalized = normalized
        self._executions = [
            _Execution(call, tuple(self._keys(call)), group)
            for call, group in zip(calls, asking_calls(calls, model_calls), strict=True)
        ]

    def __len__(self) -> int:
        return len(self._executions)

    @property
    def used(self) -> int:
        """The number of executions that have answered a call."""
        return sum(execution.is_used for execution in self._executions)

    def began_before(self, time_ns: int) -> bool:
        """Whether an execution with a known start began before a time."""
        return any(0 < execution.call.start_ns < time_ns for execution in self._executions)

    def has(self, name: str, arguments: Any) -> bool:
        """Whether an unused execution answers a call."""
        return self._find(name, arguments, self._key(name, arguments)) is not None

    def take(self, name: str, arguments: Any) -> ToolMatch:
        """Use up the execution that answers a call."""
        key = self._key(name, arguments)
        execution = self._find(name, arguments, key)
        if execution is None:
            return ToolMatch(divergence=self._miss(name, arguments, key))
        execution.is_used = True
        return ToolMatch(execution.call)

    def covers(self, start_ns: int, end_ns: int) -> bool:
        """Whether something happened inside an execution that was answered."""
        return any(
            execution.is_used and execution.contains(start_ns, end_ns)
            for execution in self._executions
        )

    def missing(self, *, in_process: bool = True) -> Iterator[tuple[int, RecordedToolCall]]:
        """Yield the executions that the replay lacks, although it intercepts those tools.

        Args:
            in_process: Whether the replay intercepts decorated tools.

        Yields:
            The number of an execution, from 1, and the execution.
        """
        intercepted = {execution.call.name for execution in self._executions if execution.is_used}
        for number, execution in enumerate(self._executions, 1):
            call = execution.call
            is_seen = call.name in intercepted or (in_process and call.is_decorated)
            if execution.is_used or not call.start_ns or not is_seen:
                continue
            # A framework that refuses the arguments of a call never comes to the tool.
            if call.is_error and not call.is_decorated:
                continue
            if not self.covers(call.start_ns, call.end_ns):
                yield number, call

    def _find(self, name: str, arguments: Any, key: tuple[str, str]) -> _Execution | None:
        unused = [execution for execution in self._executions if not execution.is_used]
        exact = next((execution for execution in unused if key in execution.keys), None)
        if exact is not None or not isinstance(arguments, Mapping):
            return exact
        # Recorded arguments are those that the model asked for. They lack the defaults of the tool,
        # and values that the agent adds.
        same_name = (execution for execution in unused if execution.call.name == name)
        return next((e for e in same_name if self._is_part(e.call.arguments, arguments)), None)

    def _is_part(self, recorded: Any, actual: Mapping[str, Any]) -> bool:
        if not isinstance(recorded, Mapping) or not recorded.keys() <= actual.keys():
            return False
        return self._key("", recorded) == self._key("", {key: actual[key] for key in recorded})

    def _miss(self, name: str, arguments: Any, key: tuple[str, str]) -> Divergence:
        same_name = [execution for execution in self._executions if execution.call.name == name]
        unused = next((execution for execution in same_name if not execution.is_used), None)
        actual = {"name": name, "arguments": arguments}
        times = sum(key in execution.keys for execution in same_name)
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
            how = "was called, but the recording has no execution of it"
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
        return name, self._normalized(canonical({} if arguments is None else arguments))


def asking_calls(
    calls: Iterable[RecordedToolCall], model_calls: Sequence[RecordedModelCall]
) -> Iterator[int]:
    """Yield for each execution the index of the model call that asked for it, or -1.

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
        position = next(
            (
                position
                for position, (_, asked_call) in enumerate(unmatched)
                if _asks_for(asked_call, call)
            ),
            None,
        )
        yield -1 if position is None else unmatched.pop(position)[0]


def _asks_for(asked_call: ToolCall, execution: RecordedToolCall) -> bool:
    """Whether a model's call is the one that was executed."""
    if asked_call.id and execution.call_id:
        return asked_call.id == execution.call_id
    same = canonical(asked_call.arguments) == canonical(execution.arguments)
    return same and asked_call.name == execution.name


def _shown(call: RecordedToolCall) -> dict[str, Any]:
    return {"name": call.name, "arguments": call.arguments}
