"""`oteval.open`: the tables of databases as rows, data frames and CSV files."""

from __future__ import annotations

import csv
import importlib.util
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import oteval
from oteval import ConfigError, NotFound, StoreError
from oteval.model import TABLES, Label, Message, Usage, select
from oteval.store import Store

from ..commands import Run
from ..make import ROOT, asks, call, keep, run, score

HAS_PANDAS = importlib.util.find_spec("pandas") is not None
NS = 1_000_000_000
START = 1_790_000_000
MARKDOWN = (ROOT / "docs/reference/tables.md").read_text("utf-8")


def fill(path: Path) -> None:
    """Write three runs of two services, with scores and a label."""
    turns = [Message("user", "refund me"), asks(call("refund", {"n": 1}, "c1"))]
    failed = Message("tool", "no such order", tool_call_id="c1", is_error=True)
    with Store(path) as store:
        keep(
            store,
            run(1, *turns, failed, start_ns=START * NS, end_ns=(START + 2) * NS, service="web"),
            run(2, Message("user", "hi"), Message("assistant", ""), start_ns=(START + 60) * NS,
                end_ns=(START + 61) * NS, usage=Usage(5, 3), models=("m",)),
            run(3, Message("user", "=1+1"), asks(call("find"), call("find", "[", "c2")),
                start_ns=0, end_ns=0, agent=""),
        )  # fmt: skip
        store.scores.write(
            [score(1, passed=False, score=0.0, time_ns=START * NS), score(2, evaluator="other")]
        )
        store.labels.add([Label(run(1).id, passed=False, person="ann")], START * NS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a database with three runs."""
    fill(tmp_path / "x.duckdb")
    return tmp_path / "x.duckdb"


@pytest.fixture
def db(path: Path) -> oteval.Database:
    """Return it as `oteval.open` does."""
    return oteval.open(path)


def test_rows_have_python_types_and_times_in_utc(db: oteval.Database) -> None:
    """Unknown values are None, also a time that the trace lacks and the name of no agent."""
    unnamed, failed, answered = db.runs()

    assert failed.started == datetime.fromtimestamp(START, UTC)
    assert (failed.seconds, failed.errors, failed.tool, failed.tokens) == (2.0, 1, ["refund"], None)
    assert (answered.model, answered.tokens, answered.asked) == ("m", 8, "hi")
    assert (unnamed.started, unnamed.seconds, unnamed.agent) == (None, None, None)


def test_an_empty_content_differs_from_an_unknown_one(db: oteval.Database) -> None:
    """A message whose text is empty has "", a message with calls alone has None."""
    contents = {(row.run, row.role): row.content for row in db.messages()}

    assert contents[run(2).id, "assistant"] == ""
    assert contents[run(1).id, "assistant"] is None


def test_calls_have_their_results(db: oteval.Database) -> None:
    """The result is found by the call's id; without one, failure is unknown."""
    calls = {(row.run, row.number): row for row in db.calls()}

    refund, first, second = (calls[key] for key in ((run(1).id, 0), (run(3).id, 0), (run(3).id, 1)))
    assert (refund.arguments, refund.result, refund.failed) == ('{"n":1}', "no such order", True)
    assert (first.arguments, first.result, first.failed) == (None, None, None)
    assert (second.arguments, second.message) == ("[", 1)


def test_filters_are_those_of_the_command_line(db: oteval.Database) -> None:
    """Conditions, services and times select runs in each table, one after the other."""
    assert [row.id for row in db.runs().where("errors>0", service="web")] == [run(1).id]
    assert {row.run for row in db.calls().where("tool=find")} == {run(3).id}
    assert len(db.scores().where("errors=0")) == 1
    assert len(db.labels().where("asked~refund")) == 1
    assert [row.id for row in db.runs().where(since=datetime.fromtimestamp(START + 1, UTC))] == [
        run(2).id
    ]
    assert [row.id for row in db.runs().where("calls>0").where(limit=1)] == [run(1).id]
    with pytest.raises(ConfigError, match="perhaps 'errors'"):
        db.runs().where("error>0")
    with pytest.raises(ConfigError, match="service: filtered twice"):
        db.runs().where(service="web").where(service="s")
    with pytest.raises(ConfigError, match="at least 1"):
        db.runs().where(limit=0)


@pytest.mark.parametrize("conditions", [(), ("asked~hi",), ("service!=s", "calls>0"), ("turn>9",)])
def test_every_reader_agrees(db: oteval.Database, path: Path, conditions: tuple[str, ...]) -> None:
    """Rows, their number, Arrow and DuckDB have the same values, under every filter."""
    for frame in (db.runs(), db.messages(), db.calls(), db.scores(), db.labels()):
        chosen = frame.where(*conditions)
        rows = [tuple(row) for row in chosen]
        table = chosen.to_arrow()

        assert len(chosen) == len(rows) == table.num_rows
        assert bool(chosen) == bool(rows)
        assert [tuple(row.values()) for row in table.to_pylist()] == rows
        without_zone = [
            tuple(v.replace(tzinfo=None) if isinstance(v, datetime) else v for v in row)
            for row in rows
        ]
        assert sorted(chosen.relation().fetchall(), key=repr) == sorted(without_zone, key=repr)
    with Store(path) as store:
        expected = {t.id for t in store.trajectories.read(select(where=conditions))}
    assert {row.id for row in db.runs().where(*conditions)} == expected


def test_relations_are_joined_and_aggregated_in_sql(db: oteval.Database) -> None:
    """Runs and scores meet by the run's id."""
    runs, scores = db.runs().relation().set_alias("r"), db.scores().relation().set_alias("s")

    joined = runs.join(scores, "r.id = s.run").aggregate("service, avg(s.score)", "service")

    assert sorted(joined.fetchall()) == [("s", 1.0), ("web", 0.0)]


@pytest.mark.skipif(not HAS_PANDAS, reason="pandas is not installed")
def test_pandas_gets_types_that_can_be_missing(db: oteval.Database) -> None:
    """Integers stay integers and flags stay flags beside missing ones; times have a zone."""
    frame = db.runs().to_pandas()

    assert str(frame.tokens.dtype) == "Int64"
    assert str(frame.started.dtype) == "datetime64[us, UTC]"
    assert str(db.scores().to_pandas().passed.dtype) == "boolean"
    assert frame.groupby("service").calls.sum().to_dict() == {"s": 2, "web": 1}


@pytest.mark.notebook
def test_polars_gets_the_same_values(db: oteval.Database) -> None:
    """Rows, types and times with a zone."""
    frame = db.calls().to_polars()

    assert frame.rows() == [tuple(row) for row in db.calls()]
    assert str(frame["started"].dtype) == "Datetime(time_unit='us', time_zone='UTC')"


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_missing_package_is_named(
    db: oteval.Database, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Data frames need a package that oteval does not install; the error says how to."""
    monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(ConfigError, match=rf"^to_{name}\(\) needs a package: pip install {name}$"):
        getattr(db.runs(), f"to_{name}")()


def test_nothing_is_opened_before_rows_are_needed(tmp_path: Path) -> None:
    """A frame of a missing file has columns, and fails when it is read."""
    frame = oteval.open(tmp_path / "missing.duckdb").runs().where("errors>0")

    assert "id" in repr(frame)
    assert frame.columns[0] == ("id", "string", "", "the run's id")
    with pytest.raises(StoreError, match="no such database"):
        list(frame)


def test_the_file_is_free_between_and_reading_may_be_nested(
    db: oteval.Database, path: Path
) -> None:
    """A loop over runs reads others, and a command may write afterwards."""
    assert [db.run(row.id).id for row in db.runs()] == [row.id for row in db.runs()]
    with Store(path) as store:
        keep(store, run(9))
    assert len(db.runs()) == 4


def test_a_reading_that_fails_leaves_the_file_to_others(
    db: oteval.Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an error and a further reading, a command may write."""
    with monkeypatch.context() as broken:
        broken.setattr(Store, "sibling", refused)
        with pytest.raises(StoreError, match="refused"):
            len(db.runs())

    assert len(db.runs()) == 3
    with Store(path) as store:
        keep(store, run(9))
    assert len(db.runs()) == 4


def refused(_: Store) -> Store:
    """Open nothing."""
    raise StoreError("refused")


def test_several_databases_are_one(tmp_path: Path, path: Path) -> None:
    """A folder of databases has the runs of each, and says if it is empty."""
    with Store(tmp_path / "y.duckdb") as store:
        keep(store, run(7))

    assert len(oteval.open(tmp_path).runs()) == 4
    assert len(oteval.open(path, tmp_path / "y.duckdb").messages()) == 7
    (tmp_path / "empty").mkdir()
    with pytest.raises(oteval.InputError, match="no database"):
        oteval.open(tmp_path / "empty")


def test_a_database_that_a_server_has_open_is_read_through_it(path: Path) -> None:
    """All tables are the same as of the file."""
    alone = [frame.to_arrow() for frame in tables(oteval.open(path))]
    with Store(path) as store:
        server = store.serve(lambda _: b"", {"program": "test", "takes_traces": True})
        try:
            served = [frame.to_arrow() for frame in tables(oteval.open(path))]
        finally:
            server.close()

    assert served == alone


def tables(db: oteval.Database) -> list[oteval.Frame]:
    """Return all tables."""
    return [db.runs(), db.messages(), db.calls(), db.scores(), db.experiments(), db.labels()]


def test_experiments_have_a_row_for_each_result(path: Path, db: oteval.Database) -> None:
    """A run without a result has a row too, and an unknown name is an error."""

    def target(inputs: dict[str, Any]) -> dict[str, Any]:
        if inputs["q"] == "bad":
            raise ValueError("away")
        return {"answer": inputs["q"]}

    def right(outputs: Any) -> bool:
        return outputs["answer"] == "good"

    data = [{"inputs": {"q": q}} for q in ("good", "other", "bad")]
    oteval.evaluate(target, data, evaluators=[right], name="one", store=path)

    rows = {row.question: row for row in db.experiments("one")}
    assert [rows[q].passed for q in ("good", "other", "bad")] == [True, False, None]
    assert "away" in rows["bad"].error
    assert len(db.experiments().where("errors=0")) == 0
    for frame in (db.experiments("no"), db.scores("no")):
        with pytest.raises(NotFound, match="no"):
            list(frame)


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "  =1", "\uff1d1", "\r=1"]


def test_csv_has_no_formulas(oteval: Run, tmp_path: Path) -> None:
    """A text that a spreadsheet would run has an apostrophe in front; numbers have none."""
    messages = [Message("user", text) for text in (*FORMULAS, "1-1", 'a,"b"\nc')]
    with Store(tmp_path / "x.duckdb") as store:
        keep(store, run(1, *messages))
        store.scores.write([score(1, score=-1.0, passed=None)])

    done = oteval("export", "--csv", "out", "--db", "x.duckdb")

    assert done.status == 0
    assert "out/messages.csv: 10 rows" in done.err
    with Path("out/messages.csv").open(encoding="utf-8", newline="") as file:
        contents = [row["content"] for row in csv.DictReader(file)]
    assert contents == [*(f"'{text}" for text in FORMULAS), "1-1", 'a,"b"\nc']
    assert ",-1.0," in Path("out/scores.csv").read_text("utf-8")
    assert sorted(path.name for path in Path("out").iterdir()) == sorted(
        f"{table}.csv" for table in TABLES
    )


def test_csv_has_the_filtered_rows(oteval: Run, path: Path) -> None:
    """The filters of the command select the runs of every file."""
    assert oteval("export", "--csv", "out", "--where", "errors>0", "--db", path).status == 0

    assert len(Path("out/runs.csv").read_text("utf-8").splitlines()) == 2
    assert oteval("export", "--csv", path, "--db", path).status == 2


def test_csv_refuses_the_name_of_a_file(oteval: Run, path: Path) -> None:
    """It writes several files, so a folder named like one of them is a mistake."""
    done = oteval("export", "--csv", "runs.csv", "--db", path)

    assert done.status == 2
    assert "into a folder: --csv runs" in done.err
    assert not Path("runs.csv").exists()


def test_lone_surrogates_reach_every_form(tmp_path: Path) -> None:
    """A text that UTF-8 cannot encode is replaced, and nothing fails."""
    with Store(tmp_path / "x.duckdb") as store:
        keep(store, run(1, Message("user", "a\ud800b"), asks(call("t\udc00", {"k": "\ud800"}))))
    db = oteval.open(tmp_path / "x.duckdb")

    assert db.messages().to_csv(tmp_path / "m.csv") == 2
    for frame in tables(db):
        assert isinstance(frame.to_arrow(), pa.Table)
        assert "\ud800" not in frame._repr_html_()


def test_the_page_lists_every_column() -> None:
    """docs/reference/tables.md has each column with its type, unit and meaning."""
    db = oteval.open("missing.duckdb")
    for frame in tables(db):
        for column in frame.columns:
            kind = column.type.replace("list<item: string>", "list of strings")
            line = f"| `{column.name}` | {kind} | {column.unit} | {column.meaning} |"
            assert line in MARKDOWN, line


def test_a_star_import_leaves_pythons_open_alone() -> None:
    """`open` is a name of oteval, but not of ``from oteval import *``."""
    assert oteval.open is not open
    assert "open" not in oteval.__all__
