"""What a decoded request holds, and the limits and phrases both encodings share."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from oteval.model import Attributes, LogRecord, ScoredRun, Span

MAX_TIME = 2**63 - 1
"""The last nanosecond that a store's signed 64-bit column holds, in the year 2262."""
MAX_COUNT = 2**32 - 1
MAX_KIND = 5
MAX_STATUS = 2
MAX_SEVERITY = 24


# A request may be nothing but problems, of millions of parts.
MOST_PROBLEMS = 1000


class Problems(list[str]):
    """Lines about what was left out; beyond a number of them, only how many more there are.

    Attributes:
        more: How many are not in the list.
    """

    def __init__(self) -> None:
        super().__init__()
        self.more = 0

    def append(self, problem: str, /) -> None:
        """Add a line, while there are not too many."""
        if len(self) < MOST_PROBLEMS:
            super().append(problem)
        else:
            self.more += 1

    def close(self) -> None:
        """Add the line that says how many more there are."""
        if self.more:
            super().append(f"and {self.more} more problems in this request")
            self.more = 0


@dataclass(slots=True)
class Decoded:
    """The content of one or more requests.

    Attributes:
        spans: The spans, in the order of the request.
        logs: The log records, in the order of the request.
        problems: One line for each thing that was left out, naming it and why.
        runs: Runs that were reconstructed before, in files of `oteval export --jsonl`.
        skipped: How many spans were left out.
    """

    spans: list[Span] = field(default_factory=list)
    logs: list[LogRecord] = field(default_factory=list)
    problems: list[str] = field(default_factory=Problems)
    runs: list[ScoredRun] = field(default_factory=list)
    skipped: int = 0

    def closed(self) -> Decoded:
        """Return it once nothing is added any more."""
        if isinstance(self.problems, Problems):
            self.problems.close()
        return self


class Origin(NamedTuple):
    """What the spans of one scope share; the dicts are shared, not copied."""

    resource: Attributes
    scope: str
    version: str
    attributes: Attributes


def shown(value: Any) -> str:
    """Return a short form of any value, fit for one line of a problem."""
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:57] + "...")
    return reprlib.repr(value)  # short and safe, however long or deep the value is


def named(problems: list[str], start: int, kind: str, name: Any) -> None:
    """Put the name of the span or record before the problems added since `start`."""
    prefix = f"{kind} {shown(name)}" if name else f"a {kind} without a name"
    problems[start:] = [f"{prefix}: {problem}" for problem in problems[start:]]
