"""The server's side of `remote_client`: other processes use this process's database."""

from __future__ import annotations

import json
import logging
import os
import socket
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from ..base.errors import OtevalError
from ..base.files import KeptFile, file_identity, make_folder, write_private
from .memory import with_memory
from .query import new_cursor
from .remote_client import frame, notice_path, packed_table, read_frame, unpacked_table

__all__ = ["DatabaseServer", "QuestionHandler"]

QuestionHandler = Callable[[Mapping[str, Any]], bytes]
"""Answers a question that is not SQL, for instance for the metrics of a running server."""

_log = logging.getLogger(__name__)
# The path of a Unix socket may have 107 bytes.
_MAX_PATH = 100
# Seconds between two checks of the clients whose statements are running.
_HANGUP_INTERVAL = 0.25


class DatabaseServer:
    """Serves a database over a Unix socket that only its owner may open.

    Attributes:
        path: The socket.
        file: The file of the database.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        database: str | Path,
        handler: QuestionHandler,
        notice: Mapping[str, Any],
    ) -> None:
        """Listen, and write the notice by which other processes find the socket.

        Args:
            connection: The database. Each client gets a separate connection to it.
            database: Its file.
            handler: Answers questions that are not SQL; called in the client's thread.
            notice: Further entries of the notice.
        """
        self._connection = connection
        self._handler = handler
        self._notice_path = notice_path(database)
        self.path = str(Path(f"{database}.sock").absolute())
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if len(os.fsencode(self.path)) > _MAX_PATH:
            self._folder = tempfile.TemporaryDirectory(prefix="oteval-")
            self.path = str(Path(self._folder.name) / "db.sock")
        self._notice = {**notice, "socket": self.path, "pid": os.getpid()}
        self._lock = threading.Lock()
        self._hangups = _HangupWatch()
        self._is_closed = False
        self.file = KeptFile(Path(database))
        self._listen()

    def repair(self) -> None:
        """Create the socket and the notice again if they were deleted or replaced.

        Raises:
            OSError: They cannot be created.
        """
        with self._lock:
            if self._is_closed:
                return
            if file_identity(Path(self.path)) != self._bound:
                _log.warning("%s was deleted and is created again", self.path)
                self._stop_listening()
                self._listen()
            elif not self._notice_path.exists():
                self._write_notice()

    def close(self) -> None:
        """Stop listening, and remove the socket and the notice."""
        with self._lock:
            self._is_closed = True
        self._notice_path.unlink(missing_ok=True)
        self._stop_listening()
        Path(self.path).unlink(missing_ok=True)
        if self._folder is not None:
            with suppress(OSError):
                self._folder.cleanup()

    def _listen(self) -> None:
        make_folder(Path(self.path).parent)
        Path(self.path).unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)
        try:
            self._socket.bind(self.path)
        finally:
            os.umask(mask)
        self._bound = file_identity(Path(self.path))
        self._socket.listen(64)
        self._write_notice()
        args = (self._socket,)
        threading.Thread(target=self._accept, args=args, name="socket", daemon=True).start()

    def _stop_listening(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _write_notice(self) -> None:
        partial = self._notice_path.with_name(f"{self._notice_path.name}.{os.getpid()}")
        write_private(partial, json.dumps(self._notice))
        partial.replace(self._notice_path)

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        session = _ClientSession(self._connection, self._handler, client, self.file, self._hangups)
        try:
            while (frame := read_frame(client)) is not None:
                session.handle(*frame)
        except (OSError, ValueError):
            pass  # the client closed the connection
        except Exception:
            _log.exception("closed the connection of a database client after an error")
        finally:
            session.close()
            client.close()


class _HangupWatch:
    """Interrupts the statements of clients that have ended, so that nobody waits for them."""

    def __init__(self) -> None:
        self._busy: dict[int, tuple[socket.socket, duckdb.DuckDBPyConnection]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(
        self, client: socket.socket, connection: duckdb.DuckDBPyConnection
    ) -> Iterator[None]:
        """Interrupt the statement of a block if its client closes the connection."""
        with self._changed:
            self._busy[client.fileno()] = client, connection
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="hangups", daemon=True)
                self._thread.start()
            self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._busy.pop(client.fileno(), None)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._busy)
            time.sleep(_HANGUP_INTERVAL)
            self._interrupt_abandoned()

    def _interrupt_abandoned(self) -> None:
        with self._changed:
            for client, connection in self._busy.values():
                if _has_hung_up(client):
                    connection.interrupt()


def _has_hung_up(client: socket.socket) -> bool:
    """Whether a client that waits for an answer has closed its end."""
    try:
        return not client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


class _ClientSession:
    """The requests of one client."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        handler: QuestionHandler,
        client: socket.socket,
        file: KeptFile,
        hangups: _HangupWatch,
    ) -> None:
        self._parent, self._file, self._hangups = connection, file, hangups
        self._own: duckdb.DuckDBPyConnection | None = None
        self._handler = handler
        self._client = client

    def close(self) -> None:
        if self._own is not None:
            self._own.close()

    @property
    def _database(self) -> duckdb.DuckDBPyConnection:
        if self._own is None:
            self._own = new_cursor(self._parent)
        return self._own

    def handle(self, header: dict[str, Any], blobs: list[bytes]) -> None:
        try:
            self._register(header.get("tables", ()), blobs, dropped=header.get("dropped", ()))
            if header["op"] == "stream":
                self._stream(header)
                return
            answer = self._result(header)
        except (duckdb.Error, pa.ArrowException, OtevalError, KeyError, RuntimeError) as error:
            self._send({"error": str(error) or type(error).__name__}, [])
        else:
            self._send({}, answer)

    def _register(
        self, names: Sequence[str], blobs: Sequence[bytes], *, dropped: Sequence[str]
    ) -> None:
        for name in dropped:
            # A failed transaction refuses this until it is undone, and the request may undo it.
            with suppress(duckdb.Error):
                self._database.unregister(name)
        for name, blob in zip(names, blobs, strict=True):
            self._database.register(name, unpacked_table(blob))

    def _result(self, header: Mapping[str, Any]) -> list[Any]:
        operation = header["op"]
        if operation == "execute":
            # DuckDB 2 warns of a copy, which does not matter for results of this size.
            warnings.filterwarnings("ignore", message="Arrow output on a DB-API result")
            if header["query"].lstrip().startswith(("SELECT", "WITH", "(")):
                return with_memory(self._database, lambda: self._executed(header))
            self._file.require()
            return self._executed(header)
        if operation == "ask":
            return [self._handler(header["question"])]
        raise KeyError(f"unknown operation {operation!r}")

    def _executed(self, header: Mapping[str, Any]) -> list[Any]:
        with self._hangups.watching(self._client, self._database):
            relation = self._database.execute(header["query"], header["params"])
        return [packed_table(relation.to_arrow_table())] if relation.description else []

    def _stream(self, header: Mapping[str, Any]) -> None:
        # On the client's connection: the query may use tables that it has registered.
        result = self._database.sql(header["query"], params=header["params"] or [])
        batches = result.to_arrow_reader(header["size"])
        self._send({}, [packed_table(batches.schema.empty_table())])
        for batch in batches:
            self._send({}, [packed_table(pa.Table.from_batches([batch]))])
        self._send({}, [])

    def _send(self, header: dict[str, Any], blobs: list[Any]) -> None:
        for part in frame(header, blobs):
            self._client.sendall(part)
