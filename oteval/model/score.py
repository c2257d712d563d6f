"""References, and verdicts on trajectories by evaluators and by people; outlines of runs.

An **outline** is the columns of a stored run that let an evaluator decide it without its messages.
Runs with equal outlines get equal results, so one evaluation is enough for all of them. The store
has the columns of each fact in SQL (`oteval.store.outlines`). An evaluator names the facts that it
needs (`oteval.evaluators.evaluator.Evaluator.outline_request`).
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from ..base.jsontext import canonical
from .telemetry import record
from .trajectory import Message, Trajectory

__all__ = [
    "EvaluationResult",
    "Fact",
    "Label",
    "Outline",
    "OutlineRequest",
    "Reference",
    "Score",
    "ScoredRun",
    "Status",
    "VerdictState",
    "has_unknown_cost",
    "reported_cost",
]

Status = Literal["ok", "error", "not_evaluated"]
VerdictState = Literal["pass", "fail", "error", "none", "score"]
"""A verdict in a word: ``none`` for a run that was not evaluated, ``score`` for a result that
neither passes nor fails."""


def reported_cost(metadata: Mapping[str, Any]) -> float | None:
    """The cost of an evaluation (US dollars) according to the metadata of its result.

    The key is ``cost_usd``, or else ``cost``.

    Returns:
        The cost, or None without a finite number of at least 0.
    """
    for key in ("cost_usd", "cost"):
        cost = metadata.get(key)
        if isinstance(cost, (int, float)) and not isinstance(cost, bool):
            return float(cost) if 0 <= cost <= sys.float_info.max else None
    return None


def has_unknown_cost(metadata: Mapping[str, Any]) -> bool:
    """Whether an evaluation asked a model at an unknown price: ``cost_usd`` is null."""
    return "cost_usd" in metadata and metadata["cost_usd"] is None


@dataclass(frozen=True, slots=True)
class Reference:
    """The expected trajectory.

    Attributes:
        name: Its name in the store or configuration.
        messages: The messages, in any form `oteval.evaluators.messages` accepts.
        source: Its origin: the path of a file, or the id of a trajectory.
        steps: The nodes of each turn, for evaluators of graphs; None without a graph.
        alternatives: Several references; the best match counts. They replace `messages` and
            `steps`.
    """

    name: str
    messages: tuple[Any, ...]
    source: str = ""
    steps: tuple[tuple[str, ...], ...] | None = None
    alternatives: tuple[Reference, ...] = ()

    @property
    def fingerprint(self) -> str:
        """A hash of the content; part of an evaluator's version."""
        if self.alternatives:
            names = [
                [alternative.name, alternative.fingerprint] for alternative in self.alternatives
            ]
            return hashlib.blake2b(canonical(names).encode(), digest_size=8).hexdigest()
        messages = [m.as_dict() if isinstance(m, Message) else m for m in self.messages]
        text = canonical(messages if self.steps is None else [messages, self.steps])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@record
class EvaluationResult:
    """The result of one evaluator for one run.

    An error is never a 0, and not evaluated is never a pass: unless `status` is ``ok``, `score`
    and `passed` are None.

    Attributes:
        status: ``ok``, ``error`` or ``not_evaluated``.
        score: The number; 1.0 or 0.0 for a bool. None if the verdict is only a label.
        label: The verdict as a word, or "".
        passed: Whether it is a pass; None if the evaluator neither passes nor fails runs.
        comment: The reason, in a line or two.
        metadata: Figures that reproduce the verdict.
    """

    _: KW_ONLY
    status: Status = "ok"
    score: float | None = None
    label: str = ""
    passed: bool | None = None
    comment: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a verdict on a run that was not evaluated."""
        if self.status != "ok" and (self.score is not None or self.passed is not None):
            raise ValueError(f"a result with status {self.status!r} cannot have a verdict")

    @property
    def state(self) -> VerdictState:
        """The verdict in a word."""
        if self.status != "ok":
            return "error" if self.status == "error" else "none"
        if self.passed is None:
            return "score"
        return "pass" if self.passed else "fail"

    @property
    def is_complaint(self) -> bool:
        """Whether it is a fail, an error or missing; a score without a verdict is not."""
        return self.state in ("fail", "error", "none")

    @property
    def cost(self) -> float | None:
        """The cost of the evaluation (US dollars), None if unknown; see `reported_cost`."""
        return reported_cost(self.metadata)

    @classmethod
    def of_verdict(
        cls,
        passed: bool | None,
        score: float | None = None,
        comment: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> EvaluationResult:
        """The result of a successful evaluation.

        Args:
            passed: Whether it is a pass; None if the evaluator neither passes nor fails runs.
            score: The number; None takes it from `passed`.
            comment: Why.
            metadata: Figures that reproduce the verdict.
        """
        if score is None and passed is not None:
            score = float(passed)
        label = "" if passed is None else "pass" if passed else "fail"
        return EvaluationResult(
            score=score, passed=passed, label=label, comment=comment, metadata=metadata or {}
        )


@record
class Score(EvaluationResult):
    """The result of one evaluator for one trajectory, as it is stored.

    Attributes:
        trajectory_id: The trajectory.
        trace_id: Its root span's trace.
        span_id: Its root span.
        evaluator: The evaluator's name.
        version: A hash of the evaluator's configuration, code and prompt.
        rev: The revision of the trajectory.
        sample_p: The rate at which the trajectory was drawn.
        time_ns: When it was evaluated.
    """

    trajectory_id: str
    trace_id: str
    span_id: str
    evaluator: str
    version: str
    _: KW_ONLY
    rev: int = 1
    sample_p: float = 1.0
    time_ns: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The object that ``oteval score --json`` prints."""
        return {
            "trajectory_id": self.trajectory_id,
            "trace_id": self.trace_id,
            "span_id": self.span_id,
            "evaluator": self.evaluator,
            "version": self.version,
            "score": self.score,
            "label": self.label or None,
            "passed": self.passed,
            "status": self.status,
            "comment": self.comment or None,
            "metadata": dict(self.metadata),
        }


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """A run with its scores, as ``oteval export --jsonl`` writes them.

    Attributes:
        trajectory: The run.
        scores: Its scores.
    """

    trajectory: Trajectory
    scores: tuple[Score, ...] = ()


@dataclass(frozen=True, slots=True)
class Label:
    """A person's verdict on one trajectory, to compare a judge's verdicts with.

    Attributes:
        trajectory_id: The trajectory.
        passed: Whether it passes.
        evaluator: The evaluator whose question the person answered; "" for any.
        person: The person's name, or "".
        note: The reason for the verdict, or "".
        score: The score that the person also set, or None.
        time_ns: When the label was stored (ns), 0 before.
    """

    trajectory_id: str
    passed: bool
    evaluator: str = ""
    person: str = ""
    note: str = ""
    score: float | None = None
    time_ns: int = 0


Fact = Literal["call_hashes", "overlapping", "models", "sound_results", "times", "usage"]
"""The data of an outline besides the roles, the tools called with their messages, and the gaps.

- ``call_hashes``: a hash of each call with its arguments; null where these were not captured.
- ``overlapping``: whether calls of different messages ran at the same time.
- ``models``: the models that answered.
- ``sound_results``: true only if each call has a result, no call failed, and no message resembles
  an error.
- ``times``: the start and end of the run.
- ``usage``: tokens and model calls.
"""

Outline = Mapping[str, Any]
"""The columns of an outline, by name."""


@dataclass(frozen=True, slots=True)
class OutlineRequest:
    """The columns that an evaluator needs of a run.

    Attributes:
        facts: The facts besides the facts that every outline has.
        calls: The hashes of calls that are distinguished. All other hashes become -1, so that more
            runs have the same outline. None distinguishes all.
        attribute: An attribute of the run that names its reference, or "".
    """

    facts: frozenset[Fact] = frozenset()
    calls: tuple[int, ...] | None = None
    attribute: str = ""
