"""Vercel AI SDK: ``ai.operationId`` (versions 3 to 6) and the scope ``gen_ai`` (version 7).

Until version 6 a root such as ``ai.generateText`` contains model calls (``….doGenerate``,
``….doStream``) with messages in the SDK's own form, and ``ai.toolCall`` spans. Version 7 writes the
current GenAI conventions. Its root puts the final text before the calls that led to it, so only
the text of a root's answer is read. Read from captures and from https://github.com/vercel/ai
(``packages/otel``; documented at https://ai-sdk.dev/docs/ai-sdk-core/telemetry).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...messages import (
    ModelAnswer,
    ModelRequest,
    as_list,
    decoded_text,
    from_messages,
    hidden,
    list_of,
    mappings_of,
    parse,
    text_of,
    tool_definitions,
)
from ...model import DAMAGED_CONTENT_GAPS, Message, Span, Usage, read_tokens, semconv, span_tokens
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..gaps import gap
from ..readers.model_calls import call_gaps, model_call
from ..readers.spans import missing_side
from ..tool_spans import tool_of_attributes
from . import genai

__all__ = ["DIALECT"]

SWITCH = "pass experimental_telemetry: {recordInputs: true, recordOutputs: true}"
SWITCH_7 = "pass telemetry: {recordInputs: true, recordOutputs: true}"
SCOPE_7 = "gen_ai"

OPERATION = "ai.operationId"
ROOTS = frozenset(("ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject"))
MODEL_CALLS = frozenset(f"{root}.{call}" for root in ROOTS for call in ("doGenerate", "doStream"))

NAME = "ai.telemetry.functionId"
PROMPT, MESSAGES, TOOLS = "ai.prompt", "ai.prompt.messages", "ai.prompt.tools"
# Version 3 writes ``ai.result``.
TEXT = ("ai.response.text", "ai.result.text")
OBJECT = ("ai.response.object", "ai.result.object")
CALLS = ("ai.response.toolCalls", "ai.result.toolCalls")
REASONING, FILES = "ai.response.reasoning", "ai.response.files"
ANSWER = (*TEXT, *OBJECT, *CALLS, REASONING, FILES)
ARGUMENTS, RESULT = "ai.toolCall.args", "ai.toolCall.result"
MODEL = ("gen_ai.response.model", "ai.response.model", "gen_ai.request.model", "ai.model.id")
RESPONSE_ID = "ai.response.id"
METADATA = "ai.response.providerMetadata"


def claims(span: Span, logs: Logs) -> bool:  # noqa: ARG001
    """Whether the AI SDK itself wrote the span."""
    if OPERATION in span.attributes:
        return True
    return span.scope == SCOPE_7 and "gen_ai.operation.name" in span.attributes


def read(span: Span, logs: Logs) -> Operation:
    """The span's operation, by its operation name."""
    if OPERATION not in span.attributes:
        return _read_7(span, logs)
    operation = str(span.attributes[OPERATION])
    if operation in ROOTS:
        return _root(span)
    if operation in MODEL_CALLS:
        return _model_call(span)
    return _tool(span) if operation == "ai.toolCall" else Wrapper(span)


def _root(span: Span) -> AgentRun:
    attributes = span.attributes
    prompt = parse(attributes.get(PROMPT)).value
    messages: list[Message] = []
    if isinstance(prompt, Mapping):
        messages += messages_of(prompt.get("system"), span, "system")
        messages += messages_of(prompt.get("prompt"), span)
        messages += messages_of(prompt.get("messages"), span)
    answer = text_of(semconv.first(attributes, (*TEXT, *OBJECT)))
    answers = [] if answer is None or hidden(answer) else [{"role": "assistant", "content": answer}]
    return AgentRun(
        span,
        name=str(attributes.get(NAME) or ""),
        input=tuple(messages),
        output=tuple(from_messages(answers, span)),
    )


def _model_call(span: Span) -> ModelCall:
    attributes = span.attributes
    gaps = call_gaps(span, (MESSAGES, *CALLS, *OBJECT), SWITCH)
    sent = messages_of(parse(attributes.get(MESSAGES)).value, span)
    received = _answer(span)
    answered = span.is_error or any(key in attributes for key in ANSWER)
    gaps += missing_side(span, SWITCH, sent=MESSAGES in attributes, received=answered)
    if not sent and not gaps:
        gaps.append(gap("content_unreadable", span.span_id, key=MESSAGES, reason="no messages"))
    return model_call(
        span,
        ModelRequest(sent, _definitions(attributes.get(TOOLS))),
        ModelAnswer(received, response_id=str(attributes.get(RESPONSE_ID) or "")),
        gaps,
        model=semconv.first(attributes, MODEL),
        usage=_usage(attributes),
    )


def _answer(span: Span) -> list[Message]:
    attributes = span.attributes
    text = semconv.first(attributes, (*TEXT, *OBJECT))
    reasoning = attributes.get(REASONING)
    calls = parse(semconv.first(attributes, CALLS)).value
    files = parse(attributes.get(FILES)).value
    parts: list[Any] = [{"type": "reasoning", "text": text_of(reasoning)}] if reasoning else []
    parts += [] if text is None else [{"type": "text", "text": text}]
    parts += list_of(files)
    calls = mappings_of(calls)
    if not (parts or calls) and not any(key in attributes for key in TEXT):
        return []
    return from_messages([{"role": "assistant", "parts": parts, "tool_calls": calls}], span)


def _definitions(value: Any) -> tuple[Mapping[str, Any], ...]:
    return tool_definitions([parse(item).value for item in list_of(parse(value).value)])


def _usage(attributes: Mapping[str, Any]) -> Usage:
    tokens = span_tokens(attributes)
    if tokens.cached is None:
        # Version 4 writes it only in the provider's metadata.
        metadata = parse(attributes.get(METADATA)).value
        openai = metadata.get("openai") if isinstance(metadata, Mapping) else None
        tokens = tokens._replace(cached=read_tokens(openai).cached)
    return tokens.usage


def _tool(span: Span) -> ToolRun:
    attributes = span.attributes
    return tool_of_attributes(
        span,
        (ARGUMENTS, RESULT),
        SWITCH,
        name=attributes.get("ai.toolCall.name"),
        call_id=attributes.get("ai.toolCall.id"),
        result=decoded_text(attributes.get(RESULT)),
    )


def _read_7(span: Span, logs: Logs) -> Operation:
    operation = str(span.attributes["gen_ai.operation.name"])
    if operation == "invoke_agent":
        run = genai.read_agent(span, logs)
        answers = (replace(m, tool_calls=()) for m in run.output if m.role == "assistant")
        # The span's name ends with the model's name, not the agent's.
        name = str(span.attributes.get("gen_ai.agent.name") or "")
        return replace(run, name=name, output=tuple(answers))
    if operation == "execute_tool":
        return genai.read_tool(span, SWITCH_7)
    if operation not in genai.MODEL_OPERATIONS:
        return Wrapper(span)
    call = genai.read_model_call(span, logs, SWITCH_7)
    call = replace(call, input=tuple(m for m in call.input if not _is_approval(m)))
    content = genai.content_of(span, logs)
    if any(gap.code in DAMAGED_CONTENT_GAPS for gap in call.gaps):
        return call
    answered = span.is_error or genai.OUTPUT in content
    missing = missing_side(span, SWITCH_7, sent=genai.INPUT in content, received=answered)
    return replace(call, whole=call.whole and not missing, gaps=(*call.gaps, *missing))


def _is_approval(message: Message) -> bool:
    """Whether a tool message only approves a call, without a result."""
    if message.role != "tool" or message.content or message.tool_call_id:
        return False
    return any("approval" in str(part.get("type")) for part in message.parts)


def messages_of(value: Any, span: Span, role: str = "user") -> list[Message]:
    """The messages of a parsed value in the SDK's own form; a text alone is one message.

    Args:
        value: A list of messages, a single one, or a text.
        span: The span that contains it.
        role: The role of messages without one.
    """
    if isinstance(value, str):
        return [] if hidden(value) else from_messages(value, span, role)
    return from_messages([*map(_message, mappings_of(as_list(value)))], span, role)


def _message(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message with its results last.

    A provider's own result precedes the text; the original answer had one text, then its calls.
    """
    content = item.get("content")
    if item.get("role") != "assistant" or not isinstance(content, list):
        return item
    return {**item, "content": sorted(content, key=_is_result)}


def _is_result(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "tool-result"


DIALECT = Dialect(
    name="vercel-ai",
    title="Vercel AI SDK",
    precedence=230,
    read=read,
    scopes=(SCOPE_7,),
    keys=(OPERATION,),
    claims=claims,
    switch=SWITCH,
)
