"""Wide rows are read with as much memory as they need, page by page."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from oteval.base.errors import TooLarge
from oteval.model import Message, Trajectory
from oteval.store import ReadLimit, Store, trajectories
from oteval.store.memory import fetch_rows

from ..make import keep, run

MB = 1 << 20
ANSWERS = "SELECT messages FROM trajectories"


def wide_run(number: int, size: int = MB) -> Trajectory:
    """Return a run with an answer of so many bytes that compress badly."""
    return run(number, Message("user", "hi"), Message("assistant", os.urandom(size // 2).hex()))


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """Return a database with 40 runs of 1 MB in one row group."""
    path = tmp_path / "wide.duckdb"
    with Store(path) as store:
        keep(store, *(wide_run(number) for number in range(1, 41)))
        store._connection.execute("CHECKPOINT store")
    return path


def memory(store: Store) -> str:
    """Return DuckDB's memory limit."""
    setting = store._connection.execute("SELECT current_setting('memory_limit')").fetchall()
    return str(setting[0][0])


def test_the_memory_limit_grows_while_runs_are_read(wide: Path) -> None:
    """The limit grows for a page and for a single run, and every run is read."""
    with Store(wide) as store:
        store.set_memory_limit("32MiB")
        alone = store.trajectories.get(run(7).id)
        found = list(store.trajectories.read())
        limit = memory(store)

    assert [t.id for t in found] == [run(number).id for number in range(1, 41)]
    assert {len(t.messages[-1].content or "") for t in found} == {MB}
    assert alone == found[6]
    assert limit != "32.0 MiB"


def test_a_server_raises_the_memory_limit_for_a_client(wide: Path) -> None:
    """The process that has the database open raises the limit for a client's query."""
    with Store(wide, served=False) as store:
        store.set_memory_limit("32MiB")
        serving = store.serve(lambda _: b"", {})
        try:
            with Store(wide) as other:
                found = len(list(other.trajectories.read()))
        finally:
            serving.close()

    assert found == 40


def test_pages_have_about_the_same_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages have many narrow runs or few wide ones, and no run is lost between pages."""
    runs = [wide_run(number, 200 if number <= 300 else 20_000) for number in range(1, 701)]
    sizes: list[int] = []
    real = trajectories.rows_in

    def counted(*arguments: object) -> pa.Table:
        table = real(*arguments)  # type: ignore[arg-type]
        sizes.append(table.num_rows)
        return table

    monkeypatch.setattr(trajectories, "_PAGE_BYTES", MB)
    monkeypatch.setattr(trajectories, "rows_in", counted)
    with Store() as store:
        keep(store, *runs)
        found = list(store.trajectories.read())

    assert [t.id for t in found] == [t.id for t in runs]
    assert sizes[:2] == [100, 400]
    assert max(sizes[3:]) < 60


def test_one_thread_is_a_setting_of_its_block(store: Store) -> None:
    """The number of threads is 1 inside the block, and the former one after it."""

    def threads() -> int:
        found = store._connection.execute("SELECT current_setting('threads')").fetchall()
        return int(found[0][0])

    store._connection.execute("SET threads = 3")
    with store.one_thread():
        inside = threads()

    assert (inside, threads()) == (1, 3)


def test_a_read_limit_is_enforced(store: Store) -> None:
    """The error names the limit, and several queries count together."""
    keep(store, wide_run(1), wide_run(2))
    connection = store._connection

    enough = ReadLimit(3 * MB)
    found = fetch_rows(connection, ANSWERS, enough)
    with pytest.raises(TooLarge, match="more than 3 MiB"):
        fetch_rows(connection, ANSWERS, enough)
    once = fetch_rows(connection, f"{ANSWERS} LIMIT 1", ReadLimit(3 * MB))

    assert (len(found), len(once)) == (2, 1)


def test_rows_that_need_too_much_memory_are_too_large(
    wide: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the highest limit a wide trace is refused, and narrow rows can still be read."""
    monkeypatch.setattr("oteval.store.memory._CEILING", 33 * MB)
    with Store(wide) as store:
        store.set_memory_limit("32MiB")

        with pytest.raises(TooLarge, match="33 MiB of memory"):
            fetch_rows(store._connection, ANSWERS, ReadLimit(1 << 40))
        count = store.trajectories.count()

    assert count == 40
