"""Check a monitor with many groups over many stored scores.

    python -m benchmarks.monitor_store [--scores N] [--groups N]

It writes N runs with one score each into a database, in the order of their times, and checks a
monitor grouped by agent. It prints the time of the first check, which reads everything, that of a
second check, which reads nothing new, and the peak memory of the process.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

from oteval.config import parse_config
from oteval.monitor.check import check
from oteval.store import Store

START = 1_790_000_000_000_000_000
STEP = 260_000_000  # 10 million runs in 30 days
CONFIG = """
evaluators: [{name: e, type: tool_errors}]
monitors: [{evaluator: e, group_by: agent}]
"""
RUNS = """
INSERT INTO trajectories BY NAME
SELECT md5(i::VARCHAR)[:16] AS trajectory_id, 1 AS rev, md5(i::VARCHAR) AS trace_id,
       md5(i::VARCHAR)[:16] AS span_id, 'agent ' || (hash(i) % {groups}) AS agent, 's' AS service,
       {start} + i * {step} AS start_ns, {start} + i * {step} + 1000000000 AS end_ns,
       ['gpt-5'] AS models, '{{"service.version":"1","env":"live"}}' AS attributes,
       ['user', 'assistant'] AS roles, ['look'] AS call_names, [1] AS call_hashes,
       ARRAY[]::VARCHAR[] AS gap_codes, 7 AS strict_names, i + 1 AS seq
FROM range({first}, {last}) r(i)
"""
SCORES = """
INSERT INTO scores BY NAME
SELECT md5(i::VARCHAR)[:16] AS trajectory_id, 1 AS rev, md5(i::VARCHAR) AS trace_id,
       'e' AS evaluator, 'v' AS version, 'ok' AS status, (hash(i + 7) % 100 < 95) AS passed,
       (hash(i + 7) % 100 < 95)::DOUBLE AS score, '{{}}' AS metadata,
       {start} + i * {step} AS time_ns, i + 1 AS seq
FROM range({first}, {last}) r(i)
"""
PART = 500_000


def fill(path: Path, scores: int, groups: int) -> None:
    """Write the runs and their scores."""
    with Store(path) as store:
        for first in range(0, scores, PART):
            values = {"first": first, "last": min(scores, first + PART), "groups": groups}
            for statement in (RUNS, SCORES):
                # There is no faster public way to store millions of runs.
                store._connection.execute(
                    statement.format(**values, start=START, step=STEP * 10_000_000 // scores)
                )


def main(arguments: list[str] | None = None) -> None:
    """Print the times and the peak memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scores", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--database", type=Path, help="Use this file if it exists, or write it.")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = given.database or Path(folder) / "b.duckdb"
        if not path.exists():
            fill(path, given.scores, given.groups)
            if given.database:
                return
        now = START + 31 * 86_400 * 10**9
        with Store(path) as store:
            store.set_memory_limit("256MB")
            for name in ("first check", "second check"):
                began = time.perf_counter()
                found = check(store, parse_config(CONFIG), now)
                took = time.perf_counter() - began
                sys.stdout.write(f"{name}: {took:.2f} s, {len(found)} groups\n")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        states = sorted({one.state for one in found})
        sys.stdout.write(f"states: {states}, peak memory: {peak:.0f} MB\n")


if __name__ == "__main__":
    main()
