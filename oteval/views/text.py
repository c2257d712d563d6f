"""Text out of traces, made safe and short enough to show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from ..base.jsontext import dumps
from ..base.text import counted, printable
from ..model import Message, ToolCall

__all__ = [
    "ago",
    "call_text",
    "clean",
    "clock",
    "duration",
    "one_line",
    "ran_in_parallel",
    "short_ids",
    "shorten",
    "tool_names",
]


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


def value_text(value: Any) -> str:
    """An argument's value in one line."""
    return dumps(value)


def tool_names(messages: Iterable[Message]) -> dict[str, str]:
    """The names of the tools that were called, by the ids of the calls."""
    return {call.id: call.name for message in messages for call in message.tool_calls if call.id}


def call_text(call: ToolCall) -> str:
    """A call as code: ``get_weather(city="Paris")``."""
    if call.arguments is None:
        inside = "… not captured …"
    elif isinstance(call.arguments, dict):
        inside = ", ".join(f"{key}={value_text(value)}" for key, value in call.arguments.items())
    else:
        inside = value_text(call.arguments)
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


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Shorten ids for display: their first 8 characters, more where two begin alike.

    Args:
        ids: The ids that are shown together.
    """
    ordered = sorted(set(ids))
    shortened = {}
    for at, name in enumerate(ordered):
        near = (*ordered[max(0, at - 1) : at], *ordered[at + 1 : at + 2])
        shared = max((_shared(name, other) for other in near), default=0)
        shortened[name] = name[: max(_SHORT, shared + 1)]
    return shortened


def _shared(text: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    pairs = zip(text, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(text), len(other)))
