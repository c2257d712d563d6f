"""Checks of a monitor with many groups over many stored scores: time and peak memory.

Runs with one score each are written straight into the tables, in the order of their times, over 30
days. Agents, which the monitor groups by, are not equally busy: the busiest of 1,000 has 3% of the
runs, half of them less than 0.07% each. Three of ten agents talk in conversations of four runs that
overlap with others. Pass rates differ between agents, and one agent in a hundred falls by 0.2 in
the last third. Attributes differ from run to run, and versions change. Columns that a check does
not read, such as messages, are empty.

A fresh process then checks three times, as `oteval monitor run` does, which opens the database for
each check and each part of a long backlog: everything, nothing new, and 1,000 new scores. The peak
is the highest resident set of that process, DuckDB included, without pandas, which oteval does not
need, but Arrow imports where it is installed (35 MB). CPU seconds are of all its threads.

    python -m benchmarks.monitor_store              10 million scores, 1,000 groups
    python -m benchmarks.monitor_store --quick      100,000 scores, 100 groups
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import checks, parts
from .clock import module, run, spent
from .report import Row, compared

FULL = {"scores": 10_000_000, "groups": 1000}
QUICK = {"scores": 100_000, "groups": 100}
MOST_SECONDS, MOST_MEGABYTES, MOST_LIVE_SECONDS = 60.0, 500.0, 1.0

START = 1_790_000_000 * 10**9
_DAYS = 30 * 86_400 * 10**9
_TURNS = 4
_BETWEEN_TURNS = 90 * 10**9
_NEW = 1000
_IDLE = 600 * 10**9
"""A conversation is over after this time without a run (docs/reference/monitors.md)."""
_PART = 250_000
_CONFIG = """
evaluators: [{name: e, type: tool_errors}]
monitors: [{evaluator: e, group_by: agent}]
"""
# Each conversation has _TURNS runs, {apart} runs apart from each other.
_TALKS = """
SELECT i, (i // (4 * {apart})) * {apart} + i % {apart} AS talk,
       floor({groups} * pow(hash(talk) % 1000000 / 1e6, 2))::INTEGER AS agent,
       {start} + i * {step} AS at_ns
FROM range({first}, {last}) r(i)
"""
_RUNS = """
INSERT INTO trajectories BY NAME
SELECT left(md5(i::VARCHAR), 16) AS trajectory_id, 1 AS rev, md5(i::VARCHAR) AS trace_id,
       trajectory_id AS span_id, 'agent ' || agent AS agent, 'service ' || agent % 7 AS service,
       CASE WHEN agent % 10 < 3 THEN 'talk ' || talk END AS conversation_id,
       at_ns AS start_ns, at_ns + 3000000000 AS end_ns, ['gpt-5'] AS models,
       json_object('service.version', '1.' || at_ns // 500000000000000 % 1000, 'env', 'live',
                   'session.id', md5((i + 1)::VARCHAR), 'tenant', hash(i + 2) % 500) AS attributes,
       ['user', 'assistant'] AS roles, ['look'] AS call_names, [1] AS call_hashes,
       ARRAY[]::VARCHAR[] AS gap_codes, 7 AS strict_names, i + 1 AS seq
FROM ({talks})
"""
_SCORES = """
INSERT INTO scores BY NAME
SELECT left(md5(i::VARCHAR), 16) AS trajectory_id, 1 AS rev, md5(i::VARCHAR) AS trace_id,
       'e' AS evaluator, 'version 1' AS version, 'ok' AS status,
       hash(i + 7) % 1000 < 990 - hash(agent) % 90
           - (CASE WHEN hash(agent + 1) % 100 = 0 AND at_ns > {worse} THEN 200 ELSE 0 END)
           AS passed,
       passed::DOUBLE AS score, '{{}}' AS metadata, at_ns + 3000000000 AS time_ns, i + 1 AS seq
FROM ({talks})
"""


def fill(path: Path, scores: int, groups: int) -> int:
    """Write the runs and their scores into a new database; return the time between two runs."""
    from oteval.store import Store

    step = _DAYS // scores
    with Store(path) as store:
        for first in range(0, scores, _PART):
            add_runs(store, first, min(scores, first + _PART), groups=groups, step=step)
    return step


def add_runs(store: Any, first: int, last: int, *, groups: int, step: int) -> None:
    """Write scored runs into a store.

    Args:
        store: The store.
        first: The number of the first run.
        last: The number after that of the last.
        groups: The number of agents.
        step: The time between two runs (ns).
    """
    apart = max(1, _BETWEEN_TURNS // step)
    talks = _TALKS.format(
        first=first, last=last, apart=apart, groups=groups, start=START, step=step
    )
    for statement in (_RUNS, _SCORES):
        # There is no faster public way to store millions of runs.
        store._connection.execute(statement.format(talks=talks, worse=START + _DAYS * 2 // 3))


def check(path: Path, scores: int, groups: int) -> dict[str, Any]:
    """Check three times in this process; return the costs and the numbers of groups by state."""
    from oteval.monitor.monitor_checks import check as check_monitors, check_backlog, little_memory
    from oteval.scoring.config import parse_config
    from oteval.store import Store

    config, step = parse_config(_CONFIG), _DAYS // scores
    now = START + scores * step + 60 * 10**9
    costs, observed, times = [], [], []
    for number in range(3):
        with Store(path, create=False) as store:
            if number == 2:
                add_runs(store, scores, scores + _NEW, groups=groups, step=step)
                now += _NEW * step
        with spent() as cost:
            is_long = True
            while is_long:
                with Store(path, create=False) as store, little_memory(store):
                    is_long = check_backlog(store, config, now)
            with Store(path, create=False) as store, little_memory(store):
                statuses = check_monitors(store, config, now)
        costs.append(asdict(cost))
        observed.append(sum(status.observations for status in statuses))
        times.append(now)
    states = Counter(status.state for status in statuses)
    checks.check(observed[2] > observed[1], "the new scores are observed", observed)
    checks.check(states["ok"] + states["alert"], "some groups have a baseline", states)
    seen = {"observed": observed, "times": times}
    return {"costs": costs, "states": states, "groups": len(statuses), **seen}


def observations(path: Path, runs: int, now: int) -> int:
    """The number of observations of the first runs: single runs, and conversations that are over.

    Args:
        path: The database.
        runs: The number of runs.
        now: The time of the check (ns).
    """
    from oteval.store import Store
    from oteval.store.query import number

    ends = """
        SELECT conversation_id IS NULL OR max(end_ns) + ? <= ? AS is_over
        FROM trajectories
        WHERE seq <= ?
        GROUP BY conversation_id, CASE WHEN conversation_id IS NULL THEN trajectory_id END
    """
    query = f"SELECT count(*) FILTER (is_over) FROM ({ends})"
    with Store(path, create=False) as store:
        return number(store._connection, query, [_IDLE, now, runs])


class _NoPandas:
    """Finds pandas nowhere."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name == "pandas":
            raise ImportError("left out")


def measure(*, scores: int, groups: int) -> dict[str, Any]:
    """Measure the checks.

    Args:
        scores: How many scores are stored.
        groups: How many agents they are of.

    Returns:
        ``scores``, ``groups``, ``peak`` (bytes), the ``states`` of the groups at the end, and
        ``costs``: of the first check, one of nothing new, and one of 1,000 new scores.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scores.duckdb"
        # Linux counts the memory of the process that starts another one as the other's as well.
        run(module("benchmarks.monitor_store", "--fill", path, scores, groups))
        done = run(module("benchmarks.monitor_store", "--do", path, scores, groups))
        figures = json.loads(done.output)
        # Counted by this process, whose memory is not measured.
        expected = [
            observations(path, runs, now)
            for runs, now in zip([scores, scores, scores + _NEW], figures["times"], strict=True)
        ]
    checks.check(
        figures["observed"] == expected, f"the observations are {expected}", figures["observed"]
    )
    return {"scores": scores, "peak": done.peak, **figures}


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    first, nothing, live = figures["costs"]
    title = f"{figures['scores']:,} scores of {figures['groups']:,} groups"
    return [
        _within(f"{title}: seconds", first["wall"], "{:.1f}", MOST_SECONDS),
        Row("its CPU seconds", f"{first['cpu']:.1f}"),
        _within("its peak MB", figures["peak"] / 1e6, "{:,.0f}", MOST_MEGABYTES),
        _within("nothing new: seconds", nothing["wall"], "{:.2f}", MOST_LIVE_SECONDS),
        Row("its CPU seconds", f"{nothing['cpu']:.2f}"),
        _within(f"{_NEW:,} new scores: seconds", live["wall"], "{:.2f}", MOST_LIVE_SECONDS),
        Row("its CPU seconds", f"{live['cpu']:.2f}"),
        Row("groups by state", ", ".join(f"{k} {v:,}" for k, v in figures["states"].items())),
    ]


def _within(figure: str, ours: float, form: str, limit: float) -> Row:
    return compared(figure, ours, limit, "limit", form, at_least=1, smaller_is_better=True)


if __name__ == "__main__":
    if "--do" in sys.argv:
        sys.meta_path.insert(0, _NoPandas())
        database, *sizes = sys.argv[2:]
        sys.stdout.write(json.dumps(check(Path(database), *map(int, sizes))))
    elif "--fill" in sys.argv:
        database, *sizes = sys.argv[2:]
        fill(Path(database), *map(int, sizes))
    else:
        parts.main("monitor_store")
