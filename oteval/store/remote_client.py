"""The database of another process, used through the server that has it open.

The server listens on a Unix socket. The notice, a small file beside the database, names it. Only
users who may open the database may open the socket. `RemoteConnection` has the methods of DuckDB's
connection that the store calls, so every part of a `Store` works with either.

Requests and answers are frames: the length of a header, the header as JSON, and byte strings whose
sizes are in the header. A request names its operation, "execute", "stream" or "ask"; tables are
Arrow streams.

A request may also have the tables to register before its operation (``tables``, with the first byte
strings) and the names to remove (``dropped``). This saves frames, because each frame to a busy
server waits for its turn.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa

from ..base.errors import StoreError

__all__ = [
    "RemoteConnection",
    "ServerNotice",
    "connect_remote",
    "frame",
    "notice_path",
    "packed_table",
    "read_frame",
    "unpacked_table",
]

_TIMEOUT = 5.0
_LENGTH = struct.Struct("<I")
_MAX_HEADER = 64 << 20


def notice_path(database: str | Path) -> Path:
    """The file beside a database that names the process that serves it."""
    return Path(f"{database}.server.json")


@dataclass(frozen=True, slots=True)
class ServerNotice:
    """The process that serves a database, from the notice beside the database.

    Attributes:
        socket: The path of its socket.
        program: Its command, such as ``oteval view``.
        takes_traces: Whether it receives traces, stores them and reconstructs trajectories. Only
            one process may do so; other processes send it the traces.
        http: The URL of its HTTP server, or "".
        token: The token with which this user's processes may send traces, or "".
        pid: Its process id.
    """

    socket: str
    program: str
    takes_traces: bool
    http: str
    token: str
    pid: int

    @classmethod
    def beside(cls, database: str) -> ServerNotice | None:
        """The notice beside a database; None if it is missing or cannot be read."""
        try:
            entries = json.loads(notice_path(database).read_bytes())
            return cls(
                str(entries["socket"]),
                str(entries.get("program", "oteval serve")),
                bool(entries.get("takes_traces", "http" in entries)),
                str(entries.get("http", "")),
                str(entries.get("token", "")),
                int(entries.get("pid", 0)),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None


def connect_remote(database: str) -> RemoteConnection | None:
    """A connection through the process that serves a database, or None without one."""
    notice = ServerNotice.beside(database)
    if notice is None:
        return None
    try:
        return RemoteConnection(notice)
    except OSError:
        return None


class _RemoteRelation:
    """The result of a query that runs when the result is fetched."""

    def __init__(self, connection: RemoteConnection, query: str, params: Any) -> None:
        self._connection = connection
        self._request = {"query": query, "params": params}

    def to_arrow_table(self) -> pa.Table:
        return self._connection._table(self._request)

    def to_arrow_reader(self, size: int) -> pa.RecordBatchReader:
        return self._connection._reader({**self._request, "size": size})

    def fetchall(self) -> list[tuple[Any, ...]]:
        return _rows(self.to_arrow_table())


class RemoteConnection:
    """A connection with the methods of DuckDB's connection that the store calls.

    Attributes:
        notice: The server.
    """

    def __init__(self, notice: ServerNotice) -> None:
        """Connect to a server.

        Args:
            notice: The server.

        Raises:
            OSError: No process listens on its socket.
        """
        self.notice = notice
        self._path = path = notice.socket
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(_TIMEOUT)
            self._socket.connect(path)
            self._socket.settimeout(None)
        except OSError:
            self._socket.close()
            raise
        self._result: pa.Table | None = None
        # Tables to register, and names to forget, with the next request.
        self._tables: dict[str, pa.Table] = {}
        self._dropped: set[str] = set()

    def execute(self, query: str, params: Any = None) -> RemoteConnection:
        """Run a statement and fetch its result."""
        self._result = self._table({"query": query, "params": params})
        return self

    def executemany(self, query: str, rows: Sequence[Any]) -> RemoteConnection:
        """Run a statement for each row of values."""
        for params in rows:
            self.execute(query, params)
        return self

    def fetchall(self) -> list[tuple[Any, ...]]:
        """The rows of the last statement."""
        return [] if self._result is None else _rows(self._result)

    def sql(self, query: str, params: Any = None) -> _RemoteRelation:
        """A query that runs when its result is fetched."""
        return _RemoteRelation(self, query, params)

    def register(self, name: str, table: pa.Table) -> None:
        """Let queries use an Arrow table by a name."""
        self._tables[name] = table

    def unregister(self, name: str) -> None:
        """Remove the name of a registered table."""
        self._tables.pop(name, None)
        self._dropped.add(name)

    def begin(self) -> None:
        """Begin a transaction."""
        self.execute("BEGIN TRANSACTION")

    def commit(self) -> None:
        """Commit the transaction."""
        self.execute("COMMIT")

    def rollback(self) -> None:
        """Undo the transaction."""
        self.execute("ROLLBACK")

    def cursor(self) -> RemoteConnection:
        """Another connection to the same database."""
        return RemoteConnection(self.notice)

    def close(self) -> None:
        """Close the connection and undo its open transaction."""
        self._socket.close()

    def __del__(self) -> None:
        self._socket.close()

    def ask(self, question: Mapping[str, Any]) -> bytes:
        """The server's answer to a question that is not SQL; see `DatabaseServer`."""
        self._send({"op": "ask", "question": dict(question)})
        return self._receive()[0]

    def _table(self, request: Mapping[str, Any]) -> pa.Table:
        self._send({"op": "execute", **request})
        blobs = self._receive()
        return unpacked_table(blobs[0]) if blobs else pa.table({})

    def _reader(self, request: Mapping[str, Any]) -> pa.RecordBatchReader:
        self._send({"op": "stream", **request})
        blobs = self._receive()
        schema = unpacked_table(blobs[0]).schema
        return pa.RecordBatchReader.from_batches(schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while True:
            blobs = self._receive()
            if not blobs:
                return
            yield from unpacked_table(blobs[0]).to_batches()

    def _send(self, request: Mapping[str, Any]) -> None:
        tables, dropped = self._tables, self._dropped
        self._tables, self._dropped = {}, set()
        header = {**request, "tables": [*tables], "dropped": [*dropped]}
        try:
            for part in frame(header, [packed_table(table) for table in tables.values()]):
                self._socket.sendall(part)
        except OSError as error:
            raise self._lost(str(error)) from error

    def _receive(self) -> list[bytes]:
        """The byte strings of the next answer."""
        try:
            frame = read_frame(self._socket)
        except OSError as error:
            raise self._lost(str(error)) from error
        if frame is None:
            raise self._lost("it closed the connection")
        if "error" in frame[0]:
            raise duckdb.Error(frame[0]["error"])
        return frame[1]

    def _lost(self, reason: str) -> StoreError:
        return StoreError(f"{self._path}: lost the server that has the database ({reason}); retry")


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [[_plain(value) for value in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True))


def _plain(value: Any) -> Any:
    """A value as `fetchall` of DuckDB returns it: sums are integers, not decimals."""
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    return value


def frame(header: dict[str, Any], blobs: Sequence[bytes | pa.Buffer] = ()) -> list[Any]:
    """The parts of a frame in the order in which to send them."""
    head = orjson.dumps({**header, "sizes": [len(blob) for blob in blobs]})
    return [_LENGTH.pack(len(head)) + head, *blobs]


def read_frame(sock: socket.socket) -> tuple[dict[str, Any], list[bytes]] | None:
    """The next frame's header and byte strings, or None if the other side has closed.

    Raises:
        ConnectionError: The other side closed in the middle of a frame.
        ValueError: The other side sent something other than a frame.
    """
    first = _exactly(sock, _LENGTH.size, at_start=True)
    if first is None:
        return None
    (length,) = _LENGTH.unpack(first)
    if length > _MAX_HEADER:
        raise ValueError("not a frame")
    head = orjson.loads(_exactly(sock, length) or b"{}")
    return head, [_exactly(sock, size) or b"" for size in head.pop("sizes", [])]


def _exactly(sock: socket.socket, size: int, *, at_start: bool = False) -> bytes | None:
    out = bytearray(size)
    view = memoryview(out)
    done = 0
    while done < size:
        received = sock.recv_into(view[done:])
        if not received:
            if at_start and not done:
                return None
            raise ConnectionError("the connection closed in the middle of a frame")
        done += received
    return bytes(out)


def packed_table(table: pa.Table) -> pa.Buffer:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def unpacked_table(data: bytes) -> pa.Table:
    """The table of an Arrow stream."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()
