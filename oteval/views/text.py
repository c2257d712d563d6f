"""Text out of traces, made safe and short enough to show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import orjson

from ..base.jsontext import dumps
from ..base.text import counted, printable
from ..model import EvaluationResult, Gap, Message, ToolCall, VerdictState

__all__ = [
    "SIGNS",
    "ago",
    "call_text",
    "clean",
    "clock",
    "common_length",
    "duration",
    "failures_first",
    "indented",
    "is_cut",
    "one_line",
    "question_names",
    "ran_in_parallel",
    "shared_start",
    "short_ids",
    "shorten",
    "size_of",
    "spans_by_gap",
    "tool_names",
]

_Verdict = TypeVar("_Verdict", bound=EvaluationResult)


def clean(text: str) -> str:
    """Return text with its control characters made visible."""
    return printable(text)


def one_line(text: str) -> str:
    """Return text on one line, with its control characters made visible."""
    return clean(" ".join(text.splitlines()))


def shorten(text: str, length: int) -> str:
    """Return text cut to a length, with the number of characters left out."""
    # Nobody reads a megabyte, and cleaning it takes time.
    left_out = max(0, len(text) - 8 * length)
    text = clean(text[: len(text) - left_out])
    if len(text) <= length:
        return text
    left_out += len(text) - length
    return f"{text[:length].rstrip()} … ({counted(left_out, 'more character')})"


def is_cut(text: str) -> bool:
    """Whether a text was cut by `shorten`."""
    return text.endswith((" more characters)", " more character)"))


def indented(value: Any) -> str:
    """A value as people read it: text as it is, all else as indented JSON."""
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError):
        return dumps(value)


def common_length(text: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    least, most = 0, min(len(text), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if text[:middle] == other[:middle]:
            least = middle
        else:
            most = middle - 1
    return least


def shared_start(left: Message | None, right: Message | None, lead: int = 40) -> int:
    """The offset to show two contents from, so that their first difference is near.

    Args:
        left: A message, or None.
        right: The message beside it, or None.
        lead: How many equal characters to show before the difference.
    """
    if left is None or right is None or left.content == right.content:
        return 0
    shared = common_length(left.content or "", right.content or "")
    return shared - lead if shared > 3 * lead else 0


def spans_by_gap(gaps: Iterable[Gap]) -> dict[tuple[str, str], list[str]]:
    """The ids of the spans of equal gaps, by the code and detail of the gaps."""
    spans: dict[tuple[str, str], list[str]] = {}
    for gap in gaps:
        spans.setdefault((gap.code, gap.detail), []).append(gap.span_id)
    return spans


def size_of(span_ids: Sequence[str]) -> str:
    """The number of spans in words: ``3 spans``, or the id of a single one."""
    if len(span_ids) == 1:
        return f"span {span_ids[0] or '?'}"
    return counted(len(span_ids), "span")


SIGNS: Mapping[VerdictState, str] = {
    "fail": "✗",
    "error": "!",
    "none": "?",
    "score": "",
    "pass": "✓",
}
"""The sign of each verdict; verdicts are listed in this order, failures first."""
_ORDER = tuple(SIGNS)


def failures_first(verdicts: Iterable[_Verdict]) -> list[_Verdict]:
    """Verdicts in the order of `SIGNS`."""
    return sorted(verdicts, key=lambda verdict: _ORDER.index(verdict.state))


def tool_names(messages: Iterable[Message]) -> dict[str, str]:
    """The names of the tools that were called, by the ids of the calls."""
    return {call.id: call.name for message in messages for call in message.tool_calls if call.id}


def call_text(call: ToolCall) -> str:
    """A call as code: ``get_weather(city="Paris")``."""
    if call.arguments is None:
        inside = "… not captured …"
    elif isinstance(call.arguments, dict):
        inside = ", ".join(f"{key}={dumps(value)}" for key, value in call.arguments.items())
    else:
        inside = dumps(call.arguments)
    return clean(f"{call.name}({inside})").replace("\n", "\\n")


def ran_in_parallel(call: ToolCall, calls: Sequence[ToolCall]) -> bool:
    """Whether a call overlaps another of `calls` in time, as far as times are known."""
    return any(
        call.start_ns < other.end_ns and other.start_ns < call.end_ns
        for other in calls
        if other is not call and other.end_ns and call.end_ns
    )


def clock(time_ns: int) -> str:
    """A time as UTC text to the second, or "-" if it is 0."""
    if not time_ns:
        return "-"
    try:
        when = datetime.fromtimestamp(time_ns / 1e9, UTC)
    except (OverflowError, ValueError, OSError):
        return "?"
    return when.strftime("%Y-%m-%d %H:%M:%S")


def duration(nanoseconds: int, digits: int = 3) -> str:
    """A duration in readable form: ``12.3 ms``, ``4.56 s``."""
    seconds = nanoseconds / 1e9
    if seconds < 1:
        return f"{seconds * 1000:.{digits}g} ms"
    return f"{seconds:.{digits}g} s" if seconds < 600 else f"{seconds / 60:.{digits}g} min"


_AGES = ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h"), (30 * 86400, 86400, "d"))


def ago(time_ns: int, now_ns: int) -> str:
    """A time relative to now, ``3 min ago``, or the date if it is a month or more away.

    Args:
        time_ns: The time; "-" when it is 0.
        now_ns: The current time.
    """
    if not time_ns:
        return "-"
    seconds = (now_ns - time_ns) // 1_000_000_000
    for limit, unit, name in _AGES:
        if abs(seconds) < limit:
            number = f"{abs(seconds) // unit} {name}"
            return f"{number} ago" if seconds >= 0 else f"in {number}"
    return clock(time_ns)[:10]


_SHORT = 8


def question_names(questions: Mapping[str, str]) -> dict[str, str]:
    """The names of runs by id: their questions, with the shortened id where a question repeats.

    Args:
        questions: The questions by id, for all runs that are shown together.
    """
    counts, ids = Counter(questions.values()), short_ids(questions)
    return {
        name: f"{question or '(no name)'} ({ids[name]})"
        if counts[question] > 1
        else question or ids[name]
        for name, question in questions.items()
    }


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Shorten ids for display: their first 8 characters, more where two begin alike.

    Args:
        ids: The ids that are shown together.
    """
    ordered = sorted(set(ids))
    shortened = {}
    for at, name in enumerate(ordered):
        near = (*ordered[max(0, at - 1) : at], *ordered[at + 1 : at + 2])
        shared = max((common_length(name, other) for other in near), default=0)
        shortened[name] = name[: max(_SHORT, shared + 1)]
    return shortened
