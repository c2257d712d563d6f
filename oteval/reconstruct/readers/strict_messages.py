"""Messages of an unknown dialect, read only if every part of a value is known.

`oteval.messages` accepts an unknown field of a message. Here, an unknown field means that the
value may have another form, and nothing of it is read. Messages and responses may have only the
listed fields: any other might contain a call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...messages import (
    ROLES,
    SYSTEM_ROLES,
    MessageCollector,
    answer_of,
    choices,
    facts_of,
    fields_of,
    hidden,
    is_explicit,
    list_of,
    parse,
    request_of,
    role_of,
    unknown_kind,
)
from ...model import Message, Span

__all__ = ["TOOL_NAME", "Reading", "agreed", "answers_of", "collected", "received", "sent"]

TOOL_NAME = re.compile(r"[A-Za-z_][\w.\-/]*")


class Reading(NamedTuple):
    """Messages in an attribute.

    Attributes:
        messages: The messages.
        is_text: Whether it is a plain text, which may have any role.
        model: The model that a response names, or "".
        response_id: The response's id, or "".
        choices: Other answers to the same request.
        tools: The tools that a request offers.
        is_delta: Whether the provider keeps the history of a request.
    """

    messages: tuple[Message, ...]
    is_text: bool = False
    model: str = ""
    response_id: str = ""
    choices: tuple[Message, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    is_delta: bool = False


def agreed(readings: Sequence[Reading | None]) -> Reading | None:
    """The messages of several attributes if they agree, or None.

    Only texts and calls must be equal: forms differ in images, reasoning and system prompts.
    """
    nonempty = [reading for reading in readings if reading is not None and reading.messages]
    if not nonempty or any(_said(reading) != _said(nonempty[0]) for reading in nonempty):
        return None
    fullest = max(nonempty, key=lambda reading: (len(reading.messages), bool(reading.model)))
    tools = next((reading.tools for reading in nonempty if reading.tools), ())
    return fullest._replace(tools=tools, is_delta=any(reading.is_delta for reading in nonempty))


def _said(reading: Reading) -> list[tuple[object, ...]]:
    return [
        (m.role, (m.content or "").strip(), [(c.name, c.arguments) for c in m.tool_calls])
        for m in reading.messages
        if m.role not in SYSTEM_ROLES
    ]


def sent(value: Any, span: Span) -> Reading | None:
    """The messages of a request, or None if any part of it is unknown."""
    parsed = parse(value)
    value = parsed.value
    if parsed.truncated or hidden(value):
        return None
    if isinstance(value, str):
        return _of_text(value, "user", span)
    if isinstance(value, list):
        only = value[0] if len(value) == 1 and isinstance(value[0], list) else value
        return _checked(collected(only, span, ""), ROLES)
    if not isinstance(value, Mapping):
        return None
    if isinstance(value.get("contents"), list):
        system = value.get("systemInstruction", value.get("system_instruction"))
        system = system.get("parts") if isinstance(system, Mapping) else system
        value = {**value, "messages": value["contents"], "system": system}
    listed = next((value[key] for key in ("messages", "input") if value.get(key)), None)
    listed = parse(listed).value
    if not isinstance(listed, list) or collected(listed, span, "") is None:
        return None
    request = request_of(value, span)
    reading = _checked(request.messages, ROLES)
    return reading and reading._replace(tools=request.tools, is_delta=request.is_delta)


def answers_of(values: Sequence[Any], calls: Sequence[Any], span: Span) -> list[Reading | None]:
    """The answers in a span's attributes; a text and its calls are one answer.

    Args:
        values: The values of the attributes of answers.
        calls: The values of the attributes of calls.
        span: The span.
    """
    answers = [received(value, span) for value in values]
    if not calls:
        return answers
    listed = parse(calls[0])
    if len(calls) > 1 or len(answers) > 1 or None in answers or listed.truncated:
        return []
    text = answers[0].messages[0].content if answers and answers[0] else None
    item = {"role": "assistant", "content": text, "tool_calls": listed.value}
    checked = _checked(collected([item], span, "assistant"), _ANSWERING)
    has_calls = checked is not None and checked.messages[0].tool_calls
    is_all = isinstance(listed.value, list) and has_calls and len(has_calls) == len(listed.value)
    return [checked] if is_all else []


_ANSWERING = frozenset({"assistant"})


def received(value: Any, span: Span) -> Reading | None:
    """The messages of an answer, or None if any part of it is unknown."""
    parsed = parse(value)
    value = parsed.value
    if parsed.truncated or hidden(value):
        return None
    if isinstance(value, str):
        return _of_text(value, "assistant", span)
    if isinstance(value, list):
        several = choices(value)[1]
        return None if several else _checked(collected(value, span, "assistant"), _ANSWERING)
    if not isinstance(value, Mapping):
        return None
    candidates = value.get("candidates")
    if isinstance(candidates, list) and len(candidates) == 1:
        return _checked(collected(candidates, span, "assistant"), _ANSWERING)
    is_named = value.get("object") in ("response", "chat.completion")
    if not (is_named or _ANSWER_FIELDS.issuperset(value)) or not _has_known_messages(value):
        return None
    answer = answer_of(value, span)
    reading = _checked(answer.messages, _ANSWERING)
    return reading and reading._replace(
        model=answer.model, response_id=answer.response_id, choices=tuple(answer.choices)
    )


def _has_known_messages(answer: Mapping[str, Any]) -> bool:
    """Whether the messages in a response have only known fields."""
    listed = list_of(answer.get("choices"))
    inner = [item.get("message") for item in listed if isinstance(item, Mapping)]
    output = answer.get("output")
    inner += [answer.get("message"), output.get("message") if isinstance(output, Mapping) else None]
    return all(_MESSAGE_FIELDS.issuperset(item) for item in inner if isinstance(item, Mapping))


# The beginning of a Python repr, such as ``AIMessage(`` and ``content=``.
_REPR = re.compile(r"[A-Za-z_][\w.]*[(=]")
# How programs write a missing value, or a flag.
_NOTHING = frozenset({"false", "none", "null", "true", "undefined"})


def _of_text(text: str, role: str, span: Span) -> Reading | None:
    """A plain text as a message, or None if it may be content in an unknown form."""
    text = text.strip()
    if not text or text[0] in "{[<(" or _REPR.match(text) or text.lower() in _NOTHING:
        return None
    message = Message(role, text, span_id=span.span_id, trace_id=span.trace_id)
    return Reading((message,), is_text=True)


def collected(items: Sequence[Any], span: Span, role: str) -> list[Message] | None:
    """The messages of a list, or None if an item or a field is unknown."""
    if not all(_is_known_item(item) for item in items):
        return None
    collector = MessageCollector(span, role)
    for item in items:
        collector.add(item)
    return None if collector.misfits else collector.finish()


def _is_known_item(item: Any) -> bool:
    """Whether an item is a message or a part with only known fields."""
    if not isinstance(item, Mapping):
        return False
    fields = fields_of(item)
    if fields is None or fields is not item:
        return True
    if "role" not in item:
        inner = item.get("message", item.get("content"))
        return bool(item.get("type") or "parts" in item or _is_part(item) or _is_envelope(inner))
    return role_of(item["role"]) in ROLES and _MESSAGE_FIELDS.issuperset(item)


def _is_envelope(inner: Any) -> bool:
    """Whether a choice or a candidate contains a message."""
    return isinstance(inner, Mapping) and _MESSAGE_FIELDS.issuperset(inner)


def _is_part(item: Mapping[str, Any]) -> bool:
    """Whether an item is a part identified by its only field, as in Gemini."""
    return len(item) == 1 and is_explicit(item)


_MESSAGE_FIELDS = frozenset(
    {
        *("additional_kwargs", "annotations", "audio", "content", "created_at", "finish_reason"),
        *("function_call", "id", "index", "invalid_tool_calls", "is_error", "model", "name"),
        *("parsed", "parts", "reasoning", "reasoning_content", "refusal", "response_metadata"),
        *("role", "status", "stop_reason", "stop_sequence", "timestamp", "toolCalls"),
        *("toolInvocations", "tool_call_id", "tool_calls", "type", "usage", "usage_metadata"),
    }
)
_ANSWER_FIELDS = _MESSAGE_FIELDS | {
    *("choices", "created", "generations", "kwargs", "lc", "llm_output", "message", "metrics"),
    *("object", "output", "output_text", "provider", "provider_specific_fields", "run"),
    *("ResponseMetadata", "service_tier", "stopReason", "system_fingerprint"),
    *("container", "cost", "logprobs", "latency", "additionalModelResponseFields"),
}


def _checked(messages: Sequence[Message] | None, roles: frozenset[str]) -> Reading | None:
    """Return messages if everything in them is known, or None."""
    if not messages or any(message.role not in roles for message in messages):
        return None
    if facts_of(tuple(messages)).has_odd or facts_of(tuple(messages)).has_placeholder:
        return None
    if any(unknown_kind(part) for message in messages for part in message.parts):
        return None
    if any(m.content is None and not (m.tool_calls or m.parts) for m in messages):
        return None
    if not all(TOOL_NAME.fullmatch(call.name) for m in messages for call in m.tool_calls):
        return None
    return Reading(tuple(messages))
