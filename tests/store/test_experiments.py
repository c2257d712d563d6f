from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from oteval import NotFound, Store, make_dataset
from oteval.model import Experiment, Feedback, Run, Vote

EXPERIMENT = Experiment(
    "x1",
    "first",
    prefix="p",
    description="d",
    metadata={"a": [1]},
    dataset="data",
    dataset_version="v",
    repetitions=2,
    expected=4,
    created_ns=5,
)
RUN = Run("r1", "x1", "e1", 1, outputs={"k": [1, None]}, trajectory_id="t", start_ns=1, end_ns=2)
SAID = Feedback(
    run_id="r1",
    evaluator="judge",
    version="v1",
    key="key",
    score=0.5,
    passed=True,
    label="good",
    comment="why",
    metadata={"m": {"n": 1}},
    latency_ns=3,
    time_ns=7,
)
VOTE = Vote("x1", "judge", "v1", "key", "e1", 0, ("r1", "r2"), (1.0, 0.0), comment="c", time_ns=9)


def test_an_experiment_survives_the_store(tmp_path: Path):
    """Experiments, runs, feedback and votes are read unchanged, whatever their content."""
    dataset = make_dataset([{"id": "e1", "inputs": {"q": "é\ud800"}}])
    experiment = replace(EXPERIMENT, dataset_version=dataset.version)
    with Store(tmp_path / "x.duckdb") as store:
        store.datasets.add(dataset)
        store.experiments.add(experiment)
        store.experiments.write("x1", [RUN], [SAID], [VOTE])

    with Store(tmp_path / "x.duckdb", create=False) as store:
        assert store.experiments.get("first") == experiment
        assert store.experiments.runs("x1") == [replace(RUN, inputs={"q": "é\ufffd"})]
        assert store.experiments.feedback("x1") == [SAID]
        assert store.experiments.votes("x1") == [VOTE]


def test_the_newest_counts(store: Store):
    """Only the last of repeated runs, evaluator calls and questions is current."""
    store.experiments.add(EXPERIMENT)
    failed = replace(RUN, outputs=None, error="no")
    store.experiments.write("x1", [failed], [replace(SAID, key="old"), SAID], [VOTE])
    again = replace(RUN, id="r9")
    later = replace(SAID, time_ns=8, version="v2")
    vote = replace(VOTE, time_ns=10, scores=(0.0, 1.0))
    store.experiments.write("x1", [again], [later], [vote])

    assert store.experiments.runs("x1") == [again]
    assert store.experiments.feedback("x1") == [later]
    assert store.experiments.votes("x1") == [vote]


def test_both_orders_of_a_question_are_current(store: Store):
    """The same question with swapped sides is a different one."""
    swapped = replace(VOTE, shown=("r2", "r1"), time_ns=10)
    store.experiments.write("x1", votes=[VOTE, swapped])

    assert store.experiments.votes("x1") == [VOTE, swapped]


def test_runs_and_feedback_are_written_in_one_transaction(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    """If feedback cannot be written, its run is not written."""
    bad = replace(SAID, latency_ns="no number")  # type: ignore[arg-type]

    with pytest.raises((TypeError, ValueError, duckdb.Error)):
        store.experiments.write("x1", [RUN], [bad])

    assert store.experiments.runs("x1") == []
    store.experiments.write("x1", [RUN], [SAID])
    assert store.experiments.feedback("x1") == [SAID]


def test_an_experiment_is_found_by_name_prefix_or_id(store: Store):
    """Names are tried first, then prefixes, of which the newest is taken, then ids."""
    newer = replace(EXPERIMENT, id="x2", name="second", created_ns=6)
    store.experiments.add(EXPERIMENT)
    store.experiments.add(newer)

    assert store.experiments.get("first") == EXPERIMENT
    assert store.experiments.get("p") == newer
    assert store.experiments.get("x1") == EXPERIMENT
    assert store.experiments.find("third") is None
    with pytest.raises(NotFound, match="no experiment 'third'; oteval experiments lists them"):
        store.experiments.get("third")


def test_the_list_counts_runs_errors_and_votes(store: Store):
    """The list has the numbers of runs, errors and votes of each experiment, oldest first."""
    store.experiments.add(replace(EXPERIMENT, id="x2", name="second", created_ns=6))
    store.experiments.add(EXPERIMENT)
    failed = replace(RUN, id="r2", example_id="e2", error="no")
    store.experiments.write("x1", [RUN, failed], votes=[VOTE])

    rows = store.experiments.list()

    counts = [(row["name"], row["runs"], row["errors"], row["votes"]) for row in rows]
    assert counts == [("first", 2, 1, 1), ("second", 0, 0, 0)]


def test_feedback_without_an_evaluation_has_no_verdict():
    """Feedback with an error has neither a score nor a verdict."""
    for wrong in ({"score": 0.0, "passed": None}, {"score": None, "passed": False}):
        with pytest.raises(ValueError, match="cannot have a verdict"):
            replace(SAID, status="error", **wrong)  # type: ignore[arg-type]
