"""Compares two values for equality, or as texts."""

from __future__ import annotations

import json
from typing import Any

from ...base.errors import InputError
from ..accepted import accepts_any_of
from ..factories import async_variant
from ..result_listeners import observed
from ..types import EvaluatorResult

__all__ = [
    "exact_match",
    "exact_match_async",
    "levenshtein_distance",
    "levenshtein_distance_async",
    "require_both",
    "text_of",
]


@accepts_any_of
def exact_match(
    *, outputs: Any, reference_outputs: Any, inputs: Any = None, **extra: Any
) -> EvaluatorResult:
    """Compare two values for equality as JSON; the order of keys does not matter.

    Args:
        outputs: Any JSON-like value.
        reference_outputs: The expected value, or an `AnyOf`.
        inputs: Not used.
        **extra: Not used.

    Returns:
        The key ``exact_match`` and a bool as its score.

    Raises:
        InputError: A side is None, or cannot be written as JSON.
    """
    del inputs, extra
    require_both("exact_match", outputs, reference_outputs)
    passed = _json_of(outputs, "outputs") == _json_of(reference_outputs, "reference_outputs")
    comment = None if passed else "outputs and reference_outputs differ"
    return observed(_result("exact_match", passed, comment))


exact_match_async = async_variant(exact_match)


@accepts_any_of
def levenshtein_distance(
    *, outputs: Any, reference_outputs: Any, inputs: Any = None, **extra: Any
) -> EvaluatorResult:
    """Score the similarity of two texts by their edit distance.

    The score is 1 - distance / length of the longer text, where the distance counts inserted,
    deleted and replaced characters (Levenshtein 1966). Two empty texts have the score 1.

    Args:
        outputs: A text; any other value is written as JSON first.
        reference_outputs: The expected text, or an `AnyOf`.
        inputs: Not used.
        **extra: Not used.

    Returns:
        The key ``levenshtein_distance`` and a score from 0 to 1.

    Raises:
        InputError: A side is None, or cannot be written as JSON.
    """
    del inputs, extra
    require_both("levenshtein_distance", outputs, reference_outputs)
    # Imported late to keep the import of oteval cheap.
    from rapidfuzz.distance import Levenshtein

    output, reference = text_of(outputs, "outputs"), text_of(reference_outputs, "reference_outputs")
    distance = Levenshtein.distance(output, reference)
    longest = max(len(output), len(reference))
    score = 1.0 - distance / longest if longest else 1.0
    comment = f"{distance} of {longest} characters differ" if distance else None
    return observed(_result("levenshtein_distance", score, comment))


levenshtein_distance_async = async_variant(levenshtein_distance)


def require_both(name: str, outputs: Any, reference_outputs: Any) -> None:
    """Raise InputError unless both sides are given."""
    for side, value in (("outputs", outputs), ("reference_outputs", reference_outputs)):
        if value is None:
            raise InputError(f"{name} needs {side}, which is None")


def text_of(value: Any, name: str) -> str:
    """Return text as it is and any other value as JSON.

    Raises:
        InputError: The value cannot be written as JSON; the message contains the name.
    """
    return value if isinstance(value, str) else _dumps(value, name)


def _json_of(value: Any, name: str) -> str:
    return _dumps(value, name, sort_keys=True)


def _dumps(value: Any, name: str, **options: bool) -> str:
    try:
        return json.dumps(value, **options)  # type: ignore[arg-type]
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{name} cannot be written as JSON: {error}") from error


def _result(key: str, score: float | bool, comment: str | None) -> EvaluatorResult:
    return {"key": key, "score": score, "comment": comment, "metadata": None}
