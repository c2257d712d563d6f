"""A database that another process has open, used over that process' socket.

`RemoteConnection` has as much of DuckDB's connection as the store uses, so that every part of a
`Store` works by it unchanged. Only who may open the database's file may open the socket.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from ..errors import StoreError
from .frames import pack, packed_table, read_frame, unpacked_table

__all__ = ["RemoteConnection", "notice_path", "remote"]

_TIMEOUT = 5.0


def notice_path(database: str | Path) -> Path:
    """Return the small file beside a database that says which process serves it."""
    return Path(f"{database}.server.json")


def remote(database: str) -> RemoteConnection | None:
    """Return a connection by the process that serves a database; None where none does."""
    try:
        notice = json.loads(notice_path(database).read_bytes())
        return RemoteConnection(str(notice["socket"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


class _Relation:
    """The result of a query, not fetched yet."""

    def __init__(self, connection: RemoteConnection, query: str, params: Any) -> None:
        self._connection = connection
        self._asked = {"query": query, "params": params}

    def to_arrow_table(self) -> pa.Table:
        return self._connection._table(self._asked)

    def to_arrow_reader(self, size: int) -> pa.RecordBatchReader:
        return self._connection._reader({**self._asked, "size": size})

    def fetchall(self) -> list[tuple[Any, ...]]:
        return _rows(self.to_arrow_table())


class RemoteConnection:
    """As much of a DuckDB connection as the store uses."""

    def __init__(self, path: str) -> None:
        """Connect.

        Raises:
            OSError: Nobody listens there.
        """
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(_TIMEOUT)
            self._socket.connect(path)
            self._socket.settimeout(None)
        except OSError:
            self._socket.close()
            raise
        self._result: pa.Table | None = None

    def execute(self, query: str, params: Any = None) -> RemoteConnection:
        """Run a statement; its result is there at once."""
        self._result = self._table({"query": query, "params": params})
        return self

    def executemany(self, query: str, rows: Sequence[Any]) -> RemoteConnection:
        """Run a statement for each row of values."""
        for params in rows:
            self.execute(query, params)
        return self

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows of what was run last."""
        return [] if self._result is None else _rows(self._result)

    def sql(self, query: str, params: Any = None) -> _Relation:
        """Return a query, run when its result is asked for."""
        return _Relation(self, query, params)

    def register(self, name: str, table: pa.Table) -> None:
        """Give a table a name in queries."""
        self._ask({"op": "register", "name": name}, [packed_table(table)])

    def unregister(self, name: str) -> None:
        """Take the name away again."""
        self._ask({"op": "unregister", "name": name})

    def begin(self) -> None:
        """Begin a transaction."""
        self.execute("BEGIN TRANSACTION")

    def commit(self) -> None:
        """Commit it."""
        self.execute("COMMIT")

    def rollback(self) -> None:
        """Undo it."""
        self.execute("ROLLBACK")

    def cursor(self) -> RemoteConnection:
        """Return another connection to the same database."""
        return RemoteConnection(self._path)

    def close(self) -> None:
        """Close the connection; a transaction under way is undone."""
        self._socket.close()

    def __del__(self) -> None:
        self._socket.close()

    def ask(self, question: Mapping[str, Any]) -> bytes:
        """Ask the serving process for something that is no query, and return its answer."""
        _, blobs = self._ask({"op": "ask", "question": dict(question)})
        return blobs[0]

    def _table(self, asked: Mapping[str, Any]) -> pa.Table:
        _, blobs = self._ask({"op": "execute", **asked})
        return unpacked_table(blobs[0]) if blobs else pa.table({})

    def _reader(self, asked: Mapping[str, Any]) -> pa.RecordBatchReader:
        self._send({"op": "stream", **asked})
        _, blobs = self._receive()
        schema = unpacked_table(blobs[0]).schema
        return pa.RecordBatchReader.from_batches(schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while True:
            _, blobs = self._receive()
            if not blobs:
                return
            yield from unpacked_table(blobs[0]).to_batches()

    def _ask(
        self, header: dict[str, Any], blobs: Sequence[Any] = ()
    ) -> tuple[dict[str, Any], list[bytes]]:
        self._send(header, blobs)
        return self._receive()

    def _send(self, header: dict[str, Any], blobs: Sequence[Any] = ()) -> None:
        try:
            for part in pack(header, blobs):
                self._socket.sendall(part)
        except OSError as error:
            raise StoreError(f"the server that has the database is gone ({error})") from error

    def _receive(self) -> tuple[dict[str, Any], list[bytes]]:
        try:
            found = read_frame(self._socket)
        except OSError as error:
            raise StoreError(f"the server that has the database is gone ({error})") from error
        if found is None:
            raise StoreError("the server that has the database is gone; try again")
        if "error" in found[0]:
            raise duckdb.Error(found[0]["error"])
        return found


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [[_plain(value) for value in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True))


def _plain(value: Any) -> Any:
    """Return a value as DuckDB itself gives it: sums are integers, not decimals."""
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    return value
