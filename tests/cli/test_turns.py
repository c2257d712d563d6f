"""Commands that use one database at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

from oteval.base.errors import StoreLocked
from oteval.scoring import opened_databases
from oteval.store import Store


def test_a_command_waits_for_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two commands at once take their turns, and neither fails."""
    path = tmp_path / "x.duckdb"
    other = Store(path)
    monkeypatch.setattr("oteval.scoring.opened_databases.time.sleep", lambda _: other.close())
    with opened_databases.store_in_turn(str(path)) as store:
        assert store.contents().spans == 0


def test_a_database_that_stays_open_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that keeps the database is named in the end."""
    path = tmp_path / "x.duckdb"
    monkeypatch.setattr(opened_databases, "_TURN_PATIENCE", 0.0)
    with Store(path), pytest.raises(StoreLocked):
        opened_databases.store_in_turn(str(path))
