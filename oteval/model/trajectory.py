"""Trajectories, and their messages, tool calls and gaps."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, final

from ..base.jsontext import dumps_exact
from ..base.notebook import html_of
from .telemetry import Attributes, record
from .usage import Usage

__all__ = [
    "ANSWER_ONLY",
    "CALL_GAPS",
    "CONTENT_GAPS",
    "DAMAGED_CONTENT_GAPS",
    "FAILED_REQUEST",
    "FAILURE_GAPS",
    "FOLLOWS_ANSWER",
    "PROVIDER",
    "RETRY_WAIT_NS",
    "UNREAD_MODEL_GAPS",
    "Gap",
    "Message",
    "RetrievedDocument",
    "Rewrite",
    "Role",
    "SpanRef",
    "ToolCall",
    "Trajectory",
    "gaps_of_calls",
    "trajectory_id",
]

Role = Literal["system", "developer", "user", "assistant", "tool"]


PROVIDER = "provider"
"""The `ToolCall.executed_by` of a tool that the model's provider runs itself."""
FOLLOWS_ANSWER = "response "
"""The prefix of `Trajectory.follows` if it names an answer; the answer's call key follows."""
FAILED_REQUEST = "request "
"""The prefix of `Trajectory.chain` if a run's first request failed, and of `Trajectory.follows` if
a run may retry it; a hash of the request follows."""
RETRY_WAIT_NS = 60 * 10**9
"""The longest time from a request that failed to its retry."""


@dataclass(frozen=True, slots=True)
class SpanRef:
    """The ids that identify a span."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that a trace does not contain, with the reason.

    Attributes:
        code: One of the codes in `oteval.reconstruct.gaps`.
        detail: One line for people: the missing information, and the remedy.
        span_id: The id of the span that lacks it, or "".
    """

    code: str
    detail: str
    span_id: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"code": self.code, "detail": self.detail, "span_id": self.span_id}


@dataclass(frozen=True, slots=True)
class RetrievedDocument:
    """A document that a run retrieved.

    Attributes:
        text: Its text, which is not empty.
        id: Its id, or "".
        span_id: The id of the retriever's span, or "".
    """

    text: str
    id: str = ""
    span_id: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"text": self.text, "id": self.id, "span_id": self.span_id}


CONTENT_GAPS = frozenset(
    {
        "attributes_dropped",
        "content_external",
        "content_not_captured",
        "content_truncated",
        "content_unreadable",
        "read_by_shape",
        "redacted",
    }
)
"""Codes of gaps that may hide messages, or calls in them."""
CALL_GAPS = CONTENT_GAPS | {"calls_not_captured"}
"""Codes of gaps that may hide calls."""
UNREAD_MODEL_GAPS = frozenset({"no_model_spans", "unknown_dialect"})
"""Codes of gaps of a run whose model calls were not read. Its calls may be known nevertheless: an
agent's own span may contain all messages."""
DAMAGED_CONTENT_GAPS = frozenset({"content_truncated", "redacted"})
"""Codes of gaps of messages that were recorded, but were cut or replaced."""
FAILURE_GAPS = frozenset({"internal_error", "too_large"})
"""Codes of gaps of a placeholder for a trace that could not be reconstructed."""
ANSWER_ONLY = Gap(
    "calls_not_captured",
    "only the answer is known, so that the run may have made calls; return or pass all messages, "
    "or a Trajectory such as that of oteval.capture()",
)
"""The gap of a run that recorded only its answer."""


@final
@record
class ToolCall:
    """A tool call as the model requested it.

    Attributes:
        name: The tool's name.
        arguments: The parsed arguments; a string if they are not valid JSON, None if the trace does
            not contain them.
        id: The provider's call id, or "".
        span_id: The id of the span of the tool's execution, or "".
        start_ns: The start of the execution; 0 if it has no span.
        end_ns: The end of the execution; 0 if it has no span.
        executed_by: `PROVIDER` if the model's provider runs the tool, such as a web search; "" if
            the agent does.
    """

    name: str
    arguments: Any = None
    id: str = ""
    span_id: str = ""
    start_ns: int = 0
    end_ns: int = 0
    executed_by: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The tool call in OpenAI's format, with its arguments as JSON text."""
        text = self.arguments if isinstance(self.arguments, str) else dumps_exact(self.arguments)
        if self.arguments is None:
            text = ""
        call: dict[str, Any] = {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": text},
        }
        if self.executed_by:
            call["executed_by"] = self.executed_by
        return call


@final
@record
class Message:
    """One message of a trajectory.

    Attributes:
        role: The role of its author.
        content: Its text; None if it has none, or the trace does not contain it.
        tool_calls: The tool calls of an assistant message.
        tool_call_id: The id of the call that a tool message answers.
        name: The name of the tool or participant, or "".
        is_error: Whether a tool message reports a failure; see `oteval.messages.call_outcome`.
        parts: Content other than text, such as images, audio, files and reasoning, in the emitter's
            format.
        span_id: The id of the span that the message was read from.
        trace_id: The id of that span's trace.
        is_outcome_recorded: Whether the emitter recorded `is_error` next to the result, so that it
            was not read from the result. Equal messages may differ in this field.
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
    is_outcome_recorded: bool = field(default=False, compare=False)

    @property
    def client_calls(self) -> tuple[ToolCall, ...]:
        """The calls that the agent has to execute, excluding calls of the provider's own tools."""
        return tuple([call for call in self.tool_calls if not call.executed_by])

    def as_dict(self) -> dict[str, Any]:
        """The message in OpenAI's format; a failed tool message has ``is_error``.

        A tool message that is recorded as a success also has it, as false.
        """
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
        if self.is_error or self.is_outcome_recorded:
            out["is_error"] = self.is_error
        return out


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Messages that the conversation left behind: replaced history or unused choices.

    Attributes:
        at: The index in the trajectory's messages where the replacement begins.
        messages: The messages that were replaced.
        span_id: The id of the span of the model call with the new history.
    """

    at: int
    messages: tuple[Message, ...]
    span_id: str

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        messages = [message.as_dict() for message in self.messages]
        return {"at": self.at, "span_id": self.span_id, "messages": messages}


@record
class Trajectory:
    """One agent run, reconstructed from its spans.

    The messages of previous turns are stored by reference to the previous run (`history`), so that
    a long conversation takes linear space.

    Attributes:
        id: A stable hash of the root span's ids.
        root_span: The root span of the run. Scores are attached to it.
        trace_ids: The ids of the traces with the run's own spans.
        tail: The messages after `history`.
        new_from: The index in `messages` of this run's own first message.
        history: The previous run of the same conversation, or None.
        conversation_id: The id of the conversation, or "".
        turn: The number of the run in its conversation, from 1.
        user: The id of the user, or "".
        version: The version of the agent or its service, or "".
        agent: The name of the agent, or "". For a run that was handed over, the name of the first
            agent.
        agents: The names of all agents, for a run that was handed over; otherwise empty.
        service: The name of the service that emitted the spans.
        parent_id: For a sub-agent, the id of the trajectory that called it; otherwise "".
        parent_call_id: For a sub-agent called as a tool, the id of that call; otherwise "".
        steps: The run as a path in a graph: one tuple with the nodes of its turn in execution
            order. A node inside another node or agent is named ``parent:child``.
        tools: The definitions of the tools that the model could call.
        models: The models that answered, in order of first use.
        dialects: The dialects that read the run's spans.
        usage: The token usage.
        finish_reasons: Why the model stopped, for each call that reports it, in order.
        prompts: The names of the prompts that the run used, each as ``name`` or ``name@version``.
        documents: The documents that retrievers returned and whose text was captured.
        start_ns: The start of the run.
        end_ns: The end of the run.
        gaps: The information that is missing from the trace.
        rewrites: History that later calls replaced, and choices that were not used.
        attributes: Short attributes of the resource and the root span, for filters.
        chain: A hash of all messages up to the run's last answer, or `FAILED_REQUEST` with a hash
            of the request. A later run without a conversation id finds its predecessor by it.
        follows: The `chain` of the previous run in the history; or `FOLLOWS_ANSWER` with the call
            key of its last answer, if the provider stores the history; or `FAILED_REQUEST` with a
            hash of the first request; or "".
        call_keys: Hashes of the model calls, to recognise recordings of the same calls by several
            instrumentations.
        rev: The revision. Spans that arrive late cause a new revision.
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
    finish_reasons: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    start_ns: int = 0
    end_ns: int = 0
    gaps: tuple[Gap, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()
    attributes: Attributes = field(default_factory=dict)
    chain: str = ""
    follows: str = ""
    call_keys: tuple[int, ...] = ()
    rev: int = 1
    agents: tuple[str, ...] = ()
    user: str = ""
    version: str = ""
    documents: tuple[RetrievedDocument, ...] = ()
    # Computed once.
    _messages: tuple[Message, ...] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    _known_count: int = field(default=-1, init=False, repr=False, compare=False)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The known messages of the conversation up to the end of the run."""
        if self._messages is None:
            runs: list[tuple[Message, ...]] = []
            run: Trajectory | None = self
            while run is not None:
                runs.append(run.tail)
                run = run.history
            messages = tuple(message for tail in reversed(runs) for message in tail)
            object.__setattr__(self, "_messages", messages)
            return messages
        return self._messages

    @property
    def _count(self) -> int:
        """The number of messages, computed without recursion."""
        line: list[Trajectory] = []
        run: Trajectory | None = self
        while run is not None and run._known_count < 0:
            line.append(run)
            run = run.history
        count = run._known_count if run else 0
        for run in reversed(line):
            count += len(run.tail)
            object.__setattr__(run, "_known_count", count)
        return count

    @property
    def own_messages(self) -> tuple[Message, ...]:
        """The messages of this run, without previous turns."""
        # Does not use `messages`, which would keep the whole history of every turn in memory.
        start = self.new_from - (self.history._count if self.history else 0)
        return self.tail[start:] if start >= 0 else self.messages[self.new_from :]

    @property
    def question(self) -> Message | None:
        """The first user message of this run with text, or None."""
        questions = (m for m in self.own_messages if m.role == "user" and (m.content or "").strip())
        return next(questions, None)

    def _repr_html_(self) -> str:
        """The run's facts and messages, for notebooks."""
        return html_of(self)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form, as printed by ``oteval trajectories --json``."""
        return {
            "trajectory_id": self.id,
            "trace_ids": list(self.trace_ids),
            "root_span": {"trace_id": self.root_span.trace_id, "span_id": self.root_span.span_id},
            "conversation_id": self.conversation_id or None,
            "user": self.user or None,
            "version": self.version or None,
            "agent": self.agent or None,
            **({"agents": list(self.agents)} if self.agents else {}),
            "parent_id": self.parent_id or None,
            "turn": self.turn,
            "new_from": self.new_from,
            "start_ns": self.start_ns,
            "end_ns": self.end_ns,
            "models": list(self.models),
            "usage": self.usage.as_dict(),
            "finish_reasons": list(self.finish_reasons),
            "prompts": list(self.prompts),
            "messages": [message.as_dict() for message in self.messages],
            **(
                {"documents": [document.as_dict() for document in self.documents]}
                if self.documents
                else {}
            ),
            "steps": [list(step) for step in self.steps],
            "gaps": [gap.as_dict() for gap in self.gaps],
        }


def trajectory_id(trace_id: str, span_id: str) -> str:
    """The stable id (16 hex digits) of the trajectory with this root span."""
    return hashlib.blake2b(f"{trace_id}:{span_id}".encode(), digest_size=8).hexdigest()


def gaps_of_calls(messages: Sequence[Message]) -> tuple[Gap, ...]:
    """The gap of a run whose messages, without spans, do not show its calls; else none.

    Messages are the whole run if they show a call, or the question that the run answers. An empty
    list hides nothing.
    """
    shows = any(message.tool_calls or message.role == "user" for message in messages)
    return () if shows or not messages else (ANSWER_ONLY,)
