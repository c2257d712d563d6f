"""Gives new databases of the tests their schema from a prepared file.

The migrations take some 50 ms of each test that opens a new database, and copying the schema takes
5 ms. `tests/store/test_opening.py` opens its databases with the migrations, and proves that both
schemas are equal. Processes that tests start run the migrations too.
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
from oteval.store.migrations import migrate

__all__ = ["MIGRATE", "prepared_schema"]

# The name by which a database that is opened gets its schema.
MIGRATE = f"{opening.__name__}.migrate"


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
            self._copy(connection)

    def _copy(self, connection: Any) -> None:
        connection.execute(f"ATTACH '{self._file()}' AS prepared (TYPE duckdb, READ_ONLY)")
        connection.begin()
        connection.execute("COPY FROM DATABASE prepared TO store (SCHEMA)")
        for table in self._filled:
            connection.execute(f"INSERT INTO {table} FROM prepared.{table}")
        connection.commit()
        connection.execute("DETACH prepared")

    def _file(self) -> Path:
        if self._path is None:
            path = self._folder() / "prepared.duckdb"
            with duckdb.connect() as made:
                made.execute(f"ATTACH '{path}' AS store (TYPE duckdb)")
                made.execute("USE store")
                migrate(made, str(path), is_new=True)
                self._filled = [
                    name
                    for (name,) in made.execute(
                        "SELECT table_name FROM duckdb_tables() "
                        "WHERE database_name = 'store' AND estimated_size > 0"
                    ).fetchall()
                ]
            self._path = path
        return self._path


@contextmanager
def prepared_schema(folder: Callable[[], Path]) -> Iterator[None]:
    """Give databases that are created in this process the prepared schema.

    Args:
        folder: Creates the folder of the prepared file, when that is needed first.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MIGRATE, _PreparedSchema(folder))
        yield
