"""Read files of traces and logs in batches of spans and log records.

The format follows from the first bytes of a file, not from its name: JSON (one document, several,
or one per line), OTLP protobuf (a message or a stream of messages), Parquet, or a zip archive of
JSON; plain, gzip or zstd. Memory does not grow with the file.

A part that cannot be read becomes a `Problem` of its batch, and reading continues. If nothing in a
file can be read, `InputError` is raised, after any batches with its earlier problems.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

from oteval.base.errors import InputError
from oteval.model import LogRecord, ScoredRun, Span

from . import json_documents, parquet, protobuf_stream, zip_documents
from .byte_stream import ByteStream
from .compression import Readable, Source
from .containers import decode
from .conversations import ConversationFile
from .otlp import Decoded

__all__ = ["Batch", "Problem", "file_size", "read", "read_stream"]

CHUNK = 4096
"""The least spans and log records of a batch, unless the caller sets it."""
_HEAD = 1 << 16  # bytes that show the format
_BATCH_BYTES = 32 << 20
_BATCH_PROBLEMS = 1000
_SUPPORTED = (
    "supported are OTLP/JSON (documents or lines), OTLP protobuf, Jaeger's JSON, ClickHouse's "
    "otel_traces and otel_logs as JSON lines or Parquet, the output of the Python SDK's console "
    "exporters, lines of oteval export --jsonl, and conversations (lists of messages, tau2, ATIF, "
    "Inspect, Claude Code, Codex); plain, gzip or zstd"
)
_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
_DOCUMENT_LINE = re.compile(rb"^(\xef\xbb\xbf)?[ \t]*[{\[]", re.MULTILINE)
_OTLP_LINE = re.compile(rb"^(\xef\xbb\xbf)?[ \t]*[{\[][ \t{]*\"(resource|batches)", re.MULTILINE)
_KNOWN = {
    b"\x89PNG": "a PNG image",
    b"PK\x03\x04": "a zip archive",
    b"SQLite format 3\0": "an SQLite database",
    b"%PDF": "a PDF document",
    b"BZh": "bzip2 data",
    b"\xfd7zXZ\0": "xz data",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A part of a file that could not be read, or was changed to be read.

    Attributes:
        source: The path of the file, "-" for standard input.
        line: The line, from 1; None if the format has no lines.
        reason: The reason, and the part that was left out.
    """

    source: str
    line: int | None
    reason: str

    def __str__(self) -> str:
        position = self.source if self.line is None else f"{self.source}:{self.line}"
        return f"{position}: {self.reason}"


@dataclass(slots=True)
class Batch:
    """A part of a file's content, in the order of the file.

    Attributes:
        spans: Spans.
        logs: Log records.
        problems: Problems since the previous batch.
        bytes_read: The bytes of the file, as stored on disk, that were read so far.
        runs: Runs that `oteval export --jsonl` wrote.
    """

    spans: list[Span] = field(default_factory=list)
    logs: list[LogRecord] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    bytes_read: int = 0
    runs: list[ScoredRun] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.spans or self.logs or self.runs or self.problems)


def file_size(path: str | Path) -> int | None:
    """The size of a file in bytes; None for standard input and other pipes.

    Args:
        path: The file, or "-" for standard input.
    """
    try:
        file = Path(path)
        return file.stat().st_size if str(path) != "-" and file.is_file() else None
    except (OSError, ValueError):
        return None


def read(
    path: str | Path, *, chunk: int = CHUNK, tables: Sequence[parquet.Table] = ()
) -> Iterator[Batch]:
    """Read a file of traces or logs.

    Args:
        path: The file, or "-" for standard input.
        chunk: The least spans and log records of a batch, except the last. A batch has more if it
            contains a document that is parsed at once and has more.
        tables: Further tables to recognise in Parquet files, besides ClickHouse's tables.

    Yields:
        The content. A batch without content has problems.

    Raises:
        InputError: The file cannot be read, or nothing in it is in a supported format.
    """
    with _opened(path) as file:
        yield from read_stream(file, str(path), chunk=chunk, tables=tables)


def read_stream(
    file: Readable, name: str, *, chunk: int = CHUNK, tables: Sequence[parquet.Table] = ()
) -> Iterator[Batch]:
    """Read an open file of traces or logs; see `read`.

    Args:
        file: The file, opened for bytes.
        name: The name of the file in problems.
        chunk: The least spans and log records of a batch.
        tables: Further tables to recognise in Parquet files.
    """
    source = Source(file)
    has_data = False
    first: Problem | None = None
    batch = Batch()
    batch_start = 0
    try:
        for item in _items(source, name, tables):
            if isinstance(item, Problem):
                first = first or item
                batch.problems.append(item)
            else:
                has_data = has_data or bool(
                    item.spans or item.logs or item.runs or not item.problems
                )
                batch.spans += item.spans
                batch.logs += item.logs
                batch.runs += item.runs
            if _is_full(batch, chunk, source.decompressed - batch_start):
                batch.bytes_read = source.bytes_read
                yield batch
                batch, batch_start = Batch(), source.decompressed
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror or error})") from None
    if first and not has_data:
        raise InputError(f"{first}; {_SUPPORTED}")
    if batch:
        batch.bytes_read = source.bytes_read
        yield batch


def _is_full(batch: Batch, chunk: int, size: int) -> bool:
    count = len(batch.spans) + len(batch.logs) + len(batch.runs)
    if count >= chunk or len(batch.problems) >= _BATCH_PROBLEMS:
        return True
    return size >= _BATCH_BYTES and bool(batch)


def _opened(path: str | Path) -> AbstractContextManager[BinaryIO]:
    if str(path) == "-":
        return nullcontext(sys.stdin.buffer)
    if Path(path).is_dir():
        raise InputError(f"{path}: is a directory; name its files, such as {path}/*.json")
    try:
        return Path(path).open("rb")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: cannot be opened ({reason})") from None


def _items(
    source: Source, name: str, tables: Sequence[parquet.Table]
) -> Iterator[Decoded | Problem]:
    """Yield the content of a file; each of `Decoded.problems` also as a `Problem`."""
    stream = ByteStream(source.read)
    head = stream.head(_HEAD)
    text = head.removeprefix(_BOM).lstrip(_SPACE)
    if not text and len(head) < _HEAD:
        if source.fault:
            raise InputError(f"{name}: {source.fault}, and nothing could be decompressed")
        raise InputError(f"{name}: the file {'contains only white space' if head else 'is empty'}")
    if head.startswith(parquet.MAGIC) and not _is_json(head):
        yield from _parquet_items(source, stream, name, tables)
    elif head.startswith(zip_documents.MAGIC) and not _is_json(head):
        yield from _zip_items(source, stream, name)
    elif protobuf_stream.is_stream(head):
        yield from _protobuf_items(protobuf_stream.read_stream(stream), name)
    elif protobuf_stream.is_message(head) and not text.startswith((b"{", b"[")):
        yield from _protobuf_items(protobuf_stream.read_message(stream), name)
    elif _is_json(head):
        yield from _json_items(stream, name)
    else:
        raise InputError(f"{name}: {_described(text)} cannot be read; {_SUPPORTED}")
    if source.fault:
        yield Problem(name, None, f"{source.fault}; the data before that is used")


def _parquet_items(
    source: Source, stream: ByteStream, name: str, tables: Sequence[parquet.Table]
) -> Iterator[Decoded | Problem]:
    with _random_access(source, stream) as file:
        size = file.seek(0, 2)
        file.seek(0)
        try:
            for decoded, fraction in parquet.read_rows(file, tables):
                source.set_progress(fraction, size)
                yield from _with_problems(decoded, name, None)
        except InputError as error:
            raise InputError(f"{name}: {error}; {_SUPPORTED}") from None


@contextmanager
def _random_access(source: Source, stream: ByteStream) -> Iterator[BinaryIO]:
    """Open a seekable file: the original, or a temporary copy of a stream or compressed file."""
    original = source.original()
    if original is not None:
        yield original
        return
    with TemporaryFile() as copy:
        while data := stream.chunk():
            copy.write(data)
        yield copy


def _is_json(head: bytes) -> bool:
    """Whether a document begins near the beginning, even after lines of garbage."""
    if head.startswith((*_KNOWN, parquet.MAGIC)):
        return bool(_OTLP_LINE.search(head))
    return bool(_DOCUMENT_LINE.search(head))


def _json_items(stream: ByteStream, name: str) -> Iterator[Decoded | Problem]:
    conversations = ConversationFile()
    for item in json_documents.documents(stream):
        if isinstance(item, json_documents.UnreadablePart):
            yield Problem(name, item.line, item.reason)
        else:
            yield from _decoded(item.value, conversations, name, item.line)
    yield from _ended(conversations, name)


def _zip_items(source: Source, stream: ByteStream, name: str) -> Iterator[Decoded | Problem]:
    conversations = ConversationFile()
    with _random_access(source, stream) as file:
        try:
            for member in zip_documents.documents(file):
                member_name = f"{name}/{member.name}"
                if member.problem:
                    yield Problem(member_name, None, member.problem)
                else:
                    yield from _decoded(member.value, conversations, member_name, None)
        except InputError as error:
            raise InputError(f"{name}: {error}; {_SUPPORTED}") from None
    yield from _ended(conversations, name)


def _decoded(
    document: Any, conversations: ConversationFile, name: str, line: int | None
) -> Iterator[Decoded | Problem]:
    try:
        decoded = conversations.take(document) or decode(document)
    except InputError as error:
        yield Problem(name, line, str(error))
        return
    yield from _with_problems(decoded, name, line)


def _ended(conversations: ConversationFile, name: str) -> Iterator[Decoded | Problem]:
    ended = conversations.finish()
    if ended.runs or ended.problems:
        yield from _with_problems(ended, name, None)


def _protobuf_items(items: Iterator[Decoded | str], name: str) -> Iterator[Decoded | Problem]:
    for item in items:
        if isinstance(item, str):
            yield Problem(name, None, item)
        else:
            yield from _with_problems(item, name, None)


def _with_problems(decoded: Decoded, name: str, line: int | None) -> Iterator[Decoded | Problem]:
    yield decoded
    for problem in decoded.problems:
        yield Problem(name, line, problem)


def _described(head: bytes) -> str:
    """A description of a file's format by its first bytes."""
    for magic, what in _KNOWN.items():
        if head.startswith(magic):
            return what
    line = head.split(b"\n", 1)[0][:40]
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        text = line[: error.start].decode() if error.start > 36 else ""
    if text.isprintable() and text:
        return f"text that begins with {text.strip()!r}"
    return f"binary data that begins with {head[:8].hex(' ')}"
