"""LiteLLM's own OpenTelemetry callback (scope ``litellm``), in its library and its proxy.

A call is one ``litellm_request`` span, or the proxy's span of the request. Its messages have parts,
and OpenAI's ``tool_calls`` and ``tool_call_id`` next to the parts. An answer's calls are separate,
without ids, in ``gen_ai.completion.N.function_call.*``; the next call's input has the ids. Before
version 1.81 the messages are flat (``gen_ai.prompt.N.role``). The child ``raw_gen_ai_request``
contains the provider's request and response, each field as a Python repr. Inside an application's
span, LiteLLM writes each call on that span and overwrites the call before, so only the raw spans
contain all calls. Read from captures and from https://github.com/BerriAI/litellm
(``litellm/integrations/opentelemetry.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...messages import (
    ModelAnswer,
    ModelRequest,
    answer_of,
    choices,
    from_messages,
    hidden,
    list_of,
    literal_of,
    mappings_of,
    parse,
    request_of,
)
from ...model import NO_TOKENS, Gap, Span, Usage, read_tokens
from ..dialect import Dialect, Logs, ModelCall, Operation, Wrapper
from ..gaps import gap
from ..readers.flat_lists import nested
from ..readers.model_calls import call_gaps, model_call
from ..readers.spans import NO_OUTPUT, missing_side, usage

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
RAW_FIELD = "llm."
_RAW_REQUEST = frozenset({"messages", "input", "prompt", "prompts", "tools", "system"})
# Asynchronous calls have a leading "a".
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


def read(span: Span, logs: Logs) -> Operation:  # noqa: ARG001
    """The span's model call, or a wrapper."""
    if span.name == RAW:
        return _raw_call(span)
    kind = str(span.attributes.get(KIND) or "")
    is_model = kind in _MODEL_KINDS or kind.removeprefix("a") in _MODEL_KINDS
    if not (is_model or (not kind and INPUT in span.attributes)):
        return Wrapper(span)
    return _model_call(span, kind)


def _raw_call(span: Span) -> Operation:
    """A raw span's model call if both its request and its answer are readable."""
    fields = {
        name: _value_of(value)
        for key, value in span.attributes.items()
        if key.startswith(RAW_FIELD) and (name := key.removeprefix(RAW_FIELD).partition(".")[2])
    }
    request = request_of(fields, span)
    answer = answer_of({k: v for k, v in fields.items() if k not in _RAW_REQUEST}, span)
    if not (request.messages and answer.messages):
        return Wrapper(span)
    return model_call(span, request, answer, [], usage=read_tokens(fields.get("usage")).usage)


def _value_of(value: Any) -> Any:
    """The value of a raw field, which is JSON or a Python repr."""
    parsed = parse(value).value
    literal = literal_of(parsed) if isinstance(parsed, str) else None
    return parsed if literal is None else literal


def _model_call(span: Span, kind: str) -> ModelCall:
    attributes = span.attributes
    gaps = call_gaps(span, (INPUT, OUTPUT, SYSTEM), SWITCH)
    sent = [item for key in (SYSTEM, INPUT) for item in list_of(parse(attributes.get(key)).value)]
    sent = sent or nested(attributes, OLD_INPUT)
    received = _answers(attributes)
    gaps += _missing(span, sent, received, kind)
    first, alternatives = (from_messages(items, span, "assistant") for items in choices(received))
    request = ModelRequest(from_messages(sent, span), _definitions(attributes))
    return model_call(
        span, request, ModelAnswer(first, alternatives), gaps, usage=_usage(attributes)
    )


def _answers(attributes: Mapping[str, Any]) -> list[Any]:
    """The answers; calls in a separate attribute belong to the first."""
    flat = mappings_of(nested(attributes, OLD_OUTPUT))
    calls = [item["function_call"] for item in flat if "function_call" in item]
    messages = mappings_of(parse(attributes.get(OUTPUT)).value)
    messages = messages or [item for item in flat if "role" in item or "content" in item]
    if not calls:
        return messages
    first = messages[0] if messages else {"role": "assistant"}
    return [{**first, "tool_calls": calls}, *messages[1:]]


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
    if not switch:
        return []
    return [gap("content_not_captured", span.span_id, missing=missing, switch=switch)]


def _is_bare(item: Any) -> bool:
    """Whether a flat message is an answer with only a role."""
    return isinstance(item, Mapping) and dict(item) == {"role": "assistant"}


def _definitions(attributes: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return tuple(
        {"type": "function", **item, "parameters": parse(item.get("parameters")).value}
        for item in mappings_of(nested(attributes, TOOLS))
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
    switch=SWITCH,
)
