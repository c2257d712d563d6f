"""Runs of a file that contains messages and no spans."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...base.errors import InputError
from ...base.jsontext import dumps
from ...base.times import ns_of_iso
from ...messages import NO_SOURCE, decided, from_messages, stamped, unknown_kind
from ...model import (
    Attributes,
    Gap,
    Message,
    Score,
    ScoredRun,
    SpanRef,
    Trajectory,
    Usage,
    gaps_of_calls,
    identity_in,
    trajectory_id,
)
from ..otlp.json_fields import json_kind

__all__ = [
    "FILE_VERSION",
    "RecordedRun",
    "Session",
    "content_digest",
    "read_messages",
    "short_attributes",
    "time_ns",
]

FILE_VERSION = "file"
"""The version of scores in a file; they were made elsewhere."""
_LONGEST_ATTRIBUTE = 200
_UNREAD = (
    "part {kind} of message {number} is of a form that oteval does not know; it is kept as it is"
)


def read_messages(items: Any, list_name: str) -> tuple[Message, ...]:
    """The messages of a list in any form.

    Args:
        items: The parsed list.
        list_name: The list's name in errors.

    Raises:
        InputError: The value is not a list, or none of its items is a message.
    """
    if not isinstance(items, list):
        raise InputError(f"{list_name} is {json_kind(items)} instead of a list of messages")
    messages = from_messages(items, NO_SOURCE)
    if items and not messages:
        raise InputError(f"{list_name} holds no message in a form that oteval knows")
    return tuple(map(decided, messages))


def content_digest(content: Any) -> str:
    """A hash of a parsed document."""
    return hashlib.blake2b(dumps(content).encode(), digest_size=16).hexdigest()


def time_ns(value: Any) -> int:
    """A time as nanoseconds since 1970; 0 if there is none, or it is not a time.

    Args:
        value: A text in ISO 8601, without a zone in UTC; or seconds since 1970.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return max(int(value * 1e9), 0) if abs(value) < 1e10 else 0
    try:
        return max(ns_of_iso(value), 0)
    except (TypeError, ValueError):
        return 0


def short_attributes(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The short texts, numbers and flags of an object, for filters."""
    return {
        name: value
        for name, value in fields.items()
        if isinstance(value, (bool, int, float))
        or (isinstance(value, str) and 0 < len(value) <= _LONGEST_ATTRIBUTE)
    }


@dataclass(slots=True)
class RecordedRun:
    """One run, as a file describes it.

    Attributes:
        format: The name of the file's format, such as ``atif``.
        key: Identifies the run among the runs of its format.
        messages: The messages after the messages of `history`.
        new_from: The index in `messages` of the run's own first message.
        history: The run before it in the same conversation, or None.
        conversation_id: The conversation, or "".
        turn: The number of the run in the conversation, from 1.
        agent: The agent, or "".
        parent_id: The id of the trajectory that called it, for a sub-agent.
        models: The models that answered.
        tools: The definitions of the tools that were offered.
        usage: The tokens used.
        start_ns: The start (ns), or 0.
        end_ns: The end (ns), or 0.
        gaps: Content that the file does not contain.
        attributes: Short attributes, for filters.
        scores: The verdicts in the file: a name, the score, whether it is a pass, and the
            reason.
    """

    format: str
    key: str
    messages: Sequence[Message]
    new_from: int = 0
    history: Trajectory | None = None
    conversation_id: str = ""
    turn: int = 1
    agent: str = ""
    parent_id: str = ""
    models: Sequence[str] = ()
    tools: Sequence[Mapping[str, Any]] = ()
    usage: Usage = field(default_factory=Usage)
    start_ns: int = 0
    end_ns: int = 0
    gaps: Sequence[Gap] = ()
    attributes: Attributes = field(default_factory=dict)
    scores: Mapping[str, tuple[float | None, bool | None, str]] = field(default_factory=dict)

    @property
    def root_span(self) -> SpanRef:
        """The ids in place of a root span; they follow from the format and the key."""
        name = f"{self.format}:{self.key}".encode()
        trace_id = hashlib.blake2b(name, digest_size=16).hexdigest()
        return SpanRef(trace_id, hashlib.blake2b(name, digest_size=8).hexdigest())

    @property
    def id(self) -> str:
        """The id of the run's trajectory."""
        return trajectory_id(self.root_span.trace_id, self.root_span.span_id)

    def scored(self) -> ScoredRun:
        """The run and its scores as the store takes them."""
        root = self.root_span
        before = len(self.history.messages) if self.history else 0
        run = Trajectory(
            self.id,
            root,
            trace_ids=(root.trace_id,),
            tail=stamped(self.messages, root),
            new_from=before + self.new_from,
            history=self.history,
            conversation_id=self.conversation_id,
            turn=self.turn,
            agent=self.agent,
            service=self.format,
            parent_id=self.parent_id,
            tools=tuple(self.tools),
            models=tuple(dict.fromkeys(filter(None, self.models))),
            dialects=(self.format,),
            usage=self.usage,
            start_ns=self.start_ns,
            end_ns=max(self.end_ns, self.start_ns),
            gaps=self._all_gaps(),
            attributes=self.attributes,
            user=identity_in("user", self.attributes),
            version=identity_in("version", self.attributes),
        )
        return ScoredRun(run, tuple(self._score(run, name) for name in self.scores))

    def _all_gaps(self) -> tuple[Gap, ...]:
        own = self.messages[self.new_from :]
        gaps = (*self.gaps, *_unread_parts(self.messages), *gaps_of_calls(own))
        return tuple(dict.fromkeys(gaps))

    def _score(self, run: Trajectory, name: str) -> Score:
        score, passed, comment = self.scores[name]
        label = "" if passed is None else "pass" if passed else "fail"
        return Score(
            run.id,
            run.root_span.trace_id,
            run.root_span.span_id,
            name,
            FILE_VERSION,
            score=score,
            passed=passed,
            label=label,
            comment=comment,
            time_ns=run.end_ns,
        )


def _unread_parts(messages: Sequence[Message]) -> list[Gap]:
    return [
        Gap("content_unreadable", _UNREAD.format(kind=kind, number=number))
        for number, message in enumerate(messages)
        for part in message.parts
        if (kind := unknown_kind(part))
    ]


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
