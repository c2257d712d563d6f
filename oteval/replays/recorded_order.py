"""The order of recorded events, over model calls, tools and requests together.

An event *precedes* another one if it ended before the other began. Both must then come in this
order in a replay. Events that overlapped may come in any order, and so may those of two strands
that ran at the same time: that one event of the first strand ended before one of the second began
is chance. A *strand* is a thread or an asynchronous task, or a conversation: requests to a model
that each continue the one before, with the tools that their answers ask for.

Threads of a pool, and tasks behind a semaphore, take up work that is at the same time as that of
others, without overlapping each other. Their events have an order only if no two events overlapped
in between. Those of one task, of one conversation, or of the main thread and another one, need not
be alone.

The order is checked when the earlier event arrives late, and not when the later one arrives early.
An event that never arrives is therefore no matter of order: one that may be left out, one of
another process, or one inside a tool that was answered. Events without times have no order.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

__all__ = ["HappenedBefore", "RecordedEvent"]


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """A recorded event.

    Attributes:
        name: Its name for people.
        start_ns: Its start; 0 if it is unknown.
        end_ns: Its end; 0 if it is unknown.
        thread: The thread or task in which it began, or "" if that is unknown.
        conversation: The conversation that it belongs to, or None.
        is_tool: Whether it may contain others, of which it then is not a rival.
        clock: The clock of its times, if not all events have the same; those of two clocks have no
            order.
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
    """Checks that the events of a replay come in an order that the recording allows.

    Args:
        events: The recorded events. They are named by their index.
    """

    def __init__(self, events: Sequence[RecordedEvent]) -> None:
        self._events = events
        # The starts and indexes of the events that came, by their strands.
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
            An event that came before although this one precedes it; None if the recording allows
            this order.
        """
        event = self._events[index]
        if not event.has_times:
            return None
        # Of the later events of the same strands, the first one has the least between.
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
        if any(
            strand != later_strand and self._are_parallel(strand, later_strand)
            for strand, later_strand in certain
        ):
            return False
        same_conversation = earlier.conversation and earlier.conversation == later.conversation
        if same_conversation or _is_same_strand(earlier, later):
            return True
        return self._is_quiet(earlier.start_ns, later.end_ns)

    def _are_parallel(self, strand: Hashable, other_strand: Hashable) -> bool:
        """Whether events of two strands overlapped, as far as their times are known."""
        pair = frozenset((strand, other_strand))
        if pair not in self._overlaps:
            is_unknown = not self._untimed.isdisjoint(pair)
            self._overlaps[pair] = is_unknown or _overlap(
                self._strands[strand], self._strands[other_strand]
            )
        return self._overlaps[pair]

    def _is_quiet(self, start_ns: int, end_ns: int) -> bool:
        """Whether at no moment of a time two events ran."""
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
    """Whether one task made two events, or the main thread one of them."""
    if not (earlier.thread and later.thread):
        return False
    is_task = earlier.thread == later.thread and "task" in earlier.thread
    return is_task or earlier.is_main or later.is_main


def _strands(event: RecordedEvent) -> Iterator[Hashable]:
    if event.thread:
        yield "thread", event.thread
    if event.conversation:
        yield "conversation", event.conversation


def _overlap(events: Sequence[RecordedEvent], other_events: Sequence[RecordedEvent]) -> bool:
    return any(
        _are_rivals(event, other_event)
        for event in events
        for other_event in other_events
        if event is not other_event
    )


def _are_rivals(event: RecordedEvent, other_event: RecordedEvent) -> bool:
    """Whether two events overlapped, and none of them happened inside the other one."""
    overlapped = event.start_ns < other_event.end_ns and other_event.start_ns < event.end_ns
    return overlapped and not (event.contains(other_event) or other_event.contains(event))
