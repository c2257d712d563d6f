"""Haystack, as OpenInference writes it (scope ``openinference.instrumentation.haystack``).

A pipeline and each of its components is a span, named by class and method. Generators are LLM
spans with flat messages. An agent's own model calls and tools have no spans: its messages are the
reprs of ``ChatMessage`` objects in the input and output of its CHAIN span.

Source: https://github.com/Arize-ai/openinference (``openinference-instrumentation-haystack``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...messages import mapping_of, object_of
from ...model import Message, Span
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, Wrapper
from ..readers.flat_lists import has_prefix
from ..readers.openinference_flat import RECEIVED, SENT
from ..readers.openinference_raw import INPUT, OUTPUT
from ..readers.spans import attribute_gaps
from . import openinference
from .haystack import count_before_turn, messages_of
from .openinference import SWITCH

__all__ = ["DIALECT"]

SCOPE = "openinference.instrumentation.haystack"
_RUN = (".run", ".run_async")


def read(span: Span, logs: Logs) -> Operation:
    """The operation of OpenInference's kind; components that return messages are agents."""
    operation = openinference.read(span, logs)
    if isinstance(operation, ModelCall):
        return _model_call(operation)
    if isinstance(operation, Wrapper) and span.name.endswith(_RUN):
        return _agent(span) or operation
    return operation


def _messages(value: Any, span: Span, role: str) -> list[Message]:
    """The messages of a list of reprs, or no messages if a repr cannot be read."""
    items = value if isinstance(value, list) else []
    return messages_of(items, span, role) if all(map(_is_message, items)) else []


def _is_message(item: Any) -> bool:
    """Whether an item is a message, the repr of a message, or a text."""
    message = object_of(item) if isinstance(item, str) and item.startswith("ChatMessage(") else item
    is_own = isinstance(message, Mapping) and isinstance(message.get("_content"), list)
    return is_own or isinstance(message, str)


def _field(span: Span, key: str, *names: str) -> Any:
    """The first non-empty field of an attribute's value, or None."""
    fields = mapping_of(span.attributes.get(key))
    return next((fields[name] for name in names if fields.get(name)), None)


def _model_call(call: ModelCall) -> ModelCall | Wrapper:
    """A generator's call, with the calls and results missing from its flat messages."""
    span = call.span
    raw_messages, raw_replies = _field(span, INPUT, "messages"), _field(span, OUTPUT, "replies")
    is_flat = any(has_prefix(span.attributes, prefix) for prefix in (SENT, RECEIVED))
    # Builders of prompts are of kind LLM too.
    if not is_flat and raw_messages is None and raw_replies is None:
        return Wrapper(span)
    sent = _messages(raw_messages, span, "user")
    replies = _messages(raw_replies, span, "assistant")
    return replace(
        call,
        input=tuple(sent) or call.input,
        output=tuple(replies[:1]) or call.output,
        choices=tuple(replies[1:]) if replies else call.choices,
    )


def _agent(span: Span) -> AgentRun | None:
    """The run of an agent, or None for any other component or pipeline."""
    transcript = _messages(_field(span, OUTPUT, "messages"), span, "assistant")
    messages = _messages(_field(span, INPUT, "messages"), span, "user")
    name = span.name.rpartition(".")[0]
    if not messages or not (transcript or name == "Agent"):
        return None
    return AgentRun(
        span,
        name=name,
        input=tuple(messages[count_before_turn(messages) :]) or tuple(messages[-1:]),
        output=tuple(message for message in transcript[-1:] if message.role == "assistant"),
        transcript=tuple(transcript),
        transcript_new_from=count_before_turn(messages),
        gaps=tuple(attribute_gaps(span, (INPUT, OUTPUT), SWITCH)),
    )


def claims(span: Span, logs: Logs) -> bool:  # noqa: ARG001
    """Whether Haystack wrote the span, by its scope or else its messages' reprs."""
    if openinference.KIND not in span.attributes or span.scope:
        return span.scope == SCOPE and openinference.KIND in span.attributes
    return span.name.endswith(".run") and "ChatMessage(" in str(span.attributes.get(INPUT))


DIALECT = Dialect(
    name="haystack-openinference",
    title="Haystack with OpenInference",
    precedence=110,
    read=read,
    scopes=(SCOPE,),
    keys=(openinference.KIND,),
    claims=claims,
    switch=SWITCH,
)
