r"""Users' regular expressions, matched in time linear in the length of the text.

Python's `re` backtracks: a pattern such as ``(a+)+b`` can keep a process busy for hours, holding
the interpreter's lock. Patterns from a configuration, a command line or a request therefore run on
RE2, which never backtracks. The syntax is Python's, but look-around and back-references are errors.
``\d``, ``\w`` and ``\s`` match Unicode as in Python; ``\b`` only knows words of ASCII letters,
digits and ``_``.

The package google-re2 compiles a pattern once, but does not exist for every platform. Without it,
the RE2 inside pyarrow takes its place: the same matches in linear time, but each call compiles the
pattern anew.
"""

from __future__ import annotations

import functools
import os
import re
import threading
import warnings
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any

__all__ = ["SPACES", "Pattern", "PatternError", "compile_pattern"]

_MAX_LENGTH = 10_000
# A child that is forked while another thread imports an engine could never use the module.
_IMPORTING = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_IMPORTING.acquire,
        after_in_parent=_IMPORTING.release,
        after_in_child=_IMPORTING.release,
    )
_SURROGATE = re.compile("[\ud800-\udfff]")
_GROUP = re.compile(r"\((?!\?)|\(\?P<\w+>")
_FLAGS = re.compile(r"\(\?([aiLmsux]*)(-[imsx]+)?([:)])")
# RE2's own classes are ASCII. The spaces are the spaces of `str.isspace`.
SPACES = (
    r"\t-\r\x{1c}-\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}"
    r"\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
)
_CLASSES = {"d": r"\p{Nd}", "w": r"\p{L}\p{N}_", "s": SPACES}
# The complements inside brackets, where RE2 cannot negate a group of classes.
_OTHERS = {
    "d": r"\P{Nd}",
    "w": r"\p{M}\p{S}\p{Z}\p{C}\p{Pd}\p{Ps}\p{Pe}\p{Pi}\p{Pf}\p{Po}"
    r"\x{203f}\x{2040}\x{2054}\x{fe33}\x{fe34}\x{fe4d}-\x{fe4f}\x{ff3f}",
    "s": r"\x{0}-\x{8}\x{e}-\x{1b}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}"
    r"\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff}",
}
_CODES = {"x": 2, "u": 4, "U": 8}


class PatternError(ValueError):
    """A pattern is invalid or unsupported. The message continues a sentence about the pattern."""


MatchRange = tuple[int, int]
"""The index of the first character of a match, and the index after its last."""


class Pattern:
    """A compiled pattern. Patterns with the same text and flags are equal.

    Attributes:
        pattern: The text it was compiled from.
        flags: Its flags, as in `re`.
    """

    __slots__ = ("_compiled", "flags", "pattern")

    def __init__(self, pattern: str, flags: int = 0) -> None:
        """Compile a pattern.

        Args:
            pattern: The pattern, in Python's syntax.
            flags: Flags of `re`.

        Raises:
            PatternError: It is invalid, too large, or needs backtracking.
        """
        self.pattern = pattern
        letters = "".join(letter for letter, flag in _LETTERS.items() if flags & flag)
        self.flags, self._compiled = _compile(f"(?{letters}){pattern}" if letters else pattern)

    def search(self, text: str) -> MatchRange | None:
        """The first match in a text."""
        data = _encoded(text)
        first = self._compiled.first(data)
        return None if first is None else next(_in_characters(data, (first,)))

    def fullmatch(self, text: str) -> bool:
        """Whether the whole text matches."""
        return self._compiled.is_whole(_encoded(text))

    def spans(self, text: str) -> list[MatchRange]:
        """The matches in a text, without empty ones."""
        data = _encoded(text)
        return list(_in_characters(data, self._matches(data)))

    def replace(self, text: str, replacement: str) -> str:
        """Replace the matches in a text, except empty ones."""
        data = _encoded(text)
        out: BytesIO | None = None
        new = b""
        end = 0
        for start, after in self._matches(data):
            if out is None:
                out, new = BytesIO(), _encoded(replacement)
            out.write(data[end:start])
            out.write(new)
            end = after
        if out is None:
            return text
        out.write(data[end:])
        return out.getvalue().decode("utf-8", "replace")

    def _matches(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield the ranges of bytes of the matches that are not empty."""
        return (match for match in self._compiled.all(data) if match[0] < match[1])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pattern):
            return NotImplemented
        return (self.pattern, self.flags) == (other.pattern, other.flags)

    def __hash__(self) -> int:
        return hash((self.pattern, self.flags))

    def __repr__(self) -> str:
        return f"Pattern({self.pattern!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Pattern, (self.pattern, self.flags)


def compile_pattern(value: str | re.Pattern[str] | Pattern) -> Pattern:
    """Compile a pattern; a pattern that Python's `re` compiled keeps its flags.

    Raises:
        PatternError: It is invalid, too large, or needs backtracking.
    """
    if isinstance(value, Pattern):
        return value
    if isinstance(value, re.Pattern):
        return Pattern(value.pattern, value.flags)
    return Pattern(value)


_LETTERS = {"a": re.ASCII, "i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}


def _encodable(text: str) -> str:
    """Return text without lone surrogates, which RE2 rejects."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def _encoded(text: str) -> bytes:
    return _encodable(text).encode()


def _in_characters(data: bytes, ranges: Iterable[tuple[int, int]]) -> Iterator[MatchRange]:
    """Convert consecutive ranges of bytes to ranges of characters."""
    at = after = 0
    for start, end in ranges:
        first = after + _length(data[at:start])
        after = first + _length(data[start:end])
        at = end
        yield first, after


def _length(data: bytes) -> int:
    return len(data) if data.isascii() else len(data.decode())


class _Re2Pattern:
    """A pattern that google-re2 has compiled. It matches texts in UTF-8; ranges count bytes."""

    def __init__(self, translated: str, re2: Any) -> None:
        options = re2.Options()
        options.log_errors = False
        try:
            self._regexp = re2.compile(translated.encode(), options)
        except re2.error as error:
            reason = error.args[0] if error.args else b"unknown"
            raise PatternError(_refusal(reason.decode(errors="replace"))) from None

    def first(self, data: bytes) -> tuple[int, int] | None:
        match = self._regexp.search(data)
        return None if match is None else match.span()

    def is_whole(self, data: bytes) -> bool:
        return self._regexp.fullmatch(data) is not None

    def all(self, data: bytes) -> Iterator[tuple[int, int]]:
        return (match.span() for match in self._regexp.finditer(data))


class _ArrowPattern:
    """A pattern for the RE2 inside pyarrow, which compiles it for each call."""

    def __init__(self, translated: str, for_ascii: str) -> None:
        """Check a pattern.

        Args:
            translated: The pattern in RE2's syntax.
            for_ascii: The same for ASCII texts; it compiles in a hundredth of the time.

        Raises:
            PatternError: RE2 refuses it.
        """
        with _IMPORTING:
            import pyarrow.compute
        self._arrow, self._compute = pyarrow, pyarrow.compute
        self._pattern, self._for_ascii = translated, for_ascii
        try:
            for data in (b"", "é".encode()):
                self.first(data)
                self.is_whole(data)
                list(self.all(data))
        except pyarrow.ArrowInvalid as error:
            raise PatternError(_refusal(str(error).split(": ", 1)[-1])) from None

    def first(self, data: bytes) -> tuple[int, int] | None:
        # With the lazy part before the pattern, RE2 itself finds the first match.
        groups = self._call("extract_regex", data, r"\A(?P<before>(?s:.*?))(?P<match>{})")
        if not groups.is_valid:
            return None
        start, length = (len(groups[name].as_buffer()) for name in ("before", "match"))
        return start, start + length

    def is_whole(self, data: bytes) -> bool:
        return bool(self._call("match_substring_regex", data, r"\A(?:{})\z").as_py())

    def all(self, data: bytes) -> Iterator[tuple[int, int]]:
        # No text in UTF-8 has this byte.
        marked = self._call("replace_substring_regex", data, "{}", replacement=b"\xff\\0\xff")
        at = 0
        for index, part in enumerate(marked.as_buffer().to_pybytes().split(b"\xff")):
            if index % 2:
                yield at, at + len(part)
            at += len(part)

    def _call(self, function: str, data: bytes, form: str, **options: bytes) -> Any:
        pattern = form.replace("{}", self._for_ascii if data.isascii() else self._pattern)
        text = self._arrow.scalar(data, self._arrow.large_string())
        return getattr(self._compute, function)(text, pattern=pattern, **options)


def _refusal(reason: str) -> str:
    return f"{reason} (patterns run on RE2)"


@functools.lru_cache(256)
def _compile(pattern: str) -> tuple[int, _Re2Pattern | _ArrowPattern]:
    """A pattern's flags, and the pattern compiled for texts in UTF-8."""
    if len(pattern) > _MAX_LENGTH:
        raise PatternError(f"it has more than {_MAX_LENGTH} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            flags = re.compile(pattern).flags
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(str(error)) from None
    translated = _Translation(_encodable(pattern)).text()
    re2 = _imported_re2()
    if re2 is not None:
        return flags, _Re2Pattern(translated, re2)
    for_ascii = _Translation(_encodable(pattern), for_ascii=True).text()
    return flags, _ArrowPattern(translated, for_ascii)


def _imported_re2() -> Any:
    """The module re2, or None; imported here, so that importing oteval stays cheap."""
    with _IMPORTING:
        try:
            import re2
        except ImportError:
            return None
    return re2


class _Translation:
    """Translates a pattern from Python's syntax to RE2's."""

    def __init__(self, pattern: str, *, for_ascii: bool = False) -> None:
        self._pattern = pattern
        self._at = 0
        self._in_class = False
        opening = _FLAGS.match(pattern)
        flags = (opening[1] if opening and opening[3] == ")" else "") or ""
        # Without the flag, Python has more spaces than RE2, also among the ASCII characters.
        self._ascii_classes = "dwsDWS" if "a" in flags else "dwDW" if for_ascii else ""
        self._is_verbose = "x" in flags
        # A multi-line `$` is the same in both syntaxes; RE2 handles scoped flags.
        self._is_multiline = any("m" in flags_group[1] for flags_group in _FLAGS.finditer(pattern))

    def text(self) -> str:
        out = []
        while self._at < len(self._pattern):
            out.append(self._next())
        return "".join(out)

    def _next(self) -> str:
        char = self._pattern[self._at]
        if char == "\\":
            return self._escape()
        if self._in_class:
            return self._inside(char)
        if char == "(":
            return self._open()
        self._at += 1
        if char == "[":
            return self._open_class()
        if char == "{" and self._pattern.startswith(",", self._at):
            return "{0"
        if self._is_verbose and (char.isspace() or char == "#"):
            return self._skip_comment(char)
        if char == "$" and not self._is_multiline:
            return r"(?:\n?\z)"
        return char

    def _skip_comment(self, char: str) -> str:
        if char == "#":
            end = self._pattern.find("\n", self._at)
            self._at = len(self._pattern) if end < 0 else end + 1
        return ""

    def _open(self) -> str:
        unread = self._pattern[self._at :]
        if unread.startswith("(?#"):
            self._at += unread.index(")") + 1
            return ""
        flags = _FLAGS.match(unread)
        if flags is None or unread.startswith("(?:"):
            # No group is ever read: RE2 is fastest without groups.
            group = _GROUP.match(unread)
            self._at += group.end() if group else 1
            return "(?:" if group else "("
        if "x" in flags[1] and flags[3] == ":":
            raise PatternError(
                "the flag x must be at the beginning of the pattern, and applies to all of it"
            )
        self._at += flags.end()
        set_flags = "".join(letter for letter in flags[1] if letter in "ims")
        cleared = "".join(letter for letter in flags[2] or "" if letter in "ims")
        if flags[3] == ")":
            return f"(?{set_flags})" if set_flags else ""
        return f"(?{set_flags}{'-' if cleared else ''}{cleared}:"

    def _open_class(self) -> str:
        self._in_class = True
        start = "["
        if self._pattern.startswith("^", self._at):
            self._at += 1
            start = "[^"
        if self._pattern.startswith("]", self._at):
            self._at += 1
            start += r"\]"
        return start

    def _inside(self, char: str) -> str:
        self._at += 1
        if char == "]":
            self._in_class = False
        # RE2 reads [:alpha:] as a named class, Python as single characters.
        return r"\[" if char == "[" else char

    def _escape(self) -> str:
        letter = self._pattern[self._at + 1 : self._at + 2]
        self._at += 2
        if letter in _CODES:
            digits = self._pattern[self._at : self._at + _CODES[letter]]
            self._at += _CODES[letter]
            return f"\\x{{{digits}}}"
        if letter == "Z":
            return r"\z"
        if letter == "N":
            raise PatternError("\\N{...} is not supported; write the character")
        if letter.isdigit():
            return self._number(letter)
        if letter.lower() in _CLASSES and letter not in self._ascii_classes:
            return self._class(letter)
        if letter == "s" and not self._in_class:
            return r"[\s\x{b}]"  # RE2's class lacks the vertical tab
        if letter in "abfnrtvdDsSwWAB":
            return r"\x{8}" if letter == "b" and self._in_class else f"\\{letter}"
        return re.escape(letter) if letter.isascii() else letter

    def _number(self, first: str) -> str:
        match = re.compile(r"0[0-7]{0,2}|[0-3][0-7]{2}").match(self._pattern, self._at - 1)
        if match is None:
            raise PatternError(f"back-references such as \\{first} are not supported")
        self._at = match.end()
        return f"\\x{{{int(match[0], 8):x}}}"

    def _class(self, letter: str) -> str:
        members = _CLASSES[letter.lower()]
        if not self._in_class:
            return f"[{'^' if letter.isupper() else ''}{members}]"
        return members if letter.islower() else _OTHERS[letter.lower()]
