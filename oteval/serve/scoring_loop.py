"""The stages of live scoring, driven by one thread.

    store.live.arrivals        --TraceArrival-->         TraceTracker.add
    TraceTracker.take_ended    --CompletedTrace-->       TraceReconstructor.run
    TraceReconstructor.run     --ReconstructedTraces-->  Scheduler.admit (writes the ends)
                               (BatchScorer scores most runs)
    Scheduler.take_due         --Evaluation-->           EvaluatorRunner.submit
    EvaluatorRunner.collect    --FinishedEvaluation-->   store.scores.write (writes its Score)
                                                         Scheduler.finish (a retry?)
                                                         ScorePublisher.publish (events, metrics)
    Scheduler.take_releasable  --trace ids-->            ScorePublisher.release
    store.scores.on_traces     --Score-->                Forwarder.release (.expire when late)
    store.scores.after         --Score-->                ScorePush.feed (the trace backends)

Each tick goes through this list once: the result of each call on the left is passed to the right.
The loop makes these calls itself, except that `ArrivalReader` feeds the tracker,
`TraceReconstructor` takes from it, and `ScorePublisher` looks up the scores that `Forwarder`
attaches to the spans.

`ScoringLoop.tick` does a bounded piece of the work. Only the store knows all the work that is left;
the objects here are a faster way to it, and are rebuilt from the store at the next start.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ..base.runner import day_of, start_of_day_ns
from ..model import Trajectory
from ..store import Store
from .batch_scorer import BatchScorer
from .evaluations import Evaluation, FinishedEvaluation
from .evaluator_rules import EvaluatorRules, LiveEvaluator
from .evaluator_runner import EvaluatorRunner
from .publisher import ScorePublisher
from .reconstructor import TraceReconstructor
from .scheduler import Scheduler
from .tracker import ArrivalReader, TraceTracker

if TYPE_CHECKING:
    from .destinations import ScoreDestinations

__all__ = ["ScoringLoop"]

_NS = 1_000_000_000
_PROGRESS_INTERVAL_NS = 10 * _NS
_RULES_INTERVAL_NS = _NS

_Key = tuple[str, str]


class ScoringLoop:
    """Scores trajectories as their traces end.

    All methods but `notify`, `reload`, `state` and `progress` are called by one thread, which owns
    the store's connection.

    Args:
        store: The store; best a `Store.sibling` of the store that spans are written with.
        rules: The evaluators in force.
        attach: Where scores go in addition to the store.
        clock: The time (ns) for ages and deadlines; it should not jump when the time of day is set.
        wall: The time of day (ns), for stored times and daily budgets; `clock` by default.
    """

    def __init__(
        self,
        store: Store,
        rules: EvaluatorRules,
        attach: ScoreDestinations | None = None,
        clock: Callable[[], int] = time.time_ns,
        wall: Callable[[], int] | None = None,
    ) -> None:
        self._store, self._rules, self._clock = store, rules, clock
        self._wall = wall or clock
        self._tracker = TraceTracker(rules.config.completion)
        self._arrivals = ArrivalReader(store, self._tracker)
        self._batch_scorer = BatchScorer(store, self._wall)
        self._scheduler = Scheduler(store, self._wall, self._batch_scorer)
        self._reconstructor = TraceReconstructor(store, self._tracker, self._arrivals)
        self._runners: dict[_Key, EvaluatorRunner] = {}
        self._publisher = ScorePublisher(store, attach)
        self._unwritten: list[FinishedEvaluation] = []
        self._cached: dict[str, Trajectory] = {}
        self._is_reload_requested = False
        self._rules_checked_ns = self._progress_recorded_ns = clock()
        self._apply_rules()

    # -- for callers

    def notify(self, trace_ids: Iterable[str], now: int) -> None:
        """Announce that rows of traces were committed at `now` (ns). Thread-safe.

        Rows that are never announced are found as well, with the next rows that are announced.
        """
        self._arrivals.notify(trace_ids, now)

    def reload(self) -> None:
        """Make the next tick reload the rules. Safe in any thread and in a signal handler."""
        self._is_reload_requested = True

    def tick(self, now: int | None = None) -> bool:
        """Do a bounded piece of the work.

        Args:
            now: The time (ns); the clock's by default.

        Returns:
            Whether there is more to do right away.
        """
        now = self._clock() if now is None else now
        self._check_rules(now)
        for runner in self._runners.values():
            runner.start_day()
        self._arrivals.read(now)
        self._admit_ended(now)
        self._scheduler.refresh(now)
        has_more = self._run_due() or self._reconstructor.has_more
        self._collect()
        self._write(now)
        self._publisher.release(self._scheduler.take_releasable())
        self._publisher.release_expiring(now)
        self._publisher.push(now)
        if self._publisher.are_metrics_due(now):
            self._update_metrics(now)
        if now - self._progress_recorded_ns >= _PROGRESS_INTERVAL_NS:
            self._record_progress(now)
        return has_more

    @property
    def is_idle(self) -> bool:
        """Whether no evaluation is due now; open traces and retries wait for their time."""
        return self._scheduler.is_idle and not self._unwritten and self._reconstructor.is_idle

    @property
    def open_traces(self) -> int:
        """The number of traces that have not ended."""
        return len(self._tracker)

    @property
    def progress(self) -> int:
        """The last completion that all evaluators have finished, as recorded."""
        return self._scheduler.progress

    def drain(self, timeout: float) -> bool:
        """Tick until no evaluation is due, for at most `timeout` s; return whether none is due."""
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            if not self.tick() and self.is_idle:
                return True
            if not self.is_idle:
                time.sleep(0.01)
        return self.is_idle

    def state(self) -> dict[str, Any]:
        """The state for people and for /readyz."""
        return {
            "config_error": self._rules.error or None,
            "evaluators": [evaluator.scorer.name for evaluator in self._rules.evaluators],
            "open_traces": len(self._tracker),
            "to_judge": self._scheduler.due,
            "put_off": self._scheduler.due_later,
            **self._publisher.state(),
        }

    def close(self) -> None:
        """Write the scores that are there; calls that still run are repeated at the next start."""
        self._reconstructor.close()
        now = self._clock()
        self._collect()
        self._write(now)
        self._publisher.release(self._scheduler.take_releasable())
        self._publisher.push(now, at_once=True)
        self._record_progress(now)
        for runner in self._runners.values():
            runner.close()
        self._rules.close()

    # -- the rules in force

    def _check_rules(self, now: int) -> None:
        is_requested, self._is_reload_requested = self._is_reload_requested, False
        if is_requested:
            has_changed = self._rules.reload()
        elif now - self._rules_checked_ns >= _RULES_INTERVAL_NS:
            has_changed = self._rules.check()
        else:
            return
        self._rules_checked_ns = now
        if has_changed:
            self._apply_rules()

    def _batched(self, evaluators: Iterable[LiveEvaluator]) -> list[LiveEvaluator]:
        """The evaluators that may decide batches of runs."""
        # In a batch, the runs that an evaluator must read are stored after the others. These are
        # mostly failures, and a monitor would mistake such a group for dependence.
        watched = {monitor.evaluator for monitor in self._rules.config.monitors}
        return [evaluator for evaluator in evaluators if evaluator.scorer.name not in watched]

    def _apply_rules(self) -> None:
        """Put the rules in force; evaluators that did not change go on."""
        config = self._rules.config
        self._tracker.configure(config.completion)
        before = self._scheduler.evaluators
        self._scheduler.configure(
            self._rules.evaluators, salt=config.salt, backfill=config.completion.backfill
        )
        after = self._scheduler.evaluators
        self._batch_scorer.configure(self._batched(after.values()), salt=config.salt)
        for key, evaluator in before.items():
            if after.get(key) is not evaluator:
                self._runners.pop(key).close()
        for evaluator in self._rules.evaluators:
            if after[evaluator.key] is not evaluator:
                evaluator.prepared.close()
        for key, evaluator in after.items():
            if before.get(key) is not evaluator:
                spent_on = partial(self._spent, evaluator.scorer.name)
                self._runners[key] = EvaluatorRunner(evaluator, spent_on, self._wall)

    def _spent(self, name: str, day: str) -> tuple[float, float]:
        """An evaluator's costs on a day, judges' offline calls included, and of one call."""
        total, seconds_each = self._store.live.cost_on(name, day)
        return max(total, self._rules.spent(name, start_of_day_ns(day))), seconds_each

    # -- evaluations

    def _admit_ended(self, now: int) -> None:
        """Reconstruct traces that have ended, and schedule their evaluations."""
        batches = self._reconstructor.run(now)
        with suppress(StopIteration):
            reconstructed = next(batches)
            while True:
                try:
                    scored = self._scheduler.admit(reconstructed, now)
                except BaseException as error:
                    # The reconstructor opens the traces again, and may try them one by one.
                    reconstructed = batches.throw(error)
                else:
                    self._publisher.publish(scored.written())
                    reconstructed = next(batches)

    def _run_due(self) -> bool:
        """Run fast evaluators, and start slow ones; return whether fast ones have more to do."""
        due: list[Evaluation] = []
        has_more = False
        for key, runner in self._runners.items():
            due += self._scheduler.take_due(key, runner.capacity)
            has_more |= runner.is_inline and self._scheduler.queued(key) > 0
        if not due:
            self._cached = {}
            return False
        starts = {evaluation.trajectory_id: evaluation.start_ns for evaluation in due}
        trajectories = self._store.trajectories.starting_at(starts, self._cached)
        # The next evaluations probably belong to the same conversations.
        self._cached = _with_histories(trajectories) if has_more else {}
        evaluators = self._scheduler.evaluators
        for evaluation in due:
            trajectory = trajectories.get(evaluation.trajectory_id)
            where = evaluators[evaluation.evaluator].scorer.where
            if trajectory is None or trajectory.rev != evaluation.rev:
                self._scheduler.drop(evaluation)  # a newer revision has its own evaluation
            elif not where.matches(trajectory):
                self._scheduler.drop(evaluation)
            else:
                self._runners[evaluation.evaluator].submit(evaluation, trajectory)
        return has_more

    def _collect(self) -> None:
        for runner in self._runners.values():
            self._unwritten += runner.collect()

    def _write(self, now: int) -> None:
        """Write the scores to the store and publish them; after an error, try again next time."""
        finished = self._unwritten
        if not finished:
            return
        current = [evaluation for evaluation in finished if self._scheduler.is_current(evaluation)]
        with self._store.transaction():
            self._store.scores.write([evaluation.score for evaluation in current])
            self._store.live.add_costs(_spending(finished, day_of(self._wall())))
        self._unwritten = []
        self._rules.flush()
        self._scheduler.finish(finished, now)
        self._publisher.publish(evaluation.written(now) for evaluation in current)

    def _update_metrics(self, now: int) -> None:
        to_judge = {
            name: self._scheduler.queued((name, version)) + runner.pending
            for (name, version), runner in self._runners.items()
        }
        self._publisher.update_metrics(
            self._tracker.oldest_ns(),
            now,
            open_traces=self.open_traces,
            to_judge=to_judge,
            put_off=self._scheduler.due_later,
            config_error=bool(self._rules.error),
            reloads=self._rules.loads - 1,
            failures=self._rules.failures,
        )

    def _record_progress(self, now: int) -> None:
        self._scheduler.record_progress()
        self._progress_recorded_ns = now


def _spending(
    finished: Iterable[FinishedEvaluation], day: str
) -> list[tuple[str, str, int, float]]:
    """The calls and costs of evaluators on a day, as `LiveState.add_costs` takes them."""
    calls: Counter[str] = Counter()
    costs: dict[str, float] = {}
    for evaluation in finished:
        if evaluation.cost:
            name = evaluation.score.evaluator
            calls[name] += 1
            costs[name] = costs.get(name, 0.0) + evaluation.cost
    return [(name, day, calls[name], cost) for name, cost in costs.items()]


def _with_histories(trajectories: Mapping[str, Trajectory]) -> dict[str, Trajectory]:
    """Return trajectories and all that they continue, by id."""
    by_id: dict[str, Trajectory] = {}
    for trajectory in trajectories.values():
        run: Trajectory | None = trajectory
        while run is not None and run.id not in by_id:
            by_id[run.id] = run
            run = run.history
    return by_id
