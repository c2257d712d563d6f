"""What goes over the socket of a database that another process has open.

A frame is the length of a header, the header as JSON, and the bytes the header gives sizes of.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Any, Final

import orjson
import pyarrow as pa

__all__ = ["OPERATIONS", "pack", "packed_table", "read_frame", "unpacked_table"]

OPERATIONS: Final = ("execute", "stream", "register", "unregister", "ask")
_LENGTH = struct.Struct("<I")
_MAX_HEADER = 64 << 20


def pack(header: dict[str, Any], blobs: Sequence[bytes | pa.Buffer] = ()) -> list[Any]:
    """Return the parts of a frame, to be sent one after the other."""
    head = orjson.dumps({**header, "sizes": [len(blob) for blob in blobs]})
    return [_LENGTH.pack(len(head)) + head, *blobs]


def read_frame(sock: socket.socket) -> tuple[dict[str, Any], list[bytes]] | None:
    """Return the next frame's header and bytes; None where the other side has closed.

    Raises:
        ConnectionError: It closed in the middle of one.
        ValueError: It sent something else.
    """
    first = _exactly(sock, _LENGTH.size, at_start=True)
    if first is None:
        return None
    (length,) = _LENGTH.unpack(first)
    if length > _MAX_HEADER:
        raise ValueError("no frame")
    head = orjson.loads(_exactly(sock, length) or b"{}")
    return head, [_exactly(sock, size) or b"" for size in head.pop("sizes", [])]


def _exactly(sock: socket.socket, size: int, *, at_start: bool = False) -> bytes | None:
    out = bytearray(size)
    view = memoryview(out)
    done = 0
    while done < size:
        got = sock.recv_into(view[done:])
        if not got:
            if at_start and not done:
                return None
            raise ConnectionError("the connection ended early")
        done += got
    return bytes(out)


def packed_table(table: pa.Table) -> pa.Buffer:
    """Return a table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def unpacked_table(data: bytes) -> pa.Table:
    """Return the table of an Arrow stream."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()
