from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from oteval.base.errors import NotAStore, StoreError, StoreLocked, StoreTooNew
from oteval.store import Store
from oteval.store.connection import connect_in_memory
from oteval.store.migrations import migrate, newest

from ..make import ROOT, span
from ..prepared_schema import CONNECT_IN_MEMORY, MIGRATE, prepared_schema


@pytest.fixture(autouse=True)
def migrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Migrate the databases of this module, as in use, instead of copying a prepared schema."""
    monkeypatch.setattr(MIGRATE, migrate)
    monkeypatch.setattr(CONNECT_IN_MEMORY, connect_in_memory)


def foreign(path: Path, *statements: str) -> Path:
    """Create a DuckDB file without oteval."""
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            connection.execute(statement)
    return path


def reason(path: Path | str, kind: type[StoreError], *, create: bool = True) -> str:
    """Return the one line that says why a path cannot be opened."""
    with pytest.raises(StoreError) as caught:
        Store(path, create=create)
    assert type(caught.value) is kind
    text = str(caught.value)
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")


def test_a_new_file_has_the_newest_schema(tmp_path: Path):
    """Each migration is applied once, and reopening applies none."""
    for _ in range(2):
        Store(tmp_path / "x.duckdb").close()

    with duckdb.connect(str(tmp_path / "x.duckdb")) as connection:
        numbers = connection.execute("SELECT number FROM migrations").fetchall()
    assert numbers == [(number,) for number in range(1, newest() + 1)]


def schema(path: Path) -> list[object]:
    """Return all that a database file has: tables, views, indexes, and the rows."""
    with duckdb.connect(str(path), read_only=True) as connection:
        found = [
            connection.execute(f"SELECT {columns} FROM {kind}() ORDER BY ALL").fetchall()
            for kind, columns in {
                "duckdb_tables": "table_name, sql",
                "duckdb_views": "view_name, sql",
                "duckdb_indexes": "index_name, table_name, expressions, sql",
                "duckdb_columns": "* EXCLUDE (database_name, database_oid, table_oid, schema_oid)",
            }.items()
        ]
        tables = connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        rows = {
            table: connection.execute(f'SELECT * FROM "{table}"').fetchall()
            for (table,) in tables
            if table != "migrations"
        }
        numbers = connection.execute("SELECT number FROM migrations").fetchall()
    return [*found, rows, numbers]


def without_compression(schema: list[object]) -> str:
    """Return a schema as text, without the compression of columns."""
    return repr(schema).replace(" USING COMPRESSION ZSTD", "")


def test_a_new_file_has_the_schema_of_one_that_was_migrated_step_by_step(tmp_path: Path):
    """One transaction with all migrations gives the schema of a transaction for each.

    Only the compression of texts is declared for new databases alone. The schema that other tests
    copy is that of new databases.
    """
    Store(tmp_path / "new.duckdb").close()
    Store(foreign(tmp_path / "old.duckdb", "SELECT 1")).close()
    with prepared_schema(lambda: tmp_path):
        Store(tmp_path / "copied.duckdb").close()

    new = schema(tmp_path / "new.duckdb")
    assert schema(tmp_path / "copied.duckdb") == new
    assert without_compression(new) == without_compression(schema(tmp_path / "old.duckdb"))


def test_a_database_in_memory_is_new_each_time(tmp_path: Path):
    """Where tests share a DuckDB, each store is empty and can do no more than one in use.

    Two that are open at once have nothing in common.
    """
    with Store() as in_use:
        expected = opened(in_use)
    with prepared_schema(lambda: tmp_path):
        for _ in range(2):
            with Store() as one, Store() as other:
                assert opened(one) == opened(other) == expected
                one.spans.write([span(1, 1)])
                assert other.spans.count() == (0, 0)


# What `connect` sets; DuckDB derives others, such as the size of its temporary files, from the
# machine.
SETTINGS = (
    *("allowed_configs", "allowed_directories", "allowed_paths", "enable_external_access"),
    *("autoinstall_known_extensions", "autoload_known_extensions", "lock_configuration"),
    *("checkpoint_threshold", "max_vacuum_tasks", "memory_limit", "preserve_insertion_order"),
)


def opened(store: Store) -> list[object]:
    """Return what a store in memory contains, and the settings of its connection."""
    queries = (
        "SELECT table_name, sql FROM duckdb_tables() WHERE database_name = 'store' ORDER BY ALL",
        "SELECT view_name, sql FROM duckdb_views() WHERE database_name = 'store' ORDER BY ALL",
        "SELECT index_name, sql FROM duckdb_indexes() WHERE database_name = 'store' ORDER BY ALL",
        f"SELECT name, value FROM duckdb_settings() WHERE name IN {SETTINGS} ORDER BY ALL",
        "SELECT number FROM migrations",
    )
    connection = store._connection
    found: list[object] = [connection.execute(query).fetchall() for query in queries]
    return [*found, store.spans.count(), store.trajectories.count()]


def test_a_reopened_store_has_its_rows(tmp_path: Path):
    """Leaving the with block closes the store, and the file keeps its rows."""
    with Store(tmp_path / "x.duckdb") as store:
        store.spans.write([span(1, 1)])

    with Store(tmp_path / "x.duckdb", create=False) as store:
        assert store.spans.count() == (1, 0)


def test_an_empty_database_becomes_a_store(tmp_path: Path):
    """A DuckDB file without tables becomes a store."""
    path = foreign(tmp_path / "x.duckdb", "SELECT 1")

    with Store(path) as store:
        assert store.spans.count() == (0, 0)


def test_a_newer_schema_is_refused(tmp_path: Path):
    """A database of a newer oteval is not changed, and the message says how to proceed."""
    path = tmp_path / "x.duckdb"
    Store(path).close()
    foreign(path, "INSERT INTO migrations VALUES (99, now()::TIMESTAMP)")

    assert reason(path, StoreTooNew) == (
        f"its schema is number 99, and this oteval knows {newest()}; "
        "upgrade oteval (pip install -U oteval) or give another --db"
    )


@pytest.mark.parametrize("content", [b"", b"garbage", b"SQLite format 3\0" + b"\0" * 4096])
def test_other_files_are_refused(tmp_path: Path, content: bytes):
    """Files of other kinds, and an empty one, are refused."""
    path = tmp_path / "x.duckdb"
    path.write_bytes(content)

    assert reason(path, NotAStore) == "not an oteval database; give another --db"


@pytest.mark.parametrize("table", ["orders(id INT)", "migrations(id INT, name TEXT)"])
def test_a_database_of_another_program_is_refused(tmp_path: Path, table: str):
    """A DuckDB file with other tables is not changed, even with one named migrations."""
    path = foreign(tmp_path / "x.duckdb", f"CREATE TABLE {table}")

    name = table.split("(")[0]
    assert reason(path, NotAStore) == f"a DuckDB database of another program (tables {name})"


def test_a_folder_is_refused(tmp_path: Path):
    """A folder in place of the file is refused."""
    assert reason(tmp_path, NotAStore) == "not an oteval database; give another --db"


def test_a_missing_folder_is_named(tmp_path: Path):
    """The message says that the folder of the database is missing."""
    assert reason(tmp_path / "no" / "x.duckdb", StoreError) == (
        "its folder does not exist; create it first"
    )


def test_a_missing_file_is_not_created_for_reading(tmp_path: Path):
    """Reading from a missing database says how to create one."""
    path = tmp_path / "x.duckdb"

    assert reason(path, StoreError, create=False) == (
        "no such database; load traces first: oteval ingest FILE"
    )
    assert not path.exists()


def test_an_empty_name_is_refused():
    """An empty name does not become a temporary database in memory."""
    assert reason("", StoreError) == "the database's name is empty; give --db FILE"


def test_a_locked_database_names_the_process(tmp_path: Path):
    """The message names the process that has the file open."""
    path = tmp_path / "x.duckdb"
    code = (
        "import sys; from oteval.store import Store; store = Store(sys.argv[1]); "
        "print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"

        text = reason(path, StoreLocked)

        holder.communicate()
    assert f"process {holder.pid} (" in text
    assert text.endswith("holds it; stop that process, or give another --db")


def test_a_database_is_opened_once_in_a_process(tmp_path: Path):
    """A second store on the same file is refused."""
    path = tmp_path / "x.duckdb"
    with Store(path):
        assert reason(path, StoreLocked) == "this process has it open already"


def test_row_groups_are_small_and_duckdb_1_5_reads_the_file(tmp_path: Path):
    """A new file has row groups of 2,048 rows and a storage version that DuckDB 1.5 reads."""
    path = tmp_path / "x.duckdb"
    with Store(path) as store:
        store.spans.write([span(1, number, 1) for number in range(20_000)])
        groups = store._connection.execute(
            "SELECT count(DISTINCT row_group_id) FROM pragma_storage_info('spans')"
        ).fetchall()
        tags = store._connection.execute(
            "SELECT tags FROM duckdb_databases() WHERE database_name = 'store'"
        ).fetchall()

    assert groups == [(10,)]
    assert "v1.5.0" in str(tags)


@pytest.mark.parametrize(
    "query", ["SELECT * FROM read_text('{}')", "COPY (SELECT 1) TO '{}'", "ATTACH '{}' AS other"]
)
def test_queries_cannot_reach_files(store: Store, tmp_path: Path, query: str):
    """The connection of a store can neither read nor write files."""
    path = tmp_path / "x.txt"
    path.write_text("x")

    with pytest.raises(duckdb.PermissionException):
        store._connection.execute(query.format(path))


@pytest.mark.parametrize(
    "setting",
    [
        "enable_external_access = true",
        "max_temp_directory_size = '1TB'",
        "lock_configuration = false",
    ],
)
def test_settings_cannot_be_changed_later(store: Store, setting: str):
    """The configuration is locked once the store is open."""
    with pytest.raises(duckdb.Error, match="locked"):
        store._connection.execute(f"SET {setting}")


def test_the_log_of_a_database_that_was_moved_away_is_put_aside(tmp_path: Path):
    """A new database at the same path opens, and the log of the old one is kept."""
    path = tmp_path / "traces.duckdb"
    log = Path(f"{path}.wal")
    log.write_bytes(b"rows of a database that is gone")

    with Store(path) as store:
        assert store.trajectories.count() == 0

    (stray,) = tmp_path.glob("traces.duckdb.wal.stray-*")
    assert stray.read_bytes() == b"rows of a database that is gone"
