"""Experiments: a dataset's examples, what a system made of each, and how that was judged.

An **example** is an input and perhaps what should come of it. A **dataset** is examples under a
name; its version is a hash of their content. An **experiment** is what one system made of a
dataset: a **run** for each example and repetition, and for each run **feedback** from every
evaluator. A **vote** is one answer to which of several runs of an example is better.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..jsontext import canonical, dumps
from .score import Status
from .trajectory import Trajectory

__all__ = [
    "Dataset",
    "Example",
    "Experiment",
    "Feedback",
    "Run",
    "Vote",
    "example_id",
    "question_of",
]

_LONGEST_QUESTION = 2000  # characters


def example_id(inputs: Any) -> str:
    """Return the id of an example that was given none: a hash of its inputs."""
    return hashlib.blake2b(canonical(inputs).encode(), digest_size=8).hexdigest()


def question_of(inputs: Any) -> str:
    """Return the question in an example's inputs: its last message, or the only text there is.

    Inputs of another form are returned as JSON; no inputs are "".
    """
    value = inputs
    if isinstance(value, Mapping):
        value = value.get("messages") or (next(iter(value.values())) if len(value) == 1 else value)
    if isinstance(value, list) and value and isinstance(value[-1], Mapping):
        value = value[-1].get("content") or value
    text = value if isinstance(value, str) else "" if value is None else dumps(value)
    return text[:_LONGEST_QUESTION]


@dataclass(frozen=True, slots=True)
class Example:
    """One case of a dataset.

    Attributes:
        id: By it, runs of several experiments are paired.
        inputs: What the system is given.
        reference_outputs: What should come of it, or None.
        metadata: Whatever else is known of it.
    """

    id: str
    inputs: Any
    reference_outputs: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outputs(self) -> Any:
        """The reference outputs, by LangSmith's name."""
        return self.reference_outputs

    @property
    def title(self) -> str:
        """A readable name: the id that its author gave it, else the question that it asks."""
        if self.id != example_id(self.inputs):
            return self.id
        return question_of(self.inputs) or self.id

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form, which is also a line of a dataset's file."""
        return {
            "id": self.id,
            "inputs": self.inputs,
            "reference_outputs": self.reference_outputs,
            "metadata": dict(self.metadata),
        }


@dataclass(frozen=True)
class Dataset:
    """Examples under a name.

    Attributes:
        name: The name.
        examples: The examples, their ids unique.
        source: Where they came from.
        created_ns: When it was made.
    """

    name: str
    examples: tuple[Example, ...]
    source: str = ""
    created_ns: int = 0

    @property
    def version(self) -> str:
        """A hash of the examples; equal content has the same version under any name."""
        digest = hashlib.blake2b(digest_size=8)
        for example in self.examples:
            digest.update(canonical(example.as_dict()).encode() + b"\n")
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Experiment:
    """What one system made of a dataset.

    Attributes:
        id: Unique.
        name: Unique among the experiments of a store.
        prefix: What the name was made of.
        description: For people.
        metadata: Whatever else is known of it.
        dataset: The dataset's name.
        dataset_version: Its version.
        repetitions: How often each example was run.
        expected: How many runs there will be.
        kind: ``experiment``, or ``comparison`` of several of them.
        compared: For a comparison, the names of the experiments.
        created_ns: When it was begun.
    """

    id: str
    name: str
    prefix: str = ""
    description: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    dataset: str = ""
    dataset_version: str = ""
    repetitions: int = 1
    expected: int = 0
    kind: Literal["experiment", "comparison"] = "experiment"
    compared: tuple[str, ...] = ()
    created_ns: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """What a system made of one example.

    Attributes:
        id: Unique.
        experiment_id: The experiment.
        example_id: The example.
        repetition: Which repetition, from 0.
        inputs: What the system was given.
        outputs: What came of it; None where it failed.
        error: Why it failed, or "".
        trajectory_id: The stored trajectory it is, or "".
        trajectory: That trajectory, or one made of outputs that are messages; None without.
        start_ns: When it began.
        end_ns: When it ended.
    """

    id: str
    experiment_id: str
    example_id: str
    repetition: int = 0
    inputs: Any = None
    outputs: Any = None
    error: str = ""
    trajectory_id: str = ""
    trajectory: Trajectory | None = None
    start_ns: int = 0
    end_ns: int = 0


@dataclass(frozen=True, slots=True)
class Feedback:
    """One figure that an evaluator gave a run, or that it could not.

    Attributes:
        run_id: The run; "" for a figure of the experiment as a whole.
        evaluator: The evaluator.
        version: A hash of its code or configuration.
        key: The figure's name.
        status: ``ok``, ``error`` or ``not_evaluated``.
        score: The number; a bool's is 1.0 or 0.0.
        passed: Whether it counts as a pass; None when it has no such notion.
        label: The verdict as a word, or "".
        comment: Why.
        metadata: Figures that reproduce the verdict.
        latency_ns: How long the evaluator took.
        time_ns: When it was given; what one call gave has one time.
    """

    run_id: str
    evaluator: str
    version: str
    key: str
    status: Status
    score: float | None = None
    passed: bool | None = None
    label: str = ""
    comment: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    latency_ns: int = 0
    time_ns: int = 0

    def __post_init__(self) -> None:
        """Refuse a verdict on something that was not evaluated."""
        if self.status != "ok" and (self.score is not None or self.passed is not None):
            raise ValueError(f"feedback with status {self.status!r} can hold no verdict")

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "key": self.key,
            "evaluator": self.evaluator,
            "version": self.version,
            "status": self.status,
            "score": self.score,
            "passed": self.passed,
            "label": self.label or None,
            "comment": self.comment or None,
            "metadata": dict(self.metadata),
        }


@dataclass(frozen=True, slots=True)
class Vote:
    """One answer of a pairwise evaluator.

    Attributes:
        experiment_id: The comparison it belongs to.
        evaluator: The evaluator.
        version: A hash of its code or configuration.
        key: The question's name.
        example_id: The example.
        repetition: Which repetition of the runs, from 0.
        shown: The ids of the runs in the order in which they were shown.
        scores: A score for each of them, in that order; empty unless `status` is ``ok``.
        status: ``ok`` or ``error``.
        comment: Why.
        metadata: Figures that reproduce it.
        latency_ns: How long the evaluator took.
        time_ns: When it was given.
    """

    experiment_id: str
    evaluator: str
    version: str
    key: str
    example_id: str
    repetition: int
    shown: tuple[str, ...]
    scores: Sequence[float] = ()
    status: Status = "ok"
    comment: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    latency_ns: int = 0
    time_ns: int = 0

    def score_of(self, run_id: str) -> float:
        """Return the score that a run was given."""
        return self.scores[self.shown.index(run_id)]
