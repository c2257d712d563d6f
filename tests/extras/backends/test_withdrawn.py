"""A pushed verdict that no longer counts does not stay in the backend as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from oteval.extras.backends.transfer import push
from oteval.model import Trajectory
from oteval.scoring.annotations import Annotation, PushReport, withdrawal_of
from oteval.store import Store

from ...make import keep, run, score
from .backend_servers import BACKENDS, TARGETS, annotation_for, connected


def withdrawn(name: str) -> Annotation:
    """Return the withdrawal of `annotation_for`."""
    changed = {"score": None, "label": "withdrawn", "explanation": "error: no"}
    return replace(annotation_for(name), is_withdrawal=True, **changed)


def held(fake: Any) -> list[Any]:
    """Return the annotations that a small server has."""
    names = ("annotations", "assessments", "scores", "feedback")
    return [*next(vars(fake)[name] for name in names if name in vars(fake)).values()]


@pytest.mark.parametrize("name", TARGETS)
def test_a_backend_no_longer_shows_a_withdrawn_verdict(name: str):
    """The annotation is replaced or removed once, and may be written again later."""
    fake = BACKENDS[name].fake()
    with connected(name, fake.answer) as (client, _):
        client.write([withdrawn(name)], PushReport())
        assert held(fake) == []
        client.write([annotation_for(name)], PushReport())
        assert "pass" in str(held(fake))
        first, second = PushReport(), PushReport()

        client.write([withdrawn(name)], first)
        client.write([withdrawn(name)], second)

        assert (first.written, second.written, first.unknown) == (1, 0, 0)
        assert "pass" not in str(held(fake))
        assert "0.5" not in str(held(fake))
        client.write([annotation_for(name)], PushReport())
        assert "pass" in str(held(fake))


@pytest.mark.parametrize("name", TARGETS)
def test_a_withdrawal_does_not_wait_for_a_span(name: str):
    """Where the backend lacks the span, there is nothing to withdraw."""
    report = PushReport()
    with connected(name) as (client, _):
        other = replace(withdrawn(name), trace_id="9" * 32, span_id="9" * 16)

        assert client.write([other], report) == []

    assert (report.unknown, report.written) == (0, 0)


class Target:
    """A backend that keeps annotations by evaluator and version."""

    url = "here"

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str, str], str] = {}

    def write(self, annotations: Sequence[Annotation], report: PushReport) -> Sequence[Annotation]:
        """Keep annotations."""
        for annotation in annotations:
            key = (annotation.span_id, annotation.name, annotation.identifier)
            if not annotation.is_withdrawal or key in self.kept:
                self.kept[key] = f"{annotation.label}: {annotation.explanation}"
                report.written += 1
        return ()

    def close(self) -> None:
        """Do nothing."""


def revision(number: int, rev: int) -> Trajectory:
    """Return a revision of a run."""
    return run(number, start_ns=number * 10**9, end_ns=number * 10**9 + rev)


def test_verdicts_that_no_longer_count_are_withdrawn(store: Store):
    """Of a run that changed, and of one whose last attempt failed; a new version adds a verdict."""
    target = Target()
    keep(store, *(revision(number, 1) for number in range(1, 6)))
    store.scores.write([score(number, comment="fine") for number in range(1, 6)])
    push(store, target)
    assert set(target.kept.values()) == {"pass: fine"}
    keep(store, revision(1, 2))
    store.scores.write(
        [
            score(2, status="error", score=None, passed=None, comment="no answer"),
            score(3, status="not_evaluated", score=None, passed=None, comment="no calls"),
            score(4, passed=False, score=0.0, version="w", comment="bad"),
        ]
    )

    push(store, target)

    labels = {(int(span, 16), version): text for (span, _, version), text in target.kept.items()}
    spans = {number: int(revision(number, 1).root_span.span_id, 16) for number in range(1, 6)}
    old = f"oteval:{score(1).version}"
    assert [labels[spans[number], old] for number in range(1, 6)] == [
        "withdrawn: the run has changed since, and was not scored again",
        "withdrawn: error: no answer",
        "withdrawn: not_evaluated: no calls",
        "pass: fine",
        "pass: fine",
    ]
    assert labels[spans[4], "oteval:w"] == "fail: bad"
    store.scores.write([score(1, rev=2, comment="fine again")])
    push(store, target)
    assert "pass: fine again" in target.kept.values()


def test_the_evaluators_that_are_chosen_are_withdrawn_alone(store: Store):
    """A push of one evaluator leaves the annotations of another as they are."""
    target = Target()
    keep(store, revision(1, 1))
    store.scores.write([score(1, evaluator="a"), score(1, evaluator="b")])
    push(store, target)
    keep(store, revision(1, 2))

    push(store, target, evaluators=["a"])

    states = {name: text.partition(":")[0] for (_, name, _), text in target.kept.items()}
    assert states == {"a": "withdrawn", "b": "pass"}


def test_a_withdrawal_names_the_reason():
    """It has the identifier of the verdict's version, and no score."""
    annotation = withdrawal_of(score(1, status="error", score=None, passed=None, comment="x"))

    assert (annotation.label, annotation.score, annotation.explanation) == (
        *("withdrawn", None),
        "error: x",
    )
    assert annotation.is_withdrawal
