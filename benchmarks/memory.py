"""Peak memory of loading spans and of reconstructing them, each in a separate process.

The process is a fresh interpreter that imports oteval, opens the store and does the one thing;
the figure is the highest resident set over its whole life, interpreter and imports included.
The children that decode a big file's parts, one a processor, have some 120 MB each beside it, of
which half are libraries that all share.
Loading goes into a new store, and reconstructing starts from that store. The time is that of
the whole process too, so that a rate which falls with the size shows work that is not linear.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from . import parts, traces
from .checks import check
from .clock import module, run
from .report import Row, below

FULL = {"sizes": [100_000, 1_000_000]}
QUICK = {"sizes": [20_000, 50_000]}
LIMIT = 400_000_000
"""Bytes that loading a million spans may take."""

STAGES = ("load", "refresh")


def do(stage: str, database: str, file: str, spans: str) -> None:
    """Do one stage with so many spans in this process."""
    from oteval.scoring import load, refresh
    from oteval.store import Store

    with Store(database) as store:
        if stage == "load":
            report = load(store, [file])
            check((report.stored, report.bad) == (int(spans), 0), "each span is stored", report)
        else:
            runs = refresh(store)
            check(runs == int(spans) // traces.SPANS_PER_TRACE, "each trace is one run", runs)


def measure(*, sizes: list[int]) -> dict[str, Any]:
    """Measure memory.

    Args:
        sizes: How many spans to load.

    Returns:
        ``baseline`` (the peak of importing oteval and opening an empty store), and for each
        stage a list of ``spans``, ``peak``, ``wall_s`` and ``cpu_s`` by size.
    """
    figures: dict[str, Any] = {stage: [] for stage in STAGES}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file, empty = folder / "spans.jsonl", folder / "empty.jsonl"
        least = traces.SPANS_PER_TRACE
        traces.write(empty, least)
        database = folder / "empty.duckdb"
        baseline = run(module("benchmarks.memory", "--do", "load", database, empty, least))
        figures["baseline"] = baseline.peak
        for spans in sizes:
            traces.write(file, spans)
            database = folder / f"{spans}.duckdb"
            for stage in STAGES:
                cost = run(module("benchmarks.memory", "--do", stage, database, file, spans))
                figures[stage].append(
                    {
                        "spans": spans,
                        "peak": cost.peak,
                        "wall_s": cost.wall,
                        "cpu_s": cost.cpu,
                    }
                )
            database.unlink()
    return figures


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    out = [Row("peak MB of importing and opening", f"{figures['baseline'] / 1e6:,.0f}")]
    for stage in STAGES:
        for size in figures[stage]:
            figure, peak = f"peak MB of {stage}, {size['spans']:,} spans", size["peak"] / 1e6
            if stage == "load":
                out.append(below(figure, peak, "{:,.0f}", LIMIT / 1e6))
            else:
                out.append(Row(figure, f"{peak:,.0f}"))
            rates = (f"{size['spans'] / size[clock]:,.0f}" for clock in ("wall_s", "cpu_s"))
            out.append(
                Row(f"{stage}, {size['spans']:,} spans: per wall / CPU second", " / ".join(rates))
            )
    return out


if __name__ == "__main__":
    if sys.argv[1:2] == ["--do"]:
        do(*sys.argv[2:6])
    else:
        parts.main("memory")
