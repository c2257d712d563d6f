"""Live scoring: driven by what comes into a store and by the clock, without threads of its own.

`Scoring.tick` does a bounded piece of work: it looks at what came, reconstructs traces that are
complete, judges their trajectories or hands them to lanes, and writes down what came of it. What
is to do is known by the store alone; what is kept here is only a shorter way to it.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..evaluate.scorer import is_drawn
from ..model import Trajectory
from ..store import RuleState, Store, Todo
from .budgets import Purse, day_begin_ns, day_of, next_day_ns
from .completing import Completing
from .giving import Giving
from .lanes import DEFERRED, Item, Lane, Outcome, Task, Work, run, spending
from .rules import LiveRule, Rules

if TYPE_CHECKING:
    from ..attach import Attach

__all__ = ["Scoring"]

_NS = 1_000_000_000
# Trajectories judged in one tick by each evaluator: less than a second of work.
_JUDGED = 400
_SETTLE_NS = 10 * _NS
_CHECK_NS = _NS
# How long to wait before an evaluator that failed is asked again; after the last, the same again.
_BACKOFF = (60, 600, 3600, 6 * 3600, 24 * 3600)
_HANGS = 300
# So many items of an evaluator, and so many that are put off, are kept in memory; the store knows
# the others, and so many of its traces are looked at when there is room again.
_MOST = 100_000
_REFILL = 5_000


class Scoring:
    """Scores trajectories as their traces complete.

    All calls but `touch` and `reload` come from one thread, which the store's connection is for.

    Args:
        store: The store; best a `Store.sibling` of the one that spans are written with.
        rules: What is scored, and how.
        attach: Where scores go beside the store.
        clock: The time (ns).
    """

    def __init__(
        self,
        store: Store,
        rules: Rules,
        attach: Attach | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._store, self._rules, self._clock = store, rules, clock
        self._giving = Giving(store, attach)
        self._completing = Completing(store, rules.config.completion, self._changed, self._came_to)
        self._work: dict[tuple[str, str], Work] = {}
        self._states: dict[tuple[str, str], RuleState] = {}
        self._purses: dict[str, Purse] = {}
        self._held: dict[tuple[str, int, tuple[str, str]], Item] = {}
        self._later: list[tuple[int, int, Item]] = []
        self._later_count = 0
        self._rest: dict[tuple[str, str], int] = {}  # from which completion on the store knows more
        self._unwritten: list[Outcome] = []
        self._pending: Counter[str] = Counter()  # first outcomes that a trace still waits for
        self._is_reload_wanted = False
        self._checked = self._settled_ns = clock()
        self._adopt(clock())

    # -- what others call

    def touch(self, trace_ids: Iterable[str], now: int) -> None:
        """Say when something of traces was stored, after the commit; any thread may.

        What is not said is found all the same: `tick` asks the store what came.
        """
        self._completing.touch(trace_ids, now)

    def reload(self) -> None:
        """Have the next tick read the rules again; any thread, and a signal handler, may."""
        self._is_reload_wanted = True

    def tick(self, now: int | None = None) -> bool:
        """Do a bounded piece of what is to do.

        Args:
            now: The time (ns); the clock's by default.

        Returns:
            Whether there is more to do at once.
        """
        now = self._clock() if now is None else now
        self._check_rules(now)
        for purse in self._purses.values():
            purse.begin(now)
        self._completing.arrive(now)
        more = self._completing.complete(now)
        self._come_due(now)
        self._refill(now)
        more |= self._feed(now)
        self._collect()
        self._write(now)
        self._giving.expire(now)
        if self._giving.is_measuring(now):
            self._measure(now)
        if now - self._settled_ns >= _SETTLE_NS:
            self._settle(now)
        return more

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be judged now; open traces and retries wait for their time."""
        return len(self._held) == len(self._later) and not self._unwritten and not self._rest

    @property
    def open_traces(self) -> int:
        """How many traces are not complete."""
        return len(self._completing.tracker)

    def drain(self, seconds: float) -> bool:
        """Go on until nothing is to be judged now, at most so long; return whether that is so."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if not self.tick() and self.is_idle:
                return True
            if not self.is_idle:
                time.sleep(0.01)
        return self.is_idle

    def state(self) -> dict[str, Any]:
        """Return how it stands, for people and for /readyz."""
        return {
            "config_error": self._rules.error or None,
            "evaluators": [live.scorer.name for live in self._rules.live],
            "open_traces": len(self._completing.tracker),
            "to_judge": len(self._held) - len(self._later),
            "put_off": len(self._later),
            **self._giving.state(),
        }

    def close(self) -> None:
        """Write what has come, and let the lanes end; what is under way is done again."""
        self._collect()
        self._write(self._clock())
        self._settle(self._clock())
        for work in self._work.values():
            if work.lane is not None:
                work.lane.close()
        self._rules.close()

    # -- the rules

    def _check_rules(self, now: int) -> None:
        wanted, self._is_reload_wanted = self._is_reload_wanted, False
        if wanted:
            changed = self._rules.reload()
        elif now - self._checked >= _CHECK_NS:
            changed = self._rules.check()
        else:
            return
        self._checked = now
        if changed:
            self._adopt(now)

    def _adopt(self, now: int) -> None:
        """Take the rules in force, and find what those that are new have to do."""
        self._completing.tracker.configure(self._rules.config.completion)
        wanted = {live.key: live for live in self._rules.live}
        for key in list(self._work):
            if key not in wanted or not self._work[key].live.is_like(wanted[key]):
                self._forget(key, now)
        for key, live in wanted.items():
            if key not in self._work:
                self._begin(key, live, now)
            elif live is not self._work[key].live:
                live.prepared.close()

    def _forget(self, key: tuple[str, str], now: int) -> None:
        """Drop what an evaluator that is gone or changed had to do, and what it still answers."""
        work = self._work.pop(key)
        self._rest.pop(key, None)
        if work.lane is not None:
            work.lane.close()
        if work.lane is None or not work.lane.under_way:
            work.live.prepared.close()
        self._later = [entry for entry in self._later if entry[2].rule != key]
        heapq.heapify(self._later)
        items = [item for item in self._held.values() if item.rule == key]
        for item in items:
            del self._held[item.key]
        self._giving.release([item.trace_id for item in items if self._answered(item)], now)

    def _begin(self, key: tuple[str, str], live: LiveRule, now: int) -> None:
        name = live.scorer.name
        purse = Purse(live.limits.max_cost_per_day, lambda day: self._spent(name, day))
        purse.begin(now)
        self._purses[name] = purse
        lane = Lane(live, purse, self._clock) if live.is_slow else None
        self._work[key] = Work(live, lane)
        state = self._store.live.rule(*key)
        if state is None:
            state = RuleState(now, 0)
            self._store.live.settle({key: state})
        self._states[key] = state
        self._rest[key] = state.settled + 1

    def _spent(self, name: str, day: str) -> tuple[float, float]:
        """Return what an evaluator has cost on a day, offline too as far as judges tell."""
        cost, each = self._store.live.spent(name, day)
        return max(cost, self._rules.spent(name, day_begin_ns(day))), each

    # -- what is complete

    def _changed(self, found: Sequence[Todo]) -> set[str]:
        """Return the traces of those trajectories that an evaluator wants and has not judged."""
        said = {(t.trajectory_id, t.rev, (t.evaluator, t.version)) for t in found}
        unsaid = {
            (t.trajectory_id, key): t
            for t in found
            for key, work in self._work.items()
            if (t.trajectory_id, t.rev, key) not in said
            and (t.trajectory_id, t.rev, key) not in self._held
            and self._draws(work, t.trace_id)
        }
        known = self._store.trajectories.of(sorted({name for name, _ in unsaid}))
        return {
            t.trace_id
            for (name, key), t in unsaid.items()
            if name in known and self._work[key].live.scorer.where.matches(known[name])
        }

    def _came_to(self, traces: Sequence[str], now: int) -> None:
        """Take up what is to be judged of traces that are complete."""
        self._consider(self._store.live.todo(traces=traces), now)
        self._giving.release([name for name in traces if not self._pending[name]], now)

    def _draws(self, work: Work, trace_id: str) -> bool:
        scorer = work.live.scorer
        return is_drawn(self._rules.config.salt, scorer.name, trace_id, scorer.sample)

    # -- what is to be judged

    def _consider(
        self, found: Sequence[Todo], now: int, only: tuple[str, str] | None = None
    ) -> None:
        """Take up what evaluators have to do on some trajectories.

        Args:
            found: The trajectories, with what was said of them.
            now: The time (ns).
            only: The only evaluator that is meant, all when None; then it is of old.
        """
        said = {(t.trajectory_id, t.rev, (t.evaluator, t.version)): t for t in found}
        targets = {(t.trajectory_id, t.rev): t for t in found}
        for key, work in self._work.items():
            if only not in (None, key):
                continue
            for target, todo in targets.items():
                if (*target, key) in self._held or not self._draws(work, todo.trace_id):
                    continue
                self._take_up(work, todo, said.get((*target, key)), now, is_old=only is not None)

    def _take_up(
        self, work: Work, todo: Todo, before: Todo | None, now: int, *, is_old: bool
    ) -> None:
        if len(work) >= _MOST:
            self._leave(work.live.key, todo.completion)
            return
        item = Item(
            *(todo.trajectory_id, todo.rev, todo.trace_id, todo.completion, work.live.key),
            errors=before.errors if before else 0,
            has_outcome=before is not None,
            is_deferred=before.deferred if before else False,
            since_ns=now,
        )
        if before is not None and not before.deferred:
            if before.status != "error" or before.errors >= work.live.limits.attempts:
                return
            self._hold(item)
            self._put_off(item, max(now, before.time_ns + _wait_ns(before.errors)))
            return
        self._hold(item)
        (work.older if is_old or item.has_outcome else work.fresh).append(item)

    def _hold(self, item: Item) -> None:
        self._held[item.key] = item
        if not item.has_outcome:
            self._pending[item.trace_id] += 1

    def _leave(self, key: tuple[str, str], completion: int) -> None:
        """Leave work to be found in the store again, from a completion on."""
        self._rest[key] = min(self._rest.get(key, completion), completion)

    def _refill(self, now: int) -> None:
        """Take up what was left in the store, as much as there is room for."""
        for key in list(self._rest):
            work, state = self._work[key], self._states[key]
            if len(work) > _MOST // 2 or len(self._later) > _MOST // 2:
                continue
            first = self._rest.pop(key)
            backfill = round(self._rules.config.completion.backfill * _NS)
            since = state.since_ns - backfill
            found = self._store.live.todo(after=first - 1, since_ns=since, limit=_REFILL)
            if len({todo.trace_id for todo in found}) >= _REFILL:
                self._leave(key, found[-1].completion + 1)
            self._consider(found, now, only=key)

    def _put_off(self, item: Item, due_ns: int) -> None:
        if len(self._later) >= _MOST:
            self._held.pop(item.key, None)
            self._leave(item.rule, item.completion)
            return
        self._later_count += 1
        heapq.heappush(self._later, (due_ns, self._later_count, item))

    def _come_due(self, now: int) -> None:
        while self._later and self._later[0][0] <= now:
            item = heapq.heappop(self._later)[2]
            self._work[item.rule].older.append(item)

    def _feed(self, now: int) -> bool:
        """Judge what is judged at once, and hand the lanes what they have room for."""
        taken: list[tuple[Work, Item]] = []
        more = False
        at_once = _JUDGED
        for work in self._work.values():
            room = work.lane.room if work.lane is not None else at_once
            while room > 0 and (item := work.take()) is not None:
                taken.append((work, item))
                room -= 1
            more |= work.lane is None and len(work) > 0
        if not taken:
            return False
        trajectories = self._store.trajectories.of(
            list(dict.fromkeys(item.trajectory_id for _, item in taken))
        )
        for work, item in taken:
            self._judge(work, item, trajectories.get(item.trajectory_id), now)
        return more

    def _judge(self, work: Work, item: Item, trajectory: Trajectory | None, now: int) -> None:
        live = work.live
        if (
            trajectory is None
            or trajectory.rev != item.rev
            or not live.scorer.where.matches(trajectory)
        ):
            # There is nothing to judge: a newer revision has its own item.
            self._drop(item, now)
            return
        reference, problem = live.references.of(trajectory)
        task = Task(item, trajectory, reference, problem)
        if work.lane is not None:
            work.lane.put(task)
        else:
            self._unwritten.append(run(live, task, now))

    def _drop(self, item: Item, now: int) -> None:
        self._held.pop(item.key, None)
        if self._answered(item):
            self._giving.release([item.trace_id], now)

    def _answered(self, item: Item) -> bool:
        """Note that an item has its first outcome; return whether its trace waits for no other."""
        if item.has_outcome or not self._pending[item.trace_id]:
            return False
        self._pending[item.trace_id] -= 1
        if self._pending[item.trace_id]:
            return False
        del self._pending[item.trace_id]
        return True

    # -- what came of it

    def _collect(self) -> None:
        for work in self._work.values():
            if work.lane is not None:
                self._unwritten += work.lane.collect()

    def _write(self, now: int) -> None:
        """Write down what evaluators said; what cannot be written is kept for the next time."""
        done = self._unwritten
        if not done:
            return
        # What an evaluator says that is no longer in force, or was put off again, says nothing.
        fresh = [
            one
            for one in done
            if one.task.item.key in self._held
            and not (one.task.item.is_deferred and DEFERRED in one.score.metadata)
        ]
        with self._store.live.transaction():
            self._store.scores.write([one.score for one in fresh])
            self._store.live.spend(spending(done, day_of(now)))
        self._unwritten = []
        self._rules.flush()
        ready = []
        for one in done:
            item = one.task.item
            if self._held.pop(item.key, None) is None:
                continue
            self._again(one, now)
            if self._answered(item):
                ready.append(item.trace_id)
        self._giving.scored(fresh, now)
        self._giving.release(ready, now)

    def _again(self, one: Outcome, now: int) -> None:
        """Have what failed or was put off judged again later."""
        item, score = one.task.item, one.score
        errors = item.errors + (score.status == "error")
        reason = score.metadata.get(DEFERRED)
        if reason is not None:
            due = next_day_ns(now) if reason == "budget" else now + _HANGS * _NS
        elif score.status == "error" and errors < self._work[item.rule].live.limits.attempts:
            due = now + _wait_ns(errors)
        else:
            return
        later = Item(
            *(item.trajectory_id, item.rev, item.trace_id, item.completion, item.rule),
            errors=errors,
            has_outcome=True,
            is_deferred=reason is not None,
            since_ns=item.since_ns,
        )
        self._held[later.key] = later
        self._put_off(later, due)

    def _measure(self, now: int) -> None:
        self._giving.measure(
            self._completing.tracker.oldest_ns(),
            now,
            open_traces=self.open_traces,
            to_judge={
                key[0]: len(work) + (work.lane.under_way if work.lane else 0)
                for key, work in self._work.items()
            },
            put_off=len(self._later),
            config_error=bool(self._rules.error),
            reloads=self._rules.loads - 1,
            failures=self._rules.failures,
        )

    def _settle(self, now: int) -> None:
        """Note of each evaluator up to which completion it has nothing to do."""
        least = dict.fromkeys(self._work, self._completing.number + 1)
        for item in self._held.values():
            least[item.rule] = min(least[item.rule], item.completion)
        for key, completion in self._rest.items():
            least[key] = min(least[key], completion)
        changed = {}
        for key, completion in least.items():
            state = self._states[key]
            if completion - 1 > state.settled:
                changed[key] = self._states[key] = RuleState(state.since_ns, completion - 1)
        if changed:
            self._store.live.settle(changed)
        self._settled_ns = now


def _wait_ns(errors: int) -> int:
    return _BACKOFF[min(max(errors, 1), len(_BACKOFF)) - 1] * _NS
