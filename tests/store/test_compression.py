"""Texts that repeat each other take little space in new databases, and in old ones once compact."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from oteval.model import Span
from oteval.store import Store
from oteval.store.connection import connect_in_memory
from oteval.store.migrations import migrate

from ..make import chat
from ..prepared_schema import CONNECT_IN_MEMORY, MIGRATE


@pytest.fixture(autouse=True)
def migrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Migrate new databases, as in use, instead of copying a prepared schema."""
    monkeypatch.setattr(MIGRATE, migrate)
    monkeypatch.setattr(CONNECT_IN_MEMORY, connect_in_memory)


LONG = {
    "spans": {"input", "output", "attributes", "events"},
    "logs": {"body", "attributes"},
    "trajectories": {"messages", "steps", "tools", "gaps", "rewrites", "attributes", "documents"},
}


def conversation() -> list[Span]:
    """Return model calls that each repeat the messages and tool definitions before them."""
    chance = random.Random(1)
    definitions = chance.randbytes(20_000).hex()
    prompt: list[tuple[str, str]] = []
    spans = []
    for number in range(1, 101):
        prompt.append(("user", chance.randbytes(500).hex()))
        spans.append(chat(1, number, prompt, "yes", **{"gen_ai.tool.definitions": definitions}))
    return spans


def old_database(path: Path) -> None:
    """Create a database as oteval did before it declared a compression."""
    with duckdb.connect(path) as connection:
        migrate(connection, str(path))


def columns(path: Path) -> dict[tuple[str, str], Any]:
    """Return the type and the constraint of each column."""
    with duckdb.connect(path, read_only=True) as connection:
        rows = connection.execute(
            "SELECT table_name, column_name, column_index, data_type, is_nullable, column_default "
            "FROM duckdb_columns() WHERE NOT internal"
        ).fetchall()
    return {(table, column): definition for table, column, *definition in rows}


def compressed(path: Path) -> dict[str, set[str]]:
    """Fill the tables of a copy, and return the columns that DuckDB compressed with zstd."""
    copy = path.with_name("copy.duckdb")
    shutil.copyfile(path, copy)
    with duckdb.connect(copy) as connection:
        for table in LONG:
            texts = connection.execute(
                "SELECT column_name FROM duckdb_columns() "
                "WHERE table_name = ? AND (data_type = 'VARCHAR' OR NOT is_nullable)",
                [table],
            ).fetchall()
            values = ", ".join(f'i AS "{name}"' for (name,) in texts)
            connection.execute(f"INSERT INTO {table} BY NAME SELECT {values} FROM range(3000) r(i)")
        connection.execute("FORCE CHECKPOINT")
        return {
            table: {
                name
                for (name,) in connection.execute(
                    "SELECT column_name FROM pragma_storage_info(?) WHERE compression = 'ZSTD'",
                    [table],
                ).fetchall()
            }
            for table in LONG
        }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a database that does not exist yet."""
    return tmp_path / "x.duckdb"


def test_a_new_database_compresses_long_texts_and_has_the_schema_of_a_migrated_one(path: Path):
    """Only the compression of a new database differs from that of one that was migrated."""
    old = path.with_name("old.duckdb")
    old_database(old)

    Store(path).close()

    assert compressed(path) == LONG
    assert columns(path) == columns(old)


def test_texts_that_are_repeated_take_little_space(path: Path):
    """A database is less than a fifth of the texts, and half of one without the compression."""
    old = path.with_name("old.duckdb")
    old_database(old)
    spans = conversation()
    for database in (path, old):
        with Store(database) as store:
            store.spans.write(spans)

    size = path.stat().st_size
    assert size < sum(len(str(span.attributes)) for span in spans) / 5
    assert size < old.stat().st_size / 2


def test_compaction_compresses_a_database_of_an_older_version(path: Path):
    """Rows are unchanged, the file is smaller, and rows loaded later are compressed too."""
    old_database(path)
    spans = conversation()
    with Store(path) as store:
        store.spans.write(spans)
        before = store.spans.of_traces([spans[0].trace_id])

    done = Store(path).compact()

    assert compressed(path) == LONG
    assert done.after < done.before / 2
    with Store(path) as store:
        assert store.spans.of_traces([spans[0].trace_id]) == before
