"""A cursor over JSON text of any size, which is read chunk by chunk.

Objects and lists are read member by member; the values in them are parsed whole, by the standard
library's parser. Unlike other parsers, it can start in the middle of a text, and it reports where a
value ends. Memory contains only the value at the cursor.

After an error, `JsonCursor.rest` returns the text with which reading can continue. A document of
411 MB takes 120 MB of memory, and 2.4 GB with orjson; ijson stops at the first error.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from .otlp import without_surrogates

__all__ = ["MAX_VALUE", "JsonCursor", "MalformedJsonError"]

MAX_VALUE = 256 << 20
"""The most characters of a single value, such as a span."""
# A parse error this close to the end of the buffer may only mean that the value continues.
_NEAR = 16

_SPACE = re.compile("[ \t\r\n\ufeff]*")
# Bytes that are not UTF-8, as Python decodes them with "surrogateescape".
_UNDECODED = re.compile("[\udc80-\udcff]")
_DECODER = json.JSONDecoder()
_NO_KEYS: frozenset[str] = frozenset()


class MalformedJsonError(ValueError):
    """The text is not valid JSON.

    Attributes:
        line: The line of the error.
        at_end: Whether the text merely ends too early.
    """

    def __init__(self, message: str, line: int, *, at_end: bool = False) -> None:
        super().__init__(message)
        self.line = line
        self.at_end = at_end


class JsonCursor:
    """A position in JSON text.

    Several methods take `document_keys`: keys that only a top-level document has. If an object with
    such a key begins a line, it counts as the next document of JSON lines. The document at the
    cursor was then cut: `MalformedJsonError` is raised, and `rest` begins with the object.

    Attributes:
        not_utf8: The lines with bytes that are not UTF-8. The caller may clear it.
        value_size: The number of characters of the value that was read last.
    """

    def __init__(self, read: Callable[[], bytes], line: int) -> None:
        """Begin at a line.

        Args:
            read: Returns the next chunk of UTF-8, b"" at the end.
            line: The number of the first line of the text.
        """
        self.not_utf8: list[int] = []
        self.value_size = 0
        self._read = read
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._ended = False
        # The buffer, the cursor in it, and the line and column of the buffer's first character.
        self._text = ""
        self._at = 0
        self._line = line
        self._column = 0
        # Start of the object whose first key is being read. The buffer keeps the text from there.
        self._object_start: int | None = None
        self._last_not_utf8 = 0

    @property
    def line(self) -> int:
        """The line of the cursor."""
        return self._place(self._at)[0]

    def peek(self) -> str:
        """Skip white space, and return the next character; "" at the end."""
        while True:
            match = _SPACE.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._fill():
                return ""

    def looking_at(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The match of a pattern at the cursor, in the text that is in memory."""
        return pattern.match(self._text, self._at)

    def members(self, document_keys: frozenset[str] = _NO_KEYS) -> Iterator[str]:
        """Enter the object at the cursor, and yield each key.

        The caller must read the value before it takes the next key.

        Args:
            document_keys: Keys that the object cannot begin with (see the class).
        """
        self._object_start = self._at
        self._at += 1
        if self.peek() == "}":
            self._at += 1
            self._object_start = None
            return
        while True:
            key = self._key()
            if key in document_keys and self._object_start is not None:
                self._refuse_document(self._object_start)
            self._object_start = None
            self._expect(":")
            yield key
            if self._expect(",}") == "}":
                return

    def elements(self) -> Iterator[None]:
        """Enter the list at the cursor, and yield before each element.

        The caller must read the element before it continues.
        """
        self._at += 1
        if self.peek() == "]":
            self._at += 1
            return
        while True:
            yield
            if self._expect(",]") == "]":
                return

    def value(self, document_keys: frozenset[str] = _NO_KEYS) -> Any:
        """Parse the value at the cursor, and move behind it.

        Args:
            document_keys: Keys that the value cannot have (see the class).
        """
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._may_continue(error):
                    raise self._error(error.msg, error.pos) from None
                self._fill(len(self._text) - self._at)
            except (RecursionError, ValueError):
                raise self._error("nested too deeply, or a number too long", self._at) from None
            else:
                if end < len(self._text):
                    break
                # A number at the end of the buffer may have more digits.
                if not self._fill():
                    end = len(self._text)
                    break
        if isinstance(value, dict) and not document_keys.isdisjoint(value):
            self._refuse_document(self._at)
        if self._has_surrogates(end) or self._has_undecoded(end):
            value = without_surrogates(value)
        self.value_size = end - self._at
        self._at = end
        return value

    def rest(self, first_line: int) -> tuple[bytes | None, int]:
        """The text that may begin the next document after an error, and its line number.

        If the unreadable value begins a line after `first_line`, the text begins with this value.
        Otherwise it begins with the next line.

        Args:
            first_line: The first line of the damaged document.

        Returns:
            The text from there on, as far as it was read, and the number of its first line. The
            text is None if the end of the line was not read yet.
        """
        at = self._at if self._object_start is None else self._object_start
        line, column = self._place(at)
        if column > 1 or line == first_line:
            at = self._text.find("\n", at) + 1
            if not at:
                return (b"" if self._ended else None), line
            line += 1
        return self._text[at:].encode(errors="surrogateescape") + self._decoder.getstate()[0], line

    def _key(self) -> str:
        if self.peek() != '"':
            raise self._error("expected a key", self._at)
        key = self.value()
        assert isinstance(key, str)
        return key

    def _expect(self, allowed: str) -> str:
        char = self.peek()
        if not char or char not in allowed:
            expected = " or ".join(repr(token) for token in allowed)
            raise self._error(f"expected {expected}", self._at)
        self._at += 1
        return char

    def _refuse_document(self, at: int) -> None:
        if self._place(at)[1] == 1:
            raise self._error("another request begins", at)

    def _may_continue(self, error: json.JSONDecodeError) -> bool:
        if self._ended:
            return False
        if len(self._text) - self._at > MAX_VALUE:
            raise self._error(f"a value longer than {MAX_VALUE >> 20} MiB", self._at)
        near_end = error.pos >= len(self._text) - _NEAR
        return near_end or error.msg.startswith("Unterminated string")

    def _has_surrogates(self, end: int) -> bool:
        find = self._text.find
        return find("\\ud", self._at, end) >= 0 or find("\\uD", self._at, end) >= 0

    def _has_undecoded(self, end: int) -> bool:
        """Return whether the value contains bytes that are not UTF-8, and note their first line."""
        if self._text.isascii():
            return False
        match = _UNDECODED.search(self._text, self._at, end)
        if match is None:
            return False
        line = self._place(match.start())[0]
        if line != self._last_not_utf8:
            self._last_not_utf8 = line
            self.not_utf8.append(line)
        return True

    def _fill(self, size: int = 1) -> bool:
        """Read at least `size` more characters, and drop the text before the cursor.

        Returns:
            Whether there were any.
        """
        first = self._at if self._object_start is None else self._object_start
        self._line, self._column = self._place(first)
        self._column -= 1
        parts = [self._text[first:]]
        self._at -= first
        self._object_start = None if self._object_start is None else 0
        missing = size
        while missing > 0 and not self._ended:
            data = self._read()
            self._ended = not data
            text = self._decoder.decode(data, final=not data)
            parts.append(text)
            missing -= len(text)
        self._text = "".join(parts)
        return missing < size

    def _place(self, at: int) -> tuple[int, int]:
        """The line and the column of an index of the buffer, both from 1."""
        newline = self._text.rfind("\n", 0, at)
        if newline < 0:
            return self._line, self._column + at + 1
        return self._line + self._text.count("\n", 0, at), at - newline

    def _error(self, message: str, at: int) -> MalformedJsonError:
        line, column = self._place(at)
        at_end = self._ended and (
            at >= len(self._text.rstrip()) or message.startswith("Unterminated string")
        )
        if at_end:
            line, column = self._place(len(self._text.rstrip()))
            message = "unexpected end of data"
        message = message.removesuffix(" at")  # some messages of the parser end like this
        text = f"not valid JSON ({message} at column {column})"
        return MalformedJsonError(text, line, at_end=at_end)
