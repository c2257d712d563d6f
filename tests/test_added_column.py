"""A column is added by one entry and its SQL, and is then on every surface."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .make import ROOT

ENTRY = """
    RunColumn(
        "questions",
        "the number of the user's messages",
        "number",
        lambda run: sum(message.role == "user" for message in run.own_messages),
        measure="questions",
        group="all",
    ),
"""
SQL = """
    "questions": ColumnSql("len(list_filter(roles, lambda r: r = 'user'))"),
"""
# Uses every surface in one process of the changed package, and prints the results.
SURFACES = """
import json

from oteval.cli import cli
from oteval.scoring.config import parse_config
from oteval.views.mcp.arguments import RunFilters
from oteval.views.mcp.run_views import run_row
from oteval.model import Message, SpanRef, Trajectory
from oteval.model.columns import COLUMNS, RunRow
from oteval.monitor.monitor_checks import check
from oteval.views.pages.run_columns import chosen_columns
from oteval.views.pages.runs import runs_page
from oteval.views.pages.search import parse_search, suggestions
from oteval.model.prices import make_prices
from oteval.model.selection import EVERYTHING, Selection, parse_condition
from oteval.views.report import grouping, run_groups
from oteval.store import Store


def run(number, *roles):
    ids = SpanRef(f"{number:032x}", f"{number:016x}")
    messages = tuple(Message(role, "text") for role in roles)
    at = 1_790_000_000_000_000_000 + number * 10**9
    return Trajectory(
        f"{number:016x}", ids, trace_ids=(ids.trace_id,), tail=messages, start_ns=at, end_ns=at + 1
    )


found = {}
two, one = run(1, "user", "assistant", "user"), run(2, "user", "assistant")
with Store("runs.duckdb") as store:
    store.trajectories.write([two, one], [two.trace_ids[0], one.trace_ids[0]])
    condition = parse_condition("questions>1")
    selection = Selection(conditions=(condition,))
    found["where"] = [each.id for each in store.trajectories.read(selection)]
    found["python"] = [each.id for each in (two, one) if selection.matches(each)]
    search = parse_search("questions=2")
    columns = chosen_columns(["questions"])
    page = runs_page(store, search, None, make_prices(None), columns=columns)
    found["page"] = [dict(item.cells) for item in page.items]
    found["heads"] = list(page.columns)
    found["suggested"] = "questions=" in suggestions()
    config = parse_config("monitors: [{measure: questions, group_by: questions}]")
    statuses = check(store, config, two.end_ns + 10**10)
    found["monitor"] = {each.group["questions"]: each.observations for each in statuses}
    runs = store.statistics.of(EVERYTHING, (), run_groups(grouping("questions")))
    found["report"] = sorted(runs.groups)
    rows = store.run_list.rows(store.run_list.keys(EVERYTHING, 5))
    found["mcp"] = [run_row(row, (), ["questions"])["questions"] for row in rows]
    found["equal"] = rows == [RunRow.of(one), RunRow.of(two)]
found["mcp fields"] = "questions" in str(RunFilters.model_json_schema())
print(json.dumps(found))
for options in ([], ["--json"]):
    command = ["trajectories", "--db", "runs.duckdb", "--columns", "questions", *options]
    assert cli.main(command, standalone_mode=False) == 0
"""


def _insert(path: Path, before: str, text: str) -> None:
    source = path.read_text("utf-8")
    assert source.count(before) == 1
    path.write_text(source.replace(before, before + text), "utf-8")


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """Return a folder with the package, to which a column was added."""
    package, copy = ROOT / "oteval", tmp_path / "oteval"
    changes = {"model": "columns.py", "store": "column_sql.py"}
    copy.mkdir()
    for path in package.iterdir():
        if path.name not in changes and path.name != "__pycache__":
            (copy / path.name).symlink_to(path)
    for name, changed_file in changes.items():
        (copy / name).mkdir()
        for path in (package / name).iterdir():
            if path.name == changed_file:
                (copy / name / path.name).write_bytes(path.read_bytes())
            elif path.name != "__pycache__":
                (copy / name / path.name).symlink_to(path)
    _insert(copy / "model" / "columns.py", "_ALL = (", ENTRY)
    _insert(copy / "store" / "column_sql.py", "COLUMN_SQL: Mapping[str, ColumnSql] = {", SQL)
    return tmp_path


def test_one_entry_adds_a_column_to_every_surface(changed: Path) -> None:
    """It filters, is searched for, listed, grouped by, watched and returned to agents."""
    done = subprocess.run(
        [sys.executable, "-c", SURFACES],
        cwd=changed,
        env={**os.environ, "PYTHONPATH": str(changed), "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    document: dict[str, Any] = json.loads(lines[0])
    assert document == {
        "where": ["0000000000000001"],
        "python": ["0000000000000001"],
        "page": [{"questions": "2"}],
        "heads": [["questions", "questions"]],
        "suggested": True,
        "monitor": {"1": 1, "2": 1},
        "report": ["1", "2"],
        "mcp": [1, 2],
        "equal": True,
        "mcp fields": True,
    }
    assert lines[1].split() == ["id", "started", "questions", "asked"]
    assert [line.split()[-2:] for line in lines[2:4]] == [["2", "text"], ["1", "text"]]
    assert [json.loads(line)["questions"] for line in lines[4:]] == [2, 1]
