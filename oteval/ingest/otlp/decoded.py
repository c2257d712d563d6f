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


@dataclass(slots=True)
class Decoded:
    """The content of one or more requests.

    Attributes:
        spans: The spans, in the order of the request.
        logs: The log records, in the order of the request.
        problems: One line for each thing that was left out, naming it and why.
        runs: Runs that were reconstructed before, in files of `oteval export --jsonl`.
    """

    spans: list[Span] = field(default_factory=list)
    logs: list[LogRecord] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    runs: list[ScoredRun] = field(default_factory=list)


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
