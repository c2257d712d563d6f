"""The protocol of a backend that traces are pulled from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...model import Span

__all__ = [
    "PullPosition",
    "SpanPage",
    "TraceSource",
]

PullPosition = Mapping[str, Any]
"""How far a project was read: ``since_ns``, and entries that only its backend understands."""


@dataclass(frozen=True, slots=True)
class SpanPage:
    """A page of spans.

    Attributes:
        spans: The spans.
        position: The position after them; a later pull continues there.
        problems: One line for each part that could not be read.
    """

    spans: Sequence[Span]
    position: PullPosition
    problems: Sequence[str] = ()


class TraceSource(Protocol):
    """A backend that traces are read from.

    Attributes:
        url: Its base URL without a password, fit for messages.
    """

    url: str

    def projects(self, names: Sequence[str]) -> Sequence[str]:
        """The projects to read.

        Args:
            names: The names from the user; all projects when empty.

        Raises:
            BackendError: A name is unknown, or the backend refuses the request.
        """

    def pages(self, project: str, position: PullPosition) -> Iterator[SpanPage]:
        """Yield the pages of a project from a position on.

        Args:
            project: One of `projects`.
            position: The position of an earlier page, or only ``since_ns``.

        Raises:
            BackendError: The backend refuses a request, or its answer cannot be read.
        """

    def close(self) -> None:
        """Close the connection."""
