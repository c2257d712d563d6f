from __future__ import annotations

import random
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from oteval.base.errors import StoreError, StoreLocked
from oteval.monitor.monitor_checks import check
from oteval.store import Store

from ..monitor.histories import History, config
from .test_archive import DAY, fill, whole


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a database and the archive that has most of its rows."""
    folder = tmp_path_factory.mktemp("archived")
    with Store(folder / "x.duckdb") as store:
        fill(store, range(10, 12), traces=300)
    with Store(folder / "x.duckdb") as store:
        store.archive.move(folder / "archive", 12 * DAY)
    return folder


@pytest.fixture
def path(folder: Path, tmp_path: Path) -> Path:
    """Return the path of a copy of that database that a test may change."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return tmp_path / "x.duckdb"


@pytest.mark.slow
def test_compaction_reclaims_space_and_keeps_every_row(path: Path):
    """The file is smaller; its rows and the archived ones are unchanged."""
    with Store(path) as store:
        before = whole(store)

    done = Store(path).compact()

    assert path.stat().st_size == done.after < done.before
    with Store(path) as store:
        assert whole(store) == before
    assert not list(path.parent.glob("*.copy*"))


def test_a_backup_is_a_complete_store(path: Path, tmp_path: Path):
    """A backup made while spans are written has one state, and finds the same archive."""
    with Store(path) as store:
        before = whole(store)
        other = store.sibling()
        writing = threading.Thread(target=fill, args=(other, range(20, 22)))
        writing.start()
        done = store.backup(tmp_path / "backup.duckdb")
        writing.join()
        other.close()

    with Store(tmp_path / "backup.duckdb") as copy:
        assert copy.trajectories.count() == done.rows["trajectories"]
        assert whole(copy)[0] & before[0] == before[0]


@pytest.mark.slow
def test_monitors_go_on_in_a_backup_and_after_compaction(tmp_path: Path):
    """A copy and a compacted database do not alert again, and see the recovery."""
    path, copy = tmp_path / "m.duckdb", tmp_path / "copy.duckdb"
    watched = config("{evaluator: e, group_by: agent, notify: [ops]}")
    with Store(path) as store:
        history = History(store)
        history.scored(400, 0.95)
        history.scored(60, 0.3)
        check(store, watched, history.now)
        (alert,) = store.monitors.episodes()
        store.backup(copy)
    Store(path).compact()

    events = []
    for file in (path, copy):
        with Store(file) as store:
            assert check(store, watched, history.now)[0].state == "alert"
            again = replace(history, store=store, chance=random.Random(2))
            again.scored(120, 1.0)
            check(store, watched, again.now)
            notices = store.outbox.notifications()
            events.append([(notice.episode_id, notice.event) for notice in notices])
    assert events == [[(alert.episode_id, event) for event in ("alert", "resolved")]] * 2


def test_a_backup_overwrites_nothing(path: Path, tmp_path: Path):
    """An existing file is refused and left unchanged."""
    (tmp_path / "taken").write_text("mine")

    with Store(path) as store, pytest.raises(StoreError, match="exists already"):
        store.backup(tmp_path / "taken")

    assert (tmp_path / "taken").read_text() == "mine"


def test_leftovers_of_a_killed_copy_are_replaced(path: Path):
    """Files of a process that was killed while it copied do not block the next copy."""
    Path(f"{path}.copy").write_bytes(b"half of a database")
    Path(f"{path}.copy.wal").write_bytes(b"half of a log")

    done = Store(path).compact()

    assert done.after == path.stat().st_size


def test_a_served_database_is_backed_up_but_not_compacted(path: Path, tmp_path: Path):
    """Through the process that has it open a backup works, and compaction says how to proceed."""
    with Store(path) as store:
        serving = store.serve(lambda _question: b"", {})
        try:
            with Store(path) as client:
                assert client.server is not None
                assert client.is_served
                client.backup(tmp_path / "backup.duckdb")
                moved = client.archive.move(tmp_path / "archive", 0)
                with pytest.raises(StoreLocked, match=f"{client.server.program} has it open"):
                    client.compact()
        finally:
            serving.close()

    assert moved.spans == 0
    with Store(tmp_path / "backup.duckdb", create=False) as copy:
        assert copy.trajectories.count() > 0


def test_only_the_copy_can_be_attached(path: Path):
    """The connection can attach no other file, and its settings cannot be changed."""
    with Store(path) as store:
        for statement in (
            f"ATTACH '{path.parent}/other.duckdb'",
            f"COPY spans TO '{path.parent}/out.csv'",
            "SET allowed_paths = ['/']",
        ):
            with pytest.raises(Exception, match=r"Permission|locked|allowed"):
                store._connection.execute(statement)
