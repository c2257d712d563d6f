"""The actions on a run, as its page offers them: labels, reference, dataset, test, new scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...model import Label
from ...scoring import Config
from ...store import Store
from ..text import clean, one_line, shorten

__all__ = ["DONE", "RunActions", "ShownLabel", "run_actions", "shown_label"]

DONE = {
    "label": "The label is stored.",
    "labelled": "The label of the run before is stored.",
    "reference": "The run is a reference now.",
    "dataset": "The run is an example of the dataset now.",
    "in-dataset": "The run is an example of the dataset already.",
    "score": "The run has been scored again.",
    "scoring": "The run is being scored; reload the page for its scores.",
}
"""The message of the page after each action."""

_MOST_LABELS, _MOST_NAMES = 50, 200


@dataclass(frozen=True, slots=True)
class ShownLabel:
    """A label on the page.

    Attributes:
        passed: Whether the person passes the run.
        evaluator: The evaluator whose question the person answered, or "" for all.
        person: The person, or "".
        note: The reason, or "".
        score: The score as text, or "".
        time_ns: When the label was given (ns), or 0.
    """

    passed: bool
    evaluator: str
    person: str
    note: str
    score: str
    time_ns: int


@dataclass(frozen=True, slots=True)
class RunActions:
    """The forms of a run's page for visitors who may act, and the labels for everybody.

    Attributes:
        labels: The current labels, the newest first.
        evaluators: The names of evaluators that a label can be for.
        chosen: The evaluator that the form begins with, or "".
        references: The names of references.
        own_references: The names of the references that are made from this run.
        datasets: The names of datasets.
        can_score: Whether there is a configuration to score by.
    """

    labels: tuple[ShownLabel, ...]
    evaluators: tuple[str, ...]
    chosen: str
    references: tuple[str, ...]
    own_references: tuple[str, ...]
    datasets: tuple[str, ...]
    can_score: bool


def run_actions(
    store: Store, run_id: str, scored_by: Sequence[str], config: Config | None, chosen: str = ""
) -> RunActions:
    """The actions on a run.

    Args:
        store: The store.
        run_id: The run.
        scored_by: The evaluators that scored the run.
        config: The configuration, if it is known.
        chosen: The evaluator that the form for labels begins with.
    """
    labels = store.labels.on(run_id)[:_MOST_LABELS]
    references = store.references.sources()
    configured = [rule.name for rule in config.evaluators] if config else []
    labelled = [label.evaluator for label in labels if label.evaluator]
    return RunActions(
        labels=tuple(map(shown_label, labels)),
        evaluators=tuple(
            dict.fromkeys([*scored_by, *configured, *labelled, *filter(None, [chosen])])
        ),
        chosen=chosen,
        references=_names(references),
        own_references=_names(name for name, source in references.items() if source == run_id),
        datasets=_names(store.datasets.names()),
        can_score=bool(configured),
    )


def shown_label(label: Label) -> ShownLabel:
    """A label as pages show it."""
    return ShownLabel(
        passed=label.passed,
        evaluator=shorten(one_line(label.evaluator), 60),
        person=shorten(one_line(label.person), 40),
        note=clean(label.note),
        score=f"{label.score:.3g}" if label.score is not None else "",
        time_ns=label.time_ns,
    )


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names))[:_MOST_NAMES])
