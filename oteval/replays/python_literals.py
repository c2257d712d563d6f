"""Python literals as a person would write them: plain JSON as source code of limited width.

The layout follows ruff and black: double quotes, one item per line if a list or a dict does not fit
on one line, and a comma after the last item. Long texts are split between words. Texts of several
lines are ``dedent`` of a triple-quoted text, if that is exactly the same text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from textwrap import dedent, indent
from typing import Any

__all__ = ["WIDTH", "block_text", "literal", "text_literal"]

WIDTH = 100
"""The length of lines."""
_STEP = "    "
_WORDS = re.compile(r"\S*\s+|\S+")


def literal(value: Any, *, column: int = 0, room: int = 0, level: int = 0) -> str:
    """Write plain JSON as source code.

    Args:
        value: The value.
        column: The number of characters before it on its first line.
        room: The number of characters after it on its last line.
        level: The level of indentation of the line that it begins on.
    """
    flat = _flat(value)
    if "\n" not in flat and column + len(flat) + room <= WIDTH:
        return flat
    if isinstance(value, Mapping) and value:
        return _broken("{", "}", _fields(value, level + 1), level)
    if isinstance(value, (list, tuple)) and value:
        brackets = "()" if isinstance(value, tuple) else "[]"
        items = (_item(item, level + 1) for item in value)
        return _broken(brackets[0], brackets[1], items, level)
    return flat


def _item(value: Any, level: int) -> str:
    return literal(value, column=len(_STEP) * level, room=1, level=level)


def _fields(value: Mapping[str, Any], level: int) -> Iterator[str]:
    for key, item in value.items():
        head = f"{_quoted(str(key))}: "
        yield head + literal(item, column=len(_STEP) * level + len(head), room=1, level=level)


def _broken(start: str, end: str, items: Iterator[str], level: int) -> str:
    lines = "".join(f"{_STEP * (level + 1)}{item},\n" for item in items)
    return f"{start}\n{lines}{_STEP * level}{end}"


def _flat(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_quoted(str(k))}: {_flat(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple):
        inner = ", ".join(map(_flat, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flat, value)) + "]"
    return repr(value)


def _quoted(text: str) -> str:
    """A text on one line, in double quotes unless single quotes save escapes."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    # With one of each quote, `repr` uses single quotes and escapes only backslashes and controls.
    body = repr(f"{text}'\"")[1:-1]
    body = body.removesuffix("\\'\"").replace("\\'", "'")
    return quote + body.replace(quote, f"\\{quote}") + quote


def text_literal(text: str, *, column: int = 0, room: int = 0, level: int = 0) -> str:
    """Write a text as source code; a long one is split, and put in parentheses.

    Args:
        text: The text.
        column: The number of characters before it on its first line.
        room: The number of characters after it on its last line.
        level: The level of indentation of the line that it begins on.
    """
    flat = _quoted(text)
    if column + len(flat) + room <= WIDTH:
        return flat
    width = WIDTH - len(_STEP) * (level + 1)
    pieces = list(split_text(text, width))
    if len(pieces) < 2 and len(flat) > width:
        return flat
    inner = "\n".join(map(_quoted, pieces))
    return f"(\n{indent(inner, _STEP * (level + 1))}\n{_STEP * level})"


def split_text(text: str, width: int) -> Iterator[str]:
    """Yield the pieces of a text; the source code of each fits a width, as far as words allow."""
    line = ""
    for word in _WORDS.findall(text) if text.strip() else [text]:
        if line and (line.endswith("\n") or len(_quoted(line + word)) > width):
            yield line
            line = ""
        line += word
    if line:
        yield line


def block_text(text: str) -> str | None:
    """The source code of a text of several lines as ``dedent`` of a triple-quoted text.

    Returns:
        The code; None if the text has one line, lines that are too long, or characters that need
        escapes.
    """
    lines = text.split("\n")
    is_plain = all(len(line) + len(_STEP) <= WIDTH - 4 for line in lines)
    is_plain = is_plain and all(line.isprintable() and line == line.rstrip() for line in lines)
    if len(lines) < 2 or not is_plain or "\\" in text or '"""' in text or text.endswith('"'):
        return None
    body = indent(text, _STEP)
    return f'dedent("""\\\n{body}""")' if dedent(body) == text else None
