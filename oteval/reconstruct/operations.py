"""The operation that a span records: a model call, a tool run, an agent run, or a wrapper.

Dialects return these four; the rest of the reconstruction works on them and knows no dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..model import Gap, Message, Span, Usage, record

__all__ = ["AgentRun", "ModelCall", "Operation", "ToolRun", "Wrapper"]


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
