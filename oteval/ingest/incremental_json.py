"""Walking through JSON requests and Jaeger's traces of any size, span by span.

The outer objects and lists are read token by token; what they hold is parsed one value at
a time, by the standard library's parser, which unlike others can start in the middle of a text and
says where a value ends. A list of spans whose resource or scope comes only after it is parsed
as one value, since its spans could not be told whose they are. In a trace of Jaeger's the processes
always come after the spans, which wait for them in a temporary file once they are many.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from tempfile import SpooledTemporaryFile
from typing import Any

from . import clickhouse
from .containers import WRAPPERS
from .otlp import without_surrogates

__all__ = ["BrokenError", "Walker"]

MAX_VALUE = 256 << 20
"""The most characters that a single value, such as a span, may have."""
_BATCH = 256
_BATCH_CHARACTERS = 4 << 20
_SPOOLED = 16 << 20
# An error this near to the end of the text at hand may only mean that more is needed.
_NEAR = 16
_DEPTH = 4

_ROOTS = frozenset({"resourceSpans", "resourceLogs", "resource_spans", "resource_logs", "batches"})
_METRICS = frozenset({"resourceMetrics", "resource_metrics"})
_SCOPES = frozenset(
    {"scopeSpans", "scopeLogs", "scope_spans", "scope_logs"}
    | {"instrumentationLibrarySpans", "instrumentation_library_spans"}
    | {"instrumentationLibraryLogs", "instrumentation_library_logs"}
)
_SCOPE = frozenset({"scope", "instrumentationLibrary", "instrumentation_library"})
_RECORDS = frozenset({"spans", "logRecords", "log_records", "logs"})
# With which a document begins that holds others, and with which one of the others.
_OUTER = _ROOTS | {"data", "result", "processes"}
_INNER = _OUTER | {"traceID", "TraceId"}
# How a row begins that is parsed as one; the first key must be one of its columns.
_ROW = re.compile(r'\{[ \t\r\n]*"([A-Z][A-Za-z.]{2,25})"')

_SPACE = re.compile("[ \t\r\n\ufeff]*")
_UNDECODED = re.compile("[\udc80-\udcff]")
_DECODER = json.JSONDecoder()

Object = dict[str, Any]


class BrokenError(ValueError):
    """The text is not JSON, or not OTLP's.

    Attributes:
        line: The line at which it breaks.
        at_end: Whether it just ends too early.
    """

    def __init__(self, message: str, line: int, *, at_end: bool = False) -> None:
        super().__init__(message)
        self.line = line
        self.at_end = at_end


class Walker:
    """A reader of requests from chunks of UTF-8 text.

    Attributes:
        start: The line in which the request begins that is being read.
        records: How many spans and log records of that request were yielded.
        not_utf8: The lines with bytes that are not UTF-8, in what was read since it was cleared.
    """

    def __init__(self, read: Callable[[], bytes], line: int) -> None:
        self.start = line
        self.records = 0
        self.not_utf8: list[int] = []
        self._read = read
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._ended = False
        self._text = ""
        self._at = 0
        self._kept: int | None = None  # text from here on is kept when more is read
        self._line = line  # the number of the line in which the text begins
        self._noted = 0
        self._size = 0  # of the value read last
        self._column = 0  # how many characters of that line came before the text

    def requests(self) -> Iterator[tuple[int, Any]]:
        """Yield each request, or parts of it in the form of a request, and the line it begins in.

        Raises:
            BrokenError: The text breaks here; what was yielded before holds, and `rest` has what
                follows.
        """
        while char := self._peek():
            self.start, self.records = self._place(self._at)[0], 0
            if char == "[":
                for _ in self._elements():
                    yield from self._request()
            else:
                yield from self._request()

    def rest(self) -> tuple[bytes | None, int]:
        """Return the text from the next line on that may begin a request, and its number.

        After a break that is the line where the value began that could not be read, where it
        began a line, and else the one after it. None stands for a line whose end was not read.
        """
        at = self._at if self._kept is None else self._kept
        line, column = self._place(at)
        if column > 1 or line == self.start:
            at = self._text.find("\n", at) + 1
            if not at:
                return (b"" if self._ended else None), line
            line += 1
        return self._text[at:].encode(errors="surrogateescape") + self._decoder.getstate()[0], line

    def _request(self, depth: int = 0) -> Iterator[tuple[int, Any]]:
        """Yield a request in parts, or whole where it is none."""
        if self._peek() != "{" or depth > _DEPTH or self._begins_row():
            yield self.start, self._value()
            return
        spool = _Spool()
        others: Object = {}
        try:
            yield from self._parts(others, spool, depth)
        except BrokenError:
            # What a trace has is kept where it breaks off, though its processes may be missing.
            yield from self._spooled(others, spool)
            raise
        finally:
            spool.close()

    def _parts(self, others: Object, spool: _Spool, depth: int) -> Iterator[tuple[int, Any]]:
        """Yield the parts of the object that begins here; what is no part goes into `others`."""
        parts = False
        size = 0
        for key in self._members():
            char = self._peek()
            if key in _ROOTS and char == "[":
                for _ in self._elements():
                    yield from self._group(key)
            elif key == "data" and char == "[":
                for _ in self._elements():
                    yield from self._request(depth + 1)
            elif key in WRAPPERS and char == "{":
                yield from self._request(depth + 1)
            elif key == "spans" and char == "[":
                for batch in self._batches():
                    spool.add(batch)
            else:
                value = self._value(_INNER)
                size += self._size
                others[key] = value if size <= MAX_VALUE else True
                continue
            parts = True
        yield from self._spooled(others, spool)
        if not _METRICS.isdisjoint(others):
            yield self.start, {"resourceMetrics": True}
        elif not parts:
            yield self.start, others
        elif others.get("errors") or others.get("status"):
            yield self.start, {**others, "data": []}

    def _spooled(self, others: Object, spool: _Spool) -> Iterator[tuple[int, Any]]:
        for batch in spool.batches():
            yield self.start, {**others, "spans": batch}

    def _begins_row(self) -> bool:
        match = _ROW.match(self._text, self._at)
        return match is not None and match[1] in clickhouse.COLUMNS

    def _group(self, root: str) -> Iterator[tuple[int, Any]]:
        """Yield the parts of one of the objects in ``resourceSpans`` or ``resourceLogs``."""
        if self._peek() != "{":
            yield self.start, {root: [self._value()]}
            return
        group: Object = {}
        parts = False
        for key in self._members(nested=True):
            if key in _SCOPES and "resource" in group and self._peek() == "[":
                for _ in self._elements():
                    for part in self._scoped():
                        yield self.start, {root: [{**group, key: [part]}]}
                        parts = True
            else:
                group[key] = self._value()
        if not parts or not _SCOPES.isdisjoint(group):
            yield self.start, {root: [group]}

    def _scoped(self) -> Iterator[Any]:
        """Yield one of the objects in ``scopeSpans`` or ``scopeLogs``, in parts of some spans."""
        if self._peek() != "{":
            yield self._value()
            return
        scoped: Object = {}
        parts = False
        for key in self._members(nested=True):
            if key in _RECORDS and not _SCOPE.isdisjoint(scoped) and self._peek() == "[":
                for batch in self._batches():
                    yield {**scoped, key: batch}
                    parts = True
            else:
                scoped[key] = self._value()
        if not parts or not _RECORDS.isdisjoint(scoped):
            yield scoped

    def _batches(self) -> Iterator[list[Any]]:
        """Yield the values of the list that begins here some at a time, also before a break."""
        batch: list[Any] = []
        size = 0
        try:
            for _ in self._elements():
                batch.append(self._value())
                size += self._size
                if len(batch) >= _BATCH or size > _BATCH_CHARACTERS:
                    self.records += len(batch)
                    yield batch
                    batch, size = [], 0
        except BrokenError:
            self.records += len(batch)
            yield batch
            raise
        self.records += len(batch)
        yield batch

    def _members(self, *, nested: bool = False) -> Iterator[str]:
        """Yield the keys of the object that begins here; each value is to be read in between."""
        self._kept = self._at
        self._at += 1
        if self._peek() == "}":
            self._at += 1
            self._kept = None
            return
        while True:
            key = self._key()
            if nested and key in _ROOTS and self._kept is not None:
                self._refuse_request(self._kept)
            self._kept = None
            self._expect(":")
            yield key
            if self._expect(",}") == "}":
                return

    def _elements(self) -> Iterator[None]:
        """Yield before each element of the list that begins here, which is then to be read."""
        self._at += 1
        if self._peek() == "]":
            self._at += 1
            return
        while True:
            yield
            if self._expect(",]") == "]":
                return

    def _key(self) -> str:
        if self._peek() != '"':
            raise self._unexpected("a key")
        key = self._value()
        assert isinstance(key, str)
        return key

    def _expect(self, allowed: str) -> str:
        char = self._peek()
        if not char or char not in allowed:
            raise self._unexpected(" or ".join(repr(one) for one in allowed))
        self._at += 1
        return char

    def _peek(self) -> str:
        """Return the next character that is no space, "" at the end."""
        while True:
            match = _SPACE.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _value(self, begin: frozenset[str] = _OUTER) -> Any:
        """Return the value that begins here and go behind it.

        Args:
            begin: Keys by which a document is known that cannot be here.
        """
        self._peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._may_go_on(error):
                    raise self._broken(error.msg, error.pos) from None
                self._more(len(self._text) - self._at)
            except (RecursionError, ValueError):
                raise self._broken("nested too deeply, or a number too long", self._at) from None
            else:
                if end < len(self._text):
                    break
                if not self._more():  # had there been more, a number could have gone on
                    end = len(self._text)
                    break
        if isinstance(value, dict) and not begin.isdisjoint(value):
            self._refuse_request(self._at)
        if self._has_surrogates(end) or self._has_undecoded(end):
            value = without_surrogates(value)
        self._size = end - self._at
        self._at = end
        return value

    def _refuse_request(self, at: int) -> None:
        """Break where a line of JSON lines begins, since then the line before was cut."""
        if self._place(at)[1] == 1:
            raise self._broken("another request begins", at)

    def _may_go_on(self, error: json.JSONDecodeError) -> bool:
        if self._ended:
            return False
        if len(self._text) - self._at > MAX_VALUE:
            raise self._broken(f"a value longer than {MAX_VALUE >> 20} MiB", self._at)
        near_end = error.pos >= len(self._text) - _NEAR
        return near_end or error.msg.startswith("Unterminated string")

    def _has_surrogates(self, end: int) -> bool:
        find = self._text.find
        return find("\\ud", self._at, end) >= 0 or find("\\uD", self._at, end) >= 0

    def _has_undecoded(self, end: int) -> bool:
        """Whether the value up to `end` has bytes that are not UTF-8; notes their first line."""
        if self._text.isascii():
            return False
        match = _UNDECODED.search(self._text, self._at, end)
        if match is None:
            return False
        line = self._place(match.start())[0]
        if line != self._noted:
            self._noted = line
            self.not_utf8.append(line)
        return True

    def _more(self, size: int = 1) -> bool:
        """Read at least `size` more characters and drop what was read before; False at the end."""
        first = self._at if self._kept is None else self._kept
        self._line, self._column = self._place(first)
        self._column -= 1
        parts = [self._text[first:]]
        self._at -= first
        self._kept = None if self._kept is None else 0
        before = size
        while size > 0 and not self._ended:
            data = self._read()
            self._ended = not data
            text = self._decoder.decode(data, final=not data)
            parts.append(text)
            size -= len(text)
        self._text = "".join(parts)
        return size < before

    def _place(self, at: int) -> tuple[int, int]:
        """Return the line and the column of a place in the text at hand."""
        newline = self._text.rfind("\n", 0, at)
        if newline < 0:
            return self._line, self._column + at + 1
        return self._line + self._text.count("\n", 0, at), at - newline

    def _unexpected(self, wanted: str) -> BrokenError:
        return self._broken(f"expected {wanted}", self._at)

    def _broken(self, message: str, at: int) -> BrokenError:
        line, column = self._place(at)
        at_end = self._ended and (
            at >= len(self._text.rstrip()) or message.startswith("Unterminated string")
        )
        if at_end:
            line, column = self._place(len(self._text.rstrip()))
            message = "unexpected end of data"
        message = message.removesuffix(" at")  # as some of the parser's end
        return BrokenError(f"not valid JSON ({message} at column {column})", line, at_end=at_end)


class _Spool:
    """Lists of spans that wait for what comes after them, in memory while they are few."""

    def __init__(self) -> None:
        self._file: SpooledTemporaryFile[bytes] | None = None

    def add(self, spans: list[Any]) -> None:
        if self._file is None:
            self._file = SpooledTemporaryFile(_SPOOLED)  # noqa: SIM115  closed with the spool
        self._file.write(f"[{','.join(map(_text, spans))}]\n".encode())

    def batches(self) -> Iterator[list[Any]]:
        if self._file is not None:
            self._file.seek(0)
            yield from map(json.loads, self._file)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _text(value: Any) -> str:
    try:
        return json.dumps(value)
    except RecursionError:  # a little deeper than it could be read
        return "null"
