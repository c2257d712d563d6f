"""A score as the annotation of a span, in the form that all backends can store."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from typing import Literal, Protocol

from ..base.errors import ConfigError
from ..model import Score

__all__ = [
    "IDENTIFIER",
    "Annotation",
    "AnnotationTarget",
    "AnnotatorKind",
    "PushReport",
    "annotation_of",
    "open_target",
    "withdrawal_of",
]

IDENTIFIER = "oteval:"
"""The identifiers of all annotations by oteval begin with this text."""
AnnotatorKind = Literal["LLM", "CODE"]
_GROUP = "oteval.backends"


@dataclass(frozen=True, slots=True)
class Annotation:
    """A score in the form that all backends can store.

    Attributes:
        trace_id: The judged trace, 32 hex digits.
        span_id: The judged span, 16 hex digits: the root of the run.
        name: The evaluator's name.
        identifier: The same text for the same evaluator and version. With the span and the name, it
            identifies the annotation in the backend.
        kind: ``LLM`` for a verdict by a language model, else ``CODE``.
        score: The number, or None.
        label: The verdict as a word, or "".
        explanation: The reason, or "".
        metadata: The evaluator's version and the run's id, as texts.
        is_withdrawal: Whether it withdraws a verdict that no longer counts. If the backend has no
            annotation to withdraw, none is written.
    """

    trace_id: str
    span_id: str
    name: str
    identifier: str
    kind: AnnotatorKind
    score: float | None
    label: str
    explanation: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    is_withdrawal: bool = False


@dataclass
class PushReport:
    """The outcome of a push.

    Attributes:
        written: The annotations that were written or changed.
        unchanged: The annotations that the backend had already.
        unknown: The annotations whose span or trace the backend does not have.
        errors: The scores that were left out because their evaluator failed.
        not_evaluated: The scores that were left out because they have neither score nor verdict.
    """

    written: int = 0
    unchanged: int = 0
    unknown: int = 0
    errors: int = 0
    not_evaluated: int = 0


class AnnotationTarget(Protocol):
    """A backend to which annotations are written.

    Attributes:
        url: Its base URL without a password, fit for messages.
    """

    url: str

    def write(self, annotations: Sequence[Annotation], report: PushReport) -> Sequence[Annotation]:
        """Write the annotations that the backend lacks or has with other content.

        A withdrawal replaces or removes an annotation. Without an annotation, it is not written.

        Args:
            annotations: The annotations, a few hundred at most.
            report: Counts them.

        Returns:
            The annotations whose span or trace the backend does not have.

        Raises:
            BackendError: The backend refuses a request.
        """

    def close(self) -> None:
        """Close the connection."""


def withdrawal_of(score: Score, reason: str = "") -> Annotation:
    """The annotation that replaces the verdict of an earlier score of the same version.

    Args:
        score: The score without a verdict, or the earlier score.
        reason: Why the verdict does not count; by default the status and comment of the score.
    """
    text = reason or f"{score.status}: {score.comment}"
    return replace(
        annotation_of(score), score=None, label="withdrawn", explanation=text, is_withdrawal=True
    )


def annotation_of(score: Score) -> Annotation:
    """The annotation for a score whose status is ``ok``."""
    number = score.score if score.score is not None and math.isfinite(score.score) else None
    label = score.label or ("" if score.passed is None else "pass" if score.passed else "fail")
    # Judges record which model answered.
    return Annotation(
        trace_id=score.trace_id,
        span_id=score.span_id,
        name=score.evaluator,
        identifier=f"{IDENTIFIER}{score.version}",
        kind="LLM" if "model" in score.metadata else "CODE",
        score=number,
        label=label,
        explanation=score.comment,
        metadata={"version": score.version, "trajectory_id": score.trajectory_id},
    )


def open_target(
    name: str,
    url: str | None,
    headers: Mapping[str, str],
    environment: Mapping[str, str],
    *,
    timeout: float = 60.0,
    patience: float = 120.0,
) -> AnnotationTarget:
    """Open the backend that an installed package announces under a name.

    A package announces a backend by an entry point of the group ``oteval.backends``: a function
    with these arguments, except the name.

    Args:
        name: The name of the entry point, such as ``phoenix``.
        url: The base URL, or None for the URL that the backend's own tools use.
        headers: Further headers of every request.
        environment: The environment variables, which contain the key.
        timeout: The longest wait (s) for an answer.
        patience: How long (s) a request is repeated while the backend is away.

    Raises:
        ConfigError: No package announces the backend, or its URL is invalid.
    """
    announced = tuple(entry_points(group=_GROUP, name=name))
    if not announced:
        raise ConfigError(f"backend {name!r}: no installed package announces it ({_GROUP})")
    target: AnnotationTarget = announced[0].load()(
        url, headers, environment, timeout=timeout, patience=patience
    )
    return target
