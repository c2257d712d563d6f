"""What evaluators have to do: at once, at a later time, or when there is room for it again."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterator

from ..store import Todo
from .budgets import next_day_ns
from .lanes import DEFERRED, Item, Outcome, Work

__all__ = ["MOST", "Agenda"]

_NS = 1_000_000_000
# How long to wait before an evaluator that failed is asked again; after the last, the same again.
_BACKOFF = (60, 600, 3600, 6 * 3600, 24 * 3600)
_HANGS = 300
# So many items of an evaluator, and so many that are put off, are kept in memory; the store knows
# the others.
MOST = 100_000


class Agenda:
    """The items of all evaluators.

    An item is held from when it is taken up until its evaluator has spoken, also while it is put
    off. What there is no room for is left in the store, to be looked for from a completion on.

    Args:
        wall: The time of day (ns), which scores in the store have; times are told apart from it.

    Attributes:
        work: The evaluators' queues, by name and version.
    """

    def __init__(self, wall: Callable[[], int] = time.time_ns) -> None:
        self._wall = wall
        self.work: dict[tuple[str, str], Work] = {}
        self._held: dict[tuple[str, int, tuple[str, str]], Item] = {}
        self._later: list[tuple[int, int, Item]] = []
        self._later_count = 0
        self._rest: dict[tuple[str, str], int] = {}
        self._pending: Counter[str] = Counter()  # first outcomes that a trace still waits for

    def __contains__(self, key: tuple[str, int, tuple[str, str]]) -> bool:
        """Return whether an item is held, by the key that it has."""
        return key in self._held

    @property
    def put_off(self) -> int:
        """How many items wait for their time."""
        return len(self._later)

    @property
    def to_judge(self) -> int:
        """How many items are to be judged now."""
        return len(self._held) - len(self._later)

    @property
    def has_left(self) -> bool:
        """Whether the store has more to do than is held."""
        return bool(self._rest)

    @property
    def size(self) -> int:
        """How many entries all of it has."""
        queued = sum(len(work) for work in self.work.values())
        return queued + sum(map(len, (self._held, self._later, self._rest, self._pending)))

    # -- evaluators

    def begin(self, work: Work, first: int) -> None:
        """Take an evaluator, with what it has to do of completions from a number on."""
        self.work[work.live.key] = work
        self._rest[work.live.key] = first

    def forget(self, key: tuple[str, str]) -> list[str]:
        """Drop an evaluator's items; return the traces that now wait for no other's."""
        del self.work[key]
        self._rest.pop(key, None)
        self._later = [entry for entry in self._later if entry[2].rule != key]
        heapq.heapify(self._later)
        items = [item for item in self._held.values() if item.rule == key]
        for item in items:
            del self._held[item.key]
        return [item.trace_id for item in items if self._answered(item)]

    def least(self, newest: int) -> dict[tuple[str, str], int]:
        """Return the first completion of which each evaluator has something to do.

        Args:
            newest: The newest completion; the one after it stands for nothing.
        """
        least = dict.fromkeys(self.work, newest + 1)
        for item in self._held.values():
            least[item.rule] = min(least[item.rule], item.completion)
        for key, completion in self._rest.items():
            least[key] = min(least[key], completion)
        return least

    # -- items

    def take_up(
        self, work: Work, todo: Todo, before: Todo | None, now: int, *, is_old: bool
    ) -> None:
        """Have a trajectory judged.

        Args:
            work: The evaluator's queue.
            todo: The trajectory.
            before: What the evaluator said of it, None when nothing.
            now: The time (ns).
            is_old: Whether what came just now goes before it.
        """
        if len(work) >= MOST:
            self.leave(work.live.key, todo.completion)
            return
        item = Item(
            *(todo.trajectory_id, todo.rev, todo.trace_id, todo.completion, work.live.key),
            errors=before.errors if before else 0,
            has_outcome=before is not None,
            is_deferred=before.deferred if before else False,
            since_ns=now,
            start_ns=todo.start_ns,
        )
        if before is not None and not before.deferred:
            if before.status != "error" or before.errors >= work.live.limits.attempts:
                return
            self._hold(item)
            # A score of the future, from before the clock was set back, waits no longer.
            age = max(0, self._wall() - before.time_ns)
            self._put_off(item, now + max(0, _wait_ns(before.errors) - age))
            return
        self._hold(item)
        (work.older if is_old or item.has_outcome else work.fresh).append(item)

    def drop(self, item: Item) -> bool:
        """Let go of an item; return whether its trace waits for no other now."""
        self._held.pop(item.key, None)
        return self._answered(item)

    def done(self, one: Outcome, now: int) -> bool:
        """Take note of what an evaluator said; return whether the trace waits for no other now.

        What failed or was put off is judged again later.
        """
        item = one.task.item
        if self._held.pop(item.key, None) is None:
            return False
        self._again(one, now)
        return self._answered(item)

    def waits_for(self, trace_id: str) -> bool:
        """Return whether an evaluator has not said anything yet that is to judge a trace."""
        return trace_id in self._pending

    def come_due(self, now: int) -> None:
        """Queue what was put off until now."""
        while self._later and self._later[0][0] <= now:
            item = heapq.heappop(self._later)[2]
            self.work[item.rule].older.append(item)

    # -- what is left in the store

    def leave(self, key: tuple[str, str], completion: int) -> None:
        """Leave work to be found in the store again, from a completion on."""
        self._rest[key] = min(self._rest.get(key, completion), completion)

    def with_room(self) -> Iterator[tuple[Work, int]]:
        """Yield evaluators that have work left in the store and room for it, with where it begins.

        It counts as taken up then.
        """
        for key in list(self._rest):
            work = self.work[key]
            if len(work) <= MOST // 2 and len(self._later) <= MOST // 2:
                yield work, self._rest.pop(key)

    def _hold(self, item: Item) -> None:
        self._held[item.key] = item
        if not item.has_outcome:
            self._pending[item.trace_id] += 1

    def _answered(self, item: Item) -> bool:
        """Note that an item has its first outcome; return whether its trace waits for no other."""
        if item.has_outcome or item.trace_id not in self._pending:
            return False
        self._pending[item.trace_id] -= 1
        if self._pending[item.trace_id]:
            return False
        del self._pending[item.trace_id]
        return True

    def _put_off(self, item: Item, due_ns: int) -> None:
        if len(self._later) >= MOST:
            self._held.pop(item.key, None)
            self.leave(item.rule, item.completion)
            return
        self._later_count += 1
        heapq.heappush(self._later, (due_ns, self._later_count, item))

    def _again(self, one: Outcome, now: int) -> None:
        item, score = one.task.item, one.score
        errors = item.errors + (score.status == "error")
        reason = score.metadata.get(DEFERRED)
        if reason is not None:
            wall = self._wall()
            due = now + (next_day_ns(wall) - wall if reason == "budget" else _HANGS * _NS)
        elif score.status == "error" and errors < self.work[item.rule].live.limits.attempts:
            due = now + _wait_ns(errors)
        else:
            return
        later = Item(
            *(item.trajectory_id, item.rev, item.trace_id, item.completion, item.rule),
            errors=errors,
            has_outcome=True,
            is_deferred=reason is not None,
            since_ns=item.since_ns,
            start_ns=item.start_ns,
        )
        self._held[later.key] = later
        self._put_off(later, due)


def _wait_ns(errors: int) -> int:
    return _BACKOFF[min(max(errors, 1), len(_BACKOFF)) - 1] * _NS
