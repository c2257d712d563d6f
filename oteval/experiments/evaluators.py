"""Evaluators of experiments: functions that name what they want, and those of oteval.yaml.

A function may name any of ``inputs``, ``outputs``, ``reference_outputs``, ``run``, ``example`` and
``trajectory``. One that takes any keyword (``**kwargs``) gets the first three beside those it
names, which is how the evaluators of `oteval` are called. Two other positional parameters are
``run`` and ``example``.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from ..config import Config
from ..errors import ConfigError, InputError
from ..evaluators import to_messages
from ..evaluators.evaluator import NotEvaluated
from ..evaluators.functions import code_version
from ..evaluators.scorer import version_of
from ..model import Example, Reference, Run, SpanRef, Trajectory
from ..pipeline import prepare
from ..pipeline.scoring import Prepared
from ..store import Store
from .calling import call
from .datasets import CASE_KEY
from .outcomes import Outcome, failed, outcomes_of

__all__ = ["Asked", "Evaluator", "bind", "configured", "evaluators_of", "name_of", "version_for"]

_OFFERED = ("inputs", "outputs", "reference_outputs")
_NAMES = (*_OFFERED, "run", "example", "trajectory")


@dataclass(frozen=True)
class Asked:
    """What an evaluator is asked about.

    Attributes:
        run: The run.
        example: Its example.
    """

    run: Run
    example: Example

    def keywords(self) -> dict[str, Any]:
        """Return what an evaluator can name."""
        return {
            "inputs": self.example.inputs,
            "outputs": self.run.outputs,
            "reference_outputs": self.example.reference_outputs,
            "run": self.run,
            "example": self.example,
            "trajectory": self.run.trajectory,
        }


class Evaluator(Protocol):
    """An evaluator that has a name and a version."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def version(self) -> str:
        """A hash of all that its verdict depends on."""

    async def ask(self, asked: Asked, timeout: float | None) -> list[Outcome]:
        """Return its figures of a run; whatever happens, there is at least one."""


@dataclass(frozen=True)
class _Function:
    """An evaluator that is a function of the user's, or one of oteval's factories'."""

    name: str
    version: str
    function: Callable[..., Any]
    names: tuple[str, ...]
    positional: bool

    async def ask(self, asked: Asked, timeout: float | None) -> list[Outcome]:
        """Return its figures of a run."""
        offered = asked.keywords()
        try:
            if self.positional:
                value = await call(self.function, (asked.run, asked.example), None, timeout)
            else:
                keywords = {name: offered[name] for name in self.names}
                value = await call(self.function, (), keywords, timeout)
        except NotEvaluated as why:
            return [Outcome(self.name, "not_evaluated", comment=str(why))]
        except Exception as error:
            return [failed(self.name, error)]
        return outcomes_of(value, self.name)


@dataclass(frozen=True)
class _Configured:
    """An evaluator of oteval.yaml."""

    prepared: Prepared
    salt: str

    @property
    def name(self) -> str:
        """Its name."""
        return self.prepared.scorer.name

    @property
    def version(self) -> str:
        """Its version."""
        return self.prepared.scorer.version

    async def ask(self, asked: Asked, timeout: float | None) -> list[Outcome]:
        """Return its verdict on a run; none where it does not look at such runs."""
        run = _as_trajectory(asked)
        scorer = self.prepared.scorer
        if not scorer.wants(run, self.salt):
            return [Outcome(self.name, "not_evaluated", comment="'where' or 'sample' leave it out")]
        reference, problem = _reference(asked.example), ""
        if reference is None:
            reference, problem = self.prepared.references.of(run)
        try:
            given = (run, reference, problem, time.time_ns())
            return outcomes_of(await call(scorer.score, given, None, timeout), self.name)
        except Exception as error:
            return [failed(self.name, error)]


def _as_trajectory(asked: Asked) -> Trajectory:
    """Return a run as a trajectory; of an output that is a text, question and answer."""
    run, example = asked.run, asked.example
    found = run.trajectory
    if found is None:
        said = []
        if isinstance(run.outputs, str):
            question = _text_in(example.inputs)
            said = [{"role": "user", "content": question}] if question else []
            said.append({"role": "assistant", "content": run.outputs})
        found = Trajectory(run.id, SpanRef("", ""), tail=tuple(to_messages(said)))
    # So that references by case, and 'where', find the example.
    case = {**example.metadata, CASE_KEY: example.id}
    return replace(found, attributes={**case, **found.attributes})


def _text_in(inputs: Any) -> str:
    values = list(inputs.values()) if isinstance(inputs, Mapping) else [inputs]
    texts = [value for value in values if isinstance(value, str)]
    return texts[0] if len(texts) == 1 else ""


def _reference(example: Example) -> Reference | None:
    wanted = example.reference_outputs
    if not isinstance(wanted, (list, Mapping)) or not wanted:
        return None
    try:
        if isinstance(wanted, Mapping) and "steps" in wanted:  # a graph trajectory
            steps = tuple(tuple(map(str, turn)) for turn in wanted["steps"])
            return Reference(example.id, (), "the example", steps)
        return Reference(example.id, tuple(to_messages(wanted)), "the example")
    except (InputError, TypeError):
        return None


def configured(config: Config, store: Store, base: Path) -> list[Evaluator]:
    """Return the evaluators of an oteval.yaml; an example's own reference comes before theirs.

    Args:
        config: The configuration.
        store: Where references by name are.
        base: The folder that paths of the configuration are relative to.

    Raises:
        ConfigError: A reference or function cannot be had, or an argument is wrong.
    """
    return [_Configured(one, config.salt) for one in prepare(config, store, base)]


def evaluators_of(given: Iterable[Any]) -> list[Evaluator]:
    """Return what was given as evaluators, their names made unique.

    Raises:
        ConfigError: One cannot be called, or wants what there is not.
    """
    found: list[Evaluator] = []
    taken: set[str] = set()
    for one in given:
        if isinstance(one, (_Configured, _Function)):
            made: Evaluator = one
            if made.name in taken:
                raise ConfigError(f"two evaluators are called {made.name!r}")
        else:
            made = _function(one, taken)
        taken.add(made.name)
        found.append(made)
    return found


def _function(function: Any, taken: set[str]) -> _Function:
    name = name_of(function, taken)
    names, positional = bind(function, _NAMES, _OFFERED, name)
    return _Function(name, version_for(function), function, names, positional)


def name_of(function: Any, taken: set[str]) -> str:
    """Return a name for a function that no other has."""
    inner = getattr(function, "func", function)
    key = next((each.key for each in _holders(function) if hasattr(each, "key")), None)
    name = key if isinstance(key, str) and key else getattr(inner, "__name__", "")
    if not name or name == "<lambda>":
        name = "evaluator" if name else type(inner).__name__
    number, unique = 1, name
    while unique in taken:
        number += 1
        unique = f"{name}_{number}"
    return unique


def _holders(function: Any) -> list[Any]:
    """Return the objects that may know an evaluator's name and configuration."""
    inner = getattr(function, "evaluator", None)  # of an asynchronous judge, which is a function
    return [function] if inner is None else [function, inner]


def version_for(function: Any) -> str:
    """Return a hash of what an evaluator's verdict depends on, as far as that can be told."""
    for each in _holders(function):
        describe = getattr(each, "describe", None)
        if callable(describe):
            described: Mapping[str, Any] = describe()
            return version_of(described)
    inner = getattr(function, "func", None)
    if inner is not None:  # a functools.partial
        bound = {"args": repr(function.args), "keywords": repr(function.keywords)}
        return version_of({"code": code_version(inner), **bound})
    return code_version(function)


def bind(
    function: Any, known: Sequence[str], offered: Sequence[str], name: str
) -> tuple[tuple[str, ...], bool]:
    """Return which of the known names a function wants, or that it wants runs and examples.

    Args:
        function: The function.
        known: The names there are.
        offered: Those that one with ``**kwargs`` gets unasked.
        name: The function's name, for the message.

    Returns:
        The names; and whether it takes two positional arguments in their place.

    Raises:
        ConfigError: It cannot be called, or requires a name there is not.
    """
    if not callable(function):
        raise ConfigError(f"evaluator {function!r}: it cannot be called")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # what is not written in Python says nothing of it
        return tuple(offered), False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    plain = [p for p in parameters if p.kind not in variable]
    required = [p for p in plain if p.default is p.empty]
    strange = [p.name for p in required if p.name not in known or p.kind is p.POSITIONAL_ONLY]
    if strange:
        positional = [p for p in plain if p.kind in kinds]
        if {"run", "runs"} & set(known) and len(required) == len(positional) == 2:
            return (), True
        raise ConfigError(
            f"evaluator {name!r}: it wants {strange[0]!r}; it can name {', '.join(known)}"
        )
    wanted = [p.name for p in plain if p.name in known]
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        wanted += [each for each in offered if each not in wanted]
    return tuple(wanted), False
