"""Trajectories and what they are made of."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from ..jsontext import dumps_exact
from .telemetry import Attributes

__all__ = [
    "Gap",
    "Message",
    "Rewrite",
    "Role",
    "SpanRef",
    "ToolCall",
    "Trajectory",
    "Usage",
    "trajectory_id",
]

Role = Literal["system", "developer", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class SpanRef:
    """The address of a span."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that a trace does not hold, and why.

    Attributes:
        code: One of the codes in `oteval.reconstruct.gaps`.
        detail: One line for people: what is missing and what would bring it.
        span_id: The span it was found on, or "".
    """

    code: str
    detail: str
    span_id: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"code": self.code, "detail": self.detail, "span_id": self.span_id}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool, as the model asked for it.

    Attributes:
        name: The tool's name.
        arguments: The parsed arguments; a string where they are not valid JSON; None where the
            trace does not hold them.
        id: The provider's call id, or "".
        span_id: The span of the tool's execution, or "".
        start_ns: When the execution began; 0 when no span shows it.
        end_ns: When the execution ended; 0 when no span shows it.
    """

    name: str
    arguments: Any = None
    id: str = ""
    span_id: str = ""
    start_ns: int = 0
    end_ns: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return OpenAI's form of a tool call; arguments are JSON text."""
        text = self.arguments if isinstance(self.arguments, str) else dumps_exact(self.arguments)
        if self.arguments is None:
            text = ""
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": text},
        }


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a trajectory.

    Attributes:
        role: Who said it.
        content: Its text, or None where there is none or the trace does not hold it.
        tool_calls: The calls an assistant message asks for.
        tool_call_id: For a tool message, the call it answers.
        name: The tool's or participant's name, or "".
        is_error: Whether a tool message reports a failure.
        parts: What is not text: images, audio, files, reasoning; in the emitter's form.
        span_id: The span the message was read from.
        trace_id: That span's trace.
    """

    role: str
    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""
    is_error: bool = False
    parts: tuple[Mapping[str, Any], ...] = ()
    span_id: str = ""
    trace_id: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return OpenAI's form of the message; a failed tool message has ``is_error``."""
        out: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.parts:
            text = [] if self.content is None else [{"type": "text", "text": self.content}]
            out["content"] = [*text, *self.parts]
        if self.tool_calls:
            out["tool_calls"] = [call.as_dict() for call in self.tool_calls]
        if self.role == "tool":
            out["tool_call_id"] = self.tool_call_id
        if self.name:
            out["name"] = self.name
        if self.is_error:
            out["is_error"] = True
        return out


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that the model calls of a run report.

    Attributes:
        input_tokens: Tokens read, cached ones included.
        output_tokens: Tokens written, reasoning included.
        cached_tokens: How many of the input tokens came from a cache.
        model_calls: How many model calls were made.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    model_calls: int = 0

    def __add__(self, other: Usage) -> Usage:
        """Return the sum of two usages."""
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.model_calls + other.model_calls,
        )

    def as_dict(self) -> dict[str, int]:
        """Return the JSON form."""
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cached_tokens": self.cached_tokens,
            "model_calls": self.model_calls,
        }


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What the conversation did not go on with: replaced history, or choices not taken.

    Attributes:
        at: The index in the trajectory's messages where the replacement begins.
        messages: The messages that were replaced.
        span_id: The model call that showed the new history.
    """

    at: int
    messages: tuple[Message, ...]
    span_id: str

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        messages = [message.as_dict() for message in self.messages]
        return {"at": self.at, "span_id": self.span_id, "messages": messages}


@dataclass(frozen=True)
class Trajectory:
    """One agent run, as its spans tell it.

    Messages before the run are held by reference to the run before (`history`), so that a long
    conversation costs linear space.

    Attributes:
        id: A stable hash of the root span's ids.
        root_span: The run's root span; scores hang on it.
        trace_ids: The traces that the run's own spans come from.
        tail: The messages after those of `history`.
        new_from: The index in `messages` where this run's own messages begin.
        history: The run before it in the same conversation, or None.
        conversation_id: The conversation's id, or "".
        turn: The run's number in its conversation, from 1.
        agent: The agent's name, or "".
        service: The emitting service's name.
        parent_id: For a sub-agent, the trajectory that called it; else "".
        parent_call_id: For a sub-agent called as a tool, the id of that call; else "".
        steps: The graph form: the nodes of the run's turn, as one tuple in the order in which
            they ran. What ran inside a node or an agent is named ``parent:child``.
        tools: The definitions of the tools that the model was offered.
        models: The models that answered, in order of first use.
        dialects: The dialects that the run's spans were read with.
        usage: Tokens used.
        start_ns: When the run began.
        end_ns: When it ended.
        gaps: What is missing, and why.
        rewrites: History that later calls replaced, and choices not taken.
        attributes: The short attributes of the resource and the root span, to filter by.
        chain: A hash over all messages to the run's last answer, by which a later run without
            a conversation id finds this one.
        follows: The `chain` of the run that this one's history ends with, or "".
        call_keys: Hashes by which a recording of the same model calls by another
            instrumentation finds this one.
        rev: The revision; late spans make a new one.
    """

    id: str
    root_span: SpanRef
    trace_ids: tuple[str, ...] = ()
    tail: tuple[Message, ...] = ()
    new_from: int = 0
    history: Trajectory | None = None
    conversation_id: str = ""
    turn: int = 1
    agent: str = ""
    service: str = ""
    parent_id: str = ""
    parent_call_id: str = ""
    steps: tuple[tuple[str, ...], ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    models: tuple[str, ...] = ()
    dialects: tuple[str, ...] = ()
    usage: Usage = Usage()
    start_ns: int = 0
    end_ns: int = 0
    gaps: tuple[Gap, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()
    attributes: Attributes = field(default_factory=dict)
    chain: str = ""
    follows: str = ""
    call_keys: tuple[int, ...] = ()
    rev: int = 1

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation up to the run's end, as far as it is known."""
        runs: list[tuple[Message, ...]] = []
        run: Trajectory | None = self
        while run is not None:
            runs.append(run.tail)
            run = run.history
        return tuple(message for tail in reversed(runs) for message in tail)

    @cached_property
    def _count(self) -> int:
        """How many messages there are; each run's is worked out once, and without recursion."""
        line = [self]
        while (before := line[-1].history) is not None and "_count" not in vars(before):
            line.append(before)
        count = before._count if before else 0
        for run in reversed(line):
            count += len(run.tail)
            vars(run)["_count"] = count
        return count

    @property
    def own_messages(self) -> tuple[Message, ...]:
        """The messages of this run alone."""
        # Not by way of `messages`, which would hold every turn's whole history in memory.
        start = self.new_from - (self.history._count if self.history else 0)
        return self.tail[start:] if start >= 0 else self.messages[self.new_from :]

    @property
    def question(self) -> Message | None:
        """The first user message of this run whose text is known, or None."""
        asked = (m for m in self.own_messages if m.role == "user" and (m.content or "").strip())
        return next(asked, None)

    def as_dict(self) -> dict[str, Any]:
        """Return the object that ``oteval trajectories --json`` prints."""
        return {
            "trajectory_id": self.id,
            "trace_ids": list(self.trace_ids),
            "root_span": {"trace_id": self.root_span.trace_id, "span_id": self.root_span.span_id},
            "conversation_id": self.conversation_id or None,
            "agent": self.agent or None,
            "parent_id": self.parent_id or None,
            "turn": self.turn,
            "new_from": self.new_from,
            "start_ns": self.start_ns,
            "end_ns": self.end_ns,
            "models": list(self.models),
            "usage": self.usage.as_dict(),
            "messages": [message.as_dict() for message in self.messages],
            "steps": [list(step) for step in self.steps],
            "gaps": [gap.as_dict() for gap in self.gaps],
        }


def trajectory_id(trace_id: str, span_id: str) -> str:
    """Return the stable id of the trajectory whose root is the given span (16 hex digits)."""
    return hashlib.blake2b(f"{trace_id}:{span_id}".encode(), digest_size=8).hexdigest()
