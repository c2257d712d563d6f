from __future__ import annotations

import io
import json
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from oteval.base.errors import InputError
from oteval.model import LogRecord
from oteval.model.selection import Selection
from oteval.scoring import export_jsonl, export_parquet, load, refresh
from oteval.store import Store

from ..make import asks, call, keep, run, score, span

FILES = ["logs.parquet", "scores.parquet", "spans.parquet", "trajectories.parquet"]


def test_lines_are_trajectories_with_their_scores(store: Store):
    """A line is the output of `trajectories --json` with the scores added."""
    keep(store, run(1, asks(call("f", {}))), run(2, agent="b"))
    store.scores.write([score(1), score(1, evaluator="other", status="error", comment="why")])
    out = io.StringIO()

    count = export_jsonl(store, out)

    first, second = map(json.loads, out.getvalue().splitlines())
    scores = first.pop("scores")
    assert count == 2
    assert first == json.loads(json.dumps(run(1, asks(call("f", {}))).as_dict()))
    assert [(s["evaluator"], s["status"], s["score"]) for s in scores] == [
        ("e", "ok", 1.0),
        ("other", "error", None),
    ]
    assert second["scores"] == []


def test_lines_are_filtered_and_paged(store: Store, monkeypatch: pytest.MonkeyPatch):
    """Filters apply, and more than one page is written completely."""
    monkeypatch.setattr("oteval.scoring.exporter._PAGE", 2)
    keep(store, *(run(number) for number in range(1, 8)))
    out = io.StringIO()

    assert export_jsonl(store, out, Selection(since_ns=3)) == 5
    assert [json.loads(line)["start_ns"] for line in out.getvalue().splitlines()] == [3, 4, 5, 6, 7]


def test_parquet_contains_every_row(store: Store, chat_file: Path, tmp_path: Path):
    """Spans, logs, trajectories and scores are read back unchanged."""
    load(store, [chat_file])
    refresh(store)
    store.spans.write([], [LogRecord("a" * 32, body={"x": 1})])
    (first, *_) = store.trajectories.read()
    keep(store, run(1))
    store.scores.write([score(1)])

    counts = export_parquet(store, tmp_path / "new" / "folder")

    tables = {name: pq.read_table(tmp_path / "new" / "folder" / name) for name in FILES}
    assert counts == {name: tables[name].num_rows for name in FILES}
    assert counts["spans.parquet"] == store.spans.count()[0]
    assert first.id in tables["trajectories.parquet"]["trajectory_id"].to_pylist()
    assert tables["logs.parquet"]["body"].to_pylist() == ['{"x":1}']
    assert tables["scores.parquet"]["evaluator"].to_pylist() == ["e"]
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == FILES


def test_wide_rows_are_exported_with_more_memory(tmp_path: Path):
    """If DuckDB has too little memory for a table, the file is written again with more."""
    with Store(tmp_path / "t.duckdb") as store:
        texts = [random.Random(number).randbytes(500_000).hex() for number in range(12)]
        keep(store, *(run(at, asks(text=text)) for at, text in enumerate(texts, 1)))
        with store.reduced_memory("12MB"):
            export_parquet(store, tmp_path / "out")

    found = pq.read_table(tmp_path / "out" / "trajectories.parquet")["messages"].to_pylist()
    assert {text for text in texts for row in found if text in row} == set(texts)


def test_parquet_of_nothing_has_the_columns(store: Store, tmp_path: Path):
    """A table without rows is a file with its schema, and replaces an older file."""
    store.spans.write([span(1, 1)])
    export_parquet(store, tmp_path)

    with Store() as empty:
        counts = export_parquet(empty, tmp_path)

    assert counts == dict.fromkeys(["spans.parquet", *sorted(set(FILES) - {"spans.parquet"})], 0)
    spans = pq.read_table(tmp_path / "spans.parquet")
    assert spans.num_rows == 0
    assert "trace_id" in spans.column_names


def test_a_folder_that_cannot_be_written_is_named(store: Store, tmp_path: Path):
    """A file instead of the folder is an error with its path."""
    (tmp_path / "file").write_text("")

    with pytest.raises(InputError, match="file: cannot be written: File exists"):
        export_parquet(store, tmp_path / "file")
