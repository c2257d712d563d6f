"""The tests that are running, and what they have logged."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import isfinite
from numbers import Real
from typing import Any

from ..errors import ConfigError

__all__ = [
    "Case",
    "current",
    "hear",
    "log_feedback",
    "log_inputs",
    "log_outputs",
    "log_reference_outputs",
    "note_of",
    "running",
    "switch",
]


@dataclass
class Case:
    """What one running test has logged.

    Attributes:
        test: The test's id.
        inputs: What was logged as its inputs.
        outputs: What was logged as its outputs.
        reference_outputs: What was logged as what was wanted.
        feedback: The feedback logged so far, in order.
        is_open: Whether the test still runs.
    """

    test: str
    inputs: Any = None
    outputs: Any = None
    reference_outputs: Any = None
    feedback: list[dict[str, Any]] = field(default_factory=list)
    is_open: bool = True


_CASE: ContextVar[Case | None] = ContextVar("oteval_case", default=None)
# The marked test that runs in this process: threads and event loops may have lost the context.
_running: list[Case] = []
_is_on = False


def switch(is_on: bool) -> None:
    """Note whether pytest runs with the plugin."""
    global _is_on
    _is_on = is_on


@contextmanager
def running(case: Case) -> Iterator[None]:
    """Make a test the one that is logged to, inside the block."""
    _CASE.set(case)
    _running.append(case)
    try:
        yield
    finally:
        case.is_open = False
        _running.remove(case)
        _CASE.set(None)


def current() -> Case | None:
    """Return the marked test that is running, if one is."""
    case = _CASE.get()
    if case is not None and case.is_open:
        return case
    return _running[-1] if _running else None


def log_inputs(inputs: Any, /) -> None:
    """Log what the agent was given.

    Args:
        inputs: Any JSON-like value.

    Raises:
        ConfigError: The test that is running has no ``@pytest.mark.oteval``.
    """
    case = _marked("log_inputs")
    if case is not None:
        case.inputs = inputs


def log_outputs(outputs: Any, /) -> None:
    """Log what the agent made of it.

    Args:
        outputs: Any JSON-like value.

    Raises:
        ConfigError: The test that is running has no ``@pytest.mark.oteval``.
    """
    case = _marked("log_outputs")
    if case is not None:
        case.outputs = outputs


def log_reference_outputs(reference_outputs: Any, /) -> None:
    """Log what the agent should have made of it.

    Args:
        reference_outputs: Any JSON-like value.

    Raises:
        ConfigError: The test that is running has no ``@pytest.mark.oteval``.
    """
    case = _marked("log_reference_outputs")
    if case is not None:
        case.reference_outputs = reference_outputs


def log_feedback(
    feedback: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    /,
    *,
    key: str | None = None,
    score: float | bool | None = None,
    value: str | float | bool | None = None,
    comment: str | None = None,
    lower_is_better: bool = False,
) -> None:
    """Log one verdict on what the agent did, or several.

    Args:
        feedback: What an evaluator returned, or a list of that; in place of the keywords.
        key: The verdict's name.
        score: A number, or whether it passed.
        value: A verdict in a word, where there is no number.
        comment: Why.
        lower_is_better: Whether a baseline regresses when the score rises, as that of latencies.

    Raises:
        ConfigError: Neither or both of `feedback` and `key` are given, the feedback has no key
            or a score that is no number, or the test that is running has no
            ``@pytest.mark.oteval``.
    """
    if (feedback is None) == (key is None):
        raise ConfigError("log_feedback: give either an evaluator's result or key=")
    if feedback is None:
        feedback = {"key": key, "score": score, "value": value, "comment": comment}
    several = [feedback] if isinstance(feedback, Mapping) else list(feedback)
    noted = [note_of(one, lower_is_better) for one in several]
    case = _marked("log_feedback")
    if case is not None:
        case.feedback += noted


def hear(result: Mapping[str, Any]) -> None:
    """Log an evaluator's result in the test that is running, if that has the mark."""
    case = current()
    if case is not None:
        case.feedback.append(note_of(result))


def note_of(result: Mapping[str, Any], lower_is_better: bool = False) -> dict[str, Any]:
    """Return what is kept of an evaluator's result.

    Returns:
        ``key``, ``score`` (a number or None), ``passed`` (None without such a notion), ``label``,
        ``comment``, ``status`` and ``lower_is_better``.

    Raises:
        ConfigError: It has no key, or its score is no number.
    """
    key, score, label = result.get("key"), result.get("score"), result.get("value")
    if not isinstance(key, str) or not key:
        raise ConfigError(f"log_feedback: feedback needs a key, not {key!r}")
    if score is None and isinstance(label, Real):
        score, label = label, None
    if score is not None and not (isinstance(score, Real) and isfinite(score)):
        raise ConfigError(f"log_feedback: the score of {key!r} must be a number, not {score!r}")
    comment = result.get("comment")
    metadata = result.get("metadata")
    failed = metadata.get("error") if isinstance(metadata, Mapping) else None
    if score is None and not label:
        comment = str(failed or comment or "there is no score")
        is_skipped = isinstance(metadata, Mapping) and metadata.get("status") == "not_evaluated"
        status = "not_evaluated" if is_skipped else "error"
    else:
        status = "ok"
    return {
        "key": key,
        "score": None if score is None else float(score),
        "passed": score if isinstance(score, bool) else None,
        "label": "" if label is None else str(label),
        "comment": "" if comment is None else str(comment),
        "status": status,
        "lower_is_better": lower_is_better,
    }


def _marked(function: str) -> Case | None:
    case = current()
    # pytest keeps the variable while a test runs.
    if case is None and _is_on and "PYTEST_CURRENT_TEST" in os.environ:
        test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
        raise ConfigError(f"{function}: {test} has no @pytest.mark.oteval")
    return case
