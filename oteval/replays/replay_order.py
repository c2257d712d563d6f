"""The order of a replay's model calls, tools and requests, compared with the recording."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise

from ..base.text import shown_url
from ..model import Exchange, RecordedModelCall, RecordedToolCall, Recording
from .divergence import Divergence
from .http_answers import READING_METHODS
from .recorded_order import HappenedBefore, RecordedEvent
from .recorded_tools import asking_calls
from .request_key import RequestKey

__all__ = ["ReplayOrder"]

_Recorded = RecordedModelCall | RecordedToolCall | Exchange


class ReplayOrder:
    """Checks the order in which the recorded events of a session come.

    Args:
        recording: The recording.
        keys: The keys of the requests of its model calls.
    """

    def __init__(self, recording: Recording, keys: Sequence[RequestKey]) -> None:
        events = list(_events(recording, keys))
        self._indexes = {id(recorded): index for index, (recorded, _) in enumerate(events)}
        self._recorded = [recorded for recorded, _ in events]  # so that their ids stay theirs
        self._order = HappenedBefore([event for _, event in events])
        self._events = [event for _, event in events]

    def arrived(self, recorded: _Recorded) -> Divergence | None:
        """Note that an event has begun in the replay.

        Args:
            recorded: The model call, the tool or the exchange of the recording.

        Returns:
            The divergence if it comes too late, or None.
        """
        index = self._indexes.get(id(recorded))
        early = None if index is None else self._order.arrived(index)
        if index is None or early is None:
            return None
        late = self._events[index]
        if early.is_tool and late.is_tool:
            return _swapped_tools(self._recorded[index], self._recorded[self._events.index(early)])
        # Model calls are the first of all events.
        is_model_call = isinstance(recorded, RecordedModelCall)
        return Divergence(
            "order",
            f"{early.name} came before {late.name}, which ended before it in the recording",
            call=index + 1 if is_model_call else 0,
            recorded=[late.name, early.name],
            actual=[early.name, late.name],
        )


def _swapped_tools(late: _Recorded, early: _Recorded) -> Divergence | None:
    if not isinstance(late, RecordedToolCall) or not isinstance(early, RecordedToolCall):
        return None
    calls = [{"name": tool.name, "arguments": tool.arguments} for tool in (late, early)]
    return Divergence(
        "tool_order",
        f"{early.name} ran before {late.name}; the recording has them in the other order",
        recorded=calls,
        actual=calls[::-1],
    )


def _events(
    recording: Recording, keys: Sequence[RequestKey]
) -> Iterator[tuple[_Recorded, RecordedEvent]]:
    """Yield the events of a recording; the model calls come first."""
    conversations = _conversations(recording.model_calls, keys)
    tools = recording.tool_calls
    asking = list(asking_calls(tools, recording.model_calls))
    # No tool begins before a model asks for it, unless another clock says when.
    is_skewed = any(
        0 < tool.start_ns < recording.model_calls[number].start_ns
        for tool, number in zip(tools, asking, strict=True)
        if number >= 0
    )
    clock = "tools" if is_skewed else ""
    calls = zip(recording.model_calls, conversations, strict=True)
    for number, (call, conversation) in enumerate(calls, 1):
        thread = call.exchange.thread if call.exchange else ""
        name = f"model call {number}"
        yield call, RecordedEvent(name, call.start_ns, call.end_ns, thread, conversation)
    for tool, number in zip(tools, asking, strict=True):
        # The model calls of an agent that is used as a tool are events themselves. A tool without
        # a span has no times.
        if not tool.runs_agent and tool.start_ns:
            conversation = conversations[number] if number >= 0 else None
            yield (
                tool,
                RecordedEvent(
                    f"the tool {tool.name}",
                    tool.start_ns,
                    tool.end_ns,
                    tool.thread,
                    conversation,
                    is_tool=True,
                    clock=clock,
                ),
            )
    for exchange in recording.exchanges:
        # Other requests that only read are often cached, or sent in the background.
        if exchange.is_in_agent or exchange.method not in READING_METHODS:
            name = f"{exchange.method} {shown_url(exchange.url)}"
            yield exchange, RecordedEvent(name, exchange.start_ns, exchange.end_ns, exchange.thread)


def _conversations(
    calls: Sequence[RecordedModelCall], keys: Sequence[RequestKey]
) -> list[Hashable]:
    """The conversation of each model call: one goes on where a request repeats another.

    A conversation whose calls overlapped was forked: it does not say in which order they come.
    """
    numbers: list[int] = []
    by_messages: dict[int, int] = {}
    by_response: dict[str, int] = {}
    for call, key in zip(calls, keys, strict=True):
        before = call.request.settings.get("previous_response_id")
        number = by_response.get(before) if isinstance(before, str) else None
        digest = 0
        for message in key.messages:
            digest = hash((digest, message))
            number = by_messages.get(digest, number)
        number = len(numbers) + 1 if number is None else number
        numbers.append(number)
        by_messages[digest] = number
        if call.response_id:
            by_response[call.response_id] = number
    forked = {number for number in set(numbers) if _overlap(calls, numbers, number)}
    return [None if number in forked else number for number in numbers]


def _overlap(calls: Sequence[RecordedModelCall], numbers: Sequence[int], number: int) -> bool:
    own = [call for call, call_number in zip(calls, numbers, strict=True) if call_number == number]
    own.sort(key=lambda call: call.start_ns)
    return any(later.start_ns < earlier.end_ns for earlier, later in pairwise(own))
