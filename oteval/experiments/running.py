"""Runs experiments: each example through the target, each run through the evaluators."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..errors import ConfigError
from ..model import Experiment
from .conduct import TIMEOUT, Conduct, OnError, OnProgress, refuse_client
from .evaluating import Evaluating, summaries_of
from .evaluators import evaluators_of
from .plain import plain
from .storing import StoreLike, begun, opened
from .targets import Plan, plan_of
from .workers import run_sync

__all__ = ["aevaluate", "evaluate"]


def evaluate(
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
    """Run an experiment, keep it, and return its results; `aevaluate` says what it takes."""
    return run_sync(
        lambda: aevaluate(
            target,
            data,
            evaluators,
            summary_evaluators,
            experiment_prefix=experiment_prefix,
            description=description,
            metadata=metadata,
            max_concurrency=max_concurrency,
            num_repetitions=num_repetitions,
            on_error=on_error,
            name=name,
            resume=resume,
            timeout=timeout,
            target_timeout=target_timeout,
            store=store,
            on_progress=on_progress,
            client=client,
            **comparative,
        )
    )


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
    """Run an experiment, keep it, and return its results.

    Args:
        target: A function from inputs to outputs, synchronous or not, or a LangChain runnable; a
            list of trajectories or sessions; a `Selection` of stored trajectories; or two or more
            experiments, which are compared as by `evaluate_comparative`.
        data: The examples: a list of dicts, a JSON-lines file, a `Dataset`, or the name of a
            stored one. Sessions need none.
        evaluators: Functions as `oteval.experiments.evaluators` describes them.
        summary_evaluators: Functions of the whole experiment, called once at the end; they may
            name ``inputs``, ``outputs``, ``reference_outputs``, ``runs``, ``examples`` (lists in
            the same order) and ``results`` (the rows).
        experiment_prefix: What the experiment's name is made of.
        description: For people.
        metadata: Whatever else shall be kept with it.
        max_concurrency: How many runs at a time; None or 0 means one.
        num_repetitions: How often each example is run.
        on_error: ``record`` goes on; ``raise`` stops at the first failure, what is done is kept.
        name: The experiment's whole name, in place of a prefix.
        resume: Go on with the experiment of that name, or the newest of that prefix, if there is
            one. Runs without error are not run again, and no evaluator is asked again what the
            same version of it has answered.
        timeout: After how many seconds to give up on an evaluator; None waits.
        target_timeout: After how many seconds to give up on the target; None waits.
        store: The store, its path, or None for ``OTEVAL_DB`` or ``oteval.duckdb``.
        on_progress: Called after each run.
        client: Only None, which callers of LangSmith's function of this name pass along.
        **comparative: What else `evaluate_comparative` takes, for experiments.

    Returns:
        The `ExperimentResults`, or the `ComparativeResults` of experiments.

    Raises:
        ConfigError: An argument does not fit.
        InputError: The data cannot be read, or there is none.
        StoreError: The store cannot be used.
    """
    from .comparative import aevaluate_comparative, is_experiments

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
    if on_error not in ("record", "raise"):
        raise ConfigError(f"on_error is {on_error!r}; it must be 'record' or 'raise'")
    asked, summaries = evaluators_of(evaluators), summaries_of(summary_evaluators)
    conduct = Conduct(
        timeout=timeout, target_timeout=target_timeout, on_error=on_error, on_progress=on_progress
    )
    with opened(store) as kept:
        plan = plan_of(target, data, num_repetitions, kept)
        described = _described(plan, name, description, metadata)
        experiment = begun(kept, described, experiment_prefix or _prefix(target), resume)
        kept.datasets.add(plan.dataset)
        evaluating = Evaluating(kept, experiment, plan, asked, conduct)
        return await evaluating.run(max_concurrency or 1, summaries)


def _described(
    plan: Plan, name: str | None, description: str | None, metadata: Mapping[str, Any] | None
) -> Experiment:
    return Experiment(
        secrets.token_hex(8),
        name or "",
        description=description or "",
        metadata=plain(metadata or {}),
        dataset=plan.dataset.name,
        dataset_version=plan.dataset.version,
        repetitions=plan.repetitions,
        expected=len(plan.tasks),
        created_ns=time.time_ns(),
    )


def _prefix(target: Any) -> str:
    name = getattr(target, "__name__", "") if callable(target) else "sessions"
    return name if name and name != "<lambda>" else "experiment"
