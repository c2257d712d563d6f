"""The order of a replay's model calls, tools and requests, compared with the recording.

An event *precedes* another event if it ended before the other began. Both must then happen in this
order in a replay. Events that overlapped may happen in any order. A *strand* is a thread, an
asynchronous task, or a conversation: requests to a model that each continue the previous request,
with the tools that their answers request. If two strands ran at the same time, their events may
happen in any order: it is chance that an event of the first strand ended before an event of the
second strand began.

Threads of a pool, and tasks behind a semaphore, do their work at the same time as others, even if
their events do not overlap each other. Their events have an order only if no two events overlapped
in between. This condition does not apply to two events of one task or one conversation, or if one
of the two is in the main thread.

The order is checked when the earlier event arrives late, and not when the later event arrives
early. So events that never arrive do not break the order: events that may be left out, events of
another process, and events inside a tool that was answered. Events without times have no order.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, takewhile

from ..base.text import shown_url
from ..model import Exchange, RecordedModelCall, RecordedToolCall, Recording
from .divergence import Divergence
from .http_answers import READING_METHODS
from .recorded_tools import asking_calls
from .request_key import RequestKey

__all__ = ["HappenedBefore", "RecordedEvent", "ReplayOrder"]

_Recorded = RecordedModelCall | RecordedToolCall | Exchange


class ReplayOrder:
    """Checks the order of the recorded events of a session.

    Args:
        recording: The recording.
        keys: The keys of the requests of its model calls.
    """

    def __init__(self, recording: Recording, keys: Sequence[RequestKey]) -> None:
        events = list(_events(recording, keys))
        self._indexes = {id(recorded): index for index, (recorded, _) in enumerate(events)}
        self._recorded = [recorded for recorded, _ in events]  # kept, so that ids stay unique
        self._order = HappenedBefore([event for _, event in events])
        self._events = [event for _, event in events]

    def arrived(self, recorded: _Recorded) -> Divergence | None:
        """Note that an event has begun in the replay.

        Args:
            recorded: The model call, the tool or the exchange of the recording.

        Returns:
            The divergence if the event is too late, or None.
        """
        index = self._indexes.get(id(recorded))
        early = None if index is None else self._order.arrived(index)
        if index is None or early is None:
            return None
        late = self._events[index]
        if early.is_tool and late.is_tool:
            return _swapped_tools(self._recorded[index], self._recorded[self._events.index(early)])
        # Model calls are the first events in the list.
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
    """Yield the events of a recording; the model calls are first."""
    conversations = _conversations(recording.model_calls, keys)
    tools = recording.tool_calls
    asking = list(asking_calls(tools, recording.model_calls))
    # No tool begins before a model requests it, unless its times are from another clock.
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
    """The conversation of each model call; a request that repeats another continues it.

    A conversation with overlapping calls was forked: it does not determine their order.
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
    forked = {number for number in set(numbers) if _calls_overlap(calls, numbers, number)}
    return [None if number in forked else number for number in numbers]


def _calls_overlap(calls: Sequence[RecordedModelCall], numbers: Sequence[int], number: int) -> bool:
    own = [call for call, call_number in zip(calls, numbers, strict=True) if call_number == number]
    own.sort(key=lambda call: call.start_ns)
    return any(later.start_ns < earlier.end_ns for earlier, later in pairwise(own))


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """A recorded event.

    Attributes:
        name: Its name for people.
        start_ns: Its start; 0 if it is unknown.
        end_ns: Its end; 0 if it is unknown.
        thread: The thread or task that it began in, or "" if that is unknown.
        conversation: The conversation that it belongs to, or None.
        is_tool: Whether it may contain other events. It is not a rival of an event that it
            contains.
        clock: The clock of its times, if not all events have the same clock. Events of two clocks
            have no order.
    """

    name: str
    start_ns: int = 0
    end_ns: int = 0
    thread: str = ""
    conversation: Hashable = None
    is_tool: bool = False
    clock: str = ""

    @property
    def is_main(self) -> bool:
        """Whether it began in the main thread, or in the task that starts the others."""
        return self.thread.endswith("main")

    @property
    def has_times(self) -> bool:
        """Whether its start and end are known. An event without a duration has no known times."""
        return 0 < self.start_ns < self.end_ns

    def contains(self, event: RecordedEvent) -> bool:
        """Whether another event happened inside this tool."""
        is_inside = self.start_ns <= event.start_ns and event.end_ns <= self.end_ns
        return self.is_tool and is_inside


class HappenedBefore:
    """Checks that the events of a replay happen in an order that the recording allows.

    Args:
        events: The recorded events. They are named by their index.
    """

    def __init__(self, events: Sequence[RecordedEvent]) -> None:
        self._events = events
        # The starts and indexes of the events that have arrived, by their strands.
        self._served: dict[tuple[str, str, Hashable], list[tuple[int, int]]] = {}
        self._overlaps: dict[frozenset[Hashable], bool] = {}
        self._strands: dict[Hashable, list[RecordedEvent]] = {}
        self._untimed: set[Hashable] = set()
        for event in events:
            for strand in _strands(event):
                self._strands.setdefault(strand, []).append(event)
                if not event.has_times:
                    self._untimed.add(strand)
        self._timed = sorted(
            (event for event in events if event.has_times), key=lambda event: event.start_ns
        )

    def arrived(self, index: int) -> RecordedEvent | None:
        """Note that an event has begun in the replay.

        Args:
            index: The index of the event.

        Returns:
            An earlier event that this event precedes in the recording; None if the recording allows
            this order.
        """
        event = self._events[index]
        if not event.has_times:
            return None
        # The first of the later events of a strand has the fewest events in between.
        early = [
            starts[later_index][1]
            for (clock, *_), starts in self._served.items()
            if clock == event.clock
            if (later_index := bisect_left(starts, (event.end_ns + 1, -1))) < len(starts)
        ]
        own = self._served.setdefault((event.clock, event.thread, event.conversation), [])
        insort(own, (event.start_ns, index))
        overtaken = (self._events[event_index] for event_index in sorted(early))
        return next((later for later in overtaken if self._is_ordered(event, later)), None)

    def _is_ordered(self, earlier: RecordedEvent, later: RecordedEvent) -> bool:
        """Whether nothing shows that two events belong to strands at the same time."""
        pairs = [
            (("thread", earlier.thread), ("thread", later.thread)),
            (("conversation", earlier.conversation), ("conversation", later.conversation)),
        ]
        certain = [pair for pair in pairs if pair[0][1] and pair[1][1]]
        if any(first != second and self._are_parallel(first, second) for first, second in certain):
            return False
        same_conversation = earlier.conversation and earlier.conversation == later.conversation
        if same_conversation or _is_same_strand(earlier, later):
            return True
        return self._is_quiet(earlier.start_ns, later.end_ns)

    def _are_parallel(self, first: Hashable, second: Hashable) -> bool:
        """Whether events of two strands overlapped, or have unknown times."""
        pair = frozenset((first, second))
        if pair not in self._overlaps:
            is_unknown = not self._untimed.isdisjoint(pair)
            self._overlaps[pair] = is_unknown or _strands_overlap(
                self._strands[first], self._strands[second]
            )
        return self._overlaps[pair]

    def _is_quiet(self, start_ns: int, end_ns: int) -> bool:
        """Whether no two events ran at the same moment of a period."""
        inside = [
            event for event in self._timed if event.end_ns > start_ns and event.start_ns < end_ns
        ]
        return not any(
            _are_rivals(event, later_event)
            for position, event in enumerate(inside)
            for later_event in takewhile(
                lambda next_event, event=event: next_event.start_ns < event.end_ns,  # type: ignore[misc]
                islice(inside, position + 1, None),
            )
        )


def _is_same_strand(earlier: RecordedEvent, later: RecordedEvent) -> bool:
    """Whether one task made two events, or the main thread made one of the two."""
    if not (earlier.thread and later.thread):
        return False
    is_task = earlier.thread == later.thread and "task" in earlier.thread
    return is_task or earlier.is_main or later.is_main


def _strands(event: RecordedEvent) -> Iterator[Hashable]:
    if event.thread:
        yield "thread", event.thread
    if event.conversation:
        yield "conversation", event.conversation


def _strands_overlap(strand: Sequence[RecordedEvent], parallel: Sequence[RecordedEvent]) -> bool:
    return any(_are_rivals(a, b) for a in strand for b in parallel if a is not b)


def _are_rivals(event: RecordedEvent, other_event: RecordedEvent) -> bool:
    """Whether two events overlapped, and none of them happened inside the other one."""
    overlapped = event.start_ns < other_event.end_ns and other_event.start_ns < event.end_ns
    return overlapped and not (event.contains(other_event) or other_event.contains(event))
