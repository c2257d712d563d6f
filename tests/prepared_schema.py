"""Gives new databases of the tests their schema from a prepared one.

Starting DuckDB takes 15 ms of CPU time of each test that opens a database, and the migrations take
some 50 ms. So databases in memory share a DuckDB that was started once, with the settings and locks
of a store, and a new file gets a copy of the schema. `tests/store/test_opening.py` opens its
databases as in use, and proves that all have the same schema. Processes that tests start open
theirs as in use, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from oteval.store import connection as opening
from oteval.store.connection import connect_in_memory
from oteval.store.migrations import migrate

__all__ = ["CONNECT_IN_MEMORY", "MIGRATE", "prepared_schema"]

# The names by which a file gets its schema when it is opened, and by which a database in memory is
# created.
MIGRATE = f"{opening.__name__}.migrate"
CONNECT_IN_MEMORY = f"{opening.__name__}.{connect_in_memory.__name__}"


def _filled_tables(connection: Any, database: str) -> list[str]:
    """Return the tables that the migrations fill."""
    rows = connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = ? AND estimated_size > 0",
        [database],
    ).fetchall()
    return [name for (name,) in rows]


def _copy(connection: Any, source: str, filled: list[str]) -> None:
    """Give the empty database of a store the schema of another, and the rows of some tables."""
    connection.begin()
    connection.execute(f"COPY FROM DATABASE {source} TO store (SCHEMA)")
    for table in filled:
        connection.execute(f"INSERT INTO store.{table} FROM {source}.{table}")
    connection.commit()


class _PreparedSchema:
    """A database file without rows but those of the migrations; created when it is needed first."""

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder
        self._path: Path | None = None
        self._filled: list[str] = []
        # Two threads may open databases at once.
        self._lock = threading.Lock()

    def __call__(self, connection: Any, path: str, *, is_new: bool = False) -> None:
        """Do what `migrate` does."""
        if not is_new:
            migrate(connection, path)
            return
        with self._lock:
            connection.execute(f"ATTACH '{self._file()}' AS prepared (TYPE duckdb, READ_ONLY)")
            _copy(connection, "prepared", self._filled)
            connection.execute("DETACH prepared")

    def _file(self) -> Path:
        if self._path is None:
            path = self._folder() / "prepared.duckdb"
            with duckdb.connect() as made:
                made.execute(f"ATTACH '{path}' AS store (TYPE duckdb)")
                made.execute("USE store")
                migrate(made, str(path), is_new=True)
                self._filled = _filled_tables(made, "store")
            self._path = path
        return self._path


class _Instance:
    """A DuckDB that runs until the end of the tests, and gives one store at a time its database."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self._own = connect_in_memory(config)
        self._own.execute("ATTACH ':memory:' AS prepared (TYPE duckdb)")
        self._own.execute("COPY FROM DATABASE store TO prepared")
        self._own.execute("USE memory")
        self._filled = _filled_tables(self._own, "prepared")

    def is_free(self) -> bool:
        """Return whether all connections of the last store are closed, those of siblings too."""
        [[count]] = self._own.execute("FROM duckdb_connection_count()").fetchall()
        return bool(count == 1)

    def connect(self) -> duckdb.DuckDBPyConnection:
        """Return a connection to a new database."""
        self._own.execute("DETACH DATABASE IF EXISTS store")
        connection = self._own.cursor()
        connection.execute("ATTACH ':memory:' AS store (TYPE duckdb)")
        connection.execute("USE store")
        _copy(connection, "prepared", self._filled)
        return connection

    def close(self) -> None:
        self._own.close()


class _Instances:
    """The DuckDBs for databases in memory; a test that opens several at once needs as many."""

    def __init__(self) -> None:
        self._all: list[_Instance] = []
        self._lock = threading.Lock()

    def __call__(self, config: Any) -> duckdb.DuckDBPyConnection:
        """Do what `connect_in_memory` does."""
        with self._lock:
            for instance in self._all:
                if instance.config == config and instance.is_free():
                    return instance.connect()
            self._all.append(_Instance(config))
            return self._all[-1].connect()

    def close(self) -> None:
        """End them."""
        for instance in self._all:
            instance.close()


@contextmanager
def prepared_schema(folder: Callable[[], Path]) -> Iterator[None]:
    """Give databases that are created in this process the prepared schema.

    Args:
        folder: Creates the folder of the prepared file, when that is needed first.
    """
    instances = _Instances()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MIGRATE, _PreparedSchema(folder))
        patch.setattr(CONNECT_IN_MEMORY, instances)
        yield
    instances.close()
