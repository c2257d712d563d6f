"""LiteLLM's own OpenTelemetry callback (scope ``litellm``), in its library and its proxy.

A call is one ``litellm_request`` span, or the proxy's span of the request, with messages of parts
that keep OpenAI's ``tool_calls`` and ``tool_call_id`` beside them. The calls an answer asks for
stand apart, without ids, in ``gen_ai.completion.N.function_call.*``; the ids are known from the
next call's input. Before version 1.81 the messages are flat (``gen_ai.prompt.N.role``). The child
``raw_gen_ai_request`` says the same once more and is left out. Read from captures and from
https://github.com/BerriAI/litellm (``litellm/integrations/opentelemetry.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ... import semconv
from ...messages.provider_calls import answer_of, request_of
from ...messages.reader import choices, from_messages, tool_definitions
from ...messages.values import hidden, parse
from ...model import NO_TOKENS, Gap, LogRecord, Span, Usage, read_tokens
from ..dialect import Dialect, Logs
from ..gaps import gap
from ..operations import ModelCall, Operation, Wrapper
from ..readers.flat_lists import nested
from ..readers.spans import (
    NO_OUTPUT,
    attribute_gaps,
    is_whole,
    missing_side,
    model_failure,
    usage,
    without_placeholders,
)

__all__ = ["DIALECT"]

SWITCH = (
    "leave litellm.turn_off_message_logging and the callback's message_logging at their defaults"
)
UPGRADE = "upgrade LiteLLM to 1.81 or later: before, it omits the calls of earlier answers"
UNWRITTEN = "LiteLLM writes no answers of calls of the kind {kind}"
SCOPE, RAW = "litellm", "raw_gen_ai_request"
KIND, USAGE = "llm.request.type", "metadata.usage_object"
INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
SYSTEM = "gen_ai.system_instructions"
OLD_INPUT, OLD_OUTPUT = "gen_ai.prompt.", "gen_ai.completion."
TOOLS = "llm.request.functions."
# The event by which a span is known whose calls were written over one another.
_SHARED = "oteval.litellm.shared_span"
_REQUEST = (
    "input",
    "instructions",
    "messages",
    "previous_response_id",
    "prompt",
    "system",
    "tools",
)
# The proxy writes on the span that is there, whosever it is.
_MARKS = frozenset({"litellm.call_id", "metadata.user_api_key_hash"})
# With a leading "a" where the call is asynchronous.
_MODEL_KINDS = frozenset(
    (
        "chat",
        "completion",
        "text_completion",
        "responses",
        "anthropic_messages",
        "generate_content",
        "generate_content_stream",
    )
)


def read(span: Span, logs: Logs) -> Operation:
    """Return the model call that the span is, if it is one."""
    if any(record.event_name == _SHARED for record in logs):
        return _raw_call(span) if span.name == RAW else Wrapper(span)
    kind = str(span.attributes.get(KIND) or "")
    is_model = kind in _MODEL_KINDS or kind.removeprefix("a") in _MODEL_KINDS
    if span.name == RAW or not (is_model or (not kind and INPUT in span.attributes)):
        return Wrapper(span)
    return _model_call(span, kind)


def _model_call(span: Span, kind: str) -> ModelCall:
    attributes = span.attributes
    gaps = attribute_gaps(span, (INPUT, OUTPUT, SYSTEM), SWITCH) + model_failure(span)
    sent = [*_parsed_list(attributes.get(SYSTEM)), *_parsed_list(attributes.get(INPUT))]
    sent = sent or nested(attributes, OLD_INPUT)
    received = _answers(attributes)
    answer, others = choices(received)
    gaps += _missing(span, sent, received, kind)
    return ModelCall(
        span,
        input=without_placeholders(from_messages(sent, span), span, SWITCH, gaps),
        output=without_placeholders(from_messages(answer, span, "assistant"), span, SWITCH, gaps),
        choices=without_placeholders(from_messages(others, span, "assistant"), span, SWITCH, gaps),
        tools=_definitions(attributes),
        model=str(semconv.first(attributes, semconv.RESPONSE_MODEL) or ""),
        response_id=str(attributes.get("gen_ai.response.id") or ""),
        usage=_usage(attributes),
        whole=is_whole(gaps),
        gaps=tuple(gaps),
    )


def attach_logs(spans: Sequence[Span], logs: Logs) -> Logs:
    """Return the log records, and one for each span of calls that were written over one another.

    LiteLLM writes a call on its caller's span. Of several, that has only the last; then the raw
    requests below it, each a span, are read.

    Args:
        spans: All spans.
        logs: All log records.
    """
    raw: dict[tuple[str, str], list[Span]] = {}
    for span in spans:
        if span.name == RAW and span.scope == SCOPE and span.parent_id:
            raw.setdefault((span.trace_id, span.parent_id), []).append(span)
    shared = [family for family in raw.values() if len(family) > 1]
    if not shared:
        return logs
    above = {(family[0].trace_id, family[0].parent_id) for family in shared}
    marked = [span for span in spans if (span.trace_id, span.span_id) in above]
    marked += [span for family in shared for span in family]
    records = [
        LogRecord(span.trace_id, span.span_id, span.start_ns, event_name=_SHARED) for span in marked
    ]
    return [*logs, *records]


def _raw_call(span: Span) -> ModelCall:
    """Return the call in a raw request, whose attributes have the provider's own fields."""
    fields = {
        key.split(".", 2)[2]: parse(value).value
        for key, value in span.attributes.items()
        if key.startswith("llm.") and key.count(".") > 1
    }
    gaps = model_failure(span)
    request = request_of({key: fields[key] for key in _REQUEST if key in fields}, span)
    answer = answer_of({key: fields[key] for key in fields.keys() - set(_REQUEST)}, span)
    is_answered = bool(answer.messages) or span.is_error
    gaps += missing_side(span, SWITCH, sent=request.messages, received=is_answered)
    return ModelCall(
        span,
        input=without_placeholders(request.messages, span, SWITCH, gaps),
        output=without_placeholders(answer.messages, span, SWITCH, gaps),
        choices=answer.choices,
        tools=request.tools,
        model=answer.model or str(fields.get("model") or ""),
        response_id=answer.response_id,
        usage=read_tokens(fields.get("usage")).usage,
        whole=is_whole(gaps),
        is_delta=request.is_delta,
        gaps=tuple(gaps),
    )


def _parsed_list(value: Any) -> list[Any]:
    found = parse(value).value
    return found if isinstance(found, list) else []


def _answers(attributes: Mapping[str, Any]) -> list[Any]:
    """Return the answers; the calls in a separate attribute are those of the first."""
    flat = [item for item in nested(attributes, OLD_OUTPUT) if isinstance(item, Mapping)]
    calls = [item["function_call"] for item in flat if "function_call" in item]
    found = [item for item in _parsed_list(attributes.get(OUTPUT)) if isinstance(item, Mapping)]
    found = found or [item for item in flat if "role" in item or "content" in item]
    if not calls:
        return found
    first = found[0] if found else {"role": "assistant"}
    return [{**first, "tool_calls": calls}, *found[1:]]


def _missing(span: Span, sent: list[Any], received: list[Any], kind: str) -> list[Gap]:
    if any(hidden(span.attributes.get(key)) for key in (INPUT, OUTPUT)):
        return []
    switch = ""
    if not sent or (not received and not span.is_error and OUTPUT in span.attributes):
        return missing_side(span, SWITCH, sent=sent, received=received)
    if not received and not span.is_error and OUTPUT not in span.attributes:
        switch = UNWRITTEN.format(kind=kind or "unknown")
    elif INPUT not in span.attributes and any(_is_bare(item) for item in sent):
        switch = UPGRADE
    missing = "message content" if received else NO_OUTPUT
    found = gap("content_not_captured", span.span_id, missing=missing, switch=switch)
    return [found] if switch else []


def _is_bare(item: Any) -> bool:
    """Return whether a flat message is an answer of which only the role was written."""
    return isinstance(item, Mapping) and dict(item) == {"role": "assistant"}


def _definitions(attributes: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    found = nested(attributes, TOOLS)
    return tool_definitions(
        [
            {"type": "function", **item, "parameters": parse(item.get("parameters")).value}
            for item in found
            if isinstance(item, Mapping)
        ]
    )


def _usage(attributes: Mapping[str, Any]) -> Usage:
    tokens = read_tokens(parse(attributes.get(USAGE)).value)
    return usage(attributes) if tokens == NO_TOKENS else tokens.usage


DIALECT = Dialect(
    name="litellm",
    title="LiteLLM",
    precedence=250,
    read=read,
    scopes=(SCOPE,),
    keys=("litellm.call_id", "metadata.user_api_key_hash"),
    span_names=(RAW,),
    events=(_SHARED,),
    attach_logs=attach_logs,
    switch=SWITCH,
)
