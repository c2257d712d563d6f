"""Spans in the shape of conversations, and what Spark and a store make of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from oteval.extras.spark import score
from oteval.model import LogRecord, Span
from oteval.scoring.config import parse_config
from oteval.store.telemetry_rows import log_table, span_table

from ...scoring.test_trace_scores import plain, stored

RULES = """
evaluators:
  - {name: errors, type: tool_errors}
  - {name: half, type: tool_errors, sample: 0.5}
  - {name: agents, type: loops, where: {agent: [support, researcher]}}
"""
Rows = list[dict[str, Any]]
_SECOND = 1_000_000_000
_RESOURCE = {"service.name": "desk"}


def of_spark(spark: Any, folder: Path, rules: str = RULES, **options: Any) -> tuple[Rows, Rows]:
    """Return the rows of the trajectories and scores that Spark makes of a folder's files."""
    kinds = [kind for kind in ("spans", "logs") if (folder / f"{kind}.parquet").exists()]
    frames = {kind: spark.read.parquet(str(folder / f"{kind}.parquet")) for kind in kinds}
    found = score(frames["spans"], parse_config(rules), frames.get("logs"), **options)
    runs, scores = (without_timestamps(frame.toArrow()).to_pylist() for frame in found)
    return plain(runs), plain(without_starts(runs, scores))


def without_timestamps(table: pa.Table) -> pa.Table:
    """Return rows without their timestamps, each of which must equal its time in ns."""
    for column, name in (
        ("start_ns", "start_time"),
        ("end_ns", "end_time"),
        ("time_ns", "score_time"),
    ):
        if column in table.column_names:
            micros = pc.cast(table[name], pa.timestamp("us")).cast(pa.int64())
            assert micros == pc.divide(table[column], 1000)
            table = table.drop_columns([name])
    return table


def without_starts(runs: Rows, scores: Rows) -> Rows:
    """Return rows of scores without the starts of their runs, which must be right."""
    starts = {row["trajectory_id"]: row["start_ns"] for row in runs}
    assert [row["start_ns"] for row in scores] == [starts[row["trajectory_id"]] for row in scores]
    return [{name: row[name] for name in row if name != "start_ns"} for row in scores]


def on_spark(
    spark: Any, spans: Sequence[Span], logs: Sequence[LogRecord], folder: Path, rules: str = RULES
) -> tuple[Rows, Rows]:
    """Return the rows of the trajectories and scores that Spark makes of spans and records."""
    pq.write_table(span_table(spans, 1), folder / "spans.parquet")
    pq.write_table(log_table(logs, 1), folder / "logs.parquet")
    return of_spark(spark, folder, rules)


def in_store(
    spans: Sequence[Span], logs: Sequence[LogRecord], base: Path, rules: str = RULES
) -> tuple[Rows, Rows]:
    """Return the rows of a store; a run that was read again while it was filled has a later `rev`.

    Spark reads each run whole, so all runs have the revision 1 there.
    """
    runs, scores = stored(spans, logs, parse_config(rules), base)
    return first_revision(runs), first_revision(scores)


def first_revision(rows: Iterable[dict[str, Any]]) -> Rows:
    """Return rows with the revision 1."""
    return [{**row, "rev": 1} for row in rows]


def conversation(
    number: int, *, turns: int, calls: int, question: str = "Where is it?"
) -> Iterator[Span]:
    """Yield the spans of a conversation: of each turn, in a trace, an agent with calls of a tool.

    Args:
        number: The number of the conversation.
        turns: How many turns it has.
        calls: How often the agent of a turn calls the tool. A turn has ``2 * calls + 2`` spans.
        question: The first question.
    """
    for turn in range(turns):
        trace_id = f"{number * 1_000_000 + turn + 1:032x}"
        start = 1_700_000_000 * _SECOND + (number * 1_000 + turn * 60) * _SECOND
        agent = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "support",
            "gen_ai.conversation.id": f"conversation-{number}",
        }
        said: list[str] = [_text("user", question if turn == 0 else f"And order {turn}?")]
        yield _span(trace_id, 1, start, agent, (calls + 1) * _SECOND)
        for call in range(calls + 1):
            name, at = f"call-{number}-{turn}-{call}", start + call * _SECOND
            is_last = call == calls
            answer = (
                _text("assistant", f"Order {turn} arrives.")
                if is_last
                else _part(
                    "assistant", type="tool_call", id=name, name="find", arguments={"at": call}
                )
            )
            chat = {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "m",
                "gen_ai.input.messages": f"[{','.join(said)}]",
                "gen_ai.output.messages": f"[{answer}]",
            }
            yield _span(trace_id, 2 * call + 2, at + 1, chat)
            if is_last:
                break
            tool = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "find",
                "gen_ai.tool.call.id": name,
            }
            failed = (number + turn + call) % 50 == 0
            yield _span(trace_id, 2 * call + 3, at + 2, tool, status=2 if failed else 0)
            result = {"type": "tool_call_response", "id": name, "response": f"found {call}"}
            said += [answer, _part("tool", **result)]


def _span(
    trace_id: str,
    number: int,
    start: int,
    attributes: dict[str, Any],
    length: int = 1000,
    status: int = 0,
) -> Span:
    root = f"{1:016x}"
    return Span(
        trace_id,
        f"{number:016x}",
        "" if number == 1 else root,
        start_ns=start,
        end_ns=start + length,
        status_code=status,
        attributes=attributes,
        resource=_RESOURCE,
    )


def _text(role: str, text: str) -> str:
    return _part(role, type="text", content=text)


def _part(role: str, **part: Any) -> str:
    return json.dumps({"role": role, "parts": [part]})
