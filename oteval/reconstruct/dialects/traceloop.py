"""Traceloop / OpenLLMetry, old (indexed keys) and new (messages of parts).

Old model calls hold ``gen_ai.prompt.N.*`` and ``gen_ai.completion.N.*``; new ones hold the current
GenAI attributes. Decorated functions are ``traceloop.span.kind`` spans with ``traceloop.entity.*``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import semconv
from ...model import Message, Span
from ..content import from_messages, tool_definitions
from ..gaps import gap
from ..readings import AgentRun, ModelCall, Reading, ToolRun, Wrapper
from ..values import parse
from . import genai
from .base import Dialect, Logs, attribute_gaps, model_failure, result_text, revealed, usage
from .flat import nested

__all__ = ["TRACELOOP"]

SWITCH = "set TRACELOOP_TRACE_CONTENT=true"
KIND, NAME = "traceloop.span.kind", "traceloop.entity.name"
INPUT, OUTPUT = "traceloop.entity.input", "traceloop.entity.output"
_SCOPE = "opentelemetry.instrumentation."


def claims(span: Span, logs: Logs) -> bool:  # noqa: ARG001
    """Return whether OpenLLMetry wrote the span."""
    attributes = span.attributes
    if KIND in attributes or "llm.request.type" in attributes:
        return True
    if "gen_ai.prompt.0.role" in attributes or "gen_ai.completion.0.role" in attributes:
        return True
    if span.scope.startswith("traceloop."):
        return True
    return "gen_ai.is_streaming" in attributes and span.scope.startswith(_SCOPE)


def read(span: Span, logs: Logs) -> Reading:
    """Return what the span is: a decorated function by its kind, else a model call."""
    attributes = span.attributes
    kind = attributes.get(KIND)
    if kind in ("workflow", "agent"):
        return _agent(span)
    if kind == "tool":
        return _tool(span)
    if kind is not None:
        return Wrapper(span)
    if genai.INPUT in attributes or genai.OUTPUT in attributes:
        return genai.read_model_call(span, logs, SWITCH)
    if "gen_ai.operation.name" in attributes and "llm.request.type" not in attributes:
        return genai.read_model_call(span, logs, SWITCH)
    if attributes.get("llm.request.type", "chat") in ("chat", "completion"):
        return _old_model_call(span)
    return Wrapper(span)


def _agent(span: Span) -> AgentRun:
    attributes = span.attributes
    return AgentRun(
        span,
        name=str(attributes.get(NAME) or span.name),
        input=tuple(_spoken("user", _only_argument(attributes.get(INPUT)), span)),
        output=tuple(_spoken("assistant", parse(attributes.get(OUTPUT)).value, span)),
    )


def _only_argument(value: Any) -> Any:
    """Return a decorated function's one argument, or None where it has none or several."""
    found = parse(value).value
    if not isinstance(found, Mapping):
        return found
    positional, named = _signature(found)
    values = [*positional, *named.values()]
    return values[0] if len(values) == 1 else None


def _signature(found: Mapping[str, Any]) -> tuple[list[Any], Mapping[str, Any]]:
    """Return the positional and the named arguments of a decorated function."""
    positional, named = found.get("args"), found.get("kwargs")
    return (
        positional if isinstance(positional, list) else [],
        named if isinstance(named, Mapping) else {},
    )


def _spoken(role: str, value: Any, span: Span) -> list[Message]:
    if not isinstance(value, str) or not value:
        return []
    return [Message(role, value, span_id=span.span_id, trace_id=span.trace_id)]


def _tool(span: Span) -> ToolRun:
    attributes = span.attributes
    gaps = attribute_gaps(span, (INPUT, OUTPUT), SWITCH)
    if INPUT not in attributes and OUTPUT not in attributes:
        gaps.append(gap("content_not_captured", span.span_id, switch=SWITCH))
    return ToolRun(
        span,
        name=str(semconv.first(attributes, (NAME, "gen_ai.tool.name")) or span.name),
        arguments=_arguments(attributes.get(INPUT)),
        result=result_text(span, parse(attributes.get(OUTPUT)).value),
        is_error=span.is_error,
        gaps=tuple(gaps),
    )


def _arguments(value: Any) -> Any:
    """Return a decorated function's arguments; positional ones as a list."""
    found = parse(value).value
    if not isinstance(found, Mapping) or not {"args", "kwargs"} & set(found):
        return found
    positional, named = _signature(found)
    return {**named, "args": positional} if named and positional else named or positional or {}


def _old_model_call(span: Span) -> ModelCall:
    attributes = span.attributes
    gaps = attribute_gaps(span, (), SWITCH) + model_failure(span)
    sent = from_messages(nested(attributes, "gen_ai.prompt."), span)
    received = from_messages(nested(attributes, "gen_ai.completion."), span, "assistant")
    if not sent and not received:
        gaps.append(gap("content_not_captured", span.span_id, switch=SWITCH))
    return ModelCall(
        span,
        input=revealed(sent, span, SWITCH, gaps),
        output=revealed(received, span, SWITCH, gaps),
        tools=tool_definitions(nested(attributes, "llm.request.functions.")),
        model=str(semconv.first(attributes, semconv.RESPONSE_MODEL) or ""),
        usage=usage(attributes, "gen_ai.usage.cache_read_input_tokens"),
        whole=not [found for found in gaps if found.code != "model_call_failed"],
        gaps=tuple(gaps),
    )


TRACELOOP = Dialect("traceloop", claims, read)
