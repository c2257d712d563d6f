"""The work of an executor, without Spark: batches of groups in, runs and scores out."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from oteval.extras.spark.group_scores import OUTPUT, GroupScorer
from oteval.model import Span
from oteval.model.selection import EVERYTHING
from oteval.scoring import prepare
from oteval.scoring.config import parse_config
from oteval.store.telemetry_rows import LOG_SCHEMA, log_table, span_table

from ...make import capture
from ...scoring.test_trace_scores import plain
from .rows import RULES, Rows, conversation, in_store, without_starts

_MOST = 1 << 30


def batches(
    spans: Sequence[Span] | pa.Table, size: int, logs: pa.Table | None = None
) -> list[pa.RecordBatch]:
    """Return rows in batches of a size, in the order of their groups: the traces' conversations."""
    table = spans if isinstance(spans, pa.Table) else span_table(spans, 1)
    names = (
        [None] * len(table)
        if "conversation_id" not in table.column_names
        else table["conversation_id"].to_pylist()
    )
    traces = table["trace_id"].to_pylist()
    conversations = {trace: name for trace, name in zip(traces, names, strict=True) if name}
    of = {trace: conversations.get(trace, trace) for trace in traces}
    numbers = {name: number for number, name in enumerate(sorted(set(of.values())), 1)}
    groups = [numbers[of[trace]] for trace in traces]
    if logs is not None:
        kinds = pa.struct(list(LOG_SCHEMA))
        ours = table.append_column("log", pa.nulls(len(table), kinds))
        nested = pa.StructArray.from_arrays(
            [logs[name].combine_chunks() for name in LOG_SCHEMA.names], fields=list(LOG_SCHEMA)
        )
        theirs = pa.table({"trace_id": logs["trace_id"], "log": nested})
        groups += [numbers[of[trace]] for trace in logs["trace_id"].to_pylist()]
        table = pa.concat_tables([ours, theirs], promote_options="default")
    table = table.append_column("group", pa.array(groups, pa.int64())).sort_by("group")
    return table.combine_chunks().to_batches(max_chunksize=size)


def rows(
    found: Sequence[pa.RecordBatch],
) -> tuple[Rows, Rows]:
    """Return the rows of the runs and of the scores in an executor's output."""
    table = pa.Table.from_batches(found, OUTPUT).to_pylist()
    runs = [row["trajectory"] for row in table if row["kind"] == "run"]
    scores = [row["score"] for row in table if row["kind"] == "score"]
    return plain(runs), plain(without_starts(runs, scores))


def scorer(most_bytes: int = _MOST) -> GroupScorer:
    """Return a scorer with some rules."""
    config = parse_config(RULES)
    prepared = tuple(prepare(config, None, Path()))
    return GroupScorer(prepared, config.salt, EVERYTHING, 1, most_bytes)


def talks(count: int) -> list[Span]:
    """Return the spans of conversations of two turns."""
    return [s for number in range(1, count + 1) for s in conversation(number, turns=2, calls=2)]


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_groups_are_whole_whatever_the_batches(size: int, tmp_path: Path):
    """Batches that end within a trace or a conversation give the rows of a store."""
    spans = talks(12)

    found = rows(list(scorer().score(batches(spans, size))))

    assert found == in_store(spans, [], tmp_path)


def test_log_records_come_with_the_spans_of_their_traces(tmp_path: Path):
    """Messages that a capture has in log records are in the runs."""
    spans, logs = capture("v2_legacy_chat")
    spans = [span for span in spans if span.trace_id == spans[0].trace_id]
    logs = [log for log in logs if log.trace_id == spans[0].trace_id]

    found = rows(list(scorer().score(batches(spans, 3, log_table(logs, 1)))))

    assert logs
    assert found == in_store(spans, logs, tmp_path)


def test_rows_in_any_order_and_number_give_the_same():
    """A task that runs again returns the same rows, however its rows were shuffled."""
    table = span_table(talks(3), 1)
    changed = table.set_column(
        table.column_names.index("status_message"), "status_message", [["later"] * len(table)]
    )
    chance = random.Random(1)
    found = []
    for _ in range(5):
        both = pa.concat_tables([table, changed])
        places = chance.sample(range(len(both)), len(both))
        found.append(rows(list(scorer().score(batches(both.take(places), 11)))))

    assert all(one == found[0] for one in found)


def test_a_group_over_the_limit_has_gaps_and_the_others_have_scores(tmp_path: Path):
    """Each trace of the large conversation is a run that no evaluator passes."""
    spans = [*talks(4), *conversation(1_000, turns=100, calls=4)]

    runs, scores = rows(list(scorer(100_000).score(batches(spans, 50))))

    gaps = {row["trajectory_id"]: row["gap_codes"] for row in runs}
    assert len(runs) == len(gaps) == 108
    large = {name for name, codes in gaps.items() if codes == ["too_large"]}
    assert len(large) == 100
    assert not [row for row in scores if row["passed"] and row["trajectory_id"] in large]
    detail = next(row["gaps"] for row in runs if row["trajectory_id"] in large)
    assert "a task of Spark holds 100,000" in detail
    small, verdicts = in_store(talks(4), [], tmp_path)
    assert [row for row in runs if row["trajectory_id"] not in large] == small
    assert [row for row in scores if row["trajectory_id"] not in large] == verdicts


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"trace_id": ""}, "a row has no trace_id"),
        ({"span_id": None}, "a row has no span_id"),
        ({"start_ns": None}, "a row has no start_ns"),
        ({"attributes": '{"a": '}, "a row cannot be read"),
        ({"attributes": "[1]"}, "not a JSON object"),
        ({"resource": None}, "a row has no resource"),
        ({"events": "{}}"}, "a row cannot be read"),
    ],
)
def test_a_bad_row_is_a_gap_of_its_trace(changes: dict[str, Any], reason: str, tmp_path: Path):
    """Its run names the reason and passes nothing; the other traces have the rows of a store."""
    good = span_table(talks(3), 1)
    bad = {**good.to_pylist()[0], "trace_id": f"{7:032x}", "conversation_id": None, **changes}
    table = pa.concat_tables([good, pa.Table.from_pylist([bad], good.schema)])

    runs, scores = rows(list(scorer().score(batches(table, 10))))

    (broken,) = [row for row in runs if row["trace_id"] == bad["trace_id"]]
    assert broken["gap_codes"] == ["internal_error"]
    assert reason in broken["gaps"]
    name = broken["trajectory_id"]
    assert not [row for row in scores if row["trajectory_id"] == name and row["passed"]]
    expected = in_store(talks(3), [], tmp_path)
    assert [row for row in runs if row["trajectory_id"] != name] == expected[0]
    assert [row for row in scores if row["trajectory_id"] != name] == expected[1]


@pytest.mark.parametrize(
    ("start", "end"), [(-(1 << 63), (1 << 63) - 1), ((1 << 63) - 1, 0), (0, 0), (5, -5)]
)
def test_absurd_times_break_no_task(start: int, end: int):
    """Runs at the ends of time are reconstructed, and so are those beside them."""
    table = span_table(talks(1), 1)
    odd = [
        {**row, "trace_id": f"{7:032x}", "conversation_id": None, "start_ns": start, "end_ns": end}
        for row in table.to_pylist()[:6]
    ]
    table = pa.concat_tables([table, pa.Table.from_pylist(odd, table.schema)])

    runs, scores = rows(list(scorer().score(batches(table, 10))))

    assert len(runs) == 3
    assert sum(row["evaluator"] == "errors" for row in scores) == 3
