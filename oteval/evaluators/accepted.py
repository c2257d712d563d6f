"""Several accepted references: a run is compared with each, and the best match counts.

In Python they are an `AnyOf`, in JSON ``{"any": [...]}``, and in oteval.yaml ``reference: {any:
[...]}``. The result names the reference in ``metadata["reference"]`` and in the comment of a
failure. A run fails only if it is compared with all of them: if one comparison lacks data and no
other passes, it is not evaluated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, ParamSpec, TypeVar

from ..base.errors import InputError
from ..model import EvaluationResult
from .messages import is_message
from .result_listeners import observed, unheard

__all__ = ["AnyOf", "BestMatch", "accepts_any_of", "any_of", "naming"]

P = ParamSpec("P")
Reference = TypeVar("Reference")
Result = TypeVar("Result", EvaluationResult, dict[str, Any])


@dataclass(frozen=True)
class AnyOf:
    """Several accepted references. The best match counts.

    Attributes:
        any: The references as a list, or a dict by name. References in a list are called
            ``any[0]``, ``any[1]`` and so on. A trajectory is always a list of messages.
    """

    any: Sequence[Any] | Mapping[str, Any]

    def __post_init__(self) -> None:
        """Refuse an empty list, and a list of messages instead of trajectories.

        Raises:
            InputError: The list is empty, or contains a message or None.
        """
        if isinstance(self.any, str) or not isinstance(self.any, (Sequence, Mapping)):
            kind = type(self.any).__name__
            raise InputError(f"any is a {kind}; pass a list of references, or a dict by name")
        if not self.any:
            raise InputError("any is empty; pass at least one reference")
        for name, reference in self.items():
            if reference is None:
                raise InputError(f"{name} is None; pass a reference")
            if is_message(reference):
                raise InputError(
                    f"{name} is a message; pass a list of trajectories, each a list of messages"
                )

    def items(self) -> Iterator[tuple[str, Any]]:
        """Yield the name and the value of each reference."""
        if isinstance(self.any, Mapping):
            yield from self.any.items()
            return
        for index, reference in enumerate(self.any):
            yield f"any[{index}]", reference


def any_of(value: Any) -> AnyOf | None:
    """An `AnyOf`, or its JSON form as an `AnyOf`; None for a single reference.

    Raises:
        InputError: The value is ``{"any": ...}`` without a list of references.
    """
    if isinstance(value, AnyOf):
        return value
    is_json_form = isinstance(value, Mapping) and set(value) == {"any"}
    return AnyOf(value["any"]) if is_json_form else None


@contextmanager
def naming(reference: str) -> Iterator[None]:
    """Prefix the `InputError` of a comparison with the name of its reference.

    Raises:
        InputError: The block raised it.
    """
    try:
        yield
    except InputError as error:
        raise InputError(f"{reference}: {error}") from error


class BestMatch(Generic[Result]):
    """Chooses among the results of one run with several references.

    Args:
        count: The number of references.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        # The score and the f1 of the best result, the result, and the name of its reference.
        self._best: tuple[tuple[float, float], Result, str] | None = None
        self._unknown: tuple[Result, str] | None = None

    def open(self, references: Iterable[tuple[str, Reference]]) -> Iterator[tuple[str, Reference]]:
        """Yield names and references until an added result is perfect."""
        for name, reference in references:
            yield name, reference
            if self._best is not None and self._best[0][0] >= 1.0:
                return

    def add(self, name: str, result: Result) -> None:
        """Add the result of a comparison.

        Args:
            name: The name of the reference.
            result: The result.
        """
        score, metadata = _score_of(result)
        if score is None:
            self._unknown = self._unknown or (result, name)
            return
        rank = (score, metadata.get("f1", 0.0))
        if self._best is None or rank > self._best[0]:
            self._best = (rank, result, name)

    def result(self) -> Result:
        """The best result, with the name of its reference."""
        if self._unknown is not None and not (self._best and _passed(self._best[1])):
            return _named(*self._unknown, prefix="compared with ")
        assert self._best is not None
        _, result, name = self._best
        return _named(result, name, prefix=f"closest of {self._count} references, ")


def _score_of(result: EvaluationResult | dict[str, Any]) -> tuple[float | None, Mapping[str, Any]]:
    if isinstance(result, EvaluationResult):
        return result.score, result.metadata
    score = result["score"]
    return None if score is None else float(score), result["metadata"] or {}


def _passed(result: EvaluationResult | dict[str, Any]) -> bool:
    score, _ = _score_of(result)
    is_pass = isinstance(result, EvaluationResult) and bool(result.passed)
    return is_pass or (score is not None and score >= 1.0)


def _named(result: Result, name: str, prefix: str) -> Result:
    """A result with the name of its reference; a pass keeps its empty comment."""
    if isinstance(result, EvaluationResult):
        comment = result.comment and f"{prefix}{name}: {result.comment}"
        return replace(result, comment=comment, metadata={**result.metadata, "reference": name})
    comment = result["comment"] and f"{prefix}{name}: {result['comment']}"
    metadata = {**(result["metadata"] or {}), "reference": name}
    return {**result, "comment": comment, "metadata": metadata}


def accepts_any_of(evaluate: Callable[P, Any]) -> Callable[P, Any]:
    """Let a function that compares with one reference accept an `AnyOf`."""

    @functools.wraps(evaluate)
    def compare(*args: P.args, **kwargs: P.kwargs) -> Any:
        references = kwargs.get("reference_outputs")
        if not isinstance(references, AnyOf):
            return evaluate(*args, **kwargs)
        best: BestMatch[dict[str, Any]] = BestMatch(len(references.any))
        with unheard():
            for name, reference in best.open(references.items()):
                kwargs["reference_outputs"] = reference
                with naming(name):
                    best.add(name, evaluate(*args, **kwargs))
        return observed(best.result())

    return compare
