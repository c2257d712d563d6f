"""The JSON documents in a zip archive, such as a log of Inspect.

Members are deflated, stored, or compressed by zstd, which Python reads only from version 3.14.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple
from zipfile import BadZipFile, ZipFile, ZipInfo

from ..base.errors import InputError
from .compression import LimitExceeded, unzstd
from .incremental_json import MAX_VALUE
from .otlp import parse_json

__all__ = ["MAGIC", "MemberDocument", "documents"]

MAGIC = b"PK\x03\x04"
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


def documents(file: BinaryIO) -> Iterator[MemberDocument]:
    """Yield the JSON documents of an archive, the header first.

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
