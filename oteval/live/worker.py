"""Live scoring: driven by what comes into a store and by the clock, without threads of its own.

`Scoring.tick` does a bounded piece of work: it looks at what came, reconstructs traces that are
complete, judges their trajectories or hands them to lanes, and writes down what came of it. What
is to do is known by the store alone; what is kept here is only a shorter way to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..evaluators.scorer import is_drawn
from ..model import Trajectory
from ..store import RuleState, Store, Todo
from .agenda import Agenda
from .budgets import Purse, day_begin_ns, day_of
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
# So many traces of those that were left in the store are looked at at once.
_REFILL = 5_000


class Scoring:
    """Scores trajectories as their traces complete.

    All calls but `touch` and `reload` come from one thread, which the store's connection is for.

    Args:
        store: The store; best a `Store.sibling` of the one that spans are written with.
        rules: What is scored, and how.
        attach: Where scores go beside the store.
        clock: The time (ns) that ages and deadlines are told by; it should not be set.
        wall: The time of day (ns), for what is kept and for budgets; the clock's by default.

    Attributes:
        settled: Up to which completion no evaluator has anything to do, as it is written down.
    """

    def __init__(
        self,
        store: Store,
        rules: Rules,
        attach: Attach | None = None,
        clock: Callable[[], int] = time.time_ns,
        wall: Callable[[], int] | None = None,
    ) -> None:
        self._store, self._rules, self._clock = store, rules, clock
        self._wall = wall or clock
        self._giving = Giving(store, attach)
        self._completing = Completing(
            store, rules.config.completion, self._changed, self._came_to, self._wall
        )
        self._agenda = Agenda(self._wall)
        self._states: dict[tuple[str, str], RuleState] = {}
        self._purses: dict[str, Purse] = {}
        self._unwritten: list[Outcome] = []
        self._kept: dict[str, Trajectory] = {}
        self.settled = 0
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
            purse.begin(self._wall())
        self._completing.arrive(now)
        more = self._completing.complete(now)
        self._agenda.come_due(now)
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
        agenda = self._agenda
        is_done = not agenda.to_judge and not self._unwritten and not agenda.has_left
        return is_done and self._completing.is_idle

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
            "to_judge": self._agenda.to_judge,
            "put_off": self._agenda.put_off,
            **self._giving.state(),
        }

    def close(self) -> None:
        """Write what has come, and let the lanes end; what is under way is done again."""
        self._completing.close()
        self._collect()
        self._write(self._clock())
        self._settle(self._clock())
        for work in self._agenda.work.values():
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
        for key in list(self._agenda.work):
            if key not in wanted or not self._agenda.work[key].live.is_like(wanted[key]):
                self._forget(key, now)
        names = {name for name, _ in wanted}
        self._purses = {name: purse for name, purse in self._purses.items() if name in names}
        for key, live in wanted.items():
            if key not in self._agenda.work:
                self._begin(key, live)
            elif live is not self._agenda.work[key].live:
                live.prepared.close()

    def _forget(self, key: tuple[str, str], now: int) -> None:
        """Drop what an evaluator that is gone or changed had to do, and what it still answers."""
        work = self._agenda.work[key]
        if work.lane is not None:
            work.lane.close()
        if work.lane is None or not work.lane.under_way:
            work.live.prepared.close()
        del self._states[key]
        self._giving.release(self._agenda.forget(key), now)

    def _begin(self, key: tuple[str, str], live: LiveRule) -> None:
        name = live.scorer.name
        purse = Purse(live.limits.max_cost_per_day, lambda day: self._spent(name, day))
        purse.begin(self._wall())
        self._purses[name] = purse
        lane = Lane(live, purse, self._wall) if live.is_slow else None
        state = self._store.live.rule(*key)
        if state is None:
            state = RuleState(self._wall(), 0)
            self._store.live.settle({key: state})
        self._states[key] = state
        self._agenda.begin(Work(live, lane), state.settled + 1)

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
            for key, work in self._agenda.work.items()
            if (t.trajectory_id, t.rev, key) not in said
            and (t.trajectory_id, t.rev, key) not in self._agenda
            and self._draws(work, t.trace_id)
        }
        known = self._store.trajectories.at({name: t.start_ns for (name, _), t in unsaid.items()})
        return {
            t.trace_id
            for (name, key), t in unsaid.items()
            if name in known and self._agenda.work[key].live.scorer.where.matches(known[name])
        }

    def _came_to(
        self, found: Sequence[Todo], traces: Sequence[str], now: int, is_large: bool
    ) -> None:
        """Take up what is to be judged of traces that are complete."""
        self._consider(found, now, is_old=is_large)
        waiting = self._agenda.waits_for
        self._giving.release([name for name in traces if not waiting(name)], now)

    def _draws(self, work: Work, trace_id: str) -> bool:
        scorer = work.live.scorer
        return is_drawn(self._rules.config.salt, scorer.name, trace_id, scorer.sample)

    # -- what is to be judged

    def _consider(
        self,
        found: Sequence[Todo],
        now: int,
        only: tuple[str, str] | None = None,
        *,
        is_old: bool = False,
    ) -> None:
        """Take up what evaluators have to do on some trajectories.

        Args:
            found: The trajectories, with what was said of them.
            now: The time (ns).
            only: The only evaluator that is meant, all when None.
            is_old: Whether what comes just now goes before it.
        """
        said = {(t.trajectory_id, t.rev, (t.evaluator, t.version)): t for t in found}
        targets = {(t.trajectory_id, t.rev): t for t in found}
        for key, work in self._agenda.work.items():
            if only not in (None, key):
                continue
            for target, todo in targets.items():
                if (*target, key) in self._agenda or not self._draws(work, todo.trace_id):
                    continue
                before = said.get((*target, key))
                self._agenda.take_up(work, todo, before, now, is_old=is_old)

    def _refill(self, now: int) -> None:
        """Take up what was left in the store, as much as there is room for."""
        for work, first in self._agenda.with_room():
            key = work.live.key
            backfill = round(self._rules.config.completion.backfill * _NS)
            since = self._states[key].since_ns - backfill
            found = self._store.live.todo(after=first - 1, since_ns=since, limit=_REFILL)
            if len({todo.trace_id for todo in found}) >= _REFILL:
                self._agenda.leave(key, found[-1].completion + 1)
            self._consider(found, now, only=key, is_old=True)

    def _feed(self, now: int) -> bool:
        """Judge what is judged at once, and hand the lanes what they have room for."""
        taken: list[tuple[Work, Item]] = []
        more = False
        at_once = _JUDGED
        for work in self._agenda.work.values():
            room = work.lane.room if work.lane is not None else at_once
            while room > 0 and (item := work.take()) is not None:
                taken.append((work, item))
                room -= 1
            more |= work.lane is None and len(work) > 0
        if not taken:
            self._kept = {}
            return False
        trajectories = self._store.trajectories.at(
            {item.trajectory_id: item.start_ns for _, item in taken}, self._kept
        )
        # While there is more, it is likely of the same conversations: these need not be read again.
        self._kept = _with_histories(trajectories) if more else {}
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
            self._unwritten.append(run(live, task, self._wall()))

    def _drop(self, item: Item, now: int) -> None:
        if self._agenda.drop(item):
            self._giving.release([item.trace_id], now)

    # -- what came of it

    def _collect(self) -> None:
        for work in self._agenda.work.values():
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
            if one.task.item.key in self._agenda
            and not (one.task.item.is_deferred and DEFERRED in one.score.metadata)
        ]
        with self._store.live.transaction():
            self._store.scores.write([one.score for one in fresh])
            self._store.live.spend(spending(done, day_of(self._wall())))
        self._unwritten = []
        self._rules.flush()
        ready = [one.task.item.trace_id for one in done if self._agenda.done(one, now)]
        self._giving.scored(fresh, now)
        self._giving.release(ready, now)

    def _measure(self, now: int) -> None:
        self._giving.measure(
            self._completing.tracker.oldest_ns(),
            now,
            open_traces=self.open_traces,
            to_judge={
                key[0]: len(work) + (work.lane.under_way if work.lane else 0)
                for key, work in self._agenda.work.items()
            },
            put_off=self._agenda.put_off,
            config_error=bool(self._rules.error),
            reloads=self._rules.loads - 1,
            failures=self._rules.failures,
        )

    def _settle(self, now: int) -> None:
        """Note of each evaluator up to which completion it has nothing to do."""
        least = self._agenda.least(self._completing.number)
        changed = {}
        for key, completion in least.items():
            state = self._states[key]
            if completion - 1 > state.settled:
                changed[key] = self._states[key] = RuleState(state.since_ns, completion - 1)
        if changed:
            self._store.live.settle(changed)
        done = [state.settled for state in self._states.values()]
        self.settled = min(done, default=self._completing.number)
        self._settled_ns = now


def _with_histories(trajectories: Mapping[str, Trajectory]) -> dict[str, Trajectory]:
    """Return trajectories by id, and all that they follow."""
    found: dict[str, Trajectory] = {}
    for trajectory in trajectories.values():
        one: Trajectory | None = trajectory
        while one is not None and one.id not in found:
            found[one.id] = one
            one = one.history
    return found
