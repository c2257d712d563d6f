"""AWS's OpenTelemetry distribution, as on AgentCore: content moved from spans into log records.

Each span's content is one log record whose event is named for the span's scope and whose body is
``{"input": {"messages": [...]}, "output": {"messages": [...]}}``. ``output`` contains every
assistant message, including the history's. Of Strands' span events, only the last of each kind is
kept. The order is rebuilt: results follow the calls with their ids, and a user message follows an
answer. The rest is a window on the end of the history.

Facts: https://github.com/aws-observability/aws-otel-python-instrumentation (``llo_handler.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ...messages import (
    ModelAnswer,
    ModelRequest,
    from_blocks,
    hidden,
    parse,
    parse_arguments,
    result_of,
)
from ...model import Gap, Message, Span, semconv
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..gaps import gap
from ..readers.model_calls import call_gaps, model_call
from ..readers.spans import attribute_gaps
from ..tool_spans import tool_run
from .strands import SCOPE, agent_tools, tool_status

__all__ = ["DIALECT"]

SWITCH = "list the attributes in gen_ai_unredacted_attributes of OTEL_SEMCONV_STABILITY_OPT_IN"
_BODY = "the log record's body"
_MODELS = ("chat", "generate_content", "text_completion", "llm", "completion")
_TOOLS = ("execute_tool", "tool")
_AGENTS = ("invoke_agent", "agent")


class _RecordedMessage(NamedTuple):
    """One message of a log record.

    Attributes:
        role: The message's role.
        value: Its text or blocks.
        is_answer: Whether it is this span's answer rather than history.
    """

    role: str
    value: Any
    is_answer: bool = False


def claims(span: Span, logs: Logs) -> bool:
    """Whether a log record contains the content of a span with a known operation."""
    if not logs:
        return False
    is_known = span.scope == SCOPE or _operation(span) in _MODELS + _TOOLS + _AGENTS
    return is_known and any(_is_content(record.body) for record in logs)


def _operation(span: Span) -> str:
    return str(semconv.first(span.attributes, semconv.OPERATION) or "").lower()


def _is_content(body: Any) -> bool:
    if not isinstance(body, Mapping) or not body.keys() <= {"input", "output"}:
        return False
    return any(isinstance(side, Mapping) and "messages" in side for side in body.values())


def read(span: Span, logs: Logs) -> Operation:
    """The span's operation; each instrumentation has its own names for them."""
    operation = _operation(span)
    recorded = list(_recorded_messages(logs))
    if operation in _MODELS:
        return _model_call(span, recorded)
    if operation in _TOOLS:
        return _tool(span, recorded)
    if operation in _AGENTS:
        return _agent(span, recorded)
    return Wrapper(span)


def _recorded_messages(logs: Logs) -> Iterator[_RecordedMessage]:
    for record in logs:
        if not _is_content(record.body):
            continue
        for side in ("input", "output"):
            body = record.body.get(side)
            messages = body.get("messages") if isinstance(body, Mapping) else None
            for item in messages if isinstance(messages, list) else []:
                if isinstance(item, Mapping):
                    yield _one(item, is_output=side == "output")


def _one(item: Mapping[str, Any], *, is_output: bool) -> _RecordedMessage:
    role, content = str(item.get("role") or ""), item.get("content")
    if not isinstance(content, Mapping):
        return _RecordedMessage(role, content, is_output)
    if "message" in content:
        return _RecordedMessage(role, content["message"], is_output)
    return _RecordedMessage(role, content.get("content"))


def _sides(span: Span, recorded: list[_RecordedMessage]) -> tuple[list[Message], list[Message]]:
    """The messages of the history and of the answer."""
    history: list[Message] = []
    received: list[Message] = []
    for message in recorded:
        role = "user" if message.role == "tool" else message.role or "user"
        side = received if message.is_answer else history
        side += from_blocks(role, message.value, span)
    return history, received


def _content_gaps(span: Span, recorded: list[_RecordedMessage], *, is_empty: bool) -> list[Gap]:
    gaps = []
    if any(parse(message.value).truncated for message in recorded):
        gaps.append(gap("content_truncated", span.span_id, key=_BODY))
    elif is_empty:
        reason = "it holds no messages"
        gaps.append(gap("content_unreadable", span.span_id, key=_BODY, reason=reason))
    return gaps


def _model_call(span: Span, recorded: list[_RecordedMessage]) -> ModelCall:
    history, received = _sides(span, recorded)
    gaps = call_gaps(span, (), SWITCH)
    gaps += _content_gaps(span, recorded, is_empty=not history and not received)
    call = model_call(span, ModelRequest(_ordered(history)), ModelAnswer(received), gaps)
    # Other instrumentations leave tool calls in the span's attributes.
    return call if span.scope == SCOPE else replace(call, whole=False)


def _ordered(messages: list[Message]) -> list[Message]:
    """A history in its original order, as far as it is contiguous."""
    prompts = [m for m in messages if m.role == "system"]
    spoken = [m for m in messages if m.role == "assistant"]
    results = [m for m in messages if m.role == "tool"]
    users = [m for m in messages if m.role not in ("system", "assistant", "tool")]
    if not spoken:
        return [*prompts, *users, *results]
    by_id: dict[str, list[Message]] = {}
    for result in results:
        by_id.setdefault(result.tool_call_id, []).append(result)
    pieces: list[list[Message]] = []
    waiting = list(users)
    for message in reversed(spoken):
        # An id may repeat within a session: the last call with it gets the last result.
        results_by_call = [by_id.get(call.id) for call in message.tool_calls]
        answers = [same_id.pop() for same_id in results_by_call if same_id]
        if not answers and waiting:
            answers = [waiting.pop()]
        pieces.append([message, *answers])
    ordered = [m for piece in reversed(pieces) for m in piece]
    # With one message of each kind, others may be missing between the user's text and the calls.
    is_window = len(spoken) == 1 and len(users) <= 1
    return [*prompts, *(() if is_window else waiting), *ordered]


def _tool(span: Span, recorded: list[_RecordedMessage]) -> ToolRun:
    arguments = next((message.value for message in recorded if not message.is_answer), None)
    result = next((message.value for message in recorded if message.is_answer), None)
    gaps = attribute_gaps(span, (), SWITCH)
    gaps += _content_gaps(span, recorded, is_empty=arguments is None and result is None)
    if hidden(arguments) or hidden(result):
        gaps.append(gap("redacted", span.span_id, key=_BODY, switch=SWITCH))
    return tool_run(
        span,
        name=str(semconv.first(span.attributes, semconv.TOOL_NAME) or span.name),
        call_id=semconv.first(span.attributes, semconv.CALL_ID),
        arguments=None if arguments is None else parse_arguments(arguments),
        result=result_of(result),
        failed=tool_status(span),
        gaps=gaps,
    )


def _agent(span: Span, recorded: list[_RecordedMessage]) -> AgentRun:
    sent, received = _sides(span, recorded)
    return AgentRun(
        span,
        name=str(semconv.first(span.attributes, semconv.AGENT_NAME) or ""),
        input=tuple(sent),
        output=tuple(received),
        tools=agent_tools(span),
    )


DIALECT = Dialect(
    name="adot",
    title="Amazon Bedrock AgentCore (ADOT)",
    precedence=10,
    read=read,
    scopes=(SCOPE,),
    keys=semconv.OPERATION,
    claims=claims,
    switch=SWITCH,
)
