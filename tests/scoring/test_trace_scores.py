"""A batch of traces, scored without a store, has the same rows as the store."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from oteval.base.errors import InputError
from oteval.ingest import read
from oteval.model import LogRecord, Span
from oteval.scoring import prepare, refresh, score
from oteval.scoring.config import Config, parse_config
from oteval.scoring.trace_scores import score_batch
from oteval.store import Store
from oteval.store.telemetry_rows import log_table, span_table

from ..make import CAPTURES, TRACES, alike, capture

_RULES = """
evaluators:
  - {name: errors, type: tool_errors}
  - {name: calls, type: trajectory_match, mode: superset, reference: reference.json}
  - {name: half, type: tool_errors, sample: 0.5}
  - {name: agents, type: loops, where: {agent: [support, researcher]}}
"""
_CALL = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
_REFERENCE = [{"role": "assistant", "tool_calls": [{"id": "1", "function": _CALL}]}]
_OTHERS = [
    path
    for folder in ("shapes", "frameworks")
    for path in sorted((TRACES.parent / folder).glob("*.json"))
    if path.name not in ("expected.json", "truth.json") and not path.name.endswith(".logs.json")
]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "reference.json").write_text(json.dumps(_REFERENCE))
    return parse_config(_RULES)


def of_file(path: Path) -> tuple[list[Span], list[LogRecord]]:
    """Return the spans and log records of a file and of the one with its log records."""
    paths = [path, path.with_name(f"{path.stem}.logs.json")]
    batches = [batch for path in paths if path.exists() for batch in read(path)]
    return [s for b in batches for s in b.spans], [r for b in batches for r in b.logs]


def stored(
    spans: Sequence[Span], logs: Sequence[LogRecord], config: Config, base: Path
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of the trajectories and scores of a store."""
    with Store() as store:
        store.spans.write(spans, logs)
        refresh(store)
        for _ in score(store, config, base):
            pass
        runs = [row for batch in store.trajectories.export() for row in batch.to_pylist()]
        scores = [row for batch in store.scores.export() for row in batch.to_pylist()]
    return plain(runs), plain(scores)


def batched(
    spans: Sequence[Span], logs: Sequence[LogRecord], config: Config, base: Path
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the same rows of a batch."""
    prepared = prepare(config, store=None, base=base)
    batch = score_batch(span_table(spans, 1), log_table(logs, 1), prepared, salt=config.salt)
    return plain(batch.trajectories.to_pylist()), plain(batch.scores.to_pylist())


def plain(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows without numbers and times of writing, in a fixed order."""
    plain_rows = [{k: v for k, v in row.items() if k not in ("seq", "time_ns")} for row in rows]
    return sorted(plain_rows, key=lambda row: (row["trajectory_id"], row.get("evaluator", "")))


@pytest.mark.parametrize("name", CAPTURES)
@pytest.mark.slow
def test_captures_have_the_rows_of_the_store(name: str, config: Config, tmp_path: Path):
    """All columns of the trajectories and scores of a capture are equal."""
    spans, logs = capture(name)

    assert batched(spans, logs, config, tmp_path) == stored(spans, logs, config, tmp_path)


@pytest.mark.parametrize("path", _OTHERS, ids=lambda path: path.stem)
@pytest.mark.slow
def test_shapes_and_frameworks_have_the_rows_of_the_store(
    path: Path, config: Config, tmp_path: Path
):
    """All columns are equal for every shape and framework."""
    spans, logs = of_file(path)

    assert batched(spans, logs, config, tmp_path) == stored(spans, logs, config, tmp_path)


def test_runs_are_joined_by_their_messages(config: Config, tmp_path: Path):
    """Chats without an id that mostly say the same are joined as in the store."""
    spans = alike(15, random.Random(1))

    batch = batched(spans, (), config, tmp_path)

    assert batch == stored(spans, (), config, tmp_path)
    assert any(row["history_id"] for row in batch[0])


def test_repeated_rows_count_once(config: Config, tmp_path: Path):
    """Rows that occur twice and in any order change nothing."""
    spans, logs = capture("openinference_chat")
    table, records = span_table(spans, 1), log_table(logs, 1)
    twice = pa.concat_tables([table, table])
    places = list(range(len(twice)))
    random.Random(1).shuffle(places)
    prepared = prepare(config, store=None, base=tmp_path)

    once = score_batch(table, records, prepared, salt="", time_ns=1)
    again = score_batch(
        twice.take(places), pa.concat_tables([records, records]), prepared, salt="", time_ns=1
    )

    assert again == once


def test_a_batch_without_evaluators_or_runs_has_no_scores():
    """The tables have their columns also if they have no rows."""
    batch = score_batch(span_table(capture("openinference_chat")[0], 1), salt="")
    nothing = score_batch(span_table([], 1), salt="")

    assert len(batch.trajectories) > 0
    assert len(batch.scores) == 0
    assert (len(nothing.trajectories), len(nothing.scores)) == (0, 0)
    assert nothing.scores.column_names[:2] == ["trajectory_id", "rev"]


def test_a_missing_column_is_named():
    """A table that is not one of spans is refused by the column that it lacks."""
    with pytest.raises(InputError, match="a table of spans has no column 'trace_id'"):
        score_batch(pa.table({"a": [1]}), salt="")
