"""Text out of traces, made safe and short enough to show."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from ..jsontext import dumps
from ..model import ToolCall

__all__ = ["call_text", "clean", "clock", "duration", "shorten"]

# All that a terminal acts on, newline and tab aside; bidirectional overrides reorder what is read.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Return text with its control characters made visible."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text)


def shorten(text: str, length: int) -> str:
    """Return text of at most a length, saying how much was left out."""
    text = clean(text)
    if len(text) <= length:
        return text
    return f"{text[:length].rstrip()} … ({len(text) - length} more characters)"


def value_text(value: Any) -> str:
    """Return an argument's value in one line."""
    return dumps(value)


def call_text(call: ToolCall) -> str:
    """Return a call as it is written in code: ``get_weather(city="Paris")``."""
    if call.arguments is None:
        inside = "… not captured …"
    elif isinstance(call.arguments, dict):
        inside = ", ".join(f"{key}={value_text(value)}" for key, value in call.arguments.items())
    else:
        inside = value_text(call.arguments)
    return clean(f"{call.name}({inside})").replace("\n", "\\n")


def clock(time_ns: int) -> str:
    """Return a time as local-free ISO text to the second, or "-"."""
    if not time_ns:
        return "-"
    try:
        when = datetime.fromtimestamp(time_ns / 1e9, UTC)
    except (OverflowError, ValueError, OSError):
        return "?"
    return when.strftime("%Y-%m-%d %H:%M:%S")


def duration(nanoseconds: int) -> str:
    """Return a duration with three figures: ``12.3 ms``, ``4.56 s``."""
    seconds = nanoseconds / 1e9
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 600 else f"{seconds / 60:.3g} min"
