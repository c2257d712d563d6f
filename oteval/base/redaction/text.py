r"""Redact matches of patterns in text, including escaped text, and read text of any encoding.

An attribute often contains JSON, which may write ``a@b`` as ``a\u0040b``, and tool arguments are
JSON inside JSON. Patterns are therefore applied to the text as it is, and to the text after each
level of unescaping. A match in unescaped text is replaced at its place in the original.

``"password"`` is the same key as ``"\u0070assword"``, and ``?a=1\u0026token=...`` is the same
query as ``?a=1&token=...``. Secrets are found in the plain text, and removed in the original.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from .personal_data import Matcher

__all__ = [
    "TextRedactor",
    "Unescaped",
    "decoded_body",
    "plain_view",
    "plain_views",
    "unescaped_by",
]

# The escapes of JSON and of Python's `repr`.
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}|U0010[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[^uUx])",
    re.DOTALL,
)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_MAX_LEVELS = 6
# Backslashes in a text. A million take half a second.
_MAX_ESCAPES = 8_000_000
# From here on, whole doubles are written without all their digits.
_MAX_WHOLE = 1e21


class TextRedactor:
    """Applies patterns to text, numbers and bytes."""

    def __init__(self, patterns: Iterable[tuple[Matcher, str]]) -> None:
        """Set the patterns.

        Args:
            patterns: The patterns in the order of application, with their replacements.
        """
        self._patterns = tuple(patterns)

    def __bool__(self) -> bool:
        """Whether there are any patterns."""
        return bool(self._patterns)

    def text(self, text: str) -> str:
        """Return text with the matches replaced, at any level of escaping.

        Raises:
            ValueError: The text has too many escapes.
        """
        for pattern, replacement in self._patterns:
            text = pattern.replace(text, replacement)
        escapes = text.count("\\")
        if not escapes:
            return text
        if escapes > _MAX_ESCAPES:
            raise ValueError(f"a text has more than {_MAX_ESCAPES} backslashes")
        plain = text
        for level in range(1, _MAX_LEVELS + 1):
            plain = _ESCAPE.sub(lambda match: _character(match.group()), plain)
            for pattern, replacement in self._patterns:
                if pattern.search(plain):
                    text = _redacted_below(text, level, pattern, _escaped(replacement, level))
                    plain = _unescaped(text, level).text
            if "\\" not in plain:
                break
        return text

    def number(self, number: float) -> str | None:
        """The replacement of a number; None if no pattern matches it."""
        for form in _forms(number):
            if (text := self.text(form)) != form:
                return text
        return None

    def data(self, data: bytes) -> bytes:
        """Return bytes with the matches in their text replaced."""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = data.decode("latin-1")
            redacted = self.text(text)
            data = data if redacted == text else redacted.encode("latin-1", "xmlcharrefreplace")
        else:
            redacted = self.text(text)
            data = data if redacted == text else redacted.encode()
        if b"\0" not in data:
            return data
        # Text in UTF-16 or UTF-32 is replaced as a whole.
        narrow = data.replace(b"\0", b"").decode("latin-1")
        redacted = self.text(narrow)
        return data if redacted == narrow else redacted.encode("latin-1", "xmlcharrefreplace")


def _forms(number: float) -> list[str]:
    """The possible texts of a number."""
    forms = [str(number)]
    if isinstance(number, float) and math.isfinite(number) and abs(number) < _MAX_WHOLE:
        forms.append(f"{number:.0f}" if number.is_integer() else f"{number:f}")
    return forms


def _replaced(text: str, spans: Sequence[tuple[int, int]], replacement: str) -> str:
    out, end = [], 0
    for start, after in spans:
        out += [text[end:start], replacement]
        end = after
    return "".join([*out, text[end:]])


def _character(escape: str) -> str:
    letter = escape[1]
    if letter in "uUx" and len(escape) > 2:
        if len(escape) == 12 and letter == "u":
            high, low = int(escape[2:6], 16), int(escape[8:], 16)
            return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
        return chr(int(escape[2:], 16))
    return _LETTERS.get(letter, letter)


def _escaped(text: str, level: int) -> str:
    for _ in range(level):
        text = json.dumps(text, ensure_ascii=False)[1:-1]
    return text


class Unescaped(NamedTuple):
    """Unescaped text, with the places of its pieces in the original.

    A piece is one unescaped character, or several characters without escapes.

    Attributes:
        text: The unescaped text.
        starts: The index of each piece in the unescaped text.
        sources: The index and the length of each piece in the original.
    """

    text: str
    starts: list[int]
    sources: list[tuple[int, int]]

    def source(self, at: int, *, is_end: bool) -> int:
        """Convert an index of the unescaped text to an index of the original."""
        index = bisect_right(self.starts, at - is_end) - 1
        offset = at - self.starts[index]
        start, length = self.sources[index]
        after = self.starts[index + 1] if index + 1 < len(self.starts) else len(self.text)
        if after - self.starts[index] == length:
            return start + offset
        return start + (length if offset else 0)


def unescaped_by(text: str, escape: re.Pattern[str], character: Callable[[str], str]) -> Unescaped:
    """A text with its escapes replaced.

    Args:
        text: The text.
        escape: Matches an escape.
        character: Returns the text of an escape.
    """
    pieces: list[str] = []
    starts: list[int] = []
    sources: list[tuple[int, int]] = []
    length = end = 0

    def add(piece: str, start: int, size: int) -> None:
        nonlocal length
        pieces.append(piece)
        starts.append(length)
        sources.append((start, size))
        length += len(piece)

    for match in escape.finditer(text):
        if match.start() > end:
            add(text[end : match.start()], end, match.start() - end)
        add(character(match.group()), match.start(), match.end() - match.start())
        end = match.end()
    if end < len(text) or not pieces:
        add(text[end:], end, len(text) - end)
    return Unescaped("".join(pieces), starts, sources)


def _unescaped_once(text: str) -> Unescaped:
    return unescaped_by(text, _ESCAPE, _character)


def _levels(text: str, level: int) -> list[Unescaped]:
    levels = [_unescaped_once(text)]
    while len(levels) < level:
        levels.append(_unescaped_once(levels[-1].text))
    return levels


def _unescaped(text: str, level: int) -> Unescaped:
    return _levels(text, level)[-1]


def _redacted_below(text: str, level: int, pattern: Matcher, replacement: str) -> str:
    """Return text with the matches of a pattern in its unescaped form replaced.

    Args:
        text: The original text.
        level: How many times to unescape it.
        pattern: The pattern.
        replacement: The replacement, already escaped as often.
    """
    levels = _levels(text, level)
    spans = []
    for start, end in pattern.spans(levels[-1].text):
        for below in reversed(levels):
            start, end = below.source(start, is_end=False), below.source(end, is_end=True)
        spans.append((start, end))
    return _replaced(text, spans, replacement)


_MARKS = (
    (b"\xff\xfe\0\0", "utf-32-le"),
    (b"\0\0\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
_SAMPLE = 4096
# Printable characters of ASCII except for the backslash.
_PLAIN_ESCAPE = re.compile(
    r"\\+(?:u00(?:[2-46-7][0-9a-fA-F]|5[0-9abABd-fD-F])|x(?:[2-46-7][0-9a-fA-F]|5[0-9abABd-fD-F]))"
)
# Characters in HTML and in addresses, where they may also be parts of values.
_ENTITY = re.compile(
    r"&(?:quot|apos|amp|lt|gt|#[xX]2[0-9a-fA-F]|#(?:3[2-9]|4[0-7]));"
    r"|%(?:2[026-9]|3[ABDabd]|5[BDbd]|7[BDbd])"
)
_ENTITIES = {"quot": '"', "apos": "'", "amp": "&", "lt": "<", "gt": ">"}


def decoded_body(data: bytes) -> tuple[str, str]:
    """The text of a body, and the encoding that turns it into the same bytes.

    Args:
        data: The body.
    """
    for encoding in ("utf-8", *_wide_encodings(data)):
        if encoding == "utf-8" and b"\0" in data[:_SAMPLE]:
            continue
        try:
            return data.decode(encoding), encoding
        except UnicodeDecodeError:
            continue
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return data.decode("latin-1"), "latin-1"


def plain_view(text: str) -> Unescaped:
    """A text without escapes of printable characters, with the places they came from."""
    if "\\u00" in text or "\\x" in text:
        return unescaped_by(text, _PLAIN_ESCAPE, _plain_character)
    return Unescaped(text, [0], [(0, len(text))])


def plain_views(text: str) -> Iterator[Unescaped]:
    """Yield the readings of a text: as it is, and with the characters of HTML and addresses."""
    yield plain_view(text)
    if ("&" in text or "%" in text) and _ENTITY.search(text):
        yield unescaped_by(text, _ENTITY, _entity)


def _wide_encodings(data: bytes) -> list[str]:
    """The possible encodings of data that have several bytes per character."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return [encoding]
    encodings = []
    sample = data[:_SAMPLE]
    for width, name in ((4, "utf-32"), (2, "utf-16")):
        if len(sample) >= width and len(data) % width == 0:
            even, odd = sample[::width].count(0), sample[width - 1 :: width].count(0)
            characters = len(sample) // width
            if odd > characters / 2 >= even:
                encodings.append(f"{name}-le")
            if even > characters / 2 >= odd:
                encodings.append(f"{name}-be")
    return encodings


def _plain_character(escape: str) -> str:
    slashes = escape.count("\\")
    character = chr(int(escape[-2:], 16))
    return "\\" * (2 * slashes - 1) + '"' if character == '"' else character


def _entity(escape: str) -> str:
    if escape[0] == "%":
        return chr(int(escape[1:], 16))
    name = escape[1:-1]
    if name in _ENTITIES:
        return _ENTITIES[name]
    return chr(int(name[2:], 16) if name[1] in "xX" else int(name[1:]))
