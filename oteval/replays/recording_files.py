"""Recordings in files, so that a child process or a test needs no database.

A file has JSON lines, and is compressed if its name ends in ``.gz``. The first line is the header
with the version of the format and the number of the lines after it. Each further line is a model
call, an execution of a tool, or an HTTP exchange. Fields with their default value are left out.
Bodies that are not text are base64.
"""

from __future__ import annotations

import base64
import functools
import gzip
import marshal
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from ..base.errors import InputError
from ..base.files import make_folder, write_private
from ..base.jsontext import dumps_exact, restore
from ..model import (
    Chunk,
    Exchange,
    Message,
    RecordedAnswer,
    RecordedModelCall,
    RecordedRequest,
    RecordedToolCall,
    Recording,
    ToolCall,
    Usage,
)

__all__ = ["load", "recording_bytes", "save"]

_FORMAT, _VERSION = "oteval recording", 1
_LISTS = {"model_call": "model_calls", "tool_call": "tool_calls", "exchange": "exchanges"}


def save(recording: Recording, path: str | Path) -> None:
    """Write a recording to a file.

    Args:
        recording: The recording.
        path: The file; its folder is created. It is compressed if its name ends in ``.gz``.

    Raises:
        InputError: The file cannot be written.
    """
    path = Path(path)
    data = recording_bytes(recording)
    # The file has no time and no name, so equal recordings are equal files.
    try:
        make_folder(path.parent)
        write_private(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def recording_bytes(recording: Recording) -> bytes:
    """The content of a recording's file, not compressed."""
    messages: dict[int, str] = {}
    lines = [
        f'{{"{kind}":{_text(record, messages)}}}'
        for kind, name in _LISTS.items()
        for record in getattr(recording, name)
    ]
    header: dict[str, Any] = {"format": _FORMAT, "version": _VERSION, "lines": len(lines)}
    nothing: Any = dict.fromkeys(_LISTS.values(), ())
    header |= _plain(replace(recording, **nothing))
    return "".join(f"{line}\n" for line in (dumps_exact(header), *lines)).encode()


def _text(value: Any, messages: dict[int, str]) -> str:
    """A value as JSON text.

    Args:
        value: The value.
        messages: The texts of messages by their ids. Requests repeat the messages of earlier
            requests.
    """
    if isinstance(value, Message):
        text = messages.get(id(value))
        if text is None:
            text = messages[id(value)] = dumps_exact(_plain(value))
        return text
    if is_dataclass(value):
        field_values = ((field.name, getattr(value, field.name), field) for field in _fields(value))
        inner = (
            f'"{name}":{_text(inner, messages)}'
            for name, inner, field in field_values
            if not _is_default(inner, field)
        )
        return f"{{{','.join(inner)}}}"
    if isinstance(value, tuple) and value and is_dataclass(value[0]):
        return f"[{','.join(_text(item, messages) for item in value)}]"
    return dumps_exact(_plain(value))


def load(path: str | Path) -> Recording:
    """Read a recording from a file.

    Args:
        path: The file that `save` wrote, or a cassette of vcrpy (``.yaml``, ``.yml``, ``.json``).

    Raises:
        InputError: The file cannot be read, has another format or a newer version, or is damaged;
            the message names the line.
    """
    if Path(path).suffix in (".yaml", ".yml", ".json"):
        from .cassettes import recording_of_cassette

        return recording_of_cassette(path)
    try:
        data = Path(path).read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        text = data.decode()
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    lines = text.split("\n")
    header = _header(path, lines[0])
    rows = [(number, line) for number, line in enumerate(lines[1:], 2) if line]
    records: dict[str, list[Any]] = {kind: [] for kind in _LISTS}
    readers = {"model_call": _model_call_reader({}), **_READERS}
    for number, line in rows:
        kind, value = _line(path, number, line, readers)
        records[kind].append(value)
    if len(rows) != header.pop("lines", len(rows)):
        raise InputError(f"{path}: line {len(lines)}: the file was cut: save the recording again")
    read = _reader(Recording, answers=_each(_reader(RecordedAnswer)))
    try:
        recording: Recording = read(
            {**header, **{name: tuple(records[kind]) for kind, name in _LISTS.items()}}
        )
    except TypeError as error:
        raise InputError(f"{path}: line 1: the header is damaged: {error}") from error
    return recording


def _header(path: str | Path, line: str) -> dict[str, Any]:
    try:
        header = restore(line)
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.pop("format", "") != _FORMAT:
        raise InputError(f"{path}: line 1: not a recording of oteval: save() writes them")
    version = header.pop("version", 0)
    if version != _VERSION:
        raise InputError(f"{path}: version {version} of the format: upgrade oteval to read it")
    return {key: tuple(v) if isinstance(v, list) else v for key, v in header.items()}


def _line(
    path: str | Path, number: int, line: str, readers: Mapping[str, Callable[[Any], Any]]
) -> tuple[str, Any]:
    try:
        ((kind, value),) = restore(line).items()
        return kind, readers[kind](value)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise InputError(f"{path}: line {number}: damaged: {problem}") from error


def _plain(value: Any) -> Any:
    """A value as plain JSON; bytes are text or base64."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if is_dataclass(value):
        return {
            field.name: _plain(inner)
            for field in _fields(value)
            if not _is_default(inner := getattr(value, field.name), field)
        }
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _is_default(value: Any, field: Any) -> bool:
    if field.default_factory is not MISSING:
        return not value
    return (
        field.default is not MISSING
        and type(value) is type(field.default)
        and (value == field.default)
    )


def _bytes(value: Any) -> bytes:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else str(value).encode()


def _fields(value: Any) -> tuple[Field[Any], ...]:
    """The fields of a value of a data class."""
    kind: Any = type(value)
    return _fields_of(kind)


@functools.cache
def _fields_of(kind: Any) -> tuple[Field[Any], ...]:
    return fields(kind)


def _each(read: Callable[[Any], Any]) -> Callable[[Iterable[Any]], tuple[Any, ...]]:
    return lambda values: tuple(map(read, values))


def _reader(kind: Any, **readers: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make the reader of a class's JSON form; functions read some of its fields.

    Fields that the class does not have are left out: later versions may have more.
    """
    names = {field.name for field in fields(kind)}

    def read(values: Mapping[str, Any]) -> Any:
        return kind(
            **{
                name: readers[name](value) if name in readers and value is not None else value
                for name, value in values.items()
                if name in names
            }
        )

    return read


_message = _reader(Message, parts=tuple, tool_calls=_each(_reader(ToolCall)))
_chunk = _reader(Chunk, data=_bytes)
_exchange = _reader(Exchange, request_body=_bytes, chunks=_each(_chunk))
_READERS = {"tool_call": _reader(RecordedToolCall), "exchange": _exchange}


def _model_call_reader(messages: dict[bytes, Message]) -> Callable[[Any], Any]:
    """Make the reader of model calls; equal messages of several requests become the same object.

    Args:
        messages: The messages so far, by their content.
    """

    def message(values: Any) -> Message:
        key = marshal.dumps(values, 2)  # a version without references: equal bytes, equal values
        if key not in messages:
            messages[key] = _message(values)
        return messages[key]

    return _reader(
        RecordedModelCall,
        request=_reader(RecordedRequest, messages=_each(message), tools=tuple),
        answer=_message,
        exchange=_exchange,
        choices=_each(_message),
        usage=_reader(Usage),
    )
