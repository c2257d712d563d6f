"""Google ADK, telemetry schemas 1 and 2 (scope ``gcp.vertex.agent``).

Schema 1: ``invocation`` over ``invoke_agent`` over ``call_llm``, whose ``gcp.vertex.agent.*``
attributes are Gemini JSON. Schema 2: ``invoke_workflow`` over ``invoke_agent`` over
``generate_content`` with the current GenAI attributes or log event. A ``generate_content`` span
may be a child of ``call_llm``; without the latest conventions, each message is a log record with a
Gemini content. Only the response contains a tool's error.

An agent that takes over from another receives the other's turn as user contents that begin with
"For context:", one part for each text, call or result. Since ADK 2.8 the quoted text is between
markers; before, it follows on the same line. If every part can be parsed exactly, the content is
read as the original message with the other agent's name; otherwise it stays unchanged.

Facts: https://github.com/google/adk-python (``google/adk/telemetry``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...messages import (
    ModelAnswer,
    ModelRequest,
    as_list,
    call_part,
    definitions,
    from_messages,
    hidden,
    mapping_of,
    parse,
    parse_arguments,
    result_part,
    system_messages,
)
from ...model import Message, Span
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..gaps import gap
from ..readers.model_calls import call_gaps, model_call
from ..readers.spans import attribute_gaps, integer, not_captured
from ..tool_spans import tool_run
from . import genai
from .genai_events import emitted

__all__ = ["DIALECT"]

SWITCH = (
    "set OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental and "
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY (with EVENT_ONLY, load the log "
    "records too)"
)
OLD_SWITCH = "unset ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS or set it to true"
_PREFIX = "gcp.vertex.agent."
REQUEST, RESPONSE = f"{_PREFIX}llm_request", f"{_PREFIX}llm_response"
ARGUMENTS, RESULT = f"{_PREFIX}tool_call_args", f"{_PREFIX}tool_response"
MERGED = "(merged tools)"
# How the prompt quotes the turn of the agent before.
_PREAMBLE = "For context:"
_BEGIN, _END = "<<<BEGIN_QUOTED_AGENT_CONTENT>>>", "<<<END_QUOTED_AGENT_CONTENT>>>"
_LINE = re.compile(
    r"\[(?P<agent>[^\]\n]+)\] (?:(?P<said>said|thought)"
    r"|called tool `(?P<call>[^`\n]+)` with parameters"
    r"|`(?P<result>[^`\n]+)` tool returned result):"
    rf"(?: (?P<plain>.*)|\n{_BEGIN}\n(?P<quoted>.*)\n{_END})",
    re.DOTALL,
)
# Placeholders for a value that is absent or was not captured.
_NOTHING = frozenset({"", "{}", "N/A", "<not specified>"})
# Old agent spans have no attributes, only a name.
_AGENT_SPAN = re.compile(r"(?:agent_run \[(?P<old>.+)\]|invoke_agent (?P<new>.+))")


def read(span: Span, logs: Logs) -> Operation:
    """The span's operation, in either schema."""
    attributes = span.attributes
    operation = str(attributes.get("gen_ai.operation.name", ""))
    if attributes.get("gen_ai.tool.name") == MERGED or span.name == "execute_tool (merged)":
        return Wrapper(span)
    if operation == "execute_tool" or ARGUMENTS in attributes:
        return _tool(span)
    if operation == "invoke_agent":
        return genai.read_agent(span, logs)
    if operation in genai.MODEL_OPERATIONS:
        return _generate_content(span, logs)
    if span.name == "call_llm" or (not operation and REQUEST in attributes):
        return _call_llm(span)
    agent_name = None if operation else _AGENT_SPAN.fullmatch(span.name)
    return (
        AgentRun(span, name=agent_name["old"] or agent_name["new"]) if agent_name else Wrapper(span)
    )


def _known(value: Any) -> Any:
    """An attribute's value, or None for a placeholder."""
    if value in ({}, None) or (isinstance(value, str) and value in _NOTHING):
        return None
    return value


def _call_llm(span: Span) -> ModelCall:
    attributes = span.attributes
    request, response = mapping_of(attributes.get(REQUEST)), mapping_of(attributes.get(RESPONSE))
    config = mapping_of(request.get("config"))
    error = None if span.is_error else response.get("error_code")
    failure = str(response.get("error_message") or error) if error else ""
    gaps = call_gaps(span, (REQUEST, RESPONSE), OLD_SWITCH, failure)
    sent = system_messages(request, span)
    sent += from_messages(with_original_turns(_contents(attributes, request)), span)
    received = _received(_answer(attributes, response), span)
    if not sent and not received:
        gaps += not_captured(span, {REQUEST: sent, RESPONSE: received}, OLD_SWITCH, gaps)
    return model_call(
        span,
        ModelRequest(sent, tuple(definitions(config))),
        ModelAnswer(received),
        gaps,
        model=response.get("model_version"),
    )


def _contents(attributes: Mapping[str, Any], request: Mapping[str, Any]) -> Any:
    """A request's contents, without the last one if the request was cut."""
    contents = request.get("contents")
    if isinstance(contents, list) and parse(attributes.get(REQUEST)).truncated:
        return contents[:-1]
    return contents


def _answer(attributes: Mapping[str, Any], response: Mapping[str, Any]) -> Any:
    """A response's content, or None if it may have been cut."""
    content = response.get("content")
    is_cut = parse(attributes.get(RESPONSE)).truncated and "finish_reason" not in response
    return None if is_cut else content


def _received(content: Any, span: Span) -> list[Message]:
    if not isinstance(content, Mapping):
        return []
    return from_messages([{**content, "role": "assistant"}], span)


def _generate_content(span: Span, logs: Logs) -> ModelCall:
    if emitted(span, logs) and not _has_messages(span, logs):
        return _of_events(span, logs)
    call = genai.read_model_call(span, logs, SWITCH)
    content = genai.content_of(span, logs)
    contents = with_original_turns(parse(content.get(genai.INPUT)).value)
    if not contents:
        return call
    sent = [*genai.read_system(content, span), *from_messages(contents, span)]
    return replace(call, input=tuple(sent))


def _has_messages(span: Span, logs: Logs) -> bool:
    """Whether the span or its details event contains messages."""
    content = genai.content_of(span, logs)
    return any(_known(content.get(key)) is not None for key in (genai.INPUT, genai.OUTPUT))


def _of_events(span: Span, logs: Logs) -> ModelCall:
    """A model call whose messages are log records, all with the user's event name."""
    gaps = call_gaps(span, (), SWITCH)
    sent: list[Message] = []
    contents: list[Any] = []
    received: list[Message] = []
    for name, body in emitted(span, logs):
        content = body.get("content") if isinstance(body, Mapping) else None
        if hidden(content) or not content:
            continue
        if name == "gen_ai.system.message":
            sent += system_messages({"system": content}, span)
        elif name != "gen_ai.choice":
            contents += as_list(content)
        elif not received or not integer(body.get("index")):
            received = _received(content, span)
    sent += from_messages(with_original_turns(contents), span)
    if not sent and not received:
        gaps.append(gap("content_not_captured", span.span_id, switch=SWITCH))
    return model_call(span, ModelRequest(sent), ModelAnswer(received), gaps)


def _tool(span: Span) -> ToolRun:
    attributes = span.attributes
    if ARGUMENTS not in attributes and RESULT not in attributes:
        return _named(genai.read_tool(span, SWITCH))
    gaps = attribute_gaps(span, (ARGUMENTS, RESULT), OLD_SWITCH)
    raw_arguments, result = attributes.get(ARGUMENTS), _known(attributes.get(RESULT))
    if isinstance(result, str) and mapping_of(result) == {"result": "<not specified>"}:
        result = None
    arguments = parse_arguments(raw_arguments) if raw_arguments is not None else None
    if _known(raw_arguments) is None and _known(attributes.get(RESULT)) is None:
        # Both are empty, but a tool without arguments still has a response.
        arguments = None
        gaps.append(gap("content_not_captured", span.span_id, switch=OLD_SWITCH))
    return _named(
        tool_run(
            span,
            name=str(attributes.get("gen_ai.tool.name") or span.name.removeprefix("execute_tool ")),
            call_id=attributes.get("gen_ai.tool.call.id"),
            arguments=arguments,
            result=result,
            gaps=gaps,
        )
    )


def _named(tool: ToolRun) -> ToolRun:
    """A tool run without the placeholder for a call's id."""
    return replace(tool, call_id="") if tool.call_id in _NOTHING else tool


def with_original_turns(messages: Any) -> list[Any]:
    """Return messages, with quotes of another agent's turn replaced by the original messages.

    Args:
        messages: The parsed list, or a single message.
    """
    return [_original_turn(item) or item for item in as_list(messages)]


def _original_turn(item: Any) -> dict[str, Any] | None:
    """The message that a user's message quotes, or None if it cannot be parsed exactly."""
    parts = item.get("parts") if isinstance(item, Mapping) else None
    if not isinstance(parts, list) or len(parts) < 2 or item.get("role") != "user":
        return None
    opening = _text(parts[0])
    if opening is None or not (opening == _PREAMBLE or _is_long_preamble(opening)):
        return None
    agent = ""
    contents = []
    for part in parts[1:]:
        text = _text(part)
        match = None if text is None else _LINE.fullmatch(text)
        if text is not None and match is None:
            return None
        if match is None:
            contents.append(part)
            continue
        agent = match["agent"]
        original = _quoted_part(match)
        if original is None:
            return None
        contents.append(original)
    return {"role": "assistant", "name": agent, "parts": contents} if agent else None


def _is_long_preamble(text: str) -> bool:
    return text.startswith(_PREAMBLE) and _BEGIN in text and _END in text


def _text(part: Any) -> str | None:
    if isinstance(part, Mapping):
        key = "content" if part.get("type") == "text" else "text"
        part = None if part.get("thought") else part.get(key)
    return part if isinstance(part, str) else None


def _quoted_part(match: re.Match[str]) -> dict[str, Any] | None:
    """The part that one line quotes, or None if its value cannot be parsed exactly."""
    text = match["quoted"] if match["quoted"] is not None else match["plain"]
    if match["said"]:
        kind = "text" if match["said"] == "said" else "reasoning"
        return {"type": kind, "content": text}
    parsed = parse(text)
    value = None if text == "None" else parsed.value
    if parsed.truncated or isinstance(value, str):
        return None
    if match["call"]:
        return call_part(match["call"], {} if value is None else value)
    return result_part(match["result"], value)


DIALECT = Dialect(
    name="google-adk",
    title="Google ADK",
    precedence=130,
    read=read,
    scopes=("gcp.vertex.agent",),
    keys=(f"{_PREFIX}*",),
    switch=SWITCH,
)
