"""The content of a decoded request, and the limits and messages that both encodings share."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from oteval.model import Attributes, LogRecord, ScoredRun, Span

MAX_TIME = 2**63 - 1
"""The last nanosecond that a signed 64-bit column can store, in the year 2262."""
MAX_COUNT = 2**32 - 1
MAX_KIND = 5
MAX_STATUS = 2
MAX_SEVERITY = 24
MAX_PROBLEMS = 1000
"""The most problems of a request that are listed. A hostile request may have millions."""


class Problems(list[str]):
    """A list of problems with at most `MAX_PROBLEMS` entries; further problems are only counted.

    Attributes:
        omitted: The number of problems that are not in the list.
    """

    def __init__(self) -> None:
        super().__init__()
        self.omitted = 0

    def append(self, problem: str, /) -> None:
        """Add a problem, or count it if the list is full."""
        if len(self) < MAX_PROBLEMS:
            super().append(problem)
        else:
            self.omitted += 1

    def close(self) -> None:
        """Add the number of omitted problems to a full list."""
        if self.omitted:
            super().append(f"and {self.omitted} more problems in this request")
            self.omitted = 0


@dataclass(slots=True)
class Decoded:
    """The content of one or more requests.

    Attributes:
        spans: The spans, in the order of the request.
        logs: The log records, in the order of the request.
        problems: One line for each part that was left out, with the reason.
        runs: Runs from files that `oteval export --jsonl` wrote.
        skipped: The number of spans that were left out.
        skip_reason: The problem of the first span that was left out, or "".
    """

    spans: list[Span] = field(default_factory=list)
    logs: list[LogRecord] = field(default_factory=list)
    problems: list[str] = field(default_factory=Problems)
    runs: list[ScoredRun] = field(default_factory=list)
    skipped: int = 0
    skip_reason: str = ""

    def skip_span(self, name: Any, reason: str) -> None:
        """Report and count a span that is left out.

        Args:
            name: Its name.
            reason: Why it cannot be stored.
        """
        problem = f"{_prefix('span', name)}: {reason}; span skipped"
        self.problems.append(problem)
        self.skip_reason = self.skip_reason or problem
        self.skipped += 1

    def closed(self) -> Decoded:
        """Complete the list of problems, and return the object itself."""
        if isinstance(self.problems, Problems):
            self.problems.close()
        return self


class Origin(NamedTuple):
    """The resource and scope of a span. All spans of a scope share these mappings."""

    resource: Attributes
    scope: str
    version: str
    attributes: Attributes


def short_repr(value: Any) -> str:
    """A short representation of any value, for a one-line message."""
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:57] + "...")
    return reprlib.repr(value)  # bounded for long and deeply nested values


def prefix_problems(problems: list[str], start: int, kind: str, name: Any) -> None:
    """Prefix the problems from index `start` on with the name of their span or log record."""
    prefix = _prefix(kind, name)
    problems[start:] = [f"{prefix}: {problem}" for problem in problems[start:]]


def _prefix(kind: str, name: Any) -> str:
    return f"{kind} {short_repr(name)}" if name else f"a {kind} without a name"
