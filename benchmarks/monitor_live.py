"""What monitors cost a server, as a share of the CPU time of scoring.

    python -m benchmarks.monitor_live [--seconds 60] [--rate 20] [--interval 60]

First, a server without monitors scores runs by a check of their tools, and the CPU time of all its
processes (user and system) is divided by the runs. Then a monitor of one group, and one of 100
groups, with 100,000 scored runs of the last 30 days behind them, are checked each time after as
many further runs as come in the time between two checks. The share is the CPU time of a check
divided by that of scoring these runs. Both are CPU times, so that other load counts little.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import checks
from benchmarks.clock import spent
from benchmarks.monitor_store import START, add_runs
from benchmarks.otlp_load import requests, send
from benchmarks.served import Served
from oteval.monitor.monitor_checks import check
from oteval.scoring.config import parse_config
from oteval.store import Store

__all__ = ["check_cost", "run_cost"]

RULES = """
evaluators: [{name: e, type: tool_errors}]
completion: {quiet: 1s}
"""
MONITORS = "monitors: [{evaluator: e, group_by: agent}]\n"
HISTORY, DAYS, CHECKS = 100_000, 30, 7
_SPANS = 8
_WARM_UP = 10.0  # seconds


def run_cost(folder: Path, *, seconds: float, rate: float) -> float:
    """Return the CPU seconds in which a server stores and scores a run.

    Args:
        folder: An empty folder.
        seconds: For how long it is measured.
        rate: Runs a second.
    """
    (folder / "oteval.yaml").write_text(RULES)
    server, stop = Served(folder), threading.Event()
    loads = list(requests(round((seconds + 6 * _WARM_UP) * rate), _SPANS, batch=64, seed=1))
    options = {"rate": rate * _SPANS, "stop": stop}
    loader = threading.Thread(target=lambda: send(server.http, loads, **options))
    try:
        loader.start()
        time.sleep(_WARM_UP)
        pids = [pid for part in server.pids() for pid in part]
        cpu, runs = _cpu(pids), _scored(server)
        time.sleep(seconds)
        cpu, runs = _cpu(pids) - cpu, _scored(server) - runs
        # The time between two scrapes differs from the seconds by some.
        checks.check(runs > rate * seconds / 2, f"{rate:g} runs a second are scored", runs)
        server.check_log()
        return cpu / runs
    finally:
        stop.set()
        loader.join()
        server.stop()


def check_cost(path: Path, groups: int, runs: int) -> float:
    """Return the CPU seconds of a check of a monitor, the median of some.

    Args:
        path: Where to write the database.
        groups: The number of groups.
        runs: The number of new runs before each check.
    """
    config = parse_config(RULES + MONITORS)
    step = DAYS * 86_400 * 10**9 // HISTORY
    costs = []
    with Store(path) as store:
        last = 0
        for number in range(CHECKS + 1):
            first, last = last, last + (runs if number else HISTORY)
            add_runs(store, first, last, groups=groups, step=step)
            with spent() as cost:
                statuses = check(store, config, START + last * step)
            observed = sum(status.observations for status in statuses)
            checks.check(observed == last, f"{last:,} scores are observed", observed)
            if number:
                costs.append(cost.cpu)
    return statistics.median(costs)


def _cpu(pids: Sequence[int]) -> float:
    """Return the CPU seconds of processes so far."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / 100


def _scored(server: Served) -> float:
    text = server.get("/metrics")[1].decode()
    return sum(map(float, re.findall(r"^oteval_scores_total\{.*\} (\S+)", text, re.MULTILINE)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the costs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=20.0, help="runs a second")
    parser.add_argument("--interval", type=float, default=60.0, help="seconds between checks")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        each = run_cost(Path(name), seconds=options.seconds, rate=options.rate)
    runs = round(options.rate * options.interval)
    sys.stdout.write(f"a run: {1000 * each:.2f} ms of CPU; {runs} runs: {each * runs:.1f} s\n")
    for groups in (1, 100):
        with tempfile.TemporaryDirectory() as name:
            cost = check_cost(Path(name) / "x.duckdb", groups, runs)
        share = cost / (each * runs)
        sys.stdout.write(f"a check of {groups} groups: {1000 * cost:.0f} ms of CPU, {share:.1%}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
