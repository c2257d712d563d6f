"""Run experiments: each example through the target, and each run through the evaluators.

Every run and every evaluation has a record, whatever the user's functions do. If the target raises,
the run has an error and is not evaluated. An evaluator may raise, return something that is not a
score, or take too long: its feedback then has the status ``error``, never the score 0. Records are
written within half a second. When the experiment is resumed, only failed ones are made again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from ...base.errors import ConfigError, OtevalError
from ...base.runner import Outcome, describe_error
from ...base.runner.async_runner import AsyncRunner, run_all
from ...base.sync import blocking_form
from ...model import Example, Experiment, Feedback, Run
from ...store import Store
from .comparative import aevaluate_comparative, is_experiments
from .experiment_store import ExperimentWriter, StoreLike, open_store, start_experiment
from .feedback import KeyedResult, failed, keyed_results
from .observation import Observation, current_observer
from .observed_runs import observed_id, observed_trajectory
from .outputs import facts_of, json_form, output_form, trajectory_of, trajectory_of_run
from .plan import Plan, RunTask, plan_of
from .results import ExperimentResults, results_of
from .run_evaluators import RunEvaluator, arguments_of, evaluators_of, name_of, version_for
from .run_options import TIMEOUT, OnError, OnProgress, Progress, RunOptions, refuse_client

__all__ = ["aevaluate", "evaluate"]

_SUMMARY = ("inputs", "outputs", "reference_outputs", "runs", "examples", "results")


async def aevaluate(
    target: Any,
    /,
    data: Any = None,
    evaluators: Iterable[Any] = (),
    summary_evaluators: Iterable[Callable[..., Any]] = (),
    *,
    experiment_prefix: str | None = None,
    description: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    max_concurrency: int | None = 5,
    num_repetitions: int = 1,
    on_error: OnError = "record",
    name: str | None = None,
    resume: bool = False,
    timeout: float | None = TIMEOUT,
    target_timeout: float | None = None,
    store: StoreLike = None,
    on_progress: OnProgress | None = None,
    client: None = None,
    **comparative: Any,
) -> Any:
    """Run an experiment, store it, and return its results.

    `evaluate` is the blocking form, `aevaluate` the asynchronous one.

    Args:
        target: A function from inputs to outputs, synchronous or not, or a LangChain runnable; a
            list of trajectories or sessions; a `Selection` of stored trajectories; or two or more
            experiments, which are compared as by `evaluate_comparative`. The agents that a function
            runs in this process are recorded and stored: evaluators of calls score these runs.
        data: The examples: a list of dicts, a JSON-lines file, a `Dataset`, or the name of a
            stored one. Optional for sessions.
        evaluators: Functions as described in `oteval.scoring.experiments.run_evaluators`.
        summary_evaluators: Functions of the whole experiment, called once at the end. They may
            name ``inputs``, ``outputs``, ``reference_outputs``, ``runs``, ``examples`` (lists in
            the same order) and ``results`` (the rows).
        experiment_prefix: The beginning of the experiment's name.
        description: A description for people.
        metadata: Anything else to store with the experiment.
        max_concurrency: How many runs at once; None or 0 means one.
        num_repetitions: How often each example is run.
        on_error: ``record`` stores a failure and continues; ``raise`` stops at the first failure
            and keeps all finished records.
        name: The experiment's whole name, instead of a prefix.
        resume: Resume the experiment of that name, or the newest with that prefix, if it exists.
            Runs without an error are not repeated. The same is true for evaluations by the same
            version of an evaluator.
        timeout: Seconds that an evaluator may take; None for no limit.
        target_timeout: Seconds that the target may take; None for no limit.
        store: A store, its path, or None for ``OTEVAL_DB`` or ``oteval.duckdb``.
        on_progress: Called with a `Progress` after each run.
        client: Only None, for callers of LangSmith's function of this name.
        **comparative: For experiments, other arguments of `evaluate_comparative`.

    Returns:
        The `ExperimentResults`, or the `ComparativeResults` of experiments.

    Raises:
        ConfigError: An argument is wrong.
        InputError: The data cannot be read, or is empty.
        StoreError: The store cannot be used.
    """
    refuse_client(client)
    if is_experiments(target):
        return await aevaluate_comparative(
            target,
            evaluators,
            experiment_prefix=experiment_prefix,
            description=description,
            metadata=metadata,
            max_concurrency=max_concurrency,
            name=name,
            resume=resume,
            timeout=timeout,
            store=store,
            on_progress=on_progress,
            on_error=on_error,
            **comparative,
        )
    if comparative:
        raise ConfigError(f"evaluate does not take {next(iter(comparative))!r}")
    options = RunOptions(
        concurrency=max_concurrency,
        timeout=timeout,
        target_timeout=target_timeout,
        on_error=on_error,
        on_progress=on_progress,
    )
    run_evaluators, summaries = evaluators_of(evaluators), _summaries_of(summary_evaluators)
    with open_store(store) as opened:
        plan = plan_of(target, data, num_repetitions, opened)
        experiment = start_experiment(
            opened,
            _experiment(plan, name, description, metadata),
            prefix=experiment_prefix or _prefix(target),
            resume=resume,
        )
        opened.datasets.add(plan.dataset)
        run = _ExperimentRun(opened, experiment, plan, run_evaluators, options)
        return await run.run(summaries)


evaluate = blocking_form(aevaluate, "evaluate")


def _experiment(
    plan: Plan, name: str | None, description: str | None, metadata: Mapping[str, Any] | None
) -> Experiment:
    return Experiment(
        id=secrets.token_hex(8),
        name=name or "",
        description=description or "",
        metadata=json_form(metadata or {}),
        dataset=plan.dataset.name,
        dataset_version=plan.dataset.version,
        repetitions=plan.repetitions,
        expected=len(plan.tasks),
        created_ns=time.time_ns(),
    )


def _prefix(target: Any) -> str:
    name = getattr(target, "__name__", "") if callable(target) else "sessions"
    return name if name and name != "<lambda>" else "experiment"


def _summaries_of(functions: Iterable[Callable[..., Any]]) -> Mapping[str, Callable[..., Any]]:
    """Return summary evaluators by name.

    Raises:
        ConfigError: A function requires an unknown argument.
    """
    summaries: dict[str, Callable[..., Any]] = {}
    for function in functions:
        name = name_of(function, set(summaries))
        arguments_of(function, _SUMMARY, _SUMMARY[:3], name)
        summaries[name] = function
    return summaries


class _ExperimentRun:
    """A running experiment."""

    def __init__(
        self,
        store: Store,
        experiment: Experiment,
        plan: Plan,
        evaluators: Sequence[RunEvaluator],
        options: RunOptions,
    ) -> None:
        self._experiment, self._plan, self._evaluators = experiment, plan, evaluators
        self._options = options
        self._runner = AsyncRunner[str, Any](timeout=options.timeout)
        self._target_runner = AsyncRunner[str, Any](timeout=options.target_timeout)
        self._observer = current_observer()
        self._store, self._writer = store, ExperimentWriter(store, experiment.id)
        self._progress = Progress(total=len(plan.tasks))
        self._runs: dict[tuple[str, int], Run] = {
            (run.example_id, run.repetition): run
            for run in store.experiments.runs(experiment.id)
            if not run.error
        }
        self._feedback: dict[tuple[str, str], list[Feedback]] = {}
        for feedback in store.experiments.feedback(experiment.id):
            self._feedback.setdefault((feedback.run_id, feedback.evaluator), []).append(feedback)
        self._failed_runs: list[Run] = []

    async def run(self, summaries: Mapping[str, Callable[..., Any]]) -> ExperimentResults:
        """Do everything that is not done yet, and return the results."""
        # Sessions have run already.
        ready = self._observer.ready() if self._plan.target is not None else nullcontext()
        async with self._writer.flushing():
            with ready:
                jobs = (partial(self._run_task, task) for task in self._plan.tasks)
                await run_all(jobs, self._options.concurrency or 1)
            results = self._results()
            if summaries:
                feedback = await self._summarize(results, summaries)
                self._writer.add(feedback=feedback)
                results = replace(results, overall=tuple(feedback))
        return results

    def _results(self) -> ExperimentResults:
        runs = [*self._runs.values(), *self._failed_runs]
        feedback = [feedback for group in self._feedback.values() for feedback in group]
        return results_of(self._experiment, self._plan.dataset, runs, feedback)

    async def _run_task(self, task: RunTask) -> None:
        """Make the run of a task and evaluate it, if that is not done yet."""
        key = (task.example.id, task.repetition)
        run = self._runs.get(key)
        is_resumed = run is not None
        if run is None:
            run = await self._make_run(task)
            if run.error:
                self._failed_runs.append(run)
                self._progress.errors += 1
            else:
                self._runs[key] = run
            self._writer.add(run)
        elif run.trajectory is None:
            trajectory = task.session or trajectory_of_run(run, self._store)
            run = self._runs[key] = replace(run, trajectory=trajectory)
        if not run.error:
            for evaluator in self._evaluators:
                if await self._evaluate(evaluator, run, task.example):
                    is_resumed = False
        self._progress.done += 1
        self._progress.resumed += is_resumed
        self._options.report(self._progress)

    async def _make_run(self, task: RunTask) -> Run:
        """Return a session as a run, or run the target on an example."""
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
                outputs=json_form(session),
                trajectory=session,
                trajectory_id=session.id,
                facts=facts_of(session, Observation()),
                start_ns=session.start_ns,
                end_ns=session.end_ns,
            )
        assert self._plan.target is not None
        # The target gets a copy, which it may change.
        call = partial(self._plan.target, json_form(task.example.inputs))
        with self._observer.observe(task.example) as observation:
            outcome = await self._target_runner.run(call, run.id)
        self._writer.add_observed(observation)
        run = replace(run, end_ns=time.time_ns())
        try:
            value = outcome.result()
            outputs = output_form(value)
        except Exception as error:
            if self._options.raises:
                raise
            return replace(
                run, error=_error_text(error), trajectory_id=observed_id(None, observation)
            )
        trajectory = observed_trajectory(trajectory_of(value, run.id), outputs, observation)
        return replace(
            run,
            outputs=outputs,
            trajectory=trajectory,
            trajectory_id=observed_id(trajectory, observation),
            facts=facts_of(trajectory, observation),
        )

    async def _evaluate(self, evaluator: RunEvaluator, run: Run, example: Example) -> bool:
        """Evaluate a run, and return True. If it is evaluated already, return False."""
        key = (run.id, evaluator.name)
        previous = self._feedback.get(key, [])
        if previous and all(_is_final(entry, evaluator.version) for entry in previous):
            return False
        start = time.perf_counter_ns()
        results = await evaluator.evaluate(run, example, self._runner)
        feedback = _feedback_of(
            run.id,
            evaluator.name,
            evaluator.version,
            results,
            latency_ns=time.perf_counter_ns() - start,
        )
        self._feedback[key] = feedback
        self._writer.add(feedback=feedback)
        self._progress.errors += any(entry.status == "error" for entry in feedback)
        for entry in feedback:
            self._progress.add_cost(entry.metadata)
        error = next((entry for entry in feedback if entry.status == "error"), None)
        if error is not None and self._options.raises:
            raise OtevalError(f"evaluator {evaluator.name!r}: {error.comment}")
        return True

    async def _summarize(
        self, results: ExperimentResults, summaries: Mapping[str, Callable[..., Any]]
    ) -> list[Feedback]:
        rows = [row for row in results if not row.run.error]
        runs, examples = [row.run for row in rows], [row.example for row in rows]
        available: dict[str, Any] = {
            "inputs": [example.inputs for example in examples],
            "outputs": [run.outputs for run in runs],
            "reference_outputs": [example.reference_outputs for example in examples],
            "runs": runs,
            "examples": examples,
            "results": rows,
        }
        feedback: list[Feedback] = []
        for name, function in summaries.items():
            arguments = arguments_of(function, _SUMMARY, _SUMMARY[:3], name)
            start = time.perf_counter_ns()
            outcome: Outcome[str, Any] = await self._runner.run(
                arguments.bind(function, available, (runs, examples)), name
            )
            if outcome.error is not None and self._options.raises:
                raise outcome.error
            feedback += _feedback_of(
                "",
                name,
                version_for(function),
                keyed_results(outcome.value, name)
                if outcome.error is None
                else [failed(name, outcome.error)],
                latency_ns=time.perf_counter_ns() - start,
            )
        return feedback


def _error_text(error: Exception) -> str:
    """Why a target failed; the errors of oteval are sentences without the name of their class."""
    text = describe_error(error)
    name = f"{type(error).__name__}: "
    return text.removeprefix(name) if isinstance(error, OtevalError) else text


def _is_final(feedback: Feedback, version: str) -> bool:
    """Whether feedback is not an error, and is from this version of its evaluator."""
    # A judge with an exhausted budget reports an error without having failed.
    failed = feedback.status == "error" or bool(
        feedback.status != "ok" and feedback.metadata.get("error")
    )
    return not failed and feedback.version == version


def _feedback_of(
    run_id: str, evaluator: str, version: str, results: Sequence[KeyedResult], latency_ns: int
) -> list[Feedback]:
    """The results of one call as feedback; all have the same time."""
    now = time.time_ns()
    return [
        Feedback(
            run_id=run_id,
            evaluator=evaluator,
            version=version,
            key=key,
            status=result.status,
            score=result.score,
            passed=result.passed,
            label=result.label,
            comment=result.comment,
            metadata=result.metadata,
            latency_ns=latency_ns,
            time_ns=now,
        )
        for key, result in results
    ]
