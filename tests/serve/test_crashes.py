"""Live scoring killed at random moments."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.serve_kills import PARTS, survive
from oteval.serve.evaluator_rules import EvaluatorRules
from oteval.serve.scoring_loop import ScoringLoop
from oteval.store import Store

from ..make import ROOT

EVALUATORS = """
import time
def slow(outputs):
    time.sleep(0.002)
    return len(outputs) > 1
def flaky(trajectory):
    if int(trajectory.id, 16) % 5 == 0:
        raise ValueError("no")
    return True
"""
RULES = """
evaluators:
  - {name: slow, type: python, call: "crash_evaluators:slow"}
  - {name: flaky, type: python, call: "crash_evaluators:flaky"}
  - {name: match, type: trajectory_match, mode: superset, reference: reference.json}
completion: {quiet: 20ms}
"""
CHILD = """
import sys
from pathlib import Path
from oteval.serve.evaluator_rules import EvaluatorRules
from oteval.serve.scoring_loop import ScoringLoop
from oteval.store import Store
from tests.make import chat
folder = Path(sys.argv[1])
store = Store(folder / "t.duckdb")
scoring = ScoringLoop(store.sibling(), EvaluatorRules(folder / "oteval.yaml", store))
number = store.spans.count()[0]
while True:
    batch = range(number + 1, number + 9)
    number += 8
    store.spans.write([chat(n, 1, [("user", "hi")], f"answer {n}") for n in batch])
    print("stored", flush=True)
    scoring.tick()
"""


@pytest.mark.slow
def test_killed_at_random_moments_every_run_has_one_score_of_each(tmp_path: Path) -> None:
    """After eight SIGKILLs: one current score per run and evaluator, no verdict written twice."""
    (tmp_path / "crash_evaluators.py").write_text(EVALUATORS)
    (tmp_path / "oteval.yaml").write_text(RULES)
    (tmp_path / "reference.json").write_text("[]")
    chance = random.Random(7)
    for _ in range(8):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"stored\n"
        time.sleep(chance.uniform(0.05, 0.8))
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()

    with Store(tmp_path / "t.duckdb") as store:
        scoring = ScoringLoop(store.sibling(), EvaluatorRules(tmp_path / "oteval.yaml", store))
        until = time.monotonic() + 60
        while scoring.tick() or scoring.open_traces or not scoring.is_idle:
            assert time.monotonic() < until
            time.sleep(0.005)
        spans = store.spans.count()[0]
        runs = {t.id for t in store.trajectories.read()}
        current = [(s.trajectory_id, s.evaluator) for s in store.scores.read()]
        twice = store._connection.execute(
            "SELECT count(*) FROM (SELECT 1 FROM scores WHERE status = 'ok' "
            "GROUP BY trajectory_id, rev, evaluator, version HAVING count(*) > 1)"
        ).fetchall()
        scoring.close()

    assert len(runs) == spans > 20
    assert sorted(current) == sorted((run, e) for run in runs for e in ("flaky", "match", "slow"))
    assert twice == [(0,)]


@pytest.mark.slow
def test_a_server_whose_processes_are_killed_loses_nothing(tmp_path: Path) -> None:
    """Under load, each process killed: all is stored once, scored once, and sent on with scores."""
    found = survive(tmp_path, PARTS, rate=500, seed=3)

    assert found.acknowledged > 100
    assert found.is_sound, found
    assert found.forwarded_unscored == 0
