"""Spark: trajectories and scores of Parquet, from 1 to 10 million spans, and of long histories.

The spans are those of `traces`: runs of four spans. A standalone Spark has a master and workers
with a core each, all on this machine. The clock covers a warm session, which has scored other spans
twice, or the long histories eight times, because they take so short that the JVM still compiles: it
covers reading Parquet, grouping, reconstructing, two checks of each run, and writing both results
as Parquet. CPU seconds are those of the driver, the master, the workers, the executors and their
Python processes; starting them is not measured.

The single machine reconstructs and scores the same spans in a database that holds them, in one
process. Its storing of spans is not measured, as is writing the Parquet.

For the ratio of two cores to one, all processes of a run are bound to so many processors. The first
size is measured on one core, twice on two, and on one again, and the means count, because machines
that others share become faster and slower with time. The wall time means nothing while other
processes use the cores; CPU seconds hardly change.

``histories`` is the file of the benchmark of that name: runs of 40 calls, each of which repeats all
earlier messages.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from . import histories, parts, traces
from .checks import check
from .clock import module, run, spent
from .report import Row, below
from .spark_cluster import FamilyCpu, SparkCluster

FULL = {"sizes": [1_000_000, 4_000_000, 10_000_000], "runs": 100}
QUICK = {"sizes": [20_000, 80_000], "runs": 10}

LEAST_SPEEDUP = 1.7
MOST_TIMES_SINGLE = 2
MOST_TIMES_LINEAR = 1.25
"""The most CPU seconds a span at the largest size, times those at the smallest."""

_CALLS = 40
_WARM_PART = 10
"""The spans of a warm-up are the first size divided by this."""
_WARM_JOBS, _WARM_HISTORIES = 2, 8
_RULES = """
evaluators:
  - {name: errors, type: tool_errors}
  - {name: loops, type: loops}
"""


def write_spans(folder: Path, parts: int, spans: int) -> None:
    """Write generated spans as Parquet files, and the database that holds those of the first.

    Args:
        folder: The new folder. The database is beside it, with its name and ``.duckdb``.
        parts: The number of files.
        spans: The spans of each.
    """
    folder.mkdir()
    lines, first = folder.with_suffix(".jsonl"), folder.with_suffix(".duckdb")
    for number in range(parts):
        traces.write(lines, spans, seed=number + 1)
        database = first if number == 0 else folder.with_suffix(".other.duckdb")
        _parquet(lines, folder / f"part-{number:02}.parquet", database)
    lines.unlink()


def _first_parts(folder: Path, count: int) -> Path:
    """Return a folder with the first files of another one."""
    part = folder.with_name(f"{folder.name}-{count}")
    part.mkdir()
    for path in sorted(folder.iterdir())[:count]:
        (part / path.name).hardlink_to(path)
    return part


def write_histories(folder: Path, runs: int) -> None:
    """Write the long histories as a Parquet file."""
    folder.mkdir()
    lines = folder.parent / "histories.jsonl"
    histories.write(lines, runs, _CALLS)
    _parquet(lines, folder / "part-00.parquet", folder.parent / "histories.duckdb")


def _parquet(lines: Path, path: Path, database: Path) -> None:
    """Write the spans of a file as Parquet, through a new database, which stays."""
    database.unlink(missing_ok=True)
    run(module("benchmarks.spark", "--do", "parquet", lines, path, database))


def do_parquet(lines: str, path: str, database: str) -> None:
    """Load a file into a database, and write its spans as Parquet."""
    import pyarrow.parquet as pq

    from oteval.scoring import load
    from oteval.store import Store

    with Store(database) as store:
        report = load(store, [lines])
        check(report.stored and not report.bad, "all spans are stored", report)
        batches = store.spans.export()
        with pq.ParquetWriter(path, batches.schema, compression="zstd") as writer:
            for batch in batches:
                writer.write_batch(batch)


def do_single(database: str) -> dict[str, float]:
    """Reconstruct and score the spans of a database in this process."""
    from oteval.scoring import refresh, score
    from oteval.scoring.config import parse_config
    from oteval.store import Store

    with Store(database) as store, spent() as cost:
        runs = refresh(store)
        scored = score(store, parse_config(_RULES), Path())
        scores = sum(stored.passed is not None for stored in scored)
    return {"cpu_s": cost.cpu, "wall_s": cost.wall, "runs": runs, "scores": scores}


def do_spark(folder: str, cores: str, warm: str, jobs: str) -> dict[str, float]:
    """Score a folder of Parquet on a new cluster, after a warm-up.

    Args:
        folder: The folder.
        cores: The processors, and the workers.
        warm: The folder that is scored before.
        jobs: How many times.
    """
    from oteval.extras.spark import score
    from oteval.scoring.config import parse_config

    processors = sorted(os.sched_getaffinity(0))[: int(cores)]
    os.sched_setaffinity(0, processors)
    with (
        tempfile.TemporaryDirectory() as name,
        SparkCluster(Path(name), len(processors)) as cluster,
    ):
        session = cluster.session(spark__ui__showConsoleProgress="false")
        for number, source in enumerate([*[warm] * int(jobs), folder]):
            start = time.perf_counter()
            with FamilyCpu() as cpu:
                scored = score(session.read.parquet(source), parse_config(_RULES))
                for kind, frame in scored._asdict().items():
                    frame.write.parquet(f"{name}/out-{number}/{kind}")
            wall = time.perf_counter() - start
            session.catalog.clearCache()
        written = f"{name}/out-{jobs}"
        runs = session.read.parquet(f"{written}/trajectories").count()
        verdicts = session.read.parquet(f"{written}/scores").where("passed IS NOT NULL")
        scores = verdicts.count()
        session.stop()
    return {"cpu_s": cpu.seconds, "wall_s": wall, "runs": runs, "scores": scores}


def measure(*, sizes: list[int], runs: int) -> dict[str, Any]:
    """Measure Spark beside a single machine.

    Args:
        sizes: How many spans, ascending; multiples of the first.
        runs: The runs of the long histories.

    Returns:
        For each of the ``sizes``, for the first on ``one_core``, and for ``histories`` the
        ``spans``, ``cpu_s`` and ``wall_s``; and as ``single`` those of the single machine for the
        first size and the histories.
    """
    figures: dict[str, Any] = {"sizes": []}
    least = sizes[0]
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        warm, folder = base / "warm", base / "spans"
        write_spans(warm, 1, least // _WARM_PART)
        write_spans(folder, sizes[-1] // least, least)
        traces_of = least // traces.SPANS_PER_TRACE
        single = _measured(traces_of, "single", folder.with_suffix(".duckdb"))
        figures["single"] = {"spans": least, **single}
        small = _first_parts(folder, 1)
        costs: dict[int, list[dict[str, float]]] = {1: [], 2: []}
        for cores in (1, 2, 2, 1):
            costs[cores].append(_measured(traces_of, "spark", small, cores, warm, _WARM_JOBS))
        figures["one_core"] = {"spans": least, **_mean(costs[1])}
        figures["sizes"].append({"spans": least, **_mean(costs[2])})
        for spans in sizes[1:]:
            part = _first_parts(folder, spans // least)
            count = spans // traces.SPANS_PER_TRACE
            cost = _measured(count, "spark", part, 2, warm, _WARM_JOBS)
            figures["sizes"].append({"spans": spans, **cost})
        folder = base / "histories"
        write_histories(folder, runs)
        spans = runs * 2 * _CALLS
        single = _measured(runs, "single", base / "histories.duckdb")
        cost = _measured(runs, "spark", folder, 2, folder, _WARM_HISTORIES)
        figures["histories"] = {"spans": spans, **cost, "single": {"spans": spans, **single}}
    return figures


def _measured(runs: int, work: str, *arguments: Any) -> dict[str, float]:
    """Do some work in a separate process, and check that it scored so many runs."""
    result: dict[str, float] = json.loads(
        run(module("benchmarks.spark", "--do", work, *arguments)).output
    )
    # The whole takes more than an hour, so each figure is shown when it is there.
    print(work, *arguments, result, file=sys.stderr, flush=True)
    check(result["runs"] == runs, f"the spans are {runs:,} runs", result["runs"])
    check(result["scores"] == 2 * runs, "each run has two verdicts", result["scores"])
    return result


def _mean(costs: list[dict[str, float]]) -> dict[str, float]:
    return {name: fmean(cost[name] for cost in costs) for name in costs[0]}


def _cost(work: dict[str, float]) -> float:
    """Return the microseconds of CPU a span."""
    return work["cpu_s"] / work["spans"] * 1e6


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    out = [
        Row(
            f"Spark, {size['spans']:,} spans: CPU us a span, seconds",
            f"{_cost(size):.0f}, {size['wall_s']:,.0f}",
        )
        for size in figures["sizes"]
    ]
    first, last = figures["sizes"][0], figures["sizes"][-1]
    steep = _cost(last) / _cost(first)
    out.append(
        below("CPU a span, the largest times the smallest", steep, "{:.2f}", MOST_TIMES_LINEAR)
    )
    for label, ours, single in (
        (f"{first['spans']:,} spans", first, figures["single"]),
        ("long histories", figures["histories"], figures["histories"]["single"]),
    ):
        out.append(Row(f"a single machine, {label}: CPU us a span", f"{_cost(single):.0f}"))
        times = _cost(ours) / _cost(single)
        figure = f"Spark, {label}: CPU a span, times a single machine's"
        out.append(below(figure, times, "{:.2f}", MOST_TIMES_SINGLE))
    faster = figures["one_core"]["wall_s"] / first["wall_s"]
    out.append(
        Row(
            f"two cores, times as fast as one, {first['spans']:,} spans",
            f"{faster:.2f}",
            target=f"at least {LEAST_SPEEDUP}",
            held=faster >= LEAST_SPEEDUP,
        )
    )
    return out


def _do(work: str, *arguments: str) -> None:
    if work == "parquet":
        do_parquet(*arguments)
    else:
        does = {"single": do_single, "spark": do_spark}[work]
        print(json.dumps(does(*arguments)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--do"]:
        _do(*sys.argv[2:])
    else:
        parts.main("spark")
