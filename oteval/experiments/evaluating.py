"""Puts the runs of an experiment through the target and the evaluators, and keeps what comes of it.

Whatever a target or an evaluator does, there is a row that says so: a target that raises is a run
with an error, on which no evaluator is asked; an evaluator that raises, returns nonsense or takes
too long is feedback with the status ``error``, and never a 0. What is done is written within half
a second, and not done again when the experiment is resumed; what failed is tried again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import OtevalError
from ..model import Example, Experiment, Feedback, Run
from ..store import Store
from .calling import call, reason
from .conduct import Conduct
from .evaluators import Asked, Evaluator, bind, name_of, version_for
from .outcomes import Outcome, failed, outcomes_of
from .plain import plain, trajectory_in
from .progress import Progress
from .results import ExperimentResults, results_of
from .storing import Writer
from .targets import Plan, Task
from .workers import work_through

__all__ = ["Evaluating", "Summaries", "summaries_of"]

_SUMMARY = ("inputs", "outputs", "reference_outputs", "runs", "examples", "results")

Summaries = Mapping[str, Callable[..., Any]]


def summaries_of(given: Iterable[Callable[..., Any]]) -> Summaries:
    """Return summary evaluators by name.

    Raises:
        ConfigError: One wants what there is not.
    """
    found: dict[str, Callable[..., Any]] = {}
    for function in given:
        name = name_of(function, set(found))
        bind(function, _SUMMARY, _SUMMARY[:3], name)
        found[name] = function
    return found


class Evaluating:
    """An experiment while it goes on."""

    def __init__(
        self,
        store: Store,
        experiment: Experiment,
        plan: Plan,
        evaluators: Sequence[Evaluator],
        conduct: Conduct,
    ) -> None:
        self._experiment, self._plan, self._evaluators = experiment, plan, evaluators
        self._conduct = conduct
        self._writer = Writer(store, experiment.id)
        self._progress = Progress(total=len(plan.tasks))
        self._runs: dict[tuple[str, int], Run] = {
            (run.example_id, run.repetition): run
            for run in store.experiments.runs(experiment.id)
            if not run.error
        }
        self._known: dict[tuple[str, str], list[Feedback]] = {}
        for one in store.experiments.feedback(experiment.id):
            self._known.setdefault((one.run_id, one.evaluator), []).append(one)
        self._failed: list[Run] = []

    async def run(self, concurrency: int, summaries: Summaries) -> ExperimentResults:
        """Do all that is still to be done, and return what the experiment came to."""
        async with self._writer.writing():
            await work_through(self._plan.tasks, self._one, concurrency)
            results = self._results()
            if summaries:
                feedback = await self._summarise(results, summaries)
                self._writer.add(feedback=feedback)
                results = replace(results, overall=tuple(feedback))
        return results

    def _results(self) -> ExperimentResults:
        runs = [*self._runs.values(), *self._failed]
        feedback = [one for found in self._known.values() for one in found]
        return results_of(self._experiment, self._plan.dataset, runs, feedback)

    async def _one(self, task: Task) -> None:
        """Do all that is still to be done of a run."""
        place = (task.example.id, task.repetition)
        run, fresh = self._runs.get(place), False
        if run is None:
            fresh = True
            run = await self._made(task)
            if run.error:
                self._failed.append(run)
                self._progress.errors += 1
            else:
                self._runs[place] = run
            self._writer.add(run)
        elif run.trajectory is None:
            found = task.session or trajectory_in(run.outputs, run.id)
            run = self._runs[place] = replace(run, trajectory=found)
        if not run.error:
            for evaluator in self._evaluators:
                fresh = await self._ask(evaluator, run, task.example) or fresh
        self._progress.done += 1
        self._progress.resumed += not fresh
        self._conduct.tell(self._progress)

    async def _made(self, task: Task) -> Run:
        """Return the run of a task: what it was, or what the target makes of the example."""
        run = Run(
            secrets.token_hex(8),
            self._experiment.id,
            task.example.id,
            task.repetition,
            inputs=task.example.inputs,
            start_ns=time.time_ns(),
        )
        session = task.session
        if session is not None:
            return replace(
                run,
                outputs=plain(session),
                trajectory=session,
                trajectory_id=session.id,
                start_ns=session.start_ns,
                end_ns=session.end_ns,
            )
        assert self._plan.target is not None
        try:
            # A copy, so that a target which changes its inputs changes nobody else's.
            given = plain(task.example.inputs)
            value = await call(self._plan.target, (given,), None, self._conduct.target_timeout)
            outputs = plain(value)
        except Exception as error:
            if self._conduct.stops:
                raise
            return replace(run, error=reason(error), end_ns=time.time_ns())
        found = trajectory_in(value, run.id)
        return replace(run, outputs=outputs, trajectory=found, end_ns=time.time_ns())

    async def _ask(self, evaluator: Evaluator, run: Run, example: Example) -> bool:
        """Ask an evaluator, unless it has answered; return whether it was asked."""
        place = (run.id, evaluator.name)
        known = self._known.get(place, [])
        if known and all(_is_answer(one, evaluator) for one in known):
            return False
        start = time.perf_counter_ns()
        outcomes = await evaluator.ask(Asked(run, example), self._conduct.timeout)
        latency = time.perf_counter_ns() - start
        feedback = _feedback_of(run.id, evaluator, outcomes, latency)
        self._known[place] = feedback
        self._writer.add(feedback=feedback)
        self._progress.errors += any(one.status == "error" for one in feedback)
        for one in outcomes:
            self._progress.note(one.metadata)
        bad = next((one for one in outcomes if one.status == "error"), None)
        if bad is not None and self._conduct.stops:
            raise OtevalError(f"evaluator {evaluator.name!r}: {bad.comment}")
        return True

    async def _summarise(self, results: ExperimentResults, summaries: Summaries) -> list[Feedback]:
        good = [row for row in results if not row.run.error]
        offered: dict[str, Any] = {
            "inputs": [row.example.inputs for row in good],
            "outputs": [row.run.outputs for row in good],
            "reference_outputs": [row.example.reference_outputs for row in good],
            "runs": [row.run for row in good],
            "examples": [row.example for row in good],
            "results": good,
        }
        found: list[Feedback] = []
        for name, function in summaries.items():
            wanted, positional = bind(function, _SUMMARY, _SUMMARY[:3], name)
            pair = (offered["runs"], offered["examples"]) if positional else ()
            start = time.perf_counter_ns()
            try:
                keywords = {each: offered[each] for each in wanted}
                outcomes = outcomes_of(
                    await call(function, pair, keywords, self._conduct.timeout), name
                )
            except Exception as error:
                if self._conduct.stops:
                    raise
                outcomes = [failed(name, error)]
            latency, now = time.perf_counter_ns() - start, time.time_ns()
            version = version_for(function)
            found += [_feedback("", name, version, one, latency, now) for one in outcomes]
        return found


def _is_answer(one: Feedback, evaluator: Evaluator) -> bool:
    """Return whether feedback is a lasting answer of the evaluator as it is now."""
    # A judge whose budget was spent says so with an error, without having failed.
    failed = one.status == "error" or bool(one.status != "ok" and one.metadata.get("error"))
    return not failed and one.version == evaluator.version


def _feedback_of(
    run_id: str, evaluator: Evaluator, outcomes: Sequence[Outcome], latency_ns: int
) -> list[Feedback]:
    """Return an evaluator's figures as feedback; what one call gave has one time."""
    now = time.time_ns()
    return [
        _feedback(run_id, evaluator.name, evaluator.version, one, latency_ns, now)
        for one in outcomes
    ]


def _feedback(
    run_id: str,
    evaluator: str,
    version: str,
    one: Outcome,
    latency_ns: int,
    time_ns: int,
) -> Feedback:
    return Feedback(
        run_id,
        evaluator,
        version,
        one.key,
        one.status,
        *(one.score, one.passed, one.label, one.comment, one.metadata),
        latency_ns,
        time_ns,
    )
