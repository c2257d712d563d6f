"""Spans into trajectories: the pure function, and the pipeline around it.

``captured`` and ``generated`` time `oteval.reconstruct.reconstruct` alone, in CPU time, on spans
that are in memory before the clock starts. Captured are the traces of ``tests/data/traces``, one
call a capture with its log records, repeated with new trace ids; generated are those of `traces`,
one call per 1,000 traces as the pipeline makes them.

``refresh`` times `oteval.scoring.refresh` on a store that was loaded before: reading the
spans back, reconstructing them and storing the trajectories.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from oteval.ingest import decode_json, read
from oteval.model import LogRecord, Span
from oteval.reconstruct import reconstruct
from oteval.scoring import load, refresh
from oteval.store import Store

from . import parts, traces
from .checks import check
from .clock import ROOT, Spent, median, spent
from .report import Row

FULL = {"copies": 20, "spans": 40_000, "repeats": 3}
QUICK = {"copies": 3, "spans": 8_000, "repeats": 1}

CAPTURES = ROOT / "tests" / "data" / "traces"
_NO_CAPTURES = ("gold.json",)
_PAGE = 1000 * traces.SPANS_PER_TRACE

Work = tuple[Sequence[Span], Sequence[LogRecord]]


def captured() -> Iterator[Work]:
    """Yield the spans and log records of each captured trace file."""
    for path in sorted(CAPTURES.glob("*.json")):
        if path.name in _NO_CAPTURES or path.name.endswith(".logs.json"):
            continue
        beside = path.with_suffix(".logs.json")
        logs = decode_json(orjson.loads(beside.read_bytes())).logs if beside.exists() else []
        yield decode_json(orjson.loads(path.read_bytes())).spans, logs


def renamed(work: Work, number: int) -> Work:
    """Return a copy of spans and log records whose trace ids are others."""

    def name(trace_id: str) -> str:
        return f"{number:08x}{trace_id[8:]}" if trace_id else ""

    spans, logs = work
    return (
        [
            replace(
                span,
                trace_id=name(span.trace_id),
                links=tuple(replace(link, trace_id=name(link.trace_id)) for link in span.links),
            )
            for span in spans
        ],
        [replace(record, trace_id=name(record.trace_id)) for record in logs],
    )


def generated(file: Path) -> Iterator[Work]:
    """Yield the spans of a file in pages of whole traces."""
    for batch in read(file, chunk=_PAGE):
        yield batch.spans, []


def reconstruct_all(works: Sequence[Work]) -> tuple[Spent, int]:
    """Reconstruct each; return the cost and the number of trajectories."""
    runs = []
    with spent() as cost:
        for spans, logs in works:
            runs += reconstruct(spans, logs)
    check(any(run.messages for run in runs), "the runs have messages")
    return cost, len(runs)


def refresh_new(file: Path, database: Path) -> tuple[Spent, int]:
    """Load a file and reconstruct it; return the cost of the latter and the trajectories."""
    with Store(database) as store:
        load(store, [file])
        with spent() as cost:
            runs = refresh(store)
    database.unlink()
    return cost, runs


def measure(*, copies: int, spans: int, repeats: int) -> dict[str, Any]:
    """Measure reconstruction.

    Args:
        copies: How often the captured traces are repeated.
        spans: How many spans are generated.
        repeats: How often each is measured.

    Returns:
        For ``captured``, ``generated`` and ``refresh``: ``spans``, ``trajectories``, and median
        ``cpu_s`` and ``wall_s``.
    """
    works = [renamed(work, copy) for copy in range(copies) for work in captured()]
    count = sum(len(work[0]) for work in works)
    _, of_each = reconstruct_all([renamed(work, copies) for work in captured()])
    figures = {
        "captured": _measured(lambda: reconstruct_all(works), count, copies * of_each, repeats)
    }
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "spans.jsonl"
        traces.write(file, spans)
        works = list(generated(file))
        runs = spans // traces.SPANS_PER_TRACE
        figures["generated"] = _measured(lambda: reconstruct_all(works), spans, runs, repeats)
        works.clear()
        database = Path(name) / "spans.duckdb"
        figures["refresh"] = _measured(lambda: refresh_new(file, database), spans, runs, repeats)
    return figures


def _measured(
    work: Callable[[], tuple[Spent, int]], spans: int, runs: int, repeats: int
) -> dict[str, Any]:
    """Do some work several times.

    Args:
        work: Returns its cost and the number of runs.
        spans: How many spans it reads.
        runs: How many runs they are.
        repeats: How often.
    """
    costs = []
    for _ in range(repeats):
        cost, count = work()
        check(count == runs, f"the spans are {runs:,} runs", count)
        costs.append(cost)
    cost = median(costs)
    return {
        "spans": spans,
        "trajectories": runs,
        "cpu_s": cost.cpu,
        "wall_s": cost.wall,
    }


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    names = {
        "captured": "reconstruct(), captured traces",
        "generated": "reconstruct(), generated traces",
        "refresh": "pipeline.refresh(), generated traces",
    }
    out = []
    for key, name in names.items():
        work = figures[key]
        for what in ("spans", "trajectories"):
            rates = (f"{work[what] / work[clock]:,.0f}" for clock in ("cpu_s", "wall_s"))
            out.append(Row(f"{name}: {what} per CPU / wall second", " / ".join(rates)))
    return out


if __name__ == "__main__":
    parts.main("reconstruct")
