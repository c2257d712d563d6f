"""Runs by agent: limits and orders of different agents have nothing to do with each other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .evidence import Evidence, RunFacts

__all__ = ["FEWEST_RUNS", "AgentGroup", "agent_groups"]

FEWEST_RUNS = 3
"""The fewest runs in which a habit is more than an accident."""
_MOST_AGENTS = 5
_FEWEST_GOOD = 5


@dataclass(frozen=True)
class AgentGroup:
    """The runs of one agent, or of all if there is only one.

    Attributes:
        agent: The agent, or "" for all runs.
        runs: The runs from which habits are read: not those that are known to be bad, and only
            those that are known to be good if there are enough.
        total: The number of all runs of the agent.
    """

    agent: str
    runs: Sequence[RunFacts]
    total: int

    @property
    def where(self) -> dict[str, Any]:
        """The ``where`` of entries about the agent."""
        return {"where": {"agent": self.agent}} if self.agent else {}

    @property
    def noun(self) -> str:
        """The word for these runs in comments."""
        return "good runs" if self.runs and all(run.label for run in self.runs) else "runs"

    def name(self, base: str) -> str:
        """The name of an evaluator of these runs."""
        slug = re.sub(r"[^\w.-]+", "-", self.agent).strip("-")
        return f"{base}-{slug}" if slug else base


def agent_groups(evidence: Evidence) -> list[AgentGroup]:
    """The runs by agent, the agent with most runs first."""
    counts = Counter(run.agent for run in evidence.runs)
    if len(counts) == 1:
        return [_group("", evidence.runs)]
    groups = []
    for agent, total in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if agent and total >= FEWEST_RUNS and len(groups) < _MOST_AGENTS:
            groups.append(_group(agent, [run for run in evidence.runs if run.agent == agent]))
    return groups


def _group(agent: str, runs: Sequence[RunFacts]) -> AgentGroup:
    good = [run for run in runs if run.label]
    typical = good if len(good) >= _FEWEST_GOOD else [run for run in runs if run.label is not False]
    return AgentGroup(agent, typical, len(runs))
