"""The marked tests that are running, and the functions that they use to log."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import isfinite
from numbers import Real
from typing import Any

from ...base.errors import ConfigError

__all__ = [
    "Case",
    "current",
    "feedback_record",
    "log_feedback",
    "log_inputs",
    "log_outputs",
    "log_reference_outputs",
    "log_result",
    "running",
    "set_plugin_active",
]


@dataclass
class Case:
    """The log of a running test.

    Attributes:
        test: The test's id.
        inputs: The logged inputs.
        outputs: The logged outputs.
        reference_outputs: The logged reference outputs.
        feedback: The logged feedback, in order.
        is_open: Whether the test is still running.
    """

    test: str
    inputs: Any = None
    outputs: Any = None
    reference_outputs: Any = None
    feedback: list[dict[str, Any]] = field(default_factory=list)
    is_open: bool = True

    def restart(self) -> None:
        """Clear the log: the test is run again, and only its last attempt counts."""
        self.inputs = self.outputs = self.reference_outputs = None
        self.feedback = []


_CASE: ContextVar[Case | None] = ContextVar("oteval_case", default=None)
# The marked tests that run in this process. It is possible that threads do not inherit the context
# variable.
_running: list[Case] = []
_is_plugin_active = False


def set_plugin_active(is_active: bool) -> None:
    """Record whether pytest is running with the plugin."""
    global _is_plugin_active
    _is_plugin_active = is_active


@contextmanager
def running(case: Case) -> Iterator[None]:
    """Make a test the current one inside the ``with`` block."""
    _CASE.set(case)
    _running.append(case)
    try:
        yield
    finally:
        case.is_open = False
        _running.remove(case)
        _CASE.set(None)


def current() -> Case | None:
    """The marked test that is running, or None."""
    case = _CASE.get()
    if case is not None and case.is_open:
        return case
    return _running[-1] if _running else None


def log_inputs(inputs: Any, /) -> None:
    """Log the inputs of the agent.

    Args:
        inputs: A JSON value.

    Raises:
        ConfigError: The running test has no ``@pytest.mark.oteval``.
    """
    case = _marked("log_inputs")
    if case is not None:
        case.inputs = inputs


def log_outputs(outputs: Any, /) -> None:
    """Log the outputs of the agent.

    Args:
        outputs: A JSON value.

    Raises:
        ConfigError: The running test has no ``@pytest.mark.oteval``.
    """
    case = _marked("log_outputs")
    if case is not None:
        case.outputs = outputs


def log_reference_outputs(reference_outputs: Any, /) -> None:
    """Log the outputs that the agent should have produced.

    Args:
        reference_outputs: A JSON value.

    Raises:
        ConfigError: The running test has no ``@pytest.mark.oteval``.
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
    """Log feedback on the agent.

    Args:
        feedback: The result of an evaluator, or a list of results, instead of the keywords.
        key: The name of the feedback.
        score: A number, or a bool for pass and fail.
        value: A verdict in words instead of a score.
        comment: The reason.
        lower_is_better: Whether a rise of the score is a regression, as for latencies.

    Raises:
        ConfigError: Not exactly one of `feedback` and `key` is passed, the feedback has no key, its
            score is not a number, or the running test has no ``@pytest.mark.oteval``.
    """
    if (feedback is None) == (key is None):
        raise ConfigError("log_feedback: give either an evaluator's result or key=")
    if feedback is None:
        feedback = {"key": key, "score": score, "value": value, "comment": comment}
    results = [feedback] if isinstance(feedback, Mapping) else list(feedback)
    records = [feedback_record(result, lower_is_better) for result in results]
    case = _marked("log_feedback")
    if case is not None:
        case.feedback += records


def log_result(result: Mapping[str, Any]) -> None:
    """Log an evaluator's result if a marked test is running."""
    case = current()
    if case is not None:
        case.feedback.append(feedback_record(result))


def feedback_record(result: Mapping[str, Any], lower_is_better: bool = False) -> dict[str, Any]:
    """Make the log record of an evaluator's result.

    Returns:
        ``key``, ``score`` (a number or None), ``passed`` (None unless the score is a bool),
        ``label``, ``comment``, ``status`` and ``lower_is_better``.

    Raises:
        ConfigError: The result has no key, or its score is not a number.
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
        comment = str(failed or comment or "no score")
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
    # pytest sets the variable while a test runs.
    if case is None and _is_plugin_active and "PYTEST_CURRENT_TEST" in os.environ:
        test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
        raise ConfigError(f"{function}: {test} has no @pytest.mark.oteval")
    return case
