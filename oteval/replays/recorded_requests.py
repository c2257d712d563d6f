"""The recorded model calls, and which of them answers a request of the agent.

A request is answered by the first recorded call with an equal key that has not been used. Requests
may therefore arrive in any order, for example from parallel agents. If no recorded call has an
equal key, the *intended* call is the unused call with the most similar messages; the earliest of
several.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from ..base.jsontext import canonical
from ..base.patterns import Pattern
from ..model import RecordedModelCall, RecordedRequest, RecordedToolCall, ToolCall
from .canonical_messages import CanonicalReader, ResultOrder
from .divergence import Divergence
from .http_answers import HttpRequest
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
        tools: The executions of tools; they show which calls ran at the same time.
        normalize: Patterns of parts that vary.
    """

    def __init__(
        self,
        calls: Sequence[RecordedModelCall],
        tools: Sequence[RecordedToolCall] = (),
        normalize: Sequence[Pattern] = (),
    ) -> None:
        self._normalize = normalize
        self._reader = CanonicalReader(normalize)
        self._entries = [
            RecordedEntry(number, call, self.key_of(call.request, _http_request(call)))
            for number, call in enumerate(calls, 1)
        ]
        self._tools = tools

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def keys(self) -> list[RequestKey]:
        """The keys of all calls, in their order."""
        return [entry.key for entry in self._entries]

    @property
    def unused(self) -> list[RecordedEntry]:
        """The calls that have answered no request."""
        return [entry for entry in self._entries if not entry.is_used]

    @property
    def used(self) -> int:
        """The number of calls that have answered a request."""
        return sum(entry.is_used for entry in self._entries)

    def reached_ns(self, numbers: Collection[int]) -> int:
        """The start of the last call that was replayed, or that has one of the numbers."""
        return max(
            (e.call.start_ns for e in self._entries if e.is_used or e.number in numbers),
            default=0,
        )

    def key_of(self, request: RecordedRequest, wire: HttpRequest | None) -> RequestKey:
        """The key of a request.

        Args:
            request: The request.
            wire: The HTTP request, or None if it was not recorded.
        """
        return key_of(request, self._normalize, self._reader, wire)

    def take(self, key: RequestKey) -> RecordedEntry | None:
        """Use up the call that answers a request; None if there is none."""
        entry = self._find(key)
        if entry is not None:
            entry.is_used = True
        return entry

    def expects(self, key: RequestKey) -> bool:
        """Whether an unused call answers a request."""
        return self._find(key) is not None

    def _find(self, key: RequestKey) -> RecordedEntry | None:
        unused = self.unused
        # Calls with another key differ only in parts that the recording lacks or has redacted.
        likely = sorted(unused, key=lambda entry: entry.key != key)
        return next((entry for entry in likely if difference(entry.key, key) is None), None)

    def intended(self, key: RequestKey) -> RecordedEntry | None:
        """The unused call that corresponds to a request without an equal recorded request."""
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
        """Whether all recordings of this request have been used as answers."""
        return any(entry.key == key for entry in self._entries if entry.is_used)

    def divergence(
        self, entry: RecordedEntry, key: RequestKey, request: RecordedRequest
    ) -> Divergence:
        """Describe how a request differs from the request of its intended call."""
        divergence = difference(entry.key, key)
        if divergence is None:
            return self.swapped_results(entry, key, request) or Divergence(
                "settings", f"model call {entry.number}: the request differs", call=entry.number
            )
        return replace(
            divergence,
            summary=f"model call {entry.number}: {divergence.summary}",
            call=entry.number,
            recorded_messages=entry.call.request.messages,
            actual_messages=request.messages,
        )

    def swapped_results(
        self, entry: RecordedEntry, key: RequestKey, request: RecordedRequest
    ) -> Divergence | None:
        """The divergence of tool results in another order than recorded.

        The order is free where the recorded executions overlapped in time.

        Args:
            entry: The recorded call that answers the request.
            key: The key of the request.
            request: The request.
        """
        orders = zip(entry.key.result_orders, key.result_orders, strict=False)
        for recorded, actual in orders:
            if recorded.numbers == actual.numbers:
                continue
            calls = {call.id: call for m in entry.call.request.messages for call in m.tool_calls}
            if not self._must_follow(recorded, actual, calls):
                continue
            return Divergence(
                "tool_order",
                f"model call {entry.number}: the results of tools come in another order",
                call=entry.number,
                recorded=list(recorded.names),
                actual=list(actual.names),
                recorded_messages=entry.call.request.messages,
                actual_messages=request.messages,
            )
        return None

    def _must_follow(
        self, recorded: ResultOrder, actual: ResultOrder, calls_by_id: Mapping[str, ToolCall]
    ) -> bool:
        """Whether two results changed places although their executions did not overlap."""
        places = {number: position for position, number in enumerate(actual.numbers)}
        executions = {
            number: self._execution(call_id, calls_by_id.get(call_id))
            for number, call_id in zip(recorded.numbers, recorded.call_ids, strict=True)
        }
        return any(
            places.get(number, 0) > places.get(later_number, 0)
            and not _overlap(executions[number], executions[later_number])
            for number, later_number in combinations(recorded.numbers, 2)
        )

    def _execution(self, call_id: str, call: ToolCall | None) -> RecordedToolCall | None:
        """The recorded execution of a call, by its id or by its name and arguments."""
        timed = [tool for tool in self._tools if tool.start_ns]
        execution = next((tool for tool in timed if call_id and tool.call_id == call_id), None)
        if execution is not None or call is None:
            return execution
        key = (call.name, canonical(call.arguments))
        without_id = (tool for tool in timed if not tool.call_id)
        return next((t for t in without_id if (t.name, canonical(t.arguments)) == key), None)


def _http_request(call: RecordedModelCall) -> HttpRequest | None:
    return None if call.exchange is None else HttpRequest.of_exchange(call.exchange)


def _overlap(first: RecordedToolCall | None, second: RecordedToolCall | None) -> bool:
    """Whether two recorded executions ran at the same time."""
    if first is None or second is None:
        return False
    return first.start_ns < second.end_ns and second.start_ns < first.end_ns


def _similarity(recorded: RequestKey, actual: RequestKey) -> float:
    """The share of messages that are at the same position in both requests."""
    if recorded.is_partial:
        recorded, actual = recorded.rough, actual.rough
    equal = sum(a == b for a, b in zip(recorded.messages, actual.messages, strict=False))
    return 2 * equal / max(len(recorded.messages) + len(actual.messages), 1)
