"""A column of runs is one entry and its SQL, a column of scores is one field and a migration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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
from oteval.views.mcp.results import run_row
from oteval.model import Message, SpanRef, Trajectory
from oteval.model.columns import COLUMNS, RunRow
from oteval.monitor.monitor_checks import check
from oteval.views.pages.runs import chosen_columns
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


def _copied(tmp_path: Path, *files: str) -> Path:
    """Return a folder with the package: these files are copied, all others are links."""
    (tmp_path / "oteval").mkdir()
    for path in sorted((ROOT / "oteval").rglob("*")):
        name = path.relative_to(ROOT)
        if "__pycache__" in name.parts:
            continue
        if path.is_dir():
            (tmp_path / name).mkdir(parents=True)
        elif str(name) in files:
            (tmp_path / name).write_bytes(path.read_bytes())
        else:
            (tmp_path / name).symlink_to(path)
    return tmp_path


def _output(folder: Path, program: str) -> list[str]:
    """Return the lines that a program prints, run with the package in a folder."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_one_entry_adds_a_column_to_every_surface(tmp_path: Path) -> None:
    """It filters, is searched for, listed, grouped by, watched and returned to agents."""
    columns, sql = "oteval/model/columns.py", "oteval/store/column_sql.py"
    _insert(_copied(tmp_path, columns, sql) / columns, "_ALL = (", ENTRY)
    _insert(tmp_path / sql, "COLUMN_SQL: Mapping[str, ColumnSql] = {", SQL)

    lines = _output(tmp_path, SURFACES)

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


MIGRATION = """
ALTER TABLE scores ADD COLUMN confidence DOUBLE;
CREATE OR REPLACE VIEW current_scores AS
    SELECT * FROM scores ANTI JOIN superseded USING (trajectory_id, rev)
    QUALIFY row_number() OVER (PARTITION BY trajectory_id, evaluator ORDER BY seq DESC) = 1;
"""
SCORES = """
from oteval.evaluators import EvaluationResult, Scorer
from oteval.evaluators.checks.loops import Loops
from oteval.model import Message, SpanRef, Trajectory
from oteval.store import SCORE_ROWS, Store

ids = SpanRef("1" * 32, "2" * 16)
run = Trajectory("3" * 16, ids, trace_ids=(ids.trace_id,), tail=(Message("user", "hi"),))
scorers = [Scorer(name, "v1", Loops()) for name in ("first", "second")]
results = [EvaluationResult(score=1.0, passed=True, confidence=0.75), EvaluationResult()]
with Store("scores.duckdb") as store:
    store.trajectories.write([run], [ids.trace_id])
    for scorer, result in zip(scorers, results, strict=True):
        store.scores.write([scorer.score_of(run, result, 1)])
    print([score.confidence for score in store.scores.read()])
print("confidence" in SCORE_ROWS.names)
"""


def test_one_field_and_a_migration_add_a_column_to_scores(tmp_path: Path) -> None:
    """An evaluator's result has the field, and the store keeps it; without a value it is None."""
    model, last_field = "oteval/model/score.py", "    metadata: Mapping[str, Any] = field("
    path = _copied(tmp_path, model) / model
    source = path.read_text("utf-8")
    assert source.count(last_field) == 1
    path.write_text(
        source.replace(last_field, f"    confidence: float | None = None\n{last_field}"), "utf-8"
    )
    migrations = tmp_path / "oteval" / "store" / "migrations"
    number = 1 + max(int(path.name[:4]) for path in migrations.glob("*.sql"))
    (migrations / f"{number:04}_confidence.sql").write_text(MIGRATION)

    assert _output(tmp_path, SCORES) == ["[0.75, None]", "True"]
