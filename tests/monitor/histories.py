"""Histories of runs with scores, written to a store as a server would."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from oteval.model import Score, Trajectory
from oteval.scoring.config import Config, parse_config
from oteval.store import Store

from ..make import asks, call, keep, run, score

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
START = 1_790_000_000 * SECOND

OPS = "notify: {ops: {webhook: 'http://127.0.0.1:1/x'}, pager: {alertmanager: 'http://127.0.0.1:1'}}\n"


def config(*monitors: str) -> Config:
    """Return a configuration with one evaluator, ``e``, and some monitors."""
    lines = "".join(f"  - {monitor}\n" for monitor in monitors)
    return parse_config(f"evaluators:\n  - {{name: e, type: tool_errors}}\nmonitors:\n{lines}{OPS}")


_OF_SCORES = ("version", "status")


@dataclass
class History:
    """Runs of an agent, one an hour, and their scores.

    Learning ends after 14 days, so that 400 runs have a baseline.

    Attributes:
        store: Where they are written.
        agent: The agent's name.
        step: The time between two runs (ns).
        count: The number of runs so far.
    """

    store: Store
    agent: str = "a"
    step: int = HOUR
    count: int = 0
    first: int = 1
    chance: random.Random = field(default_factory=lambda: random.Random(1))

    @property
    def now(self) -> int:
        """The time at which the next run begins."""
        return START + self.count * self.step

    def runs(self, size: int, *tools: str, **fields: Any) -> list[Trajectory]:
        """Write runs that call some tools one after the other, and return them."""
        trajectories = []
        for _ in range(size):
            trajectories.append(self.run_at(self.count, *tools, **fields))
            self.count += 1
        keep(self.store, *trajectories)
        return trajectories

    def run_at(self, number: int, *tools: str, **fields: Any) -> Trajectory:
        """Return the run of a number, which calls some tools one after the other."""
        at = START + number * self.step
        run_fields = {"start_ns": at, "end_ns": at + SECOND, "agent": self.agent, **fields}
        return run(self.first + number, *[asks(call(name, {})) for name in tools], **run_fields)

    def scored(self, size: int, rate: float, *tools: str, **fields: Any) -> list[Trajectory]:
        """Write runs of which a share passes, with their scores."""
        score_fields = {name: fields.pop(name) for name in _OF_SCORES if name in fields}
        trajectories = self.runs(size, *tools, **fields)
        self.store.scores.write(
            [self.verdict(trajectory, rate, **score_fields) for trajectory in trajectories]
        )
        return trajectories

    def late(self, hours: Sequence[tuple[int, float]]) -> None:
        """Write runs of given hours since `START`, each with the rate at which it passes."""
        trajectories = []
        for hour, _ in hours:
            at = START + hour * HOUR + SECOND
            trajectories.append(self.run_at(self.count, start_ns=at, end_ns=at + SECOND))
            self.count += 1
        keep(self.store, *trajectories)
        verdicts = zip(trajectories, hours, strict=True)
        self.store.scores.write(
            [self.verdict(trajectory, rate) for trajectory, (_, rate) in verdicts]
        )

    def verdict(self, trajectory: Trajectory, rate: float, **fields: Any) -> Score:
        """Return a score that passes with some probability."""
        passed = self.chance.random() < rate
        number = int(trajectory.root_span.trace_id, 16)
        defaults = {"passed": passed, "score": float(passed), "time_ns": trajectory.end_ns}
        return score(number, **{**defaults, **fields})
