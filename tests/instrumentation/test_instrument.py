"""`oteval.instrument`: the destinations, and what reaches them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import Run
from tests.instrumentation.programs import run_program
from tests.otlp_endpoint import listening

AGENT = """
import oteval
handle = oteval.instrument({to!r}, service="shop")
from opentelemetry import _logs, trace
from opentelemetry._logs import LogRecord
from tests.agent import answer
answer("Refund order 17", "search", "refund")
with trace.get_tracer("agent").start_as_current_span("call"):
    _logs.get_logger("wire").emit(LogRecord(event_name="exchange", body={{"text": "x" * 100_000}}))
"""


def test_spans_and_logs_reach_an_endpoint() -> None:
    """Two lines export the spans and log records of a program that simply ends."""
    with listening() as endpoint:
        done = run_program(AGENT.format(to=endpoint.url))

    assert (done.returncode, done.stderr) == (0, "")
    assert len(endpoint.spans()) == 7
    [record] = endpoint.log_records()
    assert len(record.body.kvlist_value.values[0].value.string_value) == 100_000


@pytest.mark.parametrize("name", ["runs/traces.jsonl", "traces.jsonl.gz"])
def test_a_file_can_be_ingested(tmp_path: Path, oteval: Run, name: str) -> None:
    """A file, in a folder that is created, gives the trajectory after `oteval ingest`."""
    done = run_program(AGENT.format(to=str(tmp_path / name)))
    ingested = oteval("ingest", str(tmp_path / name), "--db", str(tmp_path / "db"))
    shown = oteval("trajectories", "--db", str(tmp_path / "db"))

    assert (done.returncode, done.stderr) == (0, "")
    assert "read 8  stored 8" in ingested.out + ingested.err
    assert "Refund order 17" in shown.out


def test_a_database_holds_the_trajectory(tmp_path: Path, oteval: Run) -> None:
    """A database can be read as soon as the program has ended."""
    database = tmp_path / "runs.duckdb"

    done = run_program(AGENT.format(to=str(database)))
    shown = oteval("trajectories", "--db", str(database))

    assert (done.returncode, done.stderr) == (0, "")
    assert "Refund order 17" in shown.out
