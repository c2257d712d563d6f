"""Decide which evaluations are due, and when.

The store is the only queue that lasts: an evaluation is due when a trace has ended and its
trajectory has no score by an evaluator's version. `Scheduler` keeps the due evaluations in memory
(`PendingEvaluations`), and refills them from the store. It records how far each evaluator has got,
so that a restart finds the rest without reading everything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..evaluators import is_drawn
from ..store import CompletedTrace, EvaluationState, EvaluatorProgress, Store
from .batch_scorer import BatchScorer, ScoredBatch
from .evaluations import Evaluation, EvaluatorQueue, FinishedEvaluation, PendingEvaluations
from .evaluator_rules import LiveEvaluator
from .reconstructor import ReconstructedTraces

__all__ = ["Scheduler"]

_NS = 1_000_000_000
# Traces whose evaluations are read from the store at once.
_REFILL = 5_000


class Scheduler:
    """Schedules the evaluations of traces that have ended.

    Args:
        store: The store.
        wall: The time of day (ns), for recording the ends of traces.
        scorer: Scores new runs that need not be read; without it, no such runs are scored.

    Attributes:
        progress: The completion up to which every evaluator has finished its work, as recorded.
    """

    def __init__(
        self,
        store: Store,
        wall: Callable[[], int] = time.time_ns,
        scorer: BatchScorer | None = None,
    ) -> None:
        self._store, self._wall, self._scorer = store, wall, scorer
        self._pending = PendingEvaluations(wall)
        self._states: dict[tuple[str, str], EvaluatorProgress] = {}
        self._salt, self._backfill_ns = "", 0
        self._newest, self._newest_ns = store.live.newest_completion()
        self._releasable: list[str] = []
        self.progress = 0

    @property
    def evaluators(self) -> dict[tuple[str, str], LiveEvaluator]:
        """The evaluators in force, by name and version."""
        return {key: queue.evaluator for key, queue in self._pending.queues.items()}

    @property
    def due(self) -> int:
        """The number of evaluations that are due now or running."""
        return self._pending.due

    @property
    def due_later(self) -> int:
        """The number of evaluations that are due later."""
        return self._pending.due_later

    @property
    def is_idle(self) -> bool:
        """Whether nothing is due now."""
        return not self._pending.due and not self._pending.has_more_in_store

    def queued(self, key: tuple[str, str]) -> int:
        """How many evaluations wait for an evaluator."""
        return len(self._pending.queues[key])

    def configure(self, evaluators: Sequence[LiveEvaluator], *, salt: str, backfill: float) -> None:
        """Put evaluators in force.

        The evaluations of evaluators that are gone or changed are dropped. New evaluators get the
        traces that ended lately.

        Args:
            evaluators: The evaluators.
            salt: The salt of their samples.
            backfill: How far back new evaluators go (s).
        """
        self._salt, self._backfill_ns = salt, round(backfill * _NS)
        by_key = {evaluator.key: evaluator for evaluator in evaluators}
        for key, current in self.evaluators.items():
            if key not in by_key or not current.is_like(by_key[key]):
                del self._states[key]
                self._releasable += self._pending.remove_evaluator(key)
        for key, evaluator in by_key.items():
            if key not in self._pending.queues:
                self._begin(evaluator)

    def admit(self, reconstructed: ReconstructedTraces, now: int) -> ScoredBatch:
        """Record that traces have ended, and schedule the evaluations of their trajectories.

        Returns:
            The scores that were computed at once, and are written.
        """
        completed = list(reconstructed.traces)
        refreshed = reconstructed.refreshed
        if refreshed is not None:
            names = {trace.trace_id for trace in completed}
            # Runs of other traces may have changed as well, for instance in a conversation.
            if other_traces := sorted(set(refreshed.trace_ids) - names):
                todo = self._store.live.evaluation_states(
                    traces=other_traces, times=refreshed.times, unscored=refreshed.changed
                )
                # No row of them is new: their rows were recorded with earlier completions.
                last_row = reconstructed.last_row
                completed += [
                    CompletedTrace(name, last_row, "changed", last_row + 1)
                    for name in sorted(self._traces_to_evaluate(todo))
                ]
        if not completed:
            return ScoredBatch()
        traces = [trace.trace_id for trace in completed]
        scored = ScoredBatch()
        if self._scorer is not None and refreshed is not None and refreshed.rows is not None:
            scored = self._scorer.score(refreshed.rows, traces)
        with self._store.transaction():
            todo = self._record(completed, reconstructed)
            if not set(scored.revisions) <= {(due.trajectory_id, due.rev) for due in todo}:
                scored = ScoredBatch()  # some changed meanwhile
            self._store.scores.append(scored.rows())
        self._newest += len(completed)
        self._schedule(todo, now, scored=scored, is_old=reconstructed.is_large)
        waits = self._pending.waits_for_score
        self._releasable += [name for name in traces if not waits(name)]
        return scored

    def take_due(self, key: tuple[str, str], limit: int) -> list[Evaluation]:
        """Remove and return up to `limit` evaluations that are due for an evaluator."""
        return self._pending.queues[key].take(limit)

    def refresh(self, now: int) -> None:
        """Queue the evaluations that have become due, and refill the queues from the store."""
        self._pending.release_due(now)
        for queue, first in self._pending.take_refillable():
            key = queue.evaluator.key
            since_ns = self._states[key].since_ns - self._backfill_ns
            todo = self._store.live.evaluation_states(
                after=first - 1, since_ns=since_ns, limit=_REFILL
            )
            if len({due.trace_id for due in todo}) >= _REFILL:
                self._pending.leave_in_store(key, todo[-1].completion + 1)
            self._schedule(todo, now, queue, is_old=True)

    def is_current(self, finished: FinishedEvaluation) -> bool:
        """Whether a finished evaluation is to be recorded.

        It is not recorded if its evaluator is no longer in force, or if it was postponed once more.
        """
        evaluation = finished.evaluation
        is_repeated = evaluation.is_postponed and finished.is_postponed
        return evaluation.key in self._pending and not is_repeated

    def finish(self, finished: Sequence[FinishedEvaluation], now: int) -> None:
        """Take evaluations that were recorded, and schedule the next attempt if one is due."""
        self._releasable += [
            outcome.evaluation.trace_id
            for outcome in finished
            if self._pending.finish(outcome, now)
        ]

    def drop(self, evaluation: Evaluation) -> None:
        """Drop an evaluation that turned out to be unnecessary."""
        if self._pending.drop(evaluation):
            self._releasable.append(evaluation.trace_id)

    def take_releasable(self) -> list[str]:
        """Remove and return the traces that wait for no evaluator's first score.

        They include traces that no evaluator wants.
        """
        releasable, self._releasable = self._releasable, []
        return releasable

    def record_progress(self) -> None:
        """Record the completion up to which each evaluator has finished its work."""
        changed = {}
        for key, completion in self._pending.first_completions(self._newest).items():
            state = self._states[key]
            if completion - 1 > state.completion:
                changed[key] = self._states[key] = EvaluatorProgress(state.since_ns, completion - 1)
        if changed:
            self._store.live.set_progress(changed)
        recorded = [state.completion for state in self._states.values()]
        self.progress = min(recorded, default=self._newest)

    def _begin(self, evaluator: LiveEvaluator) -> None:
        key = evaluator.key
        state = self._store.live.progress_of(*key)
        if state is None:
            state = EvaluatorProgress(self._wall(), 0)
            self._store.live.set_progress({key: state})
        self._states[key] = state
        self._pending.add_evaluator(evaluator, state.completion + 1)

    def _record(
        self, completed: Sequence[CompletedTrace], reconstructed: ReconstructedTraces
    ) -> list[EvaluationState]:
        """Record the ends of traces, and the row up to which all traces have ended.

        Returns:
            The trajectories of these traces.
        """
        # Never before an earlier one: evaluators find the traces that ended since a time.
        self._newest_ns = max(self._newest_ns, self._wall())
        live = self._store.live
        live.note_completions(completed, self._newest + 1, self._newest_ns)
        live.advance(reconstructed.floor)
        traces = [trace.trace_id for trace in completed]
        refreshed = reconstructed.refreshed
        if refreshed is None:
            return live.evaluation_states(traces=traces, after=self._newest)
        return live.evaluation_states(
            traces=traces, after=self._newest, times=refreshed.times, unscored=refreshed.changed
        )

    def _traces_to_evaluate(self, todo: Sequence[EvaluationState]) -> set[str]:
        """The traces of the trajectories that an evaluator wants and has not scored."""
        scored = {(due.trajectory_id, due.rev, (due.evaluator, due.version)) for due in todo}
        due_by_run = {}
        for due in todo:
            for key, queue in self._pending.queues.items():
                evaluation = (due.trajectory_id, due.rev, key)
                if evaluation in scored or evaluation in self._pending:
                    continue
                if self._draws(queue, due.trace_id):
                    due_by_run[due.trajectory_id, key] = due
        starts = {name: due.start_ns for (name, _), due in due_by_run.items()}
        outlines = self._store.trajectories.starting_at(starts)
        queues = self._pending.queues
        return {
            due.trace_id
            for (name, key), due in due_by_run.items()
            if name in outlines and queues[key].evaluator.scorer.where.matches(outlines[name])
        }

    def _schedule(
        self,
        todo: Sequence[EvaluationState],
        now: int,
        only: EvaluatorQueue | None = None,
        *,
        scored: ScoredBatch | None = None,
        is_old: bool = False,
    ) -> None:
        """Schedule the evaluations of some trajectories.

        Args:
            todo: The trajectories, each with the scores that it has.
            now: The time (ns).
            only: The queue of the only evaluator to consider; all when None.
            scored: Scores that were computed at once.
            is_old: Whether evaluations of new traces go before these.
        """
        scores = {(due.trajectory_id, due.rev, (due.evaluator, due.version)): due for due in todo}
        revisions = {(due.trajectory_id, due.rev): due for due in todo}
        for queue in [only] if only is not None else self._pending.queues.values():
            key = queue.evaluator.key
            for revision, due in revisions.items():
                if scored is not None and scored.is_finished(key, revision):
                    continue
                evaluation = (*revision, key)
                if evaluation in self._pending or not self._draws(queue, due.trace_id):
                    continue
                self._pending.add(queue, due, scores.get(evaluation), now, is_old=is_old)

    def _draws(self, queue: EvaluatorQueue, trace_id: str) -> bool:
        scorer = queue.evaluator.scorer
        return is_drawn(self._salt, scorer.name, trace_id, scorer.sample)
