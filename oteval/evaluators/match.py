"""The trajectory match evaluators, with the names and call shapes of agentevals.

An evaluator is called with keywords, ``(*, outputs, reference_outputs, inputs=None, **extra)``,
and returns a dict with exactly ``key``, ``score``, ``comment`` and ``metadata``. The score is a
bool unless `score_type` asks for a figure; the comment is None exactly for a pass. What keywords
it does not know it ignores. `oteval.evaluators.compare` has the same verdict without the dict.

The fixed functions (`trajectory_unordered_match` and so on) ignore arguments, but for
`trajectory_strict_match`, which compares them unless told otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ..errors import ConfigError
from .args import ArgsMatch
from .compare import Verdict, acompare, compare
from .observed import observed
from .rules import Exact, Ignore
from .spec import MatchSpec, make_spec

__all__ = [
    "SCORE_TYPES",
    "AsyncMatchEvaluator",
    "MatchEvaluator",
    "ScoreType",
    "create_async_trajectory_match_evaluator",
    "create_trajectory_match_evaluator",
    "trajectory_strict_match",
    "trajectory_strict_match_async",
    "trajectory_subset",
    "trajectory_subset_async",
    "trajectory_superset",
    "trajectory_superset_async",
    "trajectory_unordered_match",
    "trajectory_unordered_match_async",
]

ScoreType = Literal["bool", "f1", "recall", "precision"]
SCORE_TYPES: tuple[ScoreType, ...] = ("bool", "f1", "recall", "precision")


@dataclass(frozen=True)
class MatchEvaluator:
    """Scores a trajectory by comparing it with a reference.

    Attributes:
        spec: What is compared and how.
        key: The score's name.
        score_type: Whether the score is the verdict or one of the figures.
    """

    spec: MatchSpec
    key: str
    score_type: ScoreType = "bool"

    @property
    def __name__(self) -> str:
        return self.key

    def __call__(
        self,
        *,
        outputs: Any,
        reference_outputs: Any = None,
        inputs: Any = None,  # noqa: ARG002  part of every evaluator's signature
        **extra: Any,  # noqa: ARG002
    ) -> dict[str, Any]:
        """Compare outputs with the reference.

        Args:
            outputs: The trajectory, in any form of `oteval.evaluators.messages`.
            reference_outputs: The trajectory that was wanted, in any form.
            inputs: Not used.
            **extra: Not used.

        Returns:
            ``key``, ``score``, ``comment`` and ``metadata``.

        Raises:
            InputError: A side is no trajectory; the text names the place.
        """
        return observed(self.result(compare(outputs, reference_outputs, self.spec)))

    def result(self, verdict: Verdict) -> dict[str, Any]:
        """Return a verdict as this evaluator's result."""
        kind = self.score_type
        return {
            "key": self.key,
            "score": verdict.passed if kind == "bool" else getattr(verdict, kind),
            "comment": verdict.comment,
            "metadata": verdict.metadata(),
        }

    def describe(self) -> dict[str, Any]:
        """Return the configuration as JSON values, for the hash that is its version."""
        return {
            "type": "trajectory_match",
            "key": self.key,
            "score_type": self.score_type,
            **self.spec.describe(),
        }


class AsyncMatchEvaluator(Protocol):
    """A coroutine function that scores as a `MatchEvaluator` does.

    It is a function, not an object, because frameworks ask `inspect.iscoroutinefunction`.

    Attributes:
        evaluator: The configuration, with `describe()`.
    """

    evaluator: MatchEvaluator

    async def __call__(
        self, *, outputs: Any, reference_outputs: Any = None, inputs: Any = None, **extra: Any
    ) -> dict[str, Any]:
        """Compare outputs with the reference."""
        ...


def create_trajectory_match_evaluator(
    *,
    trajectory_match_mode: str = "strict",
    tool_args_match_mode: ArgsMatch = "exact",
    tool_args_match_overrides: Any = None,
    view: str = "all",
    effect_tools: Iterable[str] | None = None,
    error_pattern: str | re.Pattern[str] | None = None,
    score_type: str = "bool",
    strict_order: bool = False,
    missing_ok: bool = True,
) -> MatchEvaluator:
    """Create an evaluator that compares a trajectory's tool calls with a reference's.

    Args:
        trajectory_match_mode: ``strict``, ``unordered``, ``subset``, ``superset`` or ``in_order``.
        tool_args_match_mode: How arguments are compared; `oteval.evaluators.args` lists the forms.
        tool_args_match_overrides: Tool names and the form to use for each instead.
        view: Which calls count: ``all``; ``writes``, those to tools that change something;
            ``effects``, of the output's writes only those that did not fail.
        effect_tools: The tools that change something. Tool definitions of a `Trajectory` that
            carry ``readOnlyHint`` are used as well.
        error_pattern: Searched in a tool result's text to see that the call failed; by default
            the text must begin with Error, Exception, Traceback or Unknown action.
        score_type: ``bool``, or ``f1``, ``recall`` or ``precision`` for that figure.
        strict_order: Whether strict compares the order inside a message too.
        missing_ok: Whether a field of an override's list that neither side has counts as equal.

    Returns:
        The evaluator.

    Raises:
        ConfigError: An argument is wrong; the text names it and says what to write.
    """
    spec = make_spec(
        trajectory_match_mode=trajectory_match_mode,
        tool_args_match_mode=tool_args_match_mode,
        tool_args_match_overrides=tool_args_match_overrides,
        view=view,
        effect_tools=effect_tools,
        error_pattern=error_pattern,
        strict_order=strict_order,
        missing_ok=missing_ok,
    )
    return _evaluator(spec, score_type)


def create_async_trajectory_match_evaluator(
    *,
    trajectory_match_mode: str = "strict",
    tool_args_match_mode: ArgsMatch = "exact",
    tool_args_match_overrides: Any = None,
    view: str = "all",
    effect_tools: Iterable[str] | None = None,
    error_pattern: str | re.Pattern[str] | None = None,
    score_type: str = "bool",
    strict_order: bool = False,
    missing_ok: bool = True,
) -> AsyncMatchEvaluator:
    """Create a coroutine function that does what `create_trajectory_match_evaluator`'s does.

    Functions among the argument forms may be coroutine functions; they are awaited.

    Args:
        trajectory_match_mode: As there.
        tool_args_match_mode: As there.
        tool_args_match_overrides: As there.
        view: As there.
        effect_tools: As there.
        error_pattern: As there.
        score_type: As there.
        strict_order: As there.
        missing_ok: As there.

    Returns:
        The evaluator; its ``evaluator`` attribute holds the configuration.

    Raises:
        ConfigError: An argument is wrong; the text names it and says what to write.
    """
    spec = make_spec(
        trajectory_match_mode=trajectory_match_mode,
        tool_args_match_mode=tool_args_match_mode,
        tool_args_match_overrides=tool_args_match_overrides,
        view=view,
        effect_tools=effect_tools,
        error_pattern=error_pattern,
        strict_order=strict_order,
        missing_ok=missing_ok,
        is_async=True,
    )
    return _as_async(_evaluator(spec, score_type))


def _evaluator(spec: MatchSpec, score_type: str) -> MatchEvaluator:
    for known in SCORE_TYPES:
        if score_type == known:
            return MatchEvaluator(spec, f"trajectory_{spec.mode}_match", known)
    raise ConfigError(f"score_type: unknown value {score_type!r}; known: {', '.join(SCORE_TYPES)}")


def _as_async(made: MatchEvaluator) -> AsyncMatchEvaluator:
    async def evaluator(
        *,
        outputs: Any,
        reference_outputs: Any = None,
        inputs: Any = None,  # noqa: ARG001
        **extra: Any,  # noqa: ARG001
    ) -> dict[str, Any]:
        return observed(made.result(await acompare(outputs, reference_outputs, made.spec)))

    evaluator.__name__ = evaluator.__qualname__ = made.key
    evaluator.evaluator = made  # type: ignore[attr-defined]
    return evaluator  # type: ignore[return-value]


_IGNORE = Ignore()
_STRICT = MatchEvaluator(MatchSpec("strict", Exact()), "trajectory_strict_match")
_STRICT_IGNORE = MatchEvaluator(MatchSpec("strict", _IGNORE), "trajectory_strict_match")
_UNORDERED = MatchEvaluator(MatchSpec("unordered", _IGNORE), "trajectory_unordered_match")
_SUBSET = MatchEvaluator(MatchSpec("subset", _IGNORE), "trajectory_subset")
_SUPERSET = MatchEvaluator(MatchSpec("superset", _IGNORE), "trajectory_superset")


def trajectory_strict_match(
    *,
    outputs: Any,
    reference_outputs: Any = None,
    inputs: Any = None,
    tool_call_args_exact_match: bool = True,
    **extra: Any,
) -> dict[str, Any]:
    """Compare messages one by one: roles, and the calls with their arguments.

    Args:
        outputs: The trajectory.
        reference_outputs: The trajectory that was wanted.
        inputs: Not used.
        tool_call_args_exact_match: False to ignore the arguments.
        **extra: Not used.

    Returns:
        ``key``, ``score``, ``comment`` and ``metadata``.

    Raises:
        InputError: A side is no trajectory; the text names the place.
    """
    chosen = _STRICT if tool_call_args_exact_match else _STRICT_IGNORE
    return chosen(outputs=outputs, reference_outputs=reference_outputs, inputs=inputs, **extra)


def trajectory_unordered_match(*, outputs: Any, reference_outputs: Any = None, **extra: Any) -> Any:
    """Return whether the same tools are called equally often, in any order."""
    return _UNORDERED(outputs=outputs, reference_outputs=reference_outputs, **extra)


def trajectory_subset(*, outputs: Any, reference_outputs: Any = None, **extra: Any) -> Any:
    """Return whether no tool is called more often than in the reference."""
    return _SUBSET(outputs=outputs, reference_outputs=reference_outputs, **extra)


def trajectory_superset(*, outputs: Any, reference_outputs: Any = None, **extra: Any) -> Any:
    """Return whether each tool is called at least as often as in the reference."""
    return _SUPERSET(outputs=outputs, reference_outputs=reference_outputs, **extra)


async def trajectory_strict_match_async(
    *,
    outputs: Any,
    reference_outputs: Any = None,
    inputs: Any = None,
    tool_call_args_exact_match: bool = True,
    **extra: Any,
) -> dict[str, Any]:
    """Do what `trajectory_strict_match` does.

    Args:
        outputs: The trajectory.
        reference_outputs: The trajectory that was wanted.
        inputs: Not used.
        tool_call_args_exact_match: False to ignore the arguments.
        **extra: Not used.

    Returns:
        ``key``, ``score``, ``comment`` and ``metadata``.

    Raises:
        InputError: A side is no trajectory; the text names the place.
    """
    return trajectory_strict_match(
        outputs=outputs,
        reference_outputs=reference_outputs,
        inputs=inputs,
        tool_call_args_exact_match=tool_call_args_exact_match,
        **extra,
    )


async def trajectory_unordered_match_async(
    *, outputs: Any, reference_outputs: Any = None, **extra: Any
) -> Any:
    """Do what `trajectory_unordered_match` does."""
    return _UNORDERED(outputs=outputs, reference_outputs=reference_outputs, **extra)


async def trajectory_subset_async(
    *, outputs: Any, reference_outputs: Any = None, **extra: Any
) -> Any:
    """Do what `trajectory_subset` does."""
    return _SUBSET(outputs=outputs, reference_outputs=reference_outputs, **extra)


async def trajectory_superset_async(
    *, outputs: Any, reference_outputs: Any = None, **extra: Any
) -> Any:
    """Do what `trajectory_superset` does."""
    return _SUPERSET(outputs=outputs, reference_outputs=reference_outputs, **extra)
