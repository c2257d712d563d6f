"""Text from outside, made safe to print: what a terminal acts on is written as an escape."""

from __future__ import annotations

import re

__all__ = ["printable", "printable_json"]

# All that a terminal acts on, newline and tab aside, C1 controls among it; what reorders or hides
# text that is read (bidirectional marks, invisible tags); and what neither UTF-8 nor XML can hold.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb"
    "\ud800-\udfff\ufffe\uffff\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    """Return text with its control characters made visible."""
    return text if text.isascii() and text.isprintable() else _CONTROL.sub(_visible, text)


def printable_json(text: str) -> str:
    """Return JSON text of the same value, with control characters in its strings escaped."""
    return _CONTROL.sub(_escaped, text)


def _visible(found: re.Match[str]) -> str:
    code = ord(found.group())
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped(found: re.Match[str]) -> str:
    code = ord(found.group())
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
