"""One line for each way in which a database fails: corrupt, full, only to be read."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from oteval.base.errors import NotAStore, StoreCorrupt, StoreError
from oteval.scoring import refresh
from oteval.store import Store, connection
from oteval.store.problems import store_problem

from ..make import chat

BLOCK = 12_288
HEADER = 4096
Damage = Callable[[Path, bytes], None]


def garbage(length: int) -> bytes:
    """Return the same bytes in every run, which no program wrote."""
    return random.Random(length).randbytes(length)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database with runs, and one beside it whose last rows are in its log."""
    folder = tmp_path_factory.mktemp("sound")
    for name, count in (("x.duckdb", 300), ("w.duckdb", 10)):
        with Store(folder / name) as store:
            texts = (random.Random(number).randbytes(200).hex() for number in range(count))
            store.spans.write(
                [chat(n, n, [("user", text)], "answer") for n, text in enumerate(texts, 1)]
            )
            refresh(store)
    store = Store(folder / "w.duckdb")
    store.spans.write([chat(99, 99, [("user", "in the log")], "answer")])
    for suffix in ("", ".wal"):
        shutil.copy(folder / f"w.duckdb{suffix}", folder / f"killed.duckdb{suffix}")
    store.close()
    return folder


def cut(length: Callable[[int], int]) -> Damage:
    """Return the damage of a file that ends too early."""
    return lambda path, data: path.write_bytes(data[: length(len(data))]) and None


def replaced(begin: int, end: int | None, byte: Callable[[int], bytes]) -> Damage:
    """Return the damage of other bytes in a part of a file."""

    def damage(path: Path, data: bytes) -> None:
        until = len(data) if end is None else end
        path.write_bytes(data[:begin] + byte(until - begin) + data[until:])

    return damage


def sqlite(path: Path, _data: bytes) -> None:
    """Write a database of SQLite."""
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE a (b)")
    other.close()


CORRUPT: dict[str, Damage] = {
    "cut after 100 bytes": cut(lambda _: 100),
    "cut after a header": cut(lambda _: HEADER),
    "cut in the middle": cut(lambda size: size // 2),
    "cut at the end": cut(lambda size: size - 5000),
    "first header of zeros": replaced(0, HEADER, bytes),
    "first header of garbage": replaced(0, HEADER, garbage),
    "other headers of zeros": replaced(HEADER, BLOCK, bytes),
    "other headers of garbage": replaced(HEADER, BLOCK, garbage),
    "all blocks of garbage": replaced(BLOCK, None, garbage),
}
FOREIGN: dict[str, Damage] = {
    "empty": lambda path, _: path.write_bytes(b"") and None,
    "text": lambda path, _: path.write_text("hello\n" * 5000) and None,
    "SQLite": sqlite,
    "zeros": lambda path, data: path.write_bytes(bytes(len(data))) and None,
}


def reason(path: Path, kind: type[StoreError]) -> str:
    """Return the one line of a database that cannot be opened or read."""
    with pytest.raises(StoreError) as caught, Store(path, create=False) as store:
        list(store.trajectories.read())
    text = str(caught.value)
    assert type(caught.value) is kind
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    assert "holds it" not in text
    return text


@pytest.mark.parametrize("name", CORRUPT)
def test_a_corrupt_database_is_called_corrupt(sound: Path, tmp_path: Path, name: str):
    """Not locked, and not a file of another program; the remedy is a backup."""
    path = tmp_path / "clock block.duckdb"
    CORRUPT[name](path, (sound / "x.duckdb").read_bytes())

    text = reason(path, StoreCorrupt)

    assert "it is corrupt (" in text
    assert "restore a backup" in text


@pytest.mark.parametrize("name", FOREIGN)
def test_another_file_is_no_database(sound: Path, tmp_path: Path, name: str):
    """A file that never was a database is not called corrupt."""
    path = tmp_path / "x.duckdb"
    FOREIGN[name](path, (sound / "x.duckdb").read_bytes())

    assert "not an oteval database" in reason(path, NotAStore)


def test_damage_that_shows_while_reading_is_one_line(sound: Path, tmp_path: Path):
    """The database opens, and the query that reads the damaged blocks says that it is corrupt."""
    data = (sound / "x.duckdb").read_bytes()
    texts = []
    for place in range(BLOCK, len(data), 32_768):
        path = tmp_path / f"{place}.duckdb"
        replaced(place, min(place + 32_768, len(data)), garbage)(path, data)
        try:
            with Store(path, create=False) as store:
                list(store.trajectories.read())
        except StoreCorrupt as error:
            texts.append(str(error))

    assert texts
    assert all("it is corrupt (a checksum is wrong)" in text for text in texts)


@pytest.mark.parametrize(
    "damage",
    [
        replaced(0, None, garbage),
        replaced(300, 340, garbage),
        lambda path, _: path.write_text("no log\n" * 100) and None,
    ],
    ids=["garbage", "garbage in the middle", "text"],
)
def test_a_corrupt_log_is_named_and_kept(sound: Path, tmp_path: Path, damage: Damage):
    """DuckDB would delete a log that is none, with the rows that were in it."""
    path, log = tmp_path / "x.duckdb", tmp_path / "x.duckdb.wal"
    shutil.copy(sound / "killed.duckdb", path)
    damage(log, (sound / "killed.duckdb.wal").read_bytes())
    before = log.read_bytes()

    text = reason(path, StoreCorrupt)

    assert f"its write-ahead log is corrupt; restore a backup, or move {log} away" in text
    assert log.read_bytes() == before


@pytest.mark.parametrize("kept", [0, 1, 2, 200], ids=str)
def test_a_log_that_was_cut_off_is_no_problem(sound: Path, tmp_path: Path, kept: int):
    """A process that was killed while it wrote loses what was not written, and nothing else."""
    path, log = tmp_path / "x.duckdb", tmp_path / "x.duckdb.wal"
    shutil.copy(sound / "killed.duckdb", path)
    log.write_bytes((sound / "killed.duckdb.wal").read_bytes()[:kept])

    with Store(path, create=False) as store:
        assert store.trajectories.count() == 10


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("IO Error: Could not write file x: No space left on device", "the disk is full"),
        ("TransactionContext Error: Failed to commit: Disk quota exceeded", "the disk is full"),
        ("FATAL Error: invalidated.\nOriginal error: No space left on device", "the disk is full"),
        ('Cannot execute statement of type "INSERT" on database "store" which is attached in '
         "read-only mode!", "it can only be read"),
        ("Catalog Error: Table spans does not exist", None),
    ],
)  # fmt: skip
def test_failures_of_a_running_command(text: str, line: str | None):
    """A full disk and a database that cannot be written are named; other faults are not hidden."""
    problem = store_problem(duckdb.Error(text), "x.duckdb")

    assert (problem is None) == (line is None)
    if line is not None:
        assert str(problem).startswith(f"x.duckdb: {line}")
        assert "\n" not in str(problem)


def test_a_full_disk_during_a_migration_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The message names the disk; the database opens again later."""
    path = tmp_path / "x.duckdb"
    Store(path).close()

    def fail(*_: object, **__: object) -> None:
        raise duckdb.IOException('IO Error: Could not write "x": No space left on device')

    with monkeypatch.context() as patch:
        patch.setattr(connection, "migrate", fail)
        text = reason(path, StoreError)

    assert "the disk is full; free some space, and repeat the command" in text
    Store(path, create=False).close()


def test_a_database_that_cannot_be_written_is_read(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """On read-only media runs are read, nothing is created beside them, and writes are refused."""
    path = tmp_path / "x.duckdb"
    shutil.copy(sound / "x.duckdb", path)
    before = path.read_bytes()
    monkeypatch.setattr(connection, "is_writable", lambda _: False)

    with Store(path, create=False) as store:
        assert store.is_read_only
        assert store.trajectories.count() == 300
        assert [entry.name for entry in tmp_path.iterdir()] == ["x.duckdb"]
    with pytest.raises(StoreError, match="it can only be read"), Store(path) as store:
        store.spans.write([chat(7, 7, [("user", "x")], "y")])

    assert path.read_bytes() == before


def test_an_old_database_that_cannot_be_written_says_how_to_read_it(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It would have to be migrated, so that it has to be copied first."""
    path = tmp_path / "x.duckdb"
    shutil.copy(sound / "x.duckdb", path)
    with Store(path) as store:
        store._connection.execute("DELETE FROM migrations WHERE number >= 13")
    monkeypatch.setattr(connection, "is_writable", lambda _: False)

    assert "copy it to another folder" in reason(path, StoreError)
