"""A proposal: an entry of oteval.yaml, the evidence for it, and its verdicts on stored runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...evaluators import Tally

__all__ = ["Counts", "Proposal"]


@dataclass
class Counts:
    """The verdicts of a proposed evaluator on stored runs.

    Attributes:
        tally: The verdicts, counted.
        failing_run: The first run that fails, or "".
        failure: Why it fails.
    """

    tally: Tally
    failing_run: str = ""
    failure: str = ""

    @property
    def text(self) -> str:
        """The counts in one line."""
        tally = self.tally
        errors = f", {tally.errors:,} errors" if tally.errors else ""
        return (
            f"{tally.passed:,} pass, {tally.failed:,} fail, "
            f"{tally.not_evaluated:,} not evaluated{errors}"
        )


@dataclass(frozen=True)
class Proposal:
    """One proposed entry of oteval.yaml.

    Attributes:
        name: The name of the evaluator, or of the evaluator that a gate is about.
        entry: The entry as YAML values.
        reasons: The evidence, a sentence each.
        is_active: Whether the entry counts; otherwise it is written as a comment, to be decided by
            a person.
        is_gate: Whether it is an entry of ``gates`` and not of ``evaluators``.
        is_learned: Whether it is a part of the rule that `oteval learn` renews.
        counts: The verdicts on stored runs; None for gates and without runs.
    """

    name: str
    entry: Mapping[str, Any]
    reasons: tuple[str, ...] = ()
    is_active: bool = True
    is_gate: bool = False
    is_learned: bool = False
    counts: Counts | None = field(default=None, compare=False)

    def as_dict(self) -> dict[str, Any]:
        """The object that ``oteval init --json`` prints."""
        row: dict[str, Any] = {
            "kind": "gate" if self.is_gate else "evaluator",
            "name": self.name,
            "entry": dict(self.entry),
            "active": self.is_active,
            "reasons": list(self.reasons),
        }
        if self.counts is not None:
            tally = self.counts.tally
            row["runs"] = {
                "pass": tally.passed,
                "fail": tally.failed,
                "error": tally.errors,
                "not_evaluated": tally.not_evaluated,
            }
            if self.counts.failing_run:
                row["failing_run"] = self.counts.failing_run
                row["failure"] = self.counts.failure
        return row
