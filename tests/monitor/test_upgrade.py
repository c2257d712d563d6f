"""Databases with monitors of the first release: an episode goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb

from oteval.monitor.monitor_checks import check
from oteval.store import Store, migrations

from .histories import History, config

WATCHED = config("{evaluator: e, group_by: agent, notify: [ops]}")
_RELEASED = 10


def released(path: Path, source: Path) -> None:
    """Write the rows of a database into one with the schema, and the state, of the first release.

    Detectors had neither daily cycles nor reviews, and conversations had other hashes.
    """
    scripts = sorted(Path(migrations.__file__).parent.glob("*.sql"))[:_RELEASED]
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE migrations (number INTEGER, applied_at TIMESTAMP)")
        for number, script in enumerate(scripts, 1):
            connection.execute(script.read_text("utf-8"))
            connection.execute("INSERT INTO migrations VALUES (?, now()::TIMESTAMP)", [number])
        connection.execute("DELETE FROM monitor_checks")
        connection.execute(f"ATTACH '{source}' AS source (READ_ONLY)")
        tables: dict[str, list[str]] = {}
        for table, column in connection.execute(
            "SELECT table_name, column_name FROM duckdb_columns() "
            "WHERE database_name = current_database() AND table_name IN (SELECT table_name "
            "FROM duckdb_tables()) AND table_name <> 'migrations' ORDER BY column_index"
        ).fetchall():
            tables.setdefault(table, []).append(f'"{column}"')
        for table, names in tables.items():
            columns = ", ".join(names)
            connection.execute(f'INSERT INTO "{table}" SELECT {columns} FROM source."{table}"')
        connection.execute("UPDATE monitor_conversations SET conversation = hash(conversation)")
        for table, column in (("monitor_groups", "detectors"), ("monitor_baselines", "baseline")):
            rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
            for row, text in rows:
                connection.execute(
                    f"UPDATE {table} SET {column} = ? WHERE rowid = ?", [_plain(text), row]
                )


def _plain(text: str) -> str:
    """Return the sides of a group without daily cycles and reviews."""
    sides: dict[str, Any] = json.loads(text)
    for side in sides.values():
        del side["baseline"]["cycle"]
        side.get("state", {}).pop("review", None)
    return json.dumps(sides)


def test_an_episode_of_the_first_release_goes_on(tmp_path: Path):
    """After an upgrade, nothing is observed again, and the alert's end is notified once."""
    with Store(tmp_path / "new.duckdb") as store:
        history = History(store)
        history.scored(400, 0.95)
        history.scored(60, 0.3)
        (before,) = check(store, WATCHED, history.now)
        assert before.state == "alert"
    released(tmp_path / "old.duckdb", tmp_path / "new.duckdb")

    with Store(tmp_path / "old.duckdb") as store:
        history.store = store
        (upgraded,) = check(store, WATCHED, history.now)
        history.scored(120, 1.0)
        (later,) = check(store, WATCHED, history.now)

        assert (upgraded.state, upgraded.observations) == ("alert", before.observations)
        assert (later.episodes, later.observations) == ([], before.observations + 120)
        events = [json.loads(one.payload) for one in store.outbox.notifications()]
        assert [one["event"] for one in events] == ["alert", "resolved"]
        assert events[0]["episode"] == events[1]["episode"]
        assert events[1]["end_reason"] == "recovered"
