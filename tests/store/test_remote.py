"""A database that another process has open: its connection behaves as DuckDB's does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from oteval.store.query import registered, wanted
from oteval.store.remote_client import RemoteConnection, connect_remote
from oteval.store.remote_server import DatabaseServer


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[RemoteConnection]:
    """Return a connection through the server of a database with one table."""
    path = tmp_path / "traces.duckdb"
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{path}' AS store")
        connection.execute("USE store")
        connection.execute(
            "CREATE TABLE runs AS SELECT 'r' || number AS id FROM range(5) t(number)"
        )
        server = DatabaseServer(connection, path, lambda _: b"answer", {})
        found = connect_remote(str(path))
        assert found is not None
        yield found
        found.close()
        server.close()


def chosen(connection: RemoteConnection) -> list[str]:
    """Return the runs that the registered table names."""
    rows = connection.execute("SELECT id FROM runs SEMI JOIN wanted USING (id) ORDER BY id")
    return [name for (name,) in rows.fetchall()]


def test_registered_tables_are_those_of_the_block(remote: RemoteConnection):
    """A query in a block sees its table, also a second query, and the next block another one."""
    with wanted(remote, "id", ["r1", "r3", "other"]):
        assert chosen(remote) == ["r1", "r3"]
        assert chosen(remote) == ["r1", "r3"]
    with wanted(remote, "id", ["r2"]):
        assert remote.sql("SELECT count(*) FROM wanted").fetchall() == [(1,)]
        assert chosen(remote) == ["r2"]
    with pytest.raises(duckdb.Error, match="wanted"):
        chosen(remote)


def test_a_stream_reads_registered_tables(remote: RemoteConnection):
    """Batches come from a query on the table of the block, and tables are not shared."""
    table = pa.table({"id": [f"r{number}" for number in range(4)]})
    with registered(remote, "wanted", table):
        query = "SELECT id FROM runs SEMI JOIN wanted USING (id) ORDER BY id"
        found = remote.sql(query).to_arrow_reader(2).read_all()
        assert found["id"].to_pylist() == ["r0", "r1", "r2", "r3"]
        with pytest.raises(duckdb.Error, match="wanted"):
            chosen(remote.cursor())


def test_a_failed_transaction_can_be_undone(remote: RemoteConnection):
    """An error within a block and a transaction leaves a connection that works."""

    def fail() -> None:
        with wanted(remote, "id", ["r1"]):
            remote.execute("INSERT INTO runs SELECT id FROM wanted")
            remote.execute("SELECT * FROM nowhere")

    remote.begin()
    with pytest.raises(duckdb.Error, match="nowhere"):
        fail()
    remote.rollback()
    with wanted(remote, "id", ["r4"]):
        assert chosen(remote) == ["r4"]
    assert remote.sql("SELECT count(*) FROM runs").fetchall() == [(5,)]


def test_a_table_that_no_query_used_is_forgotten(remote: RemoteConnection):
    """Questions that are not SQL pass, and the next query does not see the table."""
    with wanted(remote, "id", ["r1"]):
        pass
    assert remote.ask({"about": "anything"}) == b"answer"
    with pytest.raises(duckdb.Error, match="wanted"):
        chosen(remote)
