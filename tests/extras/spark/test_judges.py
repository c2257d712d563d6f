"""Answers and limits of judges in a folder that several processes share, without a JVM."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from oteval.base.errors import BudgetSpent
from oteval.evaluators.judge import JudgeCall
from oteval.extras.spark.judges import FolderBudget, FolderCalls, RequestCount, begin_limits


def take_all(folder: Path, limit: int, taken: multiprocessing.Queue[int]) -> None:
    """Take requests until none is left, and report their count."""
    count = 0
    while True:
        try:
            RequestCount(folder, limit).take()
        except BudgetSpent:
            break
        count += 1
    taken.put(count)


def test_answers_are_found_by_processes_that_began_before(tmp_path: Path):
    """Answers are read even after a killed process's torn line; failed calls are not answers."""
    ours, theirs = FolderCalls(tmp_path), FolderCalls(tmp_path)
    assert ours.get("k") is None

    theirs.put("kind", JudgeCall("k", "m", answer={"score": True}, cost=0.5, time_ns=2))
    theirs.put("kind", JudgeCall("failed", "m", error="refused", cost=0.25, time_ns=1))
    (tmp_path / "killed.jsonl").write_bytes(b'{"evaluator": "kind", "key": "torn"')

    judge_call = ours.get("k")
    assert judge_call is not None
    assert judge_call.answer == {"score": True}
    assert ours.get("failed") is ours.get("torn") is None
    assert (ours.spent("kind", 0), ours.spent("kind", 2), ours.spent("x", 0)) == (0.75, 0.5, 0.0)


@pytest.mark.slow
def test_several_processes_never_take_more_requests_than_the_limit(tmp_path: Path):
    """Three concurrent processes take all requests together, and a resumed job takes none."""
    begin_limits(tmp_path, resumes=False)
    context = multiprocessing.get_context("spawn")
    taken: multiprocessing.Queue[int] = context.Queue()
    workers = [context.Process(target=take_all, args=(tmp_path, 50, taken)) for _ in range(3)]
    for worker in workers:
        worker.start()
    counts = [taken.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join(120)

    assert sum(counts) == 50
    begin_limits(tmp_path, resumes=True)
    with pytest.raises(BudgetSpent, match="max_judge_calls of 50 is spent"):
        RequestCount(tmp_path, 50).take()
    begin_limits(tmp_path, resumes=False)
    RequestCount(tmp_path, 50).take()


def test_costs_are_limited_over_all_processes(tmp_path: Path):
    """A reservation of another process counts, and counts as spent if that process is killed."""
    begin_limits(tmp_path, resumes=False)
    ours = FolderBudget(1.0, folder=tmp_path, evaluator="kind")
    theirs = FolderBudget(1.0, folder=tmp_path, evaluator="kind")
    other = FolderBudget(1.0, folder=tmp_path, evaluator="other")

    theirs.reserve(0.6)
    with pytest.raises(BudgetSpent):
        ours.reserve(0.5)
    theirs.settle(0.6, 0.3)
    ours.reserve(0.5)
    other.reserve(0.9)

    begin_limits(tmp_path, resumes=True)
    with pytest.raises(BudgetSpent):
        theirs.reserve(0.3)
    theirs.reserve(0.2)
