"""Stored runs to a proposed oteval.yaml: pure, except for a temporary folder of references."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ...base.text import counted
from ...model import Trajectory
from .agent_groups import agent_groups
from .check_proposals import check_proposals, first_checks
from .config_text import config_text
from .evidence import Evidence, read_evidence
from .learned_rules import FewLabels, LearnedRule, ReferenceSource, learn_rule
from .proposal import Proposal
from .references_of_runs import match_proposals
from .run_verdicts import gate_proposals, with_counts

__all__ = ["ProposedConfig", "ReadRuns", "propose_config", "propose_first_config"]

ReadRuns = Callable[[], Iterable[Trajectory]]
"""Reads the runs anew each time, in the same order, so that they need not stay in memory."""


@dataclass(frozen=True)
class ProposedConfig:
    """A proposed oteval.yaml.

    Attributes:
        proposals: Its evaluators and gates.
        files: The content of the files it refers to, by their paths beside it.
        notes: The runs and labels that it was made of.
        rule: The rule that agrees best with labels, or None.
    """

    proposals: list[Proposal]
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    rule: LearnedRule | None = None

    @property
    def text(self) -> str:
        """The text of the file."""
        return config_text(self.proposals, self.notes)


_HEAD = "Proposed by oteval init: each entry is below the evidence for it. Edit it as you like."


def propose_first_config() -> ProposedConfig:
    """The configuration before there are runs."""
    note = (
        "Without runs to look at, these are the checks that need none. After runs are recorded, "
        "oteval init --force proposes references, budgets and gates from them."
    )
    return ProposedConfig(first_checks(), notes=(_HEAD, note))


def propose_config(
    read: ReadRuns,
    labels: Mapping[str, bool],
    *,
    source: str,
    key: str | None = None,
    references: ReferenceSource | None = None,
) -> ProposedConfig:
    """Propose a configuration.

    Args:
        read: Reads the runs.
        labels: Whether a run is good, by its id.
        source: Which runs these are, for the head of the file.
        key: The attribute that names a run's case, or ``question``; None to look for one.
        references: The references of cases, if there are any already.
    """
    evidence = read_evidence(read(), labels, key)  # one pass; nothing else keeps the runs
    if not evidence.runs:
        return propose_first_config()
    notes = [_HEAD, source]
    proposals = [*check_proposals(evidence)] or first_checks()
    files: dict[str, str] = {}
    rule = None
    try:
        rule = learn_rule(evidence, read, references)
    except FewLabels as reason:
        if labels:
            notes.append(f"{reason}")
    if rule is not None and rule.is_useful:
        proposals += rule.proposals()
        files |= rule.files()
    else:
        if rule is not None:
            notes.append(rule.summary)
        if references is not None:
            proposals.append(_match_of(references, evidence))
            files |= references.files
        for group in agent_groups(evidence) if references is None else ():
            matches = match_proposals(evidence, group)
            proposals += matches.proposals
            files |= matches.files
            notes += [f"{group.agent}: {note}" if group.agent else note for note in matches.notes]
    if effects := evidence.effect_tools():
        notes.append(f"Tools that change something, by their names: {', '.join(effects)}.")
    proposals = with_counts(proposals, files, read(), references)
    runs = counted(len(evidence.runs), "run")
    notes.append(f"Each entry shows its verdicts on these {runs}.")
    return ProposedConfig([*proposals, *gate_proposals(proposals)], files, tuple(notes), rule)


def _match_of(references: ReferenceSource, evidence: Evidence) -> Proposal:
    """A match with references that exist already, in its usual form."""
    effects = evidence.effect_tools()
    view = {"view": "effects", "effect_tools": effects} if effects else {}
    entry = {
        "name": "task-calls",
        "type": "trajectory_match",
        "mode": "unordered",
        **view,
        "reference": references.entry,
    }
    reason = "The successful calls that change something must be those of the reference."
    return Proposal("task-calls", entry, (reason if effects else "The calls of the reference.",))
