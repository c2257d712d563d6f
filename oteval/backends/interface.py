"""The values and protocols that all backends share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ..model import Span

__all__ = [
    "IDENTIFIER",
    "Annotation",
    "AnnotationTarget",
    "AnnotatorKind",
    "PullPosition",
    "PushReport",
    "SpanPage",
    "TraceSource",
]

IDENTIFIER = "oteval:"
"""The identifiers of all annotations by oteval begin so."""
AnnotatorKind = Literal["LLM", "CODE"]
PullPosition = Mapping[str, Any]
"""How far a project was read: ``since_ns``, and entries that only its backend understands."""


@dataclass(frozen=True, slots=True)
class SpanPage:
    """A page of spans.

    Attributes:
        spans: The spans.
        position: The position after them, from which a later pull continues.
        problems: One line for each part that could not be read.
    """

    spans: Sequence[Span]
    position: PullPosition
    problems: Sequence[str] = ()


class TraceSource(Protocol):
    """A backend from which traces are read.

    Attributes:
        url: Its base URL without a password, fit for messages.
    """

    url: str

    def projects(self, names: Sequence[str]) -> Sequence[str]:
        """Return the projects to read.

        Args:
            names: The names that the user gave; all projects when empty.

        Raises:
            BackendError: A name is unknown, or the backend refuses the request.
        """

    def pages(self, project: str, position: PullPosition) -> Iterator[SpanPage]:
        """Yield the pages of a project from a position on.

        Args:
            project: One of `projects`.
            position: That of an earlier page, or only ``since_ns``.

        Raises:
            BackendError: The backend refuses a request, or its answer cannot be read.
        """

    def close(self) -> None:
        """Close the connection."""


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
        is_withdrawal: Whether it says that a verdict no longer counts. Where the backend has no
            annotation, there is nothing to withdraw, and none is written.
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
        unchanged: Those that the backend had already.
        unknown: Those whose span or trace the backend does not have.
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
        """Write those annotations that the backend lacks or has with other content.

        A withdrawal replaces an annotation, or removes it, and is not written without one.

        Args:
            annotations: The annotations, a few hundred at most.
            report: Counts them.

        Returns:
            Those whose span or trace the backend does not have.

        Raises:
            BackendError: The backend refuses a request.
        """

    def close(self) -> None:
        """Close the connection."""
