"""Scoring stored runs: `oteval score` on a database with a match and a check.

The store holds runs of eight messages and three calls: 2,000 written by the store, and copies of
their rows with other ids and times. One run in ten fails the match (a call has another argument),
and one in twenty the check `tool_errors` as well. The clock covers the command from its start to
its exit status: opening the database, deciding, writing two scores a run, and printing the tables.
Filling the store is not measured. Peak memory is that of the command's process.

Reading every run, and evaluating it in Python, is measured on a part of the runs in the same store.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from oteval.model import Message, SpanRef, ToolCall, Trajectory, trajectory_id
from oteval.model.selection import Selection
from oteval.scoring import prepare
from oteval.scoring.config import load_config
from oteval.scoring.run_scorer import RunScorer
from oteval.store import Store
from oteval.store.query import number

from . import parts
from .checks import check
from .clock import Spent, run, spent
from .report import Row, below, compared

FULL = {"sizes": [100_000, 1_000_000], "read_runs": 5_000}
QUICK = {"sizes": [10_000], "read_runs": 1_000}

AT_LEAST = 3
MOST_SECONDS_A_MILLION = 60.0
LEAST_LIMIT = 5.0
MOST_MB = 500.0
_WRITTEN = 2000
_COPIES = 25
_SECOND = 10**9
_FILL = "import sys; from benchmarks.stored_scoring import fill_file; fill_file(*sys.argv[1:])"
_PRINT = "import sys; from benchmarks.stored_scoring import print_passes; print_passes(sys.argv[1])"
_FAILS = {"refund": 10, "errors": 20}
"""By evaluator, one run in so many fails."""
_RULES = {
    "evaluators": [
        {
            "name": "refund",
            "type": "trajectory_match",
            "mode": "superset",
            "tool_args": "exact",
            "reference": "reference.json",
        },
        {"name": "errors", "type": "tool_errors"},
    ]
}
_REFUND: dict[str, Any] = {"amount": 10, "currency": "EUR"}
_WORDS = ("account", "agent", "amount", "booking", "delivery", "flight", "invoice", "order")


def written() -> list[Trajectory]:
    """Return the runs that the store writes itself."""
    chance = random.Random(1)
    return [_run(at, chance) for at in range(_WRITTEN)]


def _run(at: int, chance: random.Random) -> Trajectory:
    def text(words: int) -> str:
        return " ".join(chance.choices(_WORDS, k=words))

    root = SpanRef(f"{at:032x}", f"{at:016x}")
    start = 1_700_000_000 * _SECOND + at * _SECOND
    refund = {**_REFUND, "amount": 11} if at % 10 == 0 else _REFUND
    messages = [Message("user", text(30))]
    order = {"order_id": f"W{chance.randrange(10**7)}"}
    for step, (name, arguments) in enumerate(
        (("get_order", order), ("refund", refund), ("close", {}))
    ):
        call_id = f"c{at}-{step}"
        begin = start + step * 1000
        call = ToolCall(name, arguments, call_id, f"{at:012x}{step:04x}", begin, begin + 500)
        messages.append(Message("assistant", None, (call,)))
        failed = step == 1 and at % 20 == 0
        messages.append(Message("tool", text(60), (), call_id, name, is_error=failed))
    messages.append(Message("assistant", text(40)))
    return Trajectory(
        id=trajectory_id(root.trace_id, root.span_id),
        root_span=root,
        trace_ids=(root.trace_id,),
        tail=tuple(messages),
        agent="shop",
        start_ns=start,
        end_ns=start + 2 * _SECOND,
    )


def fill(store: Store, count: int) -> None:
    """Write runs, and copy their rows until there are so many."""
    runs = written()
    store.trajectories.write(runs, [run.root_span.trace_id for run in runs])
    copied = "left(md5(trajectory_id || i), 16) AS trajectory_id, md5(trace_id || i) AS trace_id"
    shift = f"i * {_WRITTEN * _SECOND}"
    for first in range(1, count // _WRITTEN, _COPIES):
        last = min(first + _COPIES, count // _WRITTEN)
        store._connection.execute(
            f"INSERT INTO trajectories BY NAME SELECT t.* REPLACE ({copied}, "
            f"[md5(trace_id || i)] AS trace_ids, start_ns + {shift} AS start_ns, "
            f"end_ns + {shift} AS end_ns, seq + i * {_WRITTEN} AS seq) "
            f"FROM trajectories t, range({first}, {last}) AS copies(i) "
            f"WHERE t.seq <= {_WRITTEN} ORDER BY i, t.seq"
        )
    stored = number(store._connection, "SELECT count(*) FROM trajectories")
    check(stored == count, f"the store has {count:,} runs", stored)


def fill_file(path: str, count: str) -> None:
    """Fill a new database."""
    with Store(path) as store:
        fill(store, int(count))


def score_stored(folder: Path, count: int) -> Spent:
    """Score a database of so many runs with the command, and return the cost."""
    command = [sys.executable, "-m", "oteval", "score", "-c", str(folder / "oteval.yaml")]
    database = str(folder / f"{count}.duckdb")
    cost = run([*command, "--db", database])
    # In another process, whose memory would be counted as that of the next command.
    check_verdicts(json.loads(run([sys.executable, "-c", _PRINT, database]).output), count)
    for name, share in _FAILS.items():
        cells = [name, str(count - count // share), str(count // share)]
        lines = [line.split()[:3] for line in cost.output.splitlines()]
        check(cells in lines, f"the table has the counts {cells}", cost.output[-300:])
    return cost


def print_passes(database: str) -> None:
    """Print how many scores of a database have a verdict, and how many of them passed."""
    with Store(database, create=False) as store:
        rows = store._connection.execute(
            "SELECT evaluator, count(passed), count_if(passed) FROM scores GROUP BY evaluator"
        ).fetchall()
    print(json.dumps({name: counts for name, *counts in rows}))


def check_verdicts(counts: dict[str, list[int]], runs: int) -> None:
    """Check that each evaluator gave its verdict on each run.

    Args:
        counts: By evaluator, how many runs have a verdict, and how many of them passed.
        runs: How many runs were scored.

    Raises:
        CheckError: A run has no verdict, or too many or too few failed.
    """
    expected = {name: [runs, runs - runs // share] for name, share in _FAILS.items()}
    check(counts == expected, f"verdicts and passes are {expected}", counts)


def score_by_reading(folder: Path, count: int, runs: int) -> Spent:
    """Score the latest runs of a database one by one, and return the cost."""
    config = load_config(folder / "oteval.yaml")
    with Store(folder / f"{count}.duckdb") as store, spent() as cost:
        read = store.trajectories.read(Selection(limit=runs))
        scores = list(RunScorer(prepare(config, store, folder), config.salt).score(read))
        store.scores.write(scores)
    verdicts = {name: [s.passed for s in scores if s.evaluator == name] for name in _FAILS}
    counts = {name: [len(passed), passed.count(True)] for name, passed in verdicts.items()}
    check_verdicts(counts, runs)
    return cost


def measure(*, sizes: list[int], read_runs: int) -> dict[str, Any]:
    """Measure both ways of scoring.

    Args:
        sizes: How many runs the stores hold; multiples of 2,000.
        read_runs: How many runs are read.

    Returns:
        ``runs``, a mapping of sizes to ``wall`` and ``cpu`` seconds and the peak in ``mb``; and
        ``read``, the runs per CPU second when they are read.
    """
    figures: dict[str, Any] = {"runs": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "oteval.yaml").write_text(json.dumps(_RULES))
        calls = [{"name": "refund", "args": _REFUND}, {"name": "close", "args": {}}]
        messages = [{"role": "assistant", "tool_calls": calls}]
        (folder / "reference.json").write_text(json.dumps(messages))
        for count in sizes:
            # In a process of its own, whose memory would be counted as that of the command.
            run([sys.executable, "-c", _FILL, str(folder / f"{count}.duckdb"), str(count)])
            cost = score_stored(folder, count)
            figures["runs"][str(count)] = {
                "wall": cost.wall,
                "cpu": cost.cpu,
                "mb": cost.peak / 1e6,
            }
        figures["read"] = read_runs / score_by_reading(folder, sizes[0], read_runs).cpu
    return figures


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    out = []
    for size, cost in figures["runs"].items():
        count = int(size)
        limit = max(LEAST_LIMIT, MOST_SECONDS_A_MILLION * count / 1e6)
        rate = count / cost["cpu"]
        out += [
            below(f"{count:,} runs: seconds", cost["wall"], "{:.1f}", limit),
            below(f"{count:,} runs: peak MB", cost["mb"], "{:.0f}", MOST_MB),
            compared(f"{count:,} runs: runs per CPU second", rate, figures["read"],
                     "reading each run", "{:,.0f}", at_least=AT_LEAST),
        ]  # fmt: skip
    return out


if __name__ == "__main__":
    parts.main("stored_scoring")
