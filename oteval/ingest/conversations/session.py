"""A coding agent's session: its messages become a run for each question of the user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...model import Attributes, Gap, ScoredRun, Trajectory, Usage
from .recorded_run import RecordedRun, read_messages

__all__ = ["Session"]


@dataclass(slots=True)
class Session:
    """The messages of one session, in the order of its file.

    Attributes:
        format: The name of the file's format.
        id: The session's id.
        agent: The agent.
        attributes: Short attributes of its runs.
        messages: The messages of the current run, in the form of the file.
        key: Identifies the current run in its session.
        models: The models that answered in it.
        usage: The tokens of each of its model calls, by the answer's id.
        gaps: Content that it lacks.
        start_ns: Its start (ns), or 0.
        end_ns: Its last message (ns), or 0.
        is_answered: Whether the agent has said or done anything in it.
        previous: The run before it, or None.
        parent_id: The id of the run that called this agent, or "".
    """

    format: str
    id: str
    agent: str
    attributes: Attributes = field(default_factory=dict)
    messages: list[Mapping[str, Any]] = field(default_factory=list)
    key: str = ""
    models: list[str] = field(default_factory=list)
    usage: dict[str, Usage] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    start_ns: int = 0
    end_ns: int = 0
    is_answered: bool = False
    previous: Trajectory | None = None
    parent_id: str = ""

    def ask(self, message: Mapping[str, Any], key: str) -> Iterator[ScoredRun]:
        """Add a question; yield the run that it ends.

        Args:
            message: The question.
            key: Identifies it in its session.
        """
        if self.is_answered:
            yield from self.finish()
        if not self.messages:
            self.key = key
        self.messages.append(message)

    def add(self, message: Mapping[str, Any]) -> None:
        """Add an answer, a result or a remark."""
        self.messages.append(message)

    def answer(self, message: Mapping[str, Any], model: str) -> None:
        """Add a message of the agent."""
        self.messages.append(message)
        self.is_answered = True
        self.models.append(model)

    def at(self, stamp_ns: int) -> None:
        """Note the time of a line (ns); 0 is none."""
        if stamp_ns:
            self.start_ns = min(self.start_ns or stamp_ns, stamp_ns)
            self.end_ns = max(self.end_ns, stamp_ns)

    @property
    def run(self) -> RecordedRun:
        """The current run, without its messages."""
        return RecordedRun(self.format, f"{self.id}:{self.key}", ())

    def finish(self) -> Iterator[ScoredRun]:
        """Yield the current run, and begin another."""
        if not self.messages:
            return
        run, items = self.run, self.messages
        run.history = self.previous
        run.conversation_id = self.id
        run.turn = self.previous.turn + 1 if self.previous else 1
        run.agent, run.parent_id = self.agent, self.parent_id
        run.models, run.usage = self.models, Usage.total(self.usage.values())
        run.start_ns, run.end_ns = self.start_ns, self.end_ns
        run.gaps, run.attributes = self.gaps, self.attributes
        self.messages, self.models, self.usage, self.gaps = [], [], {}, []
        self.start_ns = self.end_ns = 0
        self.is_answered = False
        run.messages = read_messages(items, f"session {self.id}")
        scored = run.scored()
        self.previous = scored.trajectory
        yield scored
