"""Spark gives the trajectories and scores of a store."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from oteval.base.errors import InputError
from oteval.extras.spark import score
from oteval.model import Span
from oteval.scoring import refresh, score as score_stored
from oteval.scoring.config import parse_config
from oteval.store import Store
from oteval.store.telemetry_rows import SPAN_SCHEMA, span_table

from ...make import CAPTURES, alike, capture
from ...scoring.test_trace_scores import _OTHERS, of_file, plain
from .rows import RULES, Rows, conversation, first_revision, in_store, of_spark, on_spark

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("default"),
]
_CONVERSATIONS, _TURNS, _CALLS = 4_000, 10, 12


def test_captures_shapes_and_frameworks_have_the_rows_of_a_store(spark: Any, tmp_path: Path):
    """All columns are equal when all files are scored together, in several buckets."""
    spans, logs = [], []
    for path in _OTHERS:  # the shapes all have one trace id, one service and one time
        some, records = of_file(path)
        own = {"resource": {"service.name": path.stem}}
        spans += [replace(s, trace_id=own_trace(s.trace_id, path), **own) for s in some]
        logs += [replace(r, trace_id=own_trace(r.trace_id, path)) for r in records]
    for some, records in map(capture, CAPTURES):
        spans += some
        logs += records

    found = on_spark(spark, spans, logs, tmp_path)

    assert len(found[0]) > 150
    assert found == in_store(spans, logs, tmp_path)


def own_trace(trace_id: str, path: Path) -> str:
    """Return a trace id that no trace of another file has."""
    return hashlib.md5(f"{path.stem} {trace_id}".encode()).hexdigest() if trace_id else ""


def test_runs_are_joined_by_their_messages(spark: Any, tmp_path: Path):
    """Chats without an id are joined across buckets as in a store."""
    spans = alike(15, random.Random(1))

    found = on_spark(spark, spans, [], tmp_path)

    assert found == in_store(spans, [], tmp_path)
    assert any(row["history_id"] for row in found[0])


def test_traces_with_several_conversations_connect_them(spark: Any, tmp_path: Path):
    """A trace that has spans of two conversations is scored with the traces of both."""
    spans = alike(6, random.Random(2))
    traces = sorted({span.trace_id for span in spans})
    spans = [
        replace(
            span,
            attributes={
                **span.attributes,
                "gen_ai.conversation.id": str(
                    (traces.index(span.trace_id) + (not span.parent_id)) // 2
                ),
            },
        )
        for span in spans
    ]

    assert on_spark(spark, spans, [], tmp_path) == in_store(spans, [], tmp_path)


def _million() -> Iterator[list[Span]]:
    """Yield a million spans and more, in parts."""
    for numbers in _parts(range(_CONVERSATIONS), 100):
        yield [
            span for number in numbers for span in conversation(number, turns=_TURNS, calls=_CALLS)
        ]


def _parts(numbers: range, size: int) -> Iterator[range]:
    yield from (numbers[start : start + size] for start in range(0, len(numbers), size))


def _rows_of_million(folder: Path) -> tuple[Rows, Rows]:
    """Return the rows of a store with the million spans, and write these as Parquet."""
    count = 0
    with Store(folder / "store.duckdb") as store:
        with pq.ParquetWriter(folder / "spans.parquet", SPAN_SCHEMA) as writer:
            for spans in _million():
                writer.write_table(span_table(spans, count + 1))
                store.spans.write(spans)
                count += len(spans)
        assert count >= 1_000_000
        refresh(store)
        for _ in score_stored(store, parse_config(RULES), folder):
            pass
        runs = [row for batch in store.trajectories.export() for row in batch.to_pylist()]
        scores = [row for batch in store.scores.export() for row in batch.to_pylist()]
    return first_revision(plain(runs)), first_revision(plain(scores))


@pytest.mark.large
def test_a_million_spans_have_the_rows_of_a_store(spark: Any, tmp_path: Path):
    """All columns are equal for 40,000 runs of agents in 4,000 conversations."""
    expected = _rows_of_million(tmp_path)

    runs, scores = of_spark(spark, tmp_path)

    assert len(runs) == _CONVERSATIONS * _TURNS
    assert runs == expected[0]
    assert scores == expected[1]


def test_an_evaluator_that_asks_a_model_is_refused(spark: Any, tmp_path: Path):
    """Judges would ask without a limit on all executors, so the error names the evaluator."""
    pq.write_table(span_table([], 1), tmp_path / "spans.parquet")
    rules = "evaluators: [{name: kind, type: judge, model: 'openai:m', prompt: 'Kind? {outputs}'}]"

    with pytest.raises(InputError, match="'kind' asks a model"):
        score(spark.read.parquet(str(tmp_path / "spans.parquet")), parse_config(rules))
