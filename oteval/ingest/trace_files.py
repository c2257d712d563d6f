"""Read files of traces and logs in batches of spans and log records.

The format follows from the first bytes of a file, not from its name: JSON (one document, several,
or one per line), OTLP protobuf (a message or a stream of messages), Parquet, or a zip archive of
JSON; plain, gzip or zstd. Memory does not grow with the file.

A part that cannot be read becomes a `Problem` of its batch, and reading continues. If nothing in a
file can be read, `InputError` is raised, after any batches with its earlier problems.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, NamedTuple

from oteval.base.errors import InputError
from oteval.model import LogRecord, ScoredRun, Span

from . import json_documents, parquet, protobuf_stream
from .compression import ByteStream, Readable, Source
from .containers import decode
from .conversations.conversation_file import ConversationFile
from .otlp import Decoded

__all__ = [
    "Batch",
    "FilePart",
    "Problem",
    "file_size",
    "files_of",
    "read",
    "read_part",
    "read_stream",
    "split_file",
]

_SUFFIXES = (".json", ".jsonl", ".ndjson", ".pb", ".proto", ".bin", ".otlp", ".parquet", ".eval")
_COMPRESSED = (".gz", ".zst", ".zstd")


def files_of(path: str) -> list[str]:
    """The files of a folder and its subfolders in order; any other path is returned alone.

    Hidden files and folders below it are left out, and links to folders are not followed.

    Args:
        path: A path, or "-" for standard input.

    Raises:
        InputError: The folder cannot be read, or no name in it ends like a trace file's name.
    """
    if path == "-" or not Path(path).is_dir():
        return [path]
    files: list[str] = []
    for folder, folders, names in os.walk(path, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files += [str(Path(folder) / name) for name in sorted(names) if _may_hold_traces(name)]
    if not files:
        raise InputError(f"{path}: no file in it ends in {', '.join(_SUFFIXES)}, also compressed")
    return files


def _refuse(error: OSError) -> None:
    raise InputError(f"{error.filename}: cannot be read ({error.strerror})") from error


def _may_hold_traces(name: str) -> bool:
    bare = name.lower()
    for suffix in _COMPRESSED:
        bare = bare.removesuffix(suffix)
    return bare.endswith(_SUFFIXES) and not name.startswith(".")


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
    elif head.startswith(json_documents.ZIP_MAGIC) and not _is_json(head):
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
            for member in json_documents.zip_documents(file):
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


_REQUEST = b'{"resource'
_CUT = b"\n" + _REQUEST
_BLOCK = 64 << 10  # bytes; a request is mostly longer


class FilePart(NamedTuple):
    """A range of a file's bytes that begins with a request and ends before another request.

    Attributes:
        start: The offset of its first byte.
        end: The offset after its last byte.
    """

    start: int
    end: int


def split_file(path: str | Path, part_size: int) -> list[FilePart]:
    """The parts of a file of JSON lines in order, or no parts if it cannot be cut.

    Args:
        path: The file.
        part_size: The approximate size of a part in bytes.
    """
    try:
        size = Path(path).stat().st_size
        if not Path(path).is_file() or size < 2 * part_size:
            return []
        with Path(path).open("rb") as file:
            if file.read(len(_REQUEST)) != _REQUEST:
                return []
            cuts = [0]
            while (cut := _next_cut(file, cuts[-1] + part_size)) is not None:
                cuts.append(cut)
    except OSError:
        return []
    parts = [FilePart(start, end) for start, end in zip(cuts, [*cuts[1:], size], strict=True)]
    return parts if len(parts) > 1 else []


def _next_cut(file: BinaryIO, offset: int) -> int | None:
    """The offset of the first request at or after an offset; None if there is none."""
    file.seek(offset)
    tail = b""
    while block := file.read(_BLOCK):
        index = (tail + block).find(_CUT)
        if index >= 0:
            return file.tell() - len(block) - len(tail) + index + 1
        tail = (tail + block)[-len(_CUT) :]
    return None


def read_part(path: str | Path, part: FilePart, *, chunk: int) -> Iterator[tuple[Batch, int]]:
    """Read one part of a file.

    Args:
        path: The file.
        part: The range of bytes to read.
        chunk: The least spans and log records of a batch, as in `read`.

    Yields:
        Batches, each with the number of lines read so far. The lines of problems count from the
        beginning of the part.
    """
    with Path(path).open("rb") as file:
        window = _PartReader(file, part)
        try:
            for batch in read_stream(window, str(path), chunk=chunk):
                yield batch, window.lines
        except InputError as error:
            # An unreadable part is a problem and not an error: the other parts are still read.
            reason = str(error).removeprefix(f"{path}:")
            yield Batch(problems=[_problem(str(path), reason)]), window.lines


def _problem(source: str, reason: str) -> Problem:
    """An error message about a file as a problem, with the line number removed from the message."""
    line, colon, text = reason.partition(": ")
    if colon and line.isdecimal():
        return Problem(source, int(line), text)
    return Problem(source, None, reason.strip())


class _PartReader:
    """A range of a file's bytes, readable like a whole file.

    Attributes:
        lines: The number of line ends read so far.
    """

    def __init__(self, file: BinaryIO, part: FilePart) -> None:
        self._file = file
        self._left = part.end - part.start
        self.lines = 0
        file.seek(part.start)

    def read(self, size: int = -1, /) -> bytes:
        data = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        self.lines += _line_ends(data)
        return data


def _line_ends(data: bytes) -> int:
    """The number of newlines, found one by one; `count` would take longer."""
    count, at = 0, data.find(b"\n")
    while at >= 0:
        count, at = count + 1, data.find(b"\n", at + 1)
    return count
