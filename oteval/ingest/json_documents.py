"""The documents of a JSON text or of a zip archive, with bounded memory and in spite of damage.

A text of JSON lines is parsed line by line. A line that is not a whole document (pretty-printed,
several documents, damaged, or longer than `LONG_LINE`) is read value by value instead: the outer
objects and lists are entered, and each span is parsed by itself. A document of any size therefore
takes little memory, and the part of a damaged document before the damage is kept.

Only the outer structure is known here; `containers` decodes the documents.

Members of a zip archive, such as a log of Inspect, are deflated, stored, or compressed by zstd,
which Python reads only from version 3.14.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, NamedTuple
from zipfile import BadZipFile, ZipFile, ZipInfo

from ..base.errors import InputError
from . import clickhouse, incremental_json
from .compression import ByteStream, LimitExceeded, unzstd
from .containers import WRAPPERS
from .incremental_json import MAX_VALUE, JsonCursor, MalformedJsonError
from .otlp import parse_json

__all__ = [
    "ZIP_MAGIC",
    "Document",
    "MemberDocument",
    "UnreadablePart",
    "documents",
    "zip_documents",
]

LONG_LINE = 32 << 20
"""A line of at least this many bytes is read value by value."""
_BOM = b"\xef\xbb\xbf"
# The most spans that are yielded together, and the most characters of them.
_BATCH = 256
_BATCH_CHARACTERS = 4 << 20
# The bytes of a trace's spans that stay in memory while they wait for its processes.
_MEMORY = 16 << 20
_MAX_DEPTH = 4

_ROOTS = frozenset({"resourceSpans", "resourceLogs", "resource_spans", "resource_logs", "batches"})
_METRICS = frozenset({"resourceMetrics", "resource_metrics"})
_SCOPES = frozenset(
    {"scopeSpans", "scopeLogs", "scope_spans", "scope_logs"}
    | {"instrumentationLibrarySpans", "instrumentation_library_spans"}
    | {"instrumentationLibraryLogs", "instrumentation_library_logs"}
)
_SCOPE = frozenset({"scope", "instrumentationLibrary", "instrumentation_library"})
_RECORDS = frozenset({"spans", "logRecords", "log_records", "logs"})
# Keys that only a top-level document has. A member of a document may itself be a Jaeger trace or a
# row, so their keys are allowed deeper inside.
# Lists of conversations, of tau2-bench and Inspect. The members before them describe them.
_CONVERSATIONS = frozenset({"simulations", "samples"})
_DOCUMENT_KEYS = _ROOTS | {"data", "result", "processes"}
_MEMBER_KEYS = _DOCUMENT_KEYS | {"traceID", "TraceId"}
# The beginning of a ClickHouse row, which is parsed whole.
_ROW = re.compile(r'\{[ \t\r\n]*"([A-Z][A-Za-z.]{2,25})"')

Object = dict[str, Any]


class Document(NamedTuple):
    """A parsed document, or a part of one in the form of a document.

    Attributes:
        line: The first line of the document.
        value: The parsed JSON.
    """

    line: int
    value: Any


class UnreadablePart(NamedTuple):
    """A part of the text that is not JSON.

    Attributes:
        line: The line of the error.
        reason: The error, and the part that was skipped because of it.
    """

    line: int
    reason: str


def documents(stream: ByteStream) -> Iterator[Document | UnreadablePart]:
    """Yield the documents of a text in order, and the parts that cannot be read.

    Args:
        stream: The text, from its beginning.
    """
    while True:
        number = stream.line
        line = stream.next_line(LONG_LINE)
        if not line:
            return
        text = line.strip().removeprefix(_BOM)
        if not text:
            continue
        is_whole = line.endswith(b"\n") or len(line) < LONG_LINE
        try:
            if is_whole:
                yield Document(number, parse_json(text))
                continue
        except ValueError:
            pass
        if text.startswith((b"{", b"[")):
            stream.put_back(line)
            stream.line = number
            yield from _value_by_value(stream)
        else:
            yield UnreadablePart(number, f"{_parse_error(text)}; line skipped")
            if not is_whole:
                _skip_line(stream)


def _value_by_value(stream: ByteStream) -> Iterator[Document | UnreadablePart]:
    """Yield documents in parts, up to the first error or the end of the text."""
    reader = _DocumentReader(stream.chunk, stream.line)
    try:
        for document in reader.documents():
            yield from _encoding_errors(reader)
            yield document
        yield from _encoding_errors(reader)
    except MalformedJsonError as error:
        yield from _encoding_errors(reader)
        unread, stream.line = reader.cursor.rest(reader.first_line)
        if unread is None:
            _skip_line(stream)
        else:
            stream.put_back(unread)
        yield _unreadable(error, reader, _skip_to_document(stream))


def _encoding_errors(reader: _DocumentReader) -> Iterator[UnreadablePart]:
    for line in reader.cursor.not_utf8:
        yield UnreadablePart(line, "bytes that are not UTF-8 were read as U+FFFD")
    reader.cursor.not_utf8.clear()


def _unreadable(error: MalformedJsonError, reader: _DocumentReader, last: int) -> UnreadablePart:
    """The report of an error, given the last line that was skipped because of it."""
    reason, line = str(error), error.line
    if last < line and not error.at_end:  # the next document was parsed as a part of this document
        reason, line = f"not valid JSON (cut at the end of line {last})", last
    skipped = f"lines {reader.first_line} to {last}" if last > reader.first_line else "line"
    if reader.records:
        kept_text = f"{reader.records} spans and log records before it are kept"
        skipped = f"{kept_text}, the rest of the {skipped}"
    return UnreadablePart(line, f"{reason}; {skipped} skipped")


def _skip_to_document(stream: ByteStream) -> int:
    """Skip the lines that do not begin a document; return the number of the last one skipped."""
    last = stream.line - 1
    while True:
        number = stream.line
        line = stream.next_line(LONG_LINE)
        if not line:
            return last
        if line.removeprefix(_BOM).startswith((b"{", b"[")):
            stream.put_back(line)
            stream.line = number
            return last
        if not line.endswith(b"\n"):
            _skip_line(stream)
        last = number


def _skip_line(stream: ByteStream) -> None:
    number = stream.line
    while stream.line == number and stream.next_line(LONG_LINE):
        pass


def _parse_error(text: bytes) -> str:
    """The reason why a text is not valid JSON."""
    try:
        json.loads(text.decode())
    except UnicodeDecodeError as error:
        return f"not UTF-8 text (byte 0x{text[error.start]:02x} at column {error.start + 1})"
    except json.JSONDecodeError as error:
        return f"not valid JSON ({error.msg.removesuffix(' at')} at column {error.colno})"
    except (RecursionError, ValueError):
        pass
    return "not valid JSON"


class _DocumentReader:
    """Reads documents value by value, and yields large documents in parts.

    A part has the form of a document with some of its spans. If a list of spans comes before its
    resource or scope, it is parsed whole, because its spans would not be complete without them. The
    spans of a Jaeger trace always come before its processes; they wait in a temporary file.

    Attributes:
        cursor: The position in the text.
        first_line: The first line of the current document.
        records: The number of spans and log records of the current document that were read.
    """

    def __init__(self, read: Callable[[], bytes], line: int) -> None:
        self.cursor = JsonCursor(read, line)
        self.first_line = line
        self.records = 0

    def documents(self) -> Iterator[Document]:
        """Yield each document, whole or in parts.

        Raises:
            MalformedJsonError: The text is damaged. Everything that was yielded before is valid.
        """
        while char := self.cursor.peek():
            self.first_line, self.records = self.cursor.line, 0
            if char == "[":
                for _ in self.cursor.elements():
                    yield from self._document()
            else:
                yield from self._document()

    def _part(self, value: Any) -> Document:
        return Document(self.first_line, value)

    def _document(self, depth: int = 0) -> Iterator[Document]:
        if self.cursor.peek() != "{" or depth > _MAX_DEPTH or self._is_row():
            yield self._part(self.cursor.value(_DOCUMENT_KEYS))
            return
        waiting = _WaitingSpans()
        other_members: Object = {}
        try:
            yield from self._members(other_members, waiting, depth)
        except MalformedJsonError:
            # The spans before the damage are kept, though their processes may be missing.
            yield from self._with_spans(other_members, waiting)
            raise
        finally:
            waiting.close()

    def _members(
        self, other_members: Object, waiting: _WaitingSpans, depth: int
    ) -> Iterator[Document]:
        """Yield the document at the cursor in parts; `other_members` gets members without spans."""
        cursor = self.cursor
        has_parts = False
        size = 0
        for key in cursor.members():
            char = cursor.peek()
            if key in _ROOTS and char == "[":
                for _ in cursor.elements():
                    yield from self._resource(key)
            elif key == "data" and char == "[":
                for _ in cursor.elements():
                    yield from self._document(depth + 1)
            elif key in WRAPPERS and char == "{":
                yield from self._document(depth + 1)
            elif key in _CONVERSATIONS and char == "[":
                for _ in cursor.elements():
                    yield self._part({**other_members, key: [cursor.value(_DOCUMENT_KEYS)]})
            elif key == "spans" and char == "[":
                for batch in self._batches():
                    waiting.add(batch)
            else:
                value = cursor.value(_MEMBER_KEYS)
                size += cursor.value_size
                other_members[key] = value if size <= incremental_json.MAX_VALUE else True
                continue
            has_parts = True
        yield from self._with_spans(other_members, waiting)
        if not _METRICS.isdisjoint(other_members):
            yield self._part({"resourceMetrics": True})
        elif not has_parts:
            yield self._part(other_members)
        elif other_members.get("errors") or other_members.get("status"):
            yield self._part({**other_members, "data": []})

    def _with_spans(self, other_members: Object, waiting: _WaitingSpans) -> Iterator[Document]:
        for batch in waiting.batches():
            yield self._part({**other_members, "spans": batch})

    def _is_row(self) -> bool:
        match = self.cursor.looking_at(_ROW)
        return match is not None and match[1] in clickhouse.COLUMNS

    def _resource(self, root: str) -> Iterator[Document]:
        """Yield an element of ``resourceSpans`` or ``resourceLogs`` in parts."""
        cursor = self.cursor
        if cursor.peek() != "{":
            yield self._part({root: [cursor.value(_DOCUMENT_KEYS)]})
            return
        resource: Object = {}
        has_parts = False
        for key in cursor.members(_ROOTS):
            if key in _SCOPES and "resource" in resource and cursor.peek() == "[":
                for _ in cursor.elements():
                    for scope in self._scope():
                        yield self._part({root: [{**resource, key: [scope]}]})
                        has_parts = True
            else:
                resource[key] = cursor.value(_DOCUMENT_KEYS)
        if not has_parts or not _SCOPES.isdisjoint(resource):
            yield self._part({root: [resource]})

    def _scope(self) -> Iterator[Any]:
        """Yield an element of ``scopeSpans`` or ``scopeLogs``, with some of its spans at a time."""
        cursor = self.cursor
        if cursor.peek() != "{":
            yield cursor.value(_DOCUMENT_KEYS)
            return
        scope: Object = {}
        has_parts = False
        for key in cursor.members(_ROOTS):
            if key in _RECORDS and not _SCOPE.isdisjoint(scope) and cursor.peek() == "[":
                for batch in self._batches():
                    yield {**scope, key: batch}
                    has_parts = True
            else:
                scope[key] = cursor.value(_DOCUMENT_KEYS)
        if not has_parts or not _RECORDS.isdisjoint(scope):
            yield scope

    def _batches(self) -> Iterator[list[Any]]:
        """Yield the elements of the list at the cursor, some at a time, also before an error."""
        cursor = self.cursor
        batch: list[Any] = []
        size = 0
        try:
            for _ in cursor.elements():
                batch.append(cursor.value(_DOCUMENT_KEYS))
                size += cursor.value_size
                if len(batch) >= _BATCH or size > _BATCH_CHARACTERS:
                    self.records += len(batch)
                    yield batch
                    batch, size = [], 0
        except MalformedJsonError:
            self.records += len(batch)
            yield batch
            raise
        self.records += len(batch)
        yield batch


class _WaitingSpans:
    """Batches of spans that wait for the rest of their trace, on disk once they are many."""

    def __init__(self) -> None:
        self._file: SpooledTemporaryFile[bytes] | None = None

    def add(self, spans: list[Any]) -> None:
        if self._file is None:
            self._file = SpooledTemporaryFile(_MEMORY)  # noqa: SIM115  `close` closes it
        self._file.write(f"[{','.join(map(_serialized, spans))}]\n".encode())

    def batches(self) -> Iterator[list[Any]]:
        if self._file is not None:
            self._file.seek(0)
            yield from map(json.loads, self._file)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _serialized(value: Any) -> str:
    try:
        return json.dumps(value)
    except RecursionError:  # the parser goes slightly deeper than the serializer
        return "null"


ZIP_MAGIC = b"PK\x03\x04"
_ZSTD = 93
_LOCAL_HEADER = 30  # bytes; the last four are the lengths of the name and the extra field
# Inspect writes the first of these when an evaluation ends, the second when it starts.
_HEADERS = ("header.json", "_journal/start.json")
_SAMPLES = "samples/"


class MemberDocument(NamedTuple):
    """A member of an archive.

    Attributes:
        name: Its name.
        value: The parsed JSON, or None.
        problem: Why it cannot be read, or "".
    """

    name: str
    value: Any
    problem: str = ""


def zip_documents(file: BinaryIO) -> Iterator[MemberDocument]:
    """Yield the JSON zip_documents of an archive, the header first.

    Args:
        file: The archive, which can be sought in.

    Raises:
        InputError: It is damaged, or contains no JSON.
    """
    try:
        with ZipFile(file) as archive:
            members = _members(archive)
            if not members:
                raise InputError("a zip archive without a .json file")
            for member in members:
                yield _document(archive, file, member)
    except (BadZipFile, OSError, struct.error) as error:
        raise InputError(f"a damaged zip archive ({error})") from None


def _members(archive: ZipFile) -> list[ZipInfo]:
    """The members to read: the header and samples of a log; all JSON of any other archive."""
    members = {entry.filename: entry for entry in archive.infolist()}
    names = [name for name in members if name.endswith(".json")]
    samples = [name for name in names if name.startswith(_SAMPLES)]
    header = [name for name in _HEADERS if name in members][:1]
    if samples and header:
        names = [*header, *samples]
    return [members[name] for name in names]


def _document(archive: ZipFile, file: BinaryIO, member: ZipInfo) -> MemberDocument:
    try:
        if member.file_size > MAX_VALUE:
            raise LimitExceeded(f"it has more than {MAX_VALUE >> 20} MiB")
        if member.compress_type == _ZSTD:
            data = unzstd(_raw(file, member), MAX_VALUE)
        else:
            with archive.open(member) as content:
                data = content.read(MAX_VALUE)
        return MemberDocument(member.filename, parse_json(data))
    except (ValueError, RuntimeError, NotImplementedError, OSError, BadZipFile) as error:
        return MemberDocument(member.filename, None, f"{error}; the file is skipped")


def _raw(file: BinaryIO, member: ZipInfo) -> bytes:
    file.seek(member.header_offset)
    header = file.read(_LOCAL_HEADER)
    name_length, extra_length = struct.unpack("<HH", header[-4:])
    file.seek(name_length + extra_length, 1)
    return file.read(member.compress_size)
