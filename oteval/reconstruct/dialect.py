"""The declaration of a dialect: which spans it reads, and the operation that each span records.

A dialect is one way of writing agents, model calls and tool calls in spans. Each is one module of
`oteval.reconstruct.dialects` with a `Dialect` named ``DIALECT``. No list names the modules; a
dialect may use functions of another one.

Dialects return a model call, a tool run, an agent run, or a wrapper; the rest of the reconstruction
works on these four and knows no dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..model import Gap, LogRecord, Message, Span, Usage, record

__all__ = ["AgentRun", "Dialect", "Logs", "ModelCall", "Operation", "ToolRun", "Wrapper"]

Logs = Sequence[LogRecord]


@record
class ModelCall:
    """A span of one call of a model.

    Attributes:
        span: The span.
        input: The messages sent, as far as they are known. Messages that an earlier call of the
            trace also sent may be the same objects, with the ids of that call's span. `asked_by` is
            the span that all of them count as read from.
        output: The messages received.
        choices: The other answers, if several were requested.
        tools: Definitions of the tools offered.
        model: The model that answered.
        response_id: The provider's id of the answer, or "".
        finish_reason: Why the model stopped, in the words of the conventions, or "".
        usage: Tokens used.
        whole: Whether the recorded input and output are complete.
        is_delta: Whether the input is known to contain only messages that are new to the provider.
        calls_by_id: Whether answers with calls are known by the calls' ids alone, because the
            emitter leaves the calls out of the history.
        is_unanswered: Whether nothing shows that the model answered.
        input_span: The span that `input` was read from, if that is another span.
        gaps: The gaps found in it.
    """

    span: Span
    input: tuple[Message, ...] = ()
    output: tuple[Message, ...] = ()
    choices: tuple[Message, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    model: str = ""
    response_id: str = ""
    finish_reason: str = ""
    usage: Usage = Usage()
    whole: bool = True
    is_delta: bool = False
    calls_by_id: bool = False
    is_unanswered: bool = False
    input_span: Span | None = None
    gaps: tuple[Gap, ...] = ()

    @property
    def asked_by(self) -> Span:
        """The span that the input was read from."""
        return self.input_span or self.span

    @property
    def is_complete(self) -> bool:
        """Whether both the input and the output are known and complete."""
        return self.whole and bool(self.input) and bool(self.output)


@record
class ToolRun:
    """A span of one execution of a tool.

    Attributes:
        span: The span.
        name: The tool's name.
        call_id: The provider's call id, or "".
        arguments: The parsed arguments; None if the span lacks them.
        result: The result as text; None if the span lacks it.
        is_error: Whether the span records that the execution failed; the result may report it too.
        is_outcome_recorded: Whether the span records a failure or a success.
        gaps: The gaps found in it.
        agent: The agent that the tool starts, if that has no span, or None.
    """

    span: Span
    name: str
    call_id: str = ""
    arguments: Any = None
    result: str | None = None
    is_error: bool = False
    is_outcome_recorded: bool = False
    gaps: tuple[Gap, ...] = ()
    agent: AgentRun | None = None


@record
class AgentRun:
    """A span of one run of an agent.

    Attributes:
        span: The span.
        name: The agent's name, or "".
        input: The question, if the span contains it.
        output: The answer, if the span contains it.
        transcript: All messages of the conversation, if the span contains them.
        transcript_new_from: The number of messages of `transcript` from before this run, without
            system prompts; None if the span does not show it.
        transcript_is_turn: Whether `transcript` leaves out the messages before this run.
        output_calls: The ids of calls of output tools, which end the run. No tool runs, and the
            framework's note has no place in `transcript`, because only a later request sends it.
        node: The node of a graph that the agent is, or "".
        tools: Definitions of the tools the agent has.
        gaps: The gaps found in it.
    """

    span: Span
    name: str = ""
    input: tuple[Message, ...] = ()
    output: tuple[Message, ...] = ()
    transcript: tuple[Message, ...] = ()
    transcript_new_from: int | None = None
    transcript_is_turn: bool = False
    output_calls: tuple[str, ...] = ()
    node: str = ""
    tools: tuple[Mapping[str, Any], ...] = ()
    gaps: tuple[Gap, ...] = ()


@record
class Wrapper:
    """A span that only groups others: a workflow, a step, an HTTP request.

    Attributes:
        span: The span.
        node: The node of a graph that ran, or "".
    """

    span: Span
    node: str = ""


Operation = ModelCall | ToolRun | AgentRun | Wrapper


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One way of writing agents, model calls and tool calls in spans.

    A span with any of the marks (`scopes`, `keys`, `span_names`, `events`) is offered to the
    dialect. If the dialect has `claims`, that function decides. A span with marks of several
    dialects goes to the dialect with the lowest `precedence` that claims it.

    In `scopes`, `keys` and `span_names`, a trailing ``*`` matches any ending.

    Attributes:
        name: The name in trajectories, in ``oteval explain`` and in the documentation. It is stored
            and filtered by: never change it.
        title: The framework or instrumentation that writes the spans.
        precedence: The order of trying dialects, lowest first. Frameworks
            with their own marks come before conventions that many frameworks share: OpenInference
            has 120, the current GenAI conventions 300.
        read: Returns the operation that a span records.
        scopes: Instrumentation scopes whose spans it reads.
        keys: Attributes that only its spans have.
        span_names: Names of its spans.
        events: Names of span events or log records with its content.
        operations: Values of ``gen_ai.operation.name`` that only its spans have.
        claims: Returns whether it reads a span that has one of the marks; None if it reads every
            such span.
        is_added: Returns whether a backend may have added the marks to a span as it stored it; None
            if only the emitter writes them. Then any other dialect that claims the span reads it:
            attributes of the framework contain more than their translation by a backend.
        attach_logs: Returns the log records, each with the span that it belongs to; None if the
            emitter writes them with the right span. Called once for all spans of the traces.
        switch: The remedy in the gap ``content_not_captured``: the setting that makes the emitter
            write messages. "" if one side of a model call is expected elsewhere; then no gap is
            reported for it.
    """

    name: str
    title: str
    precedence: int
    read: Callable[[Span, Logs], Operation]
    scopes: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    span_names: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    claims: Callable[[Span, Logs], bool] | None = None
    is_added: Callable[[Span], bool] | None = None
    attach_logs: Callable[[Sequence[Span], Logs], Logs] | None = None
    switch: str = ""
