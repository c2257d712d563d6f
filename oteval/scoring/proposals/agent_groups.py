"""Runs by agent: limits and orders of different agents have nothing to do with each other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .evidence import Evidence, RunFacts

__all__ = ["FEWEST_RUNS", "AgentGroup", "agent_groups", "file_name"]

FEWEST_RUNS = 3
"""The fewest runs in which a habit is more than an accident."""
_MOST_AGENTS = 5
_FEWEST_GOOD = 5


@dataclass(frozen=True)
class AgentGroup:
    """The runs of one agent, or of all if there is only one.

    Attributes:
        agent: The agent, or "" for all runs.
        suffix: The end of the names of evaluators that are about it; different for each agent.
        runs: The runs from which habits are read: not those that are known to be bad, and only
            those that are known to be good if there are enough.
        total: The number of all runs of the agent.
    """

    agent: str
    suffix: str
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
        return f"{base}{self.suffix}"


def agent_groups(evidence: Evidence) -> list[AgentGroup]:
    """The runs by agent, the agent with most runs first."""
    counts = Counter(run.agent for run in evidence.runs)
    if len(counts) == 1:
        return [_group("", "", evidence.runs)]
    groups: list[AgentGroup] = []
    for agent, total in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if agent and total >= FEWEST_RUNS and len(groups) < _MOST_AGENTS:
            suffix = f"-{file_name(agent)}"
            if suffix in [group.suffix for group in groups]:
                suffix = f"{suffix}-{len(groups) + 1}"
            groups.append(_group(agent, suffix, [r for r in evidence.runs if r.agent == agent]))
    return groups


def file_name(text: str) -> str:
    """A name from a trace as a part of the name of a file."""
    return re.sub(r"[^\w-]+", "-", text)[:60].strip("-") or "unnamed"


def _group(agent: str, suffix: str, runs: Sequence[RunFacts]) -> AgentGroup:
    good = [run for run in runs if run.label]
    typical = good if len(good) >= _FEWEST_GOOD else [run for run in runs if run.label is not False]
    return AgentGroup(agent, suffix, typical, len(runs))
