"""Rows of many bytes are read with the memory they need, and a page at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from oteval.errors import TooLarge
from oteval.model import Message, Trajectory
from oteval.store import ReadLimit, Store, trajectories
from oteval.store.memory import fetch

from ..make import keep, run

MB = 1 << 20
ANSWERS = "SELECT messages FROM trajectories"


def wide_run(number: int, size: int = MB) -> Trajectory:
    """Return a run whose answer has so many bytes, which are packed badly."""
    return run(number, Message("user", "hi"), Message("assistant", os.urandom(size // 2).hex()))


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """Return a database with 40 runs of 1 MB, packed together."""
    path = tmp_path / "wide.duckdb"
    with Store(path) as store:
        keep(store, *(wide_run(number) for number in range(1, 41)))
        store._connection.execute("CHECKPOINT store")
    return path


def memory(store: Store) -> str:
    """Return how much memory DuckDB may take."""
    setting = store._connection.execute("SELECT current_setting('memory_limit')").fetchall()
    return str(setting[0][0])


def test_runs_that_need_more_memory_are_read_in_order(wide: Path) -> None:
    """DuckDB is given more, for a run by its id too, and what is read is all there is."""
    with Store(wide) as store:
        store.set_memory_limit("32MiB")
        alone = store.trajectories.get(run(7).id)
        found = list(store.trajectories.read())
        limit = memory(store)

    assert [t.id for t in found] == [run(number).id for number in range(1, 41)]
    assert {len(t.messages[-1].content or "") for t in found} == {MB}
    assert alone == found[6]
    assert limit != "32.0 MiB"


def test_who_asks_a_server_for_them_is_answered(wide: Path) -> None:
    """The process that has the database gives DuckDB the memory."""
    with Store(wide, served=False) as store:
        store.set_memory_limit("32MiB")
        serving = store.serve(lambda _: b"", {})
        try:
            with Store(wide) as other:
                found = len(list(other.trajectories.read()))
        finally:
            serving.close()

    assert found == 40


def test_pages_have_about_as_many_bytes_as_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrow runs are read many at once, wide ones few, and none is lost between pages."""
    runs = [wide_run(number, 200 if number <= 300 else 20_000) for number in range(1, 601)]
    sizes: list[int] = []
    real = trajectories.fetch

    def counted(*arguments: object) -> pa.Table:
        table = real(*arguments)  # type: ignore[arg-type]
        sizes.append(table.num_rows)
        return table

    monkeypatch.setattr(trajectories, "_PAGE_BYTES", MB)
    monkeypatch.setattr(trajectories, "fetch", counted)
    with Store() as store:
        keep(store, *runs)
        found = list(store.trajectories.read())

    assert [t.id for t in found] == [t.id for t in runs]
    assert sizes[:2] == [100, 400]
    assert max(sizes[3:]) < 60


def test_more_than_is_allowed_is_not_read(store: Store) -> None:
    """The error says how much that is; what is read together counts together."""
    keep(store, wide_run(1), wide_run(2))
    connection = store._connection

    enough = ReadLimit(3 * MB)
    found = fetch(connection, ANSWERS, enough)
    with pytest.raises(TooLarge, match="more than 3 MiB"):
        fetch(connection, ANSWERS, enough)
    once = fetch(connection, f"{ANSWERS} LIMIT 1", ReadLimit(3 * MB))

    assert (found.num_rows, once.num_rows) == (2, 1)


def test_rows_that_no_memory_is_enough_for_are_too_large(
    wide: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where DuckDB may take no more, a trace is refused, and narrow rows can be read on."""
    monkeypatch.setattr("oteval.store.memory._CEILING", 33 * MB)
    with Store(wide) as store:
        store.set_memory_limit("32MiB")

        with pytest.raises(TooLarge, match="33 MiB of memory"):
            fetch(store._connection, ANSWERS, ReadLimit(1 << 40))
        count = store.trajectories.count()

    assert count == 40
