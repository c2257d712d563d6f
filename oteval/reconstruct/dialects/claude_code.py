"""Claude Code and the Claude Agent SDK: ``claude_code.*`` spans with separate log records.

Source: https://code.claude.com/docs/en/monitoring-usage ("Traces (beta)" and "Events"); no capture
was at hand. A turn is a ``claude_code.interaction`` with ``claude_code.llm_request`` and
``claude_code.tool`` below it; a sub-agent's spans are below the tool that started it. Spans
contain the prompt and, in the event ``tool.output``, a tool's input and output. The model's answers
are in log records only. Log records of answers name the request by ``request_id``; log records of
tools name the call by ``tool_use_id``. All are emitted in the context of the interaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...messages import answer_of, hidden, last_message_of, parse, text_of
from ...model import Gap, LogRecord, Message, Span, Usage, read_tokens
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..gaps import gap
from ..readers.spans import error_text, parsed_unless_cut
from ..tool_spans import failure_of, tool_run
from ..tree import order

__all__ = ["DIALECT"]

PROMPTS = "set OTEL_LOG_USER_PROMPTS=1"
ANSWERS = (
    "set OTEL_LOG_ASSISTANT_RESPONSES=1 and OTEL_LOGS_EXPORTER=otlp (Claude Code 2.1.212 or "
    "later), and load the log records too"
)
TOOLS = "set OTEL_LOG_TOOL_CONTENT=1 and OTEL_LOG_TOOL_DETAILS=1"
LENGTH = "raise CLAUDE_CODE_OTEL_CONTENT_MAX_LENGTH"
_PREFIX = "claude_code."
_CUT_MARK = "[TRUNCATED"
_MAX_VALUE = 512  # a longer value of `tool_input` is cut
# The attribute that names the request or call of a log record.
_BY_REQUEST = ("assistant_response", "api_response_body")
_BY_CALL = ("tool_result", "tool_decision")
_PARTS_OF_TOOL = ("tool.execution", "tool.blocked_on_user")
# The documentation does not name the attributes of `tool.output`; these were seen in real spans.
_INPUTS = ("input", "tool_input", "arguments")
_OUTPUTS = ("output", "result", "tool_output", "content")
# The arguments that an older version records.
_DETAILS = {
    "full_command": "command",
    "file_path": "file_path",
    "skill_name": "skill",
    "subagent_type": "subagent_type",
}
_UNNAMED = ("mcp_tool", "mcp_other", "")


def attach_logs(spans: Sequence[Span], logs: Logs) -> Logs:
    """The log records with the spans of their requests and tools, parts of tools included.

    Args:
        spans: All spans.
        logs: All log records.
    """
    own = [span for span in spans if span.name.startswith(_PREFIX)]
    if not own:
        return logs
    own.sort(key=order, reverse=True)  # of several spans with the same id, the first counts
    requests = {_id(s, "request_id"): s for s in own if _kind(s) == "llm_request"}
    tools = {_id(s, "tool_use_id"): s for s in own if _kind(s) == "tool"}
    records = [_moved(record, requests, tools) for record in logs]
    by_span = {(s.trace_id, s.span_id): s for s in own if _kind(s) == "tool"}
    for span in own:
        tool = by_span.get((span.trace_id, span.parent_id))
        if tool is not None and _kind(span) in _PARTS_OF_TOOL:
            records.append(_as_record(span, tool))
    return records


def _kind(span: Span) -> str:
    return span.name.removeprefix(_PREFIX)


def _id(item: Span | LogRecord, key: str) -> str:
    """The id of a request or a call, or the span's id if it names none."""
    value = item.attributes.get(key)
    return value if isinstance(value, str) and value else f"\0{item.trace_id}{item.span_id}"


def _moved(record: LogRecord, requests: Mapping[str, Span], tools: Mapping[str, Span]) -> LogRecord:
    name = _event(record)
    target_span = None
    if name in _BY_REQUEST:
        target_span = requests.get(_id(record, "request_id"))
    elif name in _BY_CALL:
        target_span = tools.get(_id(record, "tool_use_id"))
    if target_span is None:
        return record
    return replace(record, trace_id=target_span.trace_id, span_id=target_span.span_id)


def _event(record: LogRecord) -> str:
    name = record.event_name or (record.body if isinstance(record.body, str) else "")
    return name.removeprefix(_PREFIX)


def _as_record(span: Span, tool: Span) -> LogRecord:
    """A part of a tool's execution as a log record of the tool."""
    failed = {"success": False, "error": _reason(span.attributes, span)}
    recorded = failed if failure_of(span) else {}
    return LogRecord(
        tool.trace_id,
        tool.span_id,
        span.end_ns or span.start_ns,
        event_name=span.name,
        attributes={**span.attributes, **recorded},
    )


def read(span: Span, logs: Logs) -> Operation:
    """The span's operation, by its name."""
    kind = _kind(span)
    if kind == "interaction":
        return _interaction(span, logs)
    if kind == "llm_request":
        return _model_call(span, logs)
    return _tool(span, logs) if kind == "tool" else Wrapper(span)


def _attributes_of(logs: Logs, *names: str) -> dict[str, Any]:
    """The attributes of the records of some names; of several values, the first counts."""
    attributes: dict[str, Any] = {}
    for name in names:
        for record in logs:
            if _event(record) == name:
                attributes = {**record.attributes, **attributes}
    return attributes


def _interaction(span: Span, logs: Logs) -> AgentRun:
    prompt = span.attributes.get("user_prompt")
    if prompt is None or hidden(prompt):
        prompt = _attributes_of(logs, "user_prompt").get("prompt", prompt)
    gaps: list[Gap] = []
    question = _text(prompt, "user_prompt", span, PROMPTS, gaps)
    if prompt is None:
        gaps.append(gap("content_not_captured", span.span_id, switch=PROMPTS))
    return AgentRun(
        span, name="claude-code", input=(_message("user", question, span),), gaps=tuple(gaps)
    )


def _message(role: str, content: str | None, span: Span) -> Message:
    return Message(role, content, span_id=span.span_id, trace_id=span.trace_id)


def _text(value: Any, key: str, span: Span, switch: str, gaps: list[Gap]) -> str | None:
    """A text, or None for a placeholder; notes whether it was a placeholder or was cut."""
    if hidden(value):
        gaps.append(gap("redacted", span.span_id, key=key, switch=switch))
        return None
    if isinstance(value, str) and _CUT_MARK in value:
        gaps.append(gap("content_shortened", span.span_id, key=key, switch=LENGTH))
    return text_of(value)


def _model_call(span: Span, logs: Logs) -> ModelCall:
    attributes = span.attributes
    gaps: list[Gap] = []
    failed = span.is_error or _is_no(attributes.get("success"))
    if failed:
        gaps.append(gap("model_call_failed", span.span_id, reason=_reason(attributes, span)))
    is_aside = "compact" in (attributes.get("query_source"), attributes.get("query_source_safe"))
    body = parse(_attributes_of(logs, "api_response_body").get("body"))
    answered = answer_of(body.value, span).messages if not body.truncated else []
    output = answered or (() if failed else _answer(span, logs, gaps, is_aside=is_aside))
    model = attributes.get("model") or attributes.get("gen_ai.request.model")
    return ModelCall(
        # Tools start while the answer still streams: they belong to the request that began last.
        span if answered else replace(span, end_ns=span.start_ns),
        output=() if is_aside else tuple(output),
        model=model if isinstance(model, str) else "",
        response_id=str(attributes.get("gen_ai.response.id") or ""),
        usage=_usage(attributes),
        # Without the response itself, the tools that it requests are not known.
        whole=is_aside or bool(answered),
        gaps=tuple(gaps),
    )


def _answer(span: Span, logs: Logs, gaps: list[Gap], *, is_aside: bool) -> tuple[Message, ...]:
    """The text of an answer; an answer that only requests tools has none."""
    response = _attributes_of(logs, "assistant_response").get("response")
    if response is not None:
        text = _text(response, "response", span, ANSWERS, gaps)
        return (_message("assistant", text, span),)
    reference = _attributes_of(logs, "api_response_body").get("body_ref")
    if reference is not None:
        gaps.append(gap("content_external", span.span_id, where=reference))
        return ()
    asks = span.attributes.get("response.has_tool_call") is True
    if not asks and span.attributes.get("stop_reason") != "tool_use" and not is_aside:
        gaps.append(gap("content_not_captured", span.span_id, switch=ANSWERS))
    return ()


def _is_no(value: Any) -> bool:
    return value is False or value == "false"


def _reason(recorded: Mapping[str, Any], span: Span) -> str:
    for key in ("error", "error_type", "error_class"):
        if recorded.get(key):
            return str(recorded[key])
    return error_text(span)


def _usage(attributes: Mapping[str, Any]) -> Usage:
    """The tokens; tokens of the cache are not part of the input, as in Anthropic's API."""
    counts = {
        "input_tokens": attributes.get("input_tokens"),
        "output_tokens": attributes.get("output_tokens"),
        "cache_read_input_tokens": attributes.get("cache_read_tokens"),
        "cache_creation_input_tokens": attributes.get("cache_creation_tokens"),
    }
    return read_tokens(counts).usage


def _tool(span: Span, logs: Logs) -> ToolRun:
    attributes = span.attributes
    recorded = _attributes_of(logs, "tool_result", *(_PARTS_OF_TOOL))
    refused = _attributes_of(logs, "tool_decision", "tool.blocked_on_user")
    gaps: list[Gap] = []
    rejected = refused.get("decision") == "reject"
    is_no = any(_is_no(record.attributes.get("success")) for record in logs)
    arguments = _arguments(span, recorded or refused, gaps)
    result = _result(span, gaps)
    why = refused.get("source", "") if rejected else ""
    reason = f"the call was rejected ({why})" if rejected else _reason(recorded, span)
    name = _name(attributes, recorded or refused)
    run = tool_run(
        span,
        name=name,
        call_id=attributes.get("tool_use_id") or attributes.get("gen_ai.tool.call.id"),
        arguments=arguments,
        result=result,
        failed=True if rejected or is_no else None,
        reason=reason,
        agent=_agent(span, name, arguments),
    )
    if run.result is None and not any(gap_of_tool.code == "redacted" for gap_of_tool in gaps):
        gaps.append(gap("content_not_captured", span.span_id, switch=TOOLS))
    return replace(run, gaps=tuple(dict.fromkeys(gaps)))


def _name(attributes: Mapping[str, Any], recorded: Mapping[str, Any]) -> str:
    """A tool's name; the name of an MCP server is separate from it."""
    name = str(attributes.get("tool_name") or recorded.get("tool_name") or "")
    parameters = parse(recorded.get("tool_parameters")).value
    if name in _UNNAMED and isinstance(parameters, Mapping) and parameters.get("mcp_tool_name"):
        return f"mcp__{parameters.get('mcp_server_name')}__{parameters['mcp_tool_name']}"
    return name or "tool"


def _output_event(span: Span) -> Mapping[str, Any]:
    events = [event.attributes for event in span.events if event.name == "tool.output"]
    return events[-1] if events else {}


def _arguments(span: Span, recorded: Mapping[str, Any], gaps: list[Gap]) -> Any:
    """A tool's arguments, from the place where they are the least cut."""
    event = _output_event(span)
    raw_arguments = next((event[key] for key in _INPUTS if key in event), None)
    is_short = raw_arguments is None
    if raw_arguments is None:
        raw_arguments = span.attributes.get("tool_input", recorded.get("tool_input"))
    _text(raw_arguments, "tool_input", span, TOOLS, gaps)
    value = None if hidden(raw_arguments) else parsed_unless_cut(raw_arguments)
    if value is None:
        gaps.append(gap("content_not_captured", span.span_id, switch=TOOLS))
        return {
            to: span.attributes[key] for key, to in _DETAILS.items() if key in span.attributes
        } or None
    if is_short and _is_cut(value):
        switch = "set OTEL_LOG_TOOL_CONTENT=1"
        gaps.append(gap("content_shortened", span.span_id, key="tool_input", switch=switch))
    return value


def _is_cut(value: Any) -> bool:
    """Whether arguments have the greatest length that Claude Code allows."""
    if not isinstance(value, Mapping):
        return True
    return any(isinstance(text, str) and len(text) >= _MAX_VALUE for text in value.values())


def _result(span: Span, gaps: list[Gap]) -> str | None:
    event = _output_event(span)
    # The text written to a file is content as well.
    is_write = span.attributes.get("tool_name") == "Write"
    keys = _OUTPUTS[:-1] if is_write else _OUTPUTS
    raw_result = next((event[key] for key in keys if key in event), None)
    return _text(raw_result, "tool.output", span, TOOLS, gaps)


def _agent(span: Span, name: str, arguments: Any) -> AgentRun | None:
    """The sub-agent that a tool starts; it has no span."""
    agent_arguments = arguments if isinstance(arguments, Mapping) else {}
    kind = span.attributes.get("subagent_type") or agent_arguments.get("subagent_type")
    if name not in ("Agent", "Task") and not kind:
        return None
    prompt = agent_arguments.get("prompt")
    question = last_message_of(prompt, span, "user") if isinstance(prompt, str) else ()
    return AgentRun(span, name=str(kind or name), input=question)


DIALECT = Dialect(
    name="claude-code",
    title="Claude Code, Claude Agent SDK",
    precedence=30,
    read=read,
    span_names=(f"{_PREFIX}*",),
    attach_logs=attach_logs,
)
