"""Evaluators of an experiment's runs: functions, and evaluators of oteval.yaml.

A function may name any of ``inputs``, ``outputs``, ``reference_outputs``, ``run``, ``example`` and
``trajectory``. A function with ``**kwargs`` gets the first three, besides the parameters that it
names; this is how `oteval` calls the evaluators that it creates. A function with two other
positional parameters gets ``run`` and ``example``.

`oteval.evaluators` scores trajectories. Here, its evaluators and any other function score the runs
of an experiment.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ...base.errors import ConfigError
from ...base.runner.async_runner import AsyncRunner
from ...evaluators import Evaluator, NotEvaluated, code_version, gaps_beside, version_of
from ...model import ANSWER_ONLY, Example, Message, Run, Score, SpanRef, Trajectory
from ...store import Store
from ..config import Config
from ..prepared import PreparedEvaluator, prepare
from .datasets import CASE_KEY
from .feedback import KeyedResult, failed, keyed_results, not_evaluated
from .observed_runs import answer_message, hides_calls

__all__ = [
    "Arguments",
    "RunEvaluator",
    "arguments_of",
    "configured",
    "evaluators_of",
    "name_of",
    "version_for",
]

_IMPLICIT = ("inputs", "outputs", "reference_outputs")
_NAMES = (*_IMPLICIT, "run", "example", "trajectory")


class RunEvaluator(Protocol):
    """An evaluator of an experiment's runs."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def version(self) -> str:
        """A hash of everything that its results depend on."""

    async def evaluate(
        self, run: Run, example: Example, runner: AsyncRunner[str, Any]
    ) -> list[KeyedResult]:
        """Evaluate a run.

        Args:
            run: The run.
            example: Its example.
            runner: Runs the evaluator's code, within a timeout.

        Returns:
            One result or more. A failure is a result with the status ``error``.
        """


@dataclass(frozen=True)
class Arguments:
    """The arguments that a function of the user's takes.

    Attributes:
        names: The keywords.
        positional: Whether it takes a pair of positional arguments instead.
    """

    names: tuple[str, ...]
    positional: bool = False

    def bind(
        self, function: Callable[..., Any], available: Mapping[str, Any], pair: tuple[Any, Any]
    ) -> Callable[[], Any]:
        """The function with its arguments filled in."""
        if self.positional:
            return partial(function, *pair)
        return partial(function, **{name: available[name] for name in self.names})


@dataclass(frozen=True)
class _ResultFunction:
    """A function of the user's, or an evaluator that `oteval` created."""

    name: str
    version: str
    function: Callable[..., Any]
    arguments: Arguments

    async def evaluate(
        self, run: Run, example: Example, runner: AsyncRunner[str, Any]
    ) -> list[KeyedResult]:
        available = {
            "inputs": example.inputs,
            "outputs": _whole_outputs(self.function, run, example),
            "reference_outputs": example.reference_outputs,
            "run": run,
            "example": example,
            "trajectory": run.trajectory,
        }
        call = self.arguments.bind(self.function, available, (run, example))
        outcome = await runner.run(call, self.name)
        if isinstance(outcome.error, NotEvaluated):
            return [not_evaluated(self.name, str(outcome.error))]
        if outcome.error is not None:
            return [failed(self.name, outcome.error)]
        return keyed_results(outcome.value, self.name)


@dataclass(frozen=True)
class _ConfiguredEvaluator:
    """An evaluator of oteval.yaml."""

    prepared: PreparedEvaluator
    salt: str
    own_reference_first: bool = False

    @property
    def name(self) -> str:
        return self.prepared.scorer.name

    @property
    def version(self) -> str:
        return self.prepared.scorer.version

    async def evaluate(
        self, run: Run, example: Example, runner: AsyncRunner[str, Any]
    ) -> list[KeyedResult]:
        trajectory = _as_trajectory(run, example)
        if not self.prepared.scorer.wants(trajectory, self.salt):
            return [not_evaluated(self.name, "excluded by 'where' or 'sample'")]
        outcome = await runner.run(partial(self._score, trajectory, example), self.name)
        if outcome.error is not None:
            return [failed(self.name, outcome.error)]
        return keyed_results(outcome.value, self.name)

    def _score(self, trajectory: Trajectory, example: Example) -> Score:
        scorer, references = self.prepared.scorer, self.prepared.references
        option, own_first = scorer.evaluator.reference, self.own_reference_first
        if option is None:  # it compares with nothing
            return scorer.score(trajectory, None, "", time.time_ns())
        reference, problem = references.of_example(
            example, trajectory, option.form, own_first=own_first
        )
        return scorer.score(trajectory, reference, problem, time.time_ns())


def _as_trajectory(run: Run, example: Example) -> Trajectory:
    """A run as a trajectory; if only its answer is known, add its question.

    Such a run, and one without messages, has the gap that its calls are not known.
    """
    trajectory = run.trajectory
    if trajectory is None:
        answer = answer_message(run.outputs)
        trajectory = Trajectory(
            run.id, SpanRef("", ""), tail=answer, gaps=gaps_beside(run.facts) or (ANSWER_ONLY,)
        )
    question = _only_text(example.inputs)
    is_answer = all(message.role == "assistant" for message in trajectory.tail)
    if question and trajectory.tail and is_answer and hides_calls(trajectory.gaps):
        trajectory = replace(trajectory, tail=(Message("user", question), *trajectory.tail))
    # References by case, and 'where', find the example by these.
    case = {**example.metadata, CASE_KEY: example.id}
    return replace(trajectory, attributes={**case, **trajectory.attributes})


def _whole_outputs(function: Any, run: Run, example: Example) -> Any:
    """The outputs for a function: for an `Evaluator`, the run with its usage and gaps."""
    evaluators = [part for part in _described(function) if isinstance(part, Evaluator)]
    if not evaluators or (run.trajectory is None and not isinstance(run.outputs, str)):
        return run.outputs
    conversation = _as_trajectory(run, example)
    return replace(conversation, tail=conversation.own_messages, history=None, new_from=0)


def _only_text(inputs: Any) -> str:
    values = list(inputs.values()) if isinstance(inputs, Mapping) else [inputs]
    texts = [value for value in values if isinstance(value, str)]
    return texts[0] if len(texts) == 1 else ""


def configured(
    config: Config, store: Store, base: Path, *, own_reference_first: bool = False
) -> list[RunEvaluator]:
    """The evaluators of an oteval.yaml; an example's reference overrides their references.

    Args:
        config: The configuration.
        store: The store with its references.
        base: Base directory for relative paths in the configuration.
        own_reference_first: Use an example's reference only if an evaluator has none itself.

    Raises:
        ConfigError: A reference or function cannot be loaded, or an argument is wrong.
    """
    return [
        _ConfiguredEvaluator(evaluator, config.salt, own_reference_first)
        for evaluator in prepare(config, store, base)
    ]


def evaluators_of(functions: Iterable[Any]) -> list[RunEvaluator]:
    """Return functions and configured evaluators as evaluators with unique names.

    Raises:
        ConfigError: A function cannot be called, requires an unknown argument, or repeats a name.
    """
    evaluators: list[RunEvaluator] = []
    names: set[str] = set()
    for function in functions:
        if isinstance(function, (_ConfiguredEvaluator, _ResultFunction)):
            evaluator: RunEvaluator = function
            if evaluator.name in names:
                raise ConfigError(f"two evaluators are called {evaluator.name!r}")
        else:
            name = name_of(function, names)
            arguments = arguments_of(function, _NAMES, _IMPLICIT, name)
            evaluator = _ResultFunction(name, version_for(function), function, arguments)
        names.add(evaluator.name)
        evaluators.append(evaluator)
    return evaluators


def name_of(function: Any, names: set[str]) -> str:
    """A name for a function that is not taken yet."""
    inner = getattr(function, "func", function)
    key = next((part.key for part in _described(function) if hasattr(part, "key")), None)
    name = key if isinstance(key, str) and key else getattr(inner, "__name__", "")
    if not name or name == "<lambda>":
        name = "evaluator" if name else type(inner).__name__
    number, unique = 1, name
    while unique in names:
        number += 1
        unique = f"{name}_{number}"
    return unique


def _described(function: Any) -> list[Any]:
    """The objects that may have an evaluator's name and configuration."""
    inner = getattr(function, "evaluator", None)  # of an asynchronous judge, which is a function
    return [function] if inner is None else [function, inner]


def version_for(function: Any) -> str:
    """A hash of an evaluator's configuration, or else of its code."""
    for part in _described(function):
        describe = getattr(part, "describe", None)
        if callable(describe):
            description: Mapping[str, Any] = describe()
            return version_of(description)
    inner = getattr(function, "func", None)
    if inner is not None:  # a functools.partial
        bound = {"args": repr(function.args), "keywords": repr(function.keywords)}
        return version_of({"code": code_version(inner), **bound})
    return code_version(function)


def arguments_of(
    function: Any, names: Sequence[str], implicit: Sequence[str], evaluator: str
) -> Arguments:
    """The arguments that a function takes.

    Args:
        function: The function.
        names: The keywords that exist.
        implicit: The keywords that a function with ``**kwargs`` gets without naming them.
        evaluator: The function's name, for the error message.

    Raises:
        ConfigError: It cannot be called, or requires another argument.
    """
    if not callable(function):
        raise ConfigError(f"evaluator {function!r} cannot be called")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # functions not written in Python may have no signature
        return Arguments(tuple(implicit))
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    fixed = [p for p in parameters if p.kind not in variable]
    required = [p for p in fixed if p.default is p.empty]
    unknown = [p.name for p in required if p.name not in names or p.kind is p.POSITIONAL_ONLY]
    if unknown:
        positional = [p for p in fixed if p.kind in kinds]
        if {"run", "runs"} & set(names) and len(required) == len(positional) == 2:
            return Arguments((), positional=True)
        raise ConfigError(
            f"evaluator {evaluator!r} requires the argument {unknown[0]!r}; "
            f"available are {', '.join(names)}"
        )
    keywords = [p.name for p in fixed if p.name in names]
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        keywords += [name for name in implicit if name not in keywords]
    return Arguments(tuple(keywords))
