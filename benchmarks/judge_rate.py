"""Stored runs judged by a language model, as `oteval score` does it: how near to the ideal.

A scripted server answers each request after 100 ms; the rule asks about 50 runs at once, so that
1,000 runs take 2 s at best. Inside the clock is the scoring: reading the runs, making the prompts,
asking with the openai package over real sockets, checking the answers, keeping them and the scores
in a database file. Importing and the first connection are in it too. The server is a process of
its own on the same machine. Memory is the scoring process' peak, at two sizes.

    python -m benchmarks.judge_rate
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import parts
from .checks import check
from .clock import module, run
from .report import Row, below

FULL = {"calls": 1000, "more": 4000, "concurrency": 50, "delay": 0.1}
QUICK = {"calls": 1000, "more": 2000, "concurrency": 50, "delay": 0.1}

AT_MOST = 3.0
FLAT = 1.25


@contextmanager
def serving(delay: float) -> Iterator[str]:
    """Run the server, and yield its address."""
    process = subprocess.Popen(
        module("benchmarks.judge_server", delay),
        cwd=Path(__file__).resolve().parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.communicate(timeout=30)


def fill(path: Path, calls: int) -> None:
    """Write a database of so many runs, each with a different text."""
    from oteval.model import Message, SpanRef, ToolCall, Trajectory, trajectory_id
    from oteval.store import Store

    with Store(path) as store:
        for start in range(0, calls, 500):
            runs = []
            for number in range(start, min(start + 500, calls)):
                call = ToolCall("look_up", {"order": f"W{number:07d}"}, "c1")
                messages = (
                    Message("user", f"Where is my order W{number:07d}? " + "It is late. " * 40),
                    Message("assistant", None, (call,)),
                    Message("tool", "It was sent on Monday. " * 40, tool_call_id="c1"),
                    Message("assistant", f"Order W{number:07d} was sent on Monday."),
                )
                root = SpanRef(f"{number + 1:032x}", f"{number + 1:016x}")
                runs.append(
                    Trajectory(
                        trajectory_id(root.trace_id, root.span_id),
                        root,
                        trace_ids=(root.trace_id,),
                        tail=messages,
                        start_ns=number + 1,
                        end_ns=number + 2,
                    )
                )
            store.trajectories.write(runs, [run.root_span.trace_id for run in runs])


def score(path: Path, url: str, concurrency: int) -> dict[str, Any]:
    """Score the runs of a database, and return the duration and the outcome."""
    start = time.perf_counter()
    from oteval.scoring import ScoreCounts, score as score_all
    from oteval.scoring.config import parse_config
    from oteval.store import Store

    rule = {"name": "quality", "type": "judge", "model": "openai:m", "base_url": url}
    rule["max_concurrency"] = concurrency  # type: ignore[assignment]
    config = parse_config(json.dumps({"evaluators": [rule]}))
    done = ScoreCounts()
    with Store(path) as store:
        for _ in score_all(store, config, Path(), run=done):
            pass
    (counted,) = done.tallies.values()
    return {"wall_s": time.perf_counter() - start, "passed": counted.passed, "reused": done.reused}


def measure(*, calls: int, more: int, concurrency: int, delay: float) -> dict[str, Any]:
    """Measure the scoring.

    Args:
        calls: How many runs are judged.
        more: How many in the measurement of memory beside it.
        concurrency: How many at once.
        delay: Seconds that the server takes for each.

    Returns:
        ``ideal_s``, and for each size ``wall_s``, ``cpu_s``, ``peak`` bytes; ``again_s`` for a
        second scoring, which asks nobody.
    """
    figures: dict[str, Any] = {"calls": calls, "more": more, "concurrency": concurrency}
    figures["ideal_s"] = calls * delay / concurrency
    with tempfile.TemporaryDirectory() as name, serving(delay) as url:
        for key, count in (("first", calls), ("big", more)):
            path = Path(name) / f"{key}.duckdb"
            fill(path, count)
            figures[key] = _child(path, url, concurrency)
            check(figures[key]["passed"] == count, f"{count:,} runs pass", figures[key])
            check(figures[key]["reused"] == 0, "no score is used again", figures[key])
            stored = run(module("benchmarks.judge_rate", "--count", path)).output.strip()
            check(stored == str(count), f"{count:,} scores with a verdict are stored", stored)
        figures["again"] = _child(Path(name) / "first.duckdb", url, concurrency)
        check(figures["again"]["reused"] == calls, "all scores are used again", figures["again"])
    return figures


def count_passes(path: str) -> int:
    """Return how many runs of a database have a score with the verdict of the server."""
    from oteval.store import Store
    from oteval.store.query import number

    condition = "status = 'ok' AND passed AND comment = 'The run does what was asked for.'"
    with Store(path, create=False) as store:
        query = f"SELECT count(DISTINCT trajectory_id) FROM scores WHERE {condition}"
        return number(store._connection, query)


def _child(path: Path, url: str, concurrency: int) -> dict[str, Any]:
    cost = run(module("benchmarks.judge_rate", "--child", path, url, concurrency))
    return {**json.loads(cost.output), "cpu_s": cost.cpu, "peak": cost.peak}


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    calls, at_once = f"{figures['calls']:,} runs", f"{figures['concurrency']} at once"
    first, big, ideal = figures["first"], figures["big"], figures["ideal_s"]
    return [
        below(f"{calls}, {at_once}: seconds", first["wall_s"], "{:.2f}", AT_MOST * ideal),
        below(
            f"{calls}: times the ideal of {ideal:g} s", first["wall_s"] / ideal, "{:.2f}", AT_MOST
        ),
        Row(f"{calls}: CPU seconds", f"{first['cpu_s']:.2f}"),
        Row(f"{calls} judged before: seconds", f"{figures['again']['wall_s']:.2f}"),
        Row(f"{calls}: peak MB", f"{first['peak'] / 1e6:.0f}"),
        below(
            f"{figures['more']:,} runs: peak MB",
            big["peak"] / 1e6,
            "{:.0f}",
            FLAT * first["peak"] / 1e6,
        ),
    ]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(score(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))))
    elif sys.argv[1:2] == ["--count"]:
        print(count_passes(sys.argv[2]))
    else:
        parts.main("judge_rate")
