"""The recorded model calls, and which of them answers a request of the agent.

A request is answered by the first recorded call with an equal key that has not been used. Requests
may therefore come in any order, as those of parallel agents do. If there is none, the *intended*
call is the unused one whose messages are the most similar; the earliest of several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from ..jsontext import canonical
from ..model import RecordedModelCall, RecordedRequest, RecordedToolCall, ToolCall
from ..patterns import Pattern
from .divergence import Divergence
from .request_key import RequestKey, difference, key_of

__all__ = ["RecordedEntry", "RecordedRequests"]


@dataclass(eq=False)
class RecordedEntry:
    """A recorded model call.

    Attributes:
        number: Its number, from 1.
        call: The call.
        key: The key of its request.
        is_used: Whether it has answered a request.
    """

    number: int
    call: RecordedModelCall
    key: RequestKey
    is_used: bool = False


class RecordedRequests:
    """The recorded model calls of a session.

    Args:
        calls: The calls.
        tools: The executions of tools, by which calls at the same time are recognised.
        normalize: Patterns of parts that vary.
    """

    def __init__(
        self,
        calls: Sequence[RecordedModelCall],
        tools: Sequence[RecordedToolCall] = (),
        normalize: Sequence[Pattern] = (),
    ) -> None:
        self._normalize = normalize
        self._entries = [
            RecordedEntry(number, call, key_of(call.request, normalize=normalize))
            for number, call in enumerate(calls, 1)
        ]
        self._tools = tools

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def unused(self) -> list[RecordedEntry]:
        """The calls that have answered no request."""
        return [entry for entry in self._entries if not entry.is_used]

    @property
    def used(self) -> int:
        """The number of calls that have answered a request."""
        return sum(entry.is_used for entry in self._entries)

    def key_of(self, request: RecordedRequest) -> RequestKey:
        """Return the key of a request."""
        return key_of(request, normalize=self._normalize)

    def take(self, key: RequestKey) -> RecordedEntry | None:
        """Return the call that answers a request, and use it up; None if there is none."""
        unused = self.unused
        found = next((entry for entry in unused if entry.key == key), None)
        if found is None:
            # Equal, but for parts that the recording lacks or has redacted.
            found = next((e for e in unused if difference(e.key, key) is None), None)
        if found is not None:
            found.is_used = True
        return found

    def intended(self, key: RequestKey) -> RecordedEntry | None:
        """Return the unused call that a request without an equal one stands for."""
        unused = self.unused
        if not unused or self._is_repeated(key):
            return None
        best = max(unused, key=lambda entry: (_similarity(entry.key, key), -entry.number))
        if _similarity(best.key, key) == 0:
            served = [entry for entry in self._entries if entry.is_used]
            if any(_similarity(entry.key, key) >= 0.5 for entry in served):
                return None
        return best

    def _is_repeated(self, key: RequestKey) -> bool:
        """Return whether a request has been answered, and was recorded only that often."""
        return any(entry.key == key for entry in self._entries if entry.is_used)

    def divergence(
        self, entry: RecordedEntry, key: RequestKey, request: RecordedRequest
    ) -> Divergence:
        """Return how a request differs from the recorded one of its intended call."""
        found = difference(entry.key, key)
        if found is None:
            return self.swapped_results(entry, key, request) or Divergence(
                "settings", f"model call {entry.number}: the request differs", call=entry.number
            )
        return Divergence(
            found.kind,
            f"model call {entry.number}: {found.summary}",
            call=entry.number,
            message=found.message,
            recorded=found.recorded,
            actual=found.actual,
            recorded_messages=entry.call.request.messages,
            actual_messages=request.messages,
            suggestion=found.suggestion,
        )

    def swapped_results(
        self, entry: RecordedEntry, key: RequestKey, request: RecordedRequest
    ) -> Divergence | None:
        """Return the divergence of tool results in another order than recorded.

        The order is free where the recorded executions overlapped in time.

        Args:
            entry: The recorded call that answers the request.
            key: The key of the request.
            request: The request.
        """
        calls = [call for m in entry.call.request.messages for call in m.tool_calls]
        orders = zip(entry.key.result_orders, key.result_orders, strict=False)
        for recorded, actual in orders:
            if recorded == actual or not self._must_follow(calls, recorded, actual):
                continue
            return Divergence(
                "tool_order",
                f"model call {entry.number}: the results of tools come in another order",
                call=entry.number,
                recorded=[_shown(calls, ordinal) for ordinal in recorded],
                actual=[_shown(calls, ordinal) for ordinal in actual],
                recorded_messages=entry.call.request.messages,
                actual_messages=request.messages,
            )
        return None

    def _must_follow(
        self, calls: Sequence[ToolCall], recorded: Sequence[int], actual: Sequence[int]
    ) -> bool:
        """Return whether two results changed places whose executions did not overlap."""
        places = {ordinal: place for place, ordinal in enumerate(actual)}
        return any(
            places.get(one, 0) > places.get(other, 0) and not self._overlap(calls, one, other)
            for one, other in combinations(recorded, 2)
        )

    def _overlap(self, calls: Sequence[ToolCall], one: int, other: int) -> bool:
        """Return whether the recorded executions of two calls ran at the same time."""
        pair = [self._execution(calls[at]) for at in (one, other) if 0 <= at < len(calls)]
        if len(pair) < 2 or pair[0] is None or pair[1] is None:
            return False
        return pair[0].start_ns < pair[1].end_ns and pair[1].start_ns < pair[0].end_ns

    def _execution(self, call: ToolCall) -> RecordedToolCall | None:
        timed = (tool for tool in self._tools if tool.start_ns and tool.name == call.name)
        wanted = canonical(call.arguments)
        return next(
            (
                tool
                for tool in timed
                if (tool.call_id and tool.call_id == call.id)
                or canonical(tool.arguments) == wanted
            ),
            None,
        )


def _shown(calls: Sequence[ToolCall], ordinal: int) -> dict[str, object]:
    if not 0 <= ordinal < len(calls):
        return {"name": "(a call that was not recorded)"}
    return {"name": calls[ordinal].name, "arguments": calls[ordinal].arguments}


def _similarity(one: RequestKey, other: RequestKey) -> float:
    """Return the share of messages that two requests have at the same position."""
    equal = sum(a == b for a, b in zip(one.messages, other.messages, strict=False))
    return 2 * equal / max(len(one.messages) + len(other.messages), 1)
