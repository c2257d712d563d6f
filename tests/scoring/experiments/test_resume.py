from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from oteval import ConfigError, Store, evaluate, load_experiment

from ...make import ROOT

DATA = [{"id": f"e{n}", "inputs": n} for n in range(5)]


class Counted:
    """A function that records its arguments."""

    def __init__(self, name: str, fails_on: tuple[Any, ...] = ()) -> None:
        self.__name__, self.fails_on = name, fails_on
        self.seen: list[Any] = []

    def __call__(self, outputs: Any) -> Any:  # noqa: D102
        self.seen.append(outputs)
        if outputs in self.fails_on:
            raise ValueError(outputs)
        return outputs


def test_finished_records_are_not_repeated(store: Store):
    """A resumed experiment repeats only failed runs and evaluations."""
    target, judge = Counted("target", (1, 2)), Counted("judge", (3,))
    first = evaluate(target, DATA, [judge], name="x", store=store)
    target.fails_on, judge.fails_on = (2,), ()
    target.seen, judge.seen = [], []

    second = evaluate(target, DATA, [judge], name="x", resume=True, store=store)

    assert sorted(target.seen) == [1, 2]
    assert sorted(judge.seen) == [1, 3]
    assert (first.errors, second.errors) == (2, 1)
    assert (second.experiment, second.rows[0]) == (first.experiment, first.rows[0])
    assert [feedback.status for row in second for feedback in row.feedback] == ["ok"] * 4
    assert load_experiment("x", store).to_dicts() == second.to_dicts()


def test_a_new_evaluator_evaluates_the_stored_runs(store: Store):
    """Existing feedback stays, and the new evaluator is called with the stored outputs."""
    target, old, new = Counted("target"), Counted("old"), Counted("new")
    evaluate(target, DATA, [old], name="x", store=store)
    target.seen, old.seen = [], []

    resumed = evaluate(target, DATA, [old, new], name="x", resume=True, store=store)

    assert (target.seen, old.seen, sorted(new.seen)) == ([], [], [0, 1, 2, 3, 4])
    assert [figure.key for figure in resumed.summary()] == ["old", "new"]


def test_a_changed_evaluator_is_called_again(store: Store):
    """Its version is a hash of its code; only its newest results count."""
    evaluate(lambda n: n, DATA, [_half], name="x", store=store)

    resumed = evaluate(lambda n: n, DATA, [_double], name="x", resume=True, store=store)

    assert [row.feedback[0].score for row in resumed] == [0, 2, 4, 6, 8]
    assert len(load_experiment("x", store).feedback()["judge"]) == 5


def _half(outputs: int) -> float:
    return outputs / 2


def _double(outputs: int) -> float:
    return outputs * 2


_half.__name__ = _double.__name__ = "judge"


def test_more_repetitions_are_added(store: Store):
    """With more repetitions, only the missing ones are run."""
    target = Counted("target")
    evaluate(target, DATA, name="x", store=store)
    target.seen = []

    resumed = evaluate(target, DATA, name="x", num_repetitions=3, resume=True, store=store)

    assert (len(target.seen), len(resumed)) == (10, 15)


def test_a_prefix_resumes_its_newest_experiment(store: Store):
    """Without `resume`, or the first time, a new experiment starts."""
    target = Counted("target")
    names = [
        evaluate(target, DATA, experiment_prefix="p", resume=resume, store=store).name
        for resume in (True, False, True)
    ]

    assert names[0] != names[1] == names[2]
    assert len(target.seen) == 10


def test_a_name_is_not_used_twice_by_accident(store: Store):
    """An existing name needs `resume`, and then the same data."""
    evaluate(Counted("target"), DATA, name="x", store=store)

    with pytest.raises(ConfigError, match="experiment 'x' exists already"):
        evaluate(Counted("target"), DATA, name="x", store=store)
    with pytest.raises(ConfigError, match="'x' cannot be resumed: it ran on other data"):
        evaluate(Counted("target"), DATA[:2], name="x", resume=True, store=store)


PROGRAM = """
import sys, time
from oteval import evaluate

def target(n):
    with open("log.txt", "a") as log:
        log.write(f"run {n}\\n")
    time.sleep(0.02)
    return n

def judge(outputs):
    with open("log.txt", "a") as log:
        log.write(f"ask {outputs}\\n")
    return True

data = [{"id": f"e{n}", "inputs": n} for n in range(120)]
found = evaluate(target, data, [judge], name="x", resume=True, store="x.duckdb", max_concurrency=2)
print(len(found), found.summary()[0].passed)
"""


def _start(folder: Path) -> subprocess.Popen[str]:
    (folder / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "program.py"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "ctrl-c"])
@pytest.mark.slow
def test_an_interrupted_experiment_continues(tmp_path: Path, number: int):
    """After a kill little is repeated; after Ctrl-C, nothing."""
    log = tmp_path / "log.txt"
    first = _start(tmp_path)
    deadline = time.monotonic() + 60
    while not log.exists() or log.read_text().count("ask") < 70:
        assert time.monotonic() < deadline
        assert first.poll() is None, first.communicate()
        time.sleep(0.01)
    first.send_signal(number)
    first.communicate(timeout=60)
    done = log.read_text().count("ask")
    with Store(tmp_path / "x.duckdb", create=False) as store:
        interrupted = load_experiment("x", store)
    assert 20 <= len(interrupted) < 120

    second = _start(tmp_path)
    out, err = second.communicate(timeout=60)

    assert out.split() == ["120", "120"], err
    again = log.read_text().count("ask") - 120
    assert again == done - sum(bool(row.feedback) for row in interrupted)
    if number == signal.SIGINT:
        assert again <= 2  # calls in flight
