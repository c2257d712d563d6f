"""Text from and for people: counts, durations, addresses, text that is safe to print."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = [
    "byte_size",
    "counted",
    "listed",
    "printable",
    "printable_json",
    "seconds",
    "shown_name",
    "shown_url",
]

# Everything that a terminal interprets, except newline and tab: C0 and C1 controls, bidirectional
# marks, invisible tags. Also characters that neither UTF-8 nor XML can encode.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb"
    "\ud800-\udfff\ufffe\uffff\U000e0000-\U000e007f]"
)
# Text that could be taken for a part of the sentence or list around it.
_AMBIGUOUS = re.compile(r'[",;=\[\]]|: |^-$')
_NAME_END = 20
_BYTE_UNITS = ("B", "KB", "MB", "GB", "TB")


def byte_size(count: float) -> str:
    """A number of bytes with three digits and a unit, for instance "8.79 MB"."""
    for unit in _BYTE_UNITS[:-1]:
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} {_BYTE_UNITS[-1]}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """A count with its noun: ``1 run``, ``0 runs``, ``1,200 runs``.

    Args:
        number: The count.
        noun: The noun in the singular.
        plural: Its plural. The default appends "s", or replaces a final "y" by "ies".
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {plural or _plural(noun)}"


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return names separated by commas, shortened with a count: ``a, b and 3 more``.

    Args:
        names: The names.
        most: The maximum number of names to show.
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def seconds(value: str | float) -> float:
    """A duration in seconds from a number, or from text such as ``500ms``, ``5s`` or ``2m``.

    Raises:
        ValueError: The text is not a duration.
    """
    text = str(value).strip()
    for unit, factor in _UNITS.items():
        if text.endswith(unit) and text[: -len(unit)].replace(".", "", 1).isdigit():
            return float(text[: -len(unit)]) * factor
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{value!r} is not a duration; write for instance 5s or 2m") from None


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"


def printable(text: str) -> str:
    r"""Return text with its control characters escaped, such as ``\x1b``."""
    return text if text.isascii() and text.isprintable() else _CONTROL.sub(_escape, text)


def printable_json(text: str) -> str:
    """JSON text of the same value, with the control characters in its strings escaped."""
    return _CONTROL.sub(_json_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def shown_name(text: str, longest: int = 80) -> str:
    """A name from a trace as one line: cut in the middle, and quoted if it is ambiguous.

    Args:
        text: The name, which may contain anything.
        longest: The maximum number of characters; longer names are cut to their beginning and end.
    """
    line = " ".join(printable(text).split())
    if len(line) > longest:
        line = f"{line[: longest - _NAME_END - 1]}…{line[-_NAME_END:]}"
    if _AMBIGUOUS.search(line):
        return '"' + line.replace('"', "'") + '"'
    return line or "-"


def shown_url(url: str) -> str:
    """A URL for logs and messages: without user, password and query.

    Everything up to the last @ is hidden, because an unquoted password may contain any character.
    """
    scheme, slashes, address = url.partition("//")
    if not slashes:
        scheme, address = "", url
    _, at, host = address.rpartition("@")
    return scheme + slashes + ("***@" if at else "") + re.split(r"[?#]", host, maxsplit=1)[0]
