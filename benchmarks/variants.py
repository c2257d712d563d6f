"""Counting variants in SQL: runs per second of `oteval.scoring.variants`.

The store holds runs of two to ten calls in some two hundred sequences, with two scores each: 2,000
runs written by the store, and copies of their rows with other ids and times. The clock covers the
whole call: counts, verdicts with intervals, costs, durations and the share over time of every
variant. Filling the store is not measured.

Reading every run in Python and counting the sequences, with the errors and the newest scores, is
the way before, measured on a part of the runs in the same store.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from oteval.model import Message, Score, SpanRef, ToolCall, Trajectory, Usage, trajectory_id
from oteval.model.selection import Selection
from oteval.scoring import variants
from oteval.store import Store
from oteval.store.query import number

from . import parts
from .checks import check
from .clock import Spent, median, spent
from .report import Row, below, compared

FULL = {"runs": 1_000_000, "repeats": 3, "old_runs": 10_000}
QUICK = {"runs": 20_000, "repeats": 1, "old_runs": 2_000}

AT_LEAST = 10
MOST_SECONDS = 30.0
_WRITTEN = 2000
_TOOLS = [f"tool_{at}" for at in range(20)]
_EVALUATORS = ("match", "tools")
_SECOND = 10**9


def written() -> list[Trajectory]:
    """Return the runs that the store writes itself."""
    chance = random.Random(1)
    return [_run(at, chance) for at in range(1, _WRITTEN + 1)]


def _run(at: int, chance: random.Random) -> Trajectory:
    sequence = random.Random(int(chance.paretovariate(1)))
    messages = [Message("user", "Where is my order? " * 10)]
    for step in range(chance.choice([2, 3, 5, 10])):
        name, call_id = sequence.choice(_TOOLS), f"c{step}"
        messages.append(Message("assistant", None, (ToolCall(name, {"step": step}, call_id),)))
        failed = chance.random() < 0.03
        messages.append(Message("tool", "found " * 30, (), call_id, name, is_error=failed))
    root = SpanRef(f"{at:032x}", f"{at:016x}")
    start = 1_700_000_000 * _SECOND + at * 100 * _SECOND
    return Trajectory(
        id=trajectory_id(root.trace_id, root.span_id),
        root_span=root,
        trace_ids=(root.trace_id,),
        tail=tuple(messages),
        agent="shop",
        models=("gpt-4o",),
        usage=Usage(1000 + at, 200, 10, 4),
        start_ns=start,
        end_ns=start + chance.randrange(_SECOND, 10 * _SECOND),
    )


def fill(store: Store, count: int) -> None:
    """Write runs and their scores, and copy the rows until there are so many."""
    runs = written()
    store.trajectories.write(runs, [run.root_span.trace_id for run in runs])
    store.scores.write(
        [
            Score(
                run.id, run.root_span.trace_id, run.root_span.span_id, name, "1",
                status="ok", score=1.0, passed=at % 10 != 0,
            )
            for at, run in enumerate(runs)
            for name in _EVALUATORS
        ]
    )  # fmt: skip
    copied = "left(md5(trajectory_id || i), 16) AS trajectory_id, md5(trace_id || i) AS trace_id"
    shifted = f"i * {_SECOND}"
    copies = f"range(1, {count // _WRITTEN}) AS copies(i)"
    store._connection.execute(
        f"INSERT INTO trajectories BY NAME SELECT t.* REPLACE ({copied}, "
        f"[md5(trace_id || i)] AS trace_ids, start_ns + {shifted} AS start_ns, "
        f"end_ns + {shifted} AS end_ns) FROM trajectories t, {copies}"
    )
    store._connection.execute(
        f"INSERT INTO scores BY NAME SELECT s.* REPLACE ({copied}, "
        f"seq + i * {_WRITTEN * len(_EVALUATORS)} AS seq) FROM scores s, {copies}"
    )
    stored = number(store._connection, "SELECT count(*) FROM trajectories")
    check(stored == count, f"the store has {count:,} runs", stored)


def count_stored(store: Store, runs: int, top: int | None) -> Spent:
    """Count the variants of all runs and return the cost."""
    with spent() as cost:
        counted = variants(store, top=top)
        rows = list(counted.rows)
    check(counted.runs == runs, f"{runs:,} runs are counted", counted.runs)
    check(len(rows) == (top or counted.variants), "each variant has a row", len(rows))
    total = sum(row["count"] for row in rows)
    check(total == runs or top, "the rows count all runs", total)
    judged = sum(row["judged"] for row in rows)
    check(judged == total * len(_EVALUATORS), "each run has a verdict of each evaluator", judged)
    return cost


def count_in_python(store: Store, runs: int) -> Spent:
    """Read the latest runs, count their variants one by one, and return the cost."""
    selection = Selection(limit=runs)
    counts: Counter[tuple[str, ...]] = Counter()
    errors: Counter[tuple[str, ...]] = Counter()
    with spent() as cost:
        ids = []
        for run in store.trajectories.read(selection):
            own = run.own_messages
            tools = tuple(call.name for message in own for call in message.tool_calls)
            counts[tools] += 1
            errors[tools] += any(message.is_error for message in own)
            ids.append(run.id)
        judged = sum(len(scores) for scores in store.scores.of(ids).values())
    check(counts.total() == runs, f"{runs:,} runs are read", counts.total())
    check(judged == runs * len(_EVALUATORS), "each run has a verdict of each evaluator", judged)
    return cost


def measure(*, runs: int, repeats: int, old_runs: int) -> dict[str, Any]:
    """Measure both ways of counting.

    Args:
        runs: How many runs the store holds; a multiple of 2,000.
        repeats: How often counting in SQL is measured.
        old_runs: How many runs are read in Python.

    Returns:
        ``runs``; runs per second on the wall: ``all``, ``top`` (ten variants), ``python``; and
        ``seconds``, for all variants.
    """
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "v.duckdb") as store:
        fill(store, runs)
        count_stored(store, runs, 10)
        everything = median([count_stored(store, runs, None) for _ in range(repeats)])
        top = median([count_stored(store, runs, 10) for _ in range(repeats)])
        old = count_in_python(store, old_runs)
    return {
        "runs": runs,
        "all": runs / everything.wall,
        "top": runs / top.wall,
        "python": old_runs / old.wall,
        "seconds": everything.wall,
    }


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    old, name = figures["python"], "reading each run"
    return [
        compared("all variants: runs per second", figures["all"], old, name, "{:,.0f}",
                 at_least=AT_LEAST),
        compared("ten variants: runs per second", figures["top"], old, name, "{:,.0f}",
                 at_least=AT_LEAST),
        below(f"{figures['runs']:,} runs: seconds", figures["seconds"], "{:.1f}", MOST_SECONDS),
    ]  # fmt: skip


if __name__ == "__main__":
    parts.main("variants")
