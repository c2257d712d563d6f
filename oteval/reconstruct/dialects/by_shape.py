"""Spans that no dialect knows, read by their shape: the last resort of a trace.

Two things together tell what an attribute holds: a position in its name (``acme.llm.request``,
``foo.output``, ``bar.args``) and a value in a form that `oteval.messages` reads completely. What a
span is must be told as well: by an attribute of its kind, by the name of a tool with arguments or a
result, or by a model or its tokens beside messages. Whatever is ambiguous, or holds a field that is
not known, is not read.

`run_detection` asks for it only in traces without any model call of another dialect. Each operation
has the gap ``read_by_shape``, because the span may hold more than was recognised.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ...call_outcome import recorded_outcome
from ...messages.facts import facts_of
from ...messages.forms import ROLES, SYSTEM_ROLES, fields_of, role_of
from ...messages.kinds import unknown_kind
from ...messages.langchain import tool_message
from ...messages.parts import is_explicit
from ...messages.provider_calls import answer_of, request_of
from ...messages.reader import MessageCollector, choices, tool_definitions
from ...messages.values import hidden, list_of, parse
from ...model import Gap, Message, Span, Usage, count_of, read_tokens, span_tokens
from ..dialect import Dialect, Logs
from ..gaps import gap
from ..operations import AgentRun, ModelCall, Operation, Wrapper
from ..readers.spans import call_arguments, model_failure
from ..tool_spans import tool_run

__all__ = ["BY_SHAPE", "DIALECT", "token_attributes"]

BY_SHAPE = "by-shape"
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# First words of attributes whose spans are requests, queries and jobs, whatever else they hold.
_INFRASTRUCTURE = frozenset(
    {
        *("asgi", "aws", "celery", "cloudevents", "code", "db", "faas", "feature", "graphql"),
        *("http", "log", "messaging", "rpc", "sql", "url"),
    }
)
# Words by which an attribute is a setting, or tells about a value that it does not hold.
_SETTINGS = frozenset(
    {
        *("config", "configuration", "default", "env", "hash", "metadata", "option", "options"),
        *("setting", "settings", "template", "templates", "version"),
    }
)
_PACKAGING = frozenset({"content", "data", "json", "payload", "raw", "string", "text", "value"})
_SENT = frozenset({"input", "inputs", "prompt", "prompts", "query", "question", "request"})
_RECEIVED = frozenset(
    {
        *("answer", "completion", "completions", "output", "outputs", "reply", "response"),
        *("result", "results"),
    }
)
_ARGUMENTS = frozenset({"args", "arguments"})
_PARAMETERS = frozenset({"parameters", "params"})
# The last words of names, the longest first, and what the attribute holds.
_ENDINGS = (
    (("tool", "call", "id"), "call id"),
    (("call", "id"), "call id"),
    (("tool", "name"), "tool name"),
    (("agent", "name"), "agent name"),
    (("model", "name"), "model"),
    (("model", "id"), "model"),
    (("operation", "name"), "kind"),
    (("operation", "id"), "kind"),
    (("tool", "calls"), "calls"),
    (("function", "calls"), "calls"),
    (("tool", "definitions"), "tools"),
    (("system", "prompt"), "system"),
    (("system", "instruction"), "system"),
    (("system", "instructions"), "system"),
    (("kind",), "kind"),
    (("type",), "kind"),
    (("subtype",), "kind"),
    (("model",), "model"),
    (("tools",), "tools"),
)
_KINDS = {
    **dict.fromkeys(("agent", "agentrun", "invokeagent"), "agent"),
    **dict.fromkeys(
        (
            *("chat", "chatcompletion", "chatmodel", "completion", "generatecontent"),
            *("generation", "llm", "llmcall", "llmrequest", "model", "modelcall", "textcompletion"),
        ),
        "model",
    ),
    **dict.fromkeys(("executetool", "functioncall", "tool", "toolcall", "tooluse"), "tool"),
    # Known kinds that are none of these three: nothing else on the span outranks them.
    **dict.fromkeys(
        (
            *("chain", "embedding", "embeddings", "evaluator", "event", "guardrail", "retriever"),
            *("reranker", "retrieval", "step", "task", "workflow"),
        ),
        "other",
    ),
}
_TOOL_NAME = re.compile(r"[A-Za-z_][\w.\-/]*")


class _Reading(NamedTuple):
    """Messages that an attribute holds.

    Attributes:
        messages: The messages.
        is_text: Whether it is a plain text, which may be anybody's.
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


class _Shape(NamedTuple):
    """The attributes of a span whose names have a meaning.

    Attributes:
        span: The span.
        values: The values by name; a list that is spelled out in indexed names has that before the
            index.
        keys: The names of each meaning.
    """

    span: Span
    values: Mapping[str, Any]
    keys: Mapping[str, Sequence[str]]

    def values_of(self, meaning: str) -> list[Any]:
        """Return the values of the attributes with a meaning."""
        return [self.values[key] for key in self.keys[meaning]]


def read(span: Span, logs: Logs) -> Operation:  # noqa: ARG001
    """Return the operation that a span's shape tells; a `Wrapper` where it is ambiguous."""
    shape = None if span.dropped_attributes else _shape_of(span)
    if shape is None:
        return Wrapper(span)
    keys = shape.keys
    kinds = {kind for value in shape.values_of("kind") if (kind := _kind(value))}
    if len(kinds) > 1 or "other" in kinds:
        return Wrapper(span)
    kind = next(iter(kinds), "")
    if kind == "agent":
        return _agent(shape)
    has_model = bool(keys["model"]) or _has_tokens(_usage(span))
    if kind == "tool" or (not kind and keys["tool name"] and not has_model):
        return _tool(shape, is_named=kind == "tool")
    if kind == "model" or (not kind and not keys["tool name"]):
        return _model_call(shape, is_named=kind == "model")
    return Wrapper(span)


def _shape_of(span: Span) -> _Shape | None:
    """Return the attributes that mean anything; None for a request, or a span without content."""
    values: dict[str, Any] = {}
    keys: dict[str, list[str]] = defaultdict(list)
    indexed: dict[str, dict[str, Any]] = defaultdict(dict)
    for key, value in span.attributes.items():
        match = _INDEXED.match(key)
        if match:
            indexed[match[1]][match[2]] = value
        else:
            values[key] = value
    values |= {prefix: _nested(fields) for prefix, fields in indexed.items()}
    for key, value in values.items():
        meaning = _meaning(key)
        if meaning == "infrastructure":
            return None
        if meaning and value and isinstance(value, (str, list, Mapping)):
            keys[meaning].append(key)
    has_content = keys.keys() & {"sent", "received", "arguments", "calls", "parameters"}
    return _Shape(span, values, keys) if has_content else None


def _nested(fields: Mapping[str, Any]) -> Any:
    """Return the list that indexed names spell out; None where an item is missing."""
    items: dict[str, dict[str, Any]] = defaultdict(dict)
    for path, value in fields.items():
        first, _, rest = path.partition(".")
        items[first][rest] = value
    if all(first.isdigit() for first in items):
        places = sorted(map(int, items))
        is_whole = places == list(range(len(places)))
        return [_nested(items[str(place)]) for place in places] if is_whole else None
    inner = {first: _nested_field(rests) for first, rests in items.items()}
    for name, plain in _FLAT_NAMES.items():
        if name in inner and plain not in inner:
            inner[plain] = inner.pop(name)
    wrapped = next(iter(inner.values())) if len(inner) == 1 and _WRAPPED & inner.keys() else None
    return wrapped if isinstance(wrapped, Mapping) else inner


def _nested_field(rests: Mapping[str, Any]) -> Any:
    return rests[""] if set(rests) == {""} else _nested(rests)


_INDEXED = re.compile(r"(.+?)\.(\d+(?:\.[^.]+)+)$")
# OpenInference's names: each item is in a field of its own, and a list of parts has another name.
_FLAT_NAMES = {"contents": "content"}
_WRAPPED = frozenset({"message", "message_content", "tool_call"})


@lru_cache(maxsize=4096)
def _words(key: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORD.findall(key))


@lru_cache(maxsize=4096)
def _meaning(key: str) -> str:
    """Return what an attribute holds by its name, or ""."""
    words = _words(key)
    if not words or words[0] in _INFRASTRUCTURE:
        return "infrastructure" if words else ""
    if not _SETTINGS.isdisjoint(words):
        return ""
    for ending, meaning in _ENDINGS:
        if words[-len(ending) :] == ending:
            return meaning
    while len(words) > 1 and words[-1] in _PACKAGING:
        words = words[:-1]
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in ("message", "messages"):
        is_side = before in _SENT or before in _RECEIVED
        if not is_side and (len(words) > 2 or last == "message"):
            return ""
        last = before if is_side else "input"
    if last in _ARGUMENTS:
        return "arguments"
    if last in _PARAMETERS:
        return "parameters"
    return "sent" if last in _SENT else "received" if last in _RECEIVED else ""


def _kind(value: Any) -> str:
    """Return the kind of operation that a value names, or ""."""
    value = parse(value).value
    if not isinstance(value, str) or len(value) > 40:
        return ""
    return _KINDS.get("".join(filter(str.isalpha, value.lower())), "")


def _text_of(values: Sequence[Any]) -> str:
    """Return the text that some values agree on, or ""."""
    parsed = [parse(value).value for value in values if not hidden(value)]
    texts = {value for value in parsed if isinstance(value, str)}
    return texts.pop() if len(texts) == 1 else ""


def _usage(span: Span) -> Usage:
    """Return the tokens that a span reports, by the last two words of its attributes."""
    usage = span_tokens(span.attributes).usage
    keys = [] if _has_tokens(usage) else token_attributes(span)
    if not keys:
        return usage
    return read_tokens({"_".join(_words(key)[-2:]): span.attributes[key] for key in keys}).usage


def _has_tokens(usage: Usage) -> bool:
    return bool(usage.input_tokens or usage.output_tokens)


def token_attributes(span: Span) -> list[str]:
    """Return the attributes that count the tokens sent to a model and received from it.

    Both are needed: an embedding has only the first.
    """
    counts = {
        _words(key)[-2]: key
        for key, value in span.attributes.items()
        if _words(key)[-1:] == ("tokens",) and len(_words(key)) > 1 and count_of(value) is not None
    }
    sides = [[counts[word] for word in side if word in counts] for side in _TOKENS]
    return [key for side in sides for key in side] if all(sides) else []


_TOKENS = (("input", "prompt"), ("output", "completion"))


def _model_call(shape: _Shape, *, is_named: bool) -> Operation:
    """Return a model call, if both of its sides are read and something tells that it is one."""
    span, keys = shape.span, shape.keys
    sent = _agreed([_sent(value, span) for value in shape.values_of("sent")])
    received = _agreed(_received_sides(shape))
    failures = model_failure(span)
    if sent is None or (received is None and (keys["received"] or not failures)):
        return Wrapper(span)
    received = received or _Reading(())
    usage, model = _usage(span), _text_of(shape.values_of("model")[-1:]) or received.model
    is_text = sent.is_text and received.is_text
    tells = (bool(model), _has_tokens(usage))
    is_told = all(tells) if is_text else any(tells)
    if not (is_named or is_told) or not any(m.role in ("user", "tool") for m in sent.messages):
        return Wrapper(span)
    messages = sent.messages
    if keys["system"] and not any(message.role == "system" for message in messages):
        system = {"role": "system", "content": parse(shape.values_of("system")[0]).value}
        messages = (*(_collected([system], span, "") or ()), *messages)
    offered = [tool for value in shape.values_of("tools") for tool in tool_definitions(value)]
    return ModelCall(
        span,
        input=messages,
        output=received.messages,
        choices=received.choices,
        tools=sent.tools or tuple(offered),
        model=model,
        response_id=received.response_id,
        usage=_counted(usage),
        is_delta=sent.is_delta,
        gaps=(_gap(shape, "sent", "received", "calls", "system"), *failures),
    )


def _counted(usage: Usage) -> Usage:
    return usage if usage.model_calls else usage + Usage(model_calls=1)


def _gap(shape: _Shape, *meanings: str) -> Gap:
    """Return the gap that names the attributes which were read."""
    named = ", ".join(key for meaning in meanings for key in shape.keys[meaning])
    return gap("read_by_shape", shape.span.span_id, keys=named)


def _agreed(readings: Sequence[_Reading | None]) -> _Reading | None:
    """Return the messages of several attributes that say the same; None where they differ.

    Forms differ in what they hold beside texts and calls: images, reasoning, system prompts.
    """
    known = [reading for reading in readings if reading is not None and reading.messages]
    if not known or any(_said(reading) != _said(known[0]) for reading in known):
        return None
    fullest = max(known, key=lambda reading: (len(reading.messages), bool(reading.model)))
    tools = next((reading.tools for reading in known if reading.tools), ())
    return fullest._replace(tools=tools, is_delta=any(reading.is_delta for reading in known))


def _said(reading: _Reading) -> list[tuple[object, ...]]:
    return [
        (m.role, (m.content or "").strip(), [(c.name, c.arguments) for c in m.tool_calls])
        for m in reading.messages
        if m.role not in SYSTEM_ROLES
    ]


def _sent(value: Any, span: Span) -> _Reading | None:
    """Return the messages of a request, or None where anything in it is not known."""
    parsed = parse(value)
    value = parsed.value
    if parsed.truncated or hidden(value):
        return None
    if isinstance(value, str):
        return _of_text(value, "user", span)
    if isinstance(value, list):
        only = value[0] if len(value) == 1 and isinstance(value[0], list) else value
        return _checked(_collected(only, span, ""), ROLES)
    if not isinstance(value, Mapping):
        return None
    if isinstance(value.get("contents"), list):
        system = value.get("systemInstruction", value.get("system_instruction"))
        system = system.get("parts") if isinstance(system, Mapping) else system
        value = {**value, "messages": value["contents"], "system": system}
    listed = next((value[key] for key in ("messages", "input") if value.get(key)), None)
    listed = parse(listed).value
    if not isinstance(listed, list) or _collected(listed, span, "") is None:
        return None
    request = request_of(value, span)
    found = _checked(request.messages, ROLES)
    return found and found._replace(tools=request.tools, is_delta=request.is_delta)


def _received_sides(shape: _Shape) -> list[_Reading | None]:
    """Return the answers that a span's attributes hold; calls beside a text belong to it."""
    span, listed = shape.span, shape.values_of("calls")
    answers = [_received(value, span) for value in shape.values_of("received")]
    if not listed:
        return answers
    calls = parse(listed[0])
    if len(listed) > 1 or len(answers) > 1 or None in answers or calls.truncated:
        return []
    text = answers[0].messages[0].content if answers and answers[0] else None
    item = {"role": "assistant", "content": text, "tool_calls": calls.value}
    whole = _checked(_collected([item], span, "assistant"), _ANSWERING)
    has_calls = whole is not None and whole.messages[0].tool_calls
    is_all = isinstance(calls.value, list) and has_calls and len(has_calls) == len(calls.value)
    return [whole] if is_all else []


_ANSWERING = frozenset({"assistant"})


def _received(value: Any, span: Span) -> _Reading | None:
    """Return the messages of an answer, or None where anything in it is not known."""
    parsed = parse(value)
    value = parsed.value
    if parsed.truncated or hidden(value):
        return None
    if isinstance(value, str):
        return _of_text(value, "assistant", span)
    if isinstance(value, list):
        several = choices(value)[1]
        return None if several else _checked(_collected(value, span, "assistant"), _ANSWERING)
    if not isinstance(value, Mapping):
        return None
    candidates = value.get("candidates")
    if isinstance(candidates, list) and len(candidates) == 1:
        return _checked(_collected(candidates, span, "assistant"), _ANSWERING)
    is_named = value.get("object") in ("response", "chat.completion")
    if not (is_named or _ANSWER_FIELDS.issuperset(value)) or not _has_known_messages(value):
        return None
    answer = answer_of(value, span)
    found = _checked(answer.messages, _ANSWERING)
    return found and found._replace(
        model=answer.model, response_id=answer.response_id, choices=answer.choices
    )


def _has_known_messages(answer: Mapping[str, Any]) -> bool:
    """Return whether the messages in a response have no field that may hold more."""
    listed = list_of(answer.get("choices"))
    inner = [each.get("message") for each in listed if isinstance(each, Mapping)]
    output = answer.get("output")
    inner += [answer.get("message"), output.get("message") if isinstance(output, Mapping) else None]
    return all(_MESSAGE_FIELDS.issuperset(each) for each in inner if isinstance(each, Mapping))


# The beginning of an object as Python prints it, such as ``AIMessage(`` and ``content=``.
_REPR = re.compile(r"[A-Za-z_][\w.]*[(=]")
# How programs write that there is no value, or only a flag.
_NOTHING = frozenset({"false", "none", "null", "true", "undefined"})


def _of_text(text: str, role: str, span: Span) -> _Reading | None:
    """Return a plain text as a message; text in brackets may be content in a form of its own."""
    text = text.strip()
    if not text or text[0] in "{[<(" or _REPR.match(text) or text.lower() in _NOTHING:
        return None
    message = Message(role, text, span_id=span.span_id, trace_id=span.trace_id)
    return _Reading((message,), is_text=True)


def _collected(items: Sequence[Any], span: Span, role: str) -> list[Message] | None:
    """Return the messages of a list, or None where an item or a field of one is not known."""
    if not all(_is_known_item(item) for item in items):
        return None
    collector = MessageCollector(span, role)
    for item in items:
        collector.add(item)
    return None if collector.misfits else collector.finish()


def _is_known_item(item: Any) -> bool:
    """Return whether an item is a message or a part without a field that may hold more."""
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
    """Return whether a choice or a candidate holds a message."""
    return isinstance(inner, Mapping) and _MESSAGE_FIELDS.issuperset(inner)


def _is_part(item: Mapping[str, Any]) -> bool:
    """Return whether an item is a part that its only field names, as those of Gemini are."""
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


def _checked(messages: Sequence[Message] | None, roles: frozenset[str]) -> _Reading | None:
    """Return messages of which everything is known, or None."""
    if not messages or any(message.role not in roles for message in messages):
        return None
    if facts_of(tuple(messages)).has_odd or facts_of(tuple(messages)).has_placeholder:
        return None
    if any(unknown_kind(part) for message in messages for part in message.parts):
        return None
    if any(m.content is None and not (m.tool_calls or m.parts) for m in messages):
        return None
    if not all(_TOOL_NAME.fullmatch(call.name) for m in messages for call in m.tool_calls):
        return None
    return _Reading(tuple(messages))


def _tool(shape: _Shape, *, is_named: bool) -> Operation:
    """Return the run of a tool, if its name, arguments and result are each in one attribute."""
    span, keys = shape.span, shape.keys
    name = _text_of(shape.values_of("tool name"))
    if not name and is_named and not keys["tool name"] and _TOOL_NAME.fullmatch(span.name):
        name = span.name
    side = _side_of_arguments(shape)
    values = [_values(shape.values_of(side)), _values(shape.values_of("received"))]
    if not name or not any(values) or any(len(value) > 1 for value in values):
        return Wrapper(span)
    given, returned = (value[0] if value else None for value in values)
    given = None if hidden(given) else call_arguments(given)
    said = tool_message(returned) or {}
    call_id = _text_of(shape.values_of("call id")) or said.get("tool_call_id")
    if given is not None and not isinstance(given, Mapping):
        # A text may be an argument without its name, or all that is said to an agent.
        if not (is_named and call_id):
            return Wrapper(span)
        given = None
    return tool_run(
        span,
        name=name,
        call_id=call_id,
        arguments=given,
        result=said.get("content") if said else returned,
        failed=recorded_outcome(said.get),
        gaps=(_gap(shape, "tool name", side, "received"),),
    )


def _side_of_arguments(shape: _Shape) -> str:
    """Return the meaning of the attributes that hold a tool's arguments.

    Parameters may also be what the tool accepts; then its input holds the arguments.
    """
    if shape.keys["arguments"]:
        return "arguments"
    values = [parse(value).value for value in shape.values_of("parameters")]
    is_given = any(isinstance(value, Mapping) and not _is_schema(value) for value in values)
    return "parameters" if is_given else "sent"


def _is_schema(parameters: Mapping[str, Any]) -> bool:
    """Return whether parameters describe arguments in place of being some."""
    if "properties" in parameters:
        return True
    return bool(parameters) and all(
        isinstance(value, Mapping) and "type" in value for value in parameters.values()
    )


def _values(attributes: Sequence[Any]) -> list[Any]:
    """Return the different values of some attributes."""
    values: list[Any] = []
    for attribute in attributes:
        parsed = parse(attribute)
        value = attribute if parsed.truncated else parsed.value
        if value not in values:
            values.append(value)
    return values


def _agent(shape: _Shape) -> Operation:
    """Return the run of an agent, if its question and its answer are read."""
    span = shape.span
    sent = _agreed([_sent(value, span) for value in shape.values_of("sent")])
    answers = shape.values_of("received")
    received = _agreed([_received(value, span) for value in answers])
    if received is None:  # the whole transcript, which ends with the answer
        received = _agreed([_sent(value, span) for value in answers])
    asked = [m for m in sent.messages if m.role == "user"][-1:] if sent else []
    answered = [m for m in received.messages[-1:] if _is_answer(m)] if received else []
    if not asked or not (answered or span.is_error):
        return Wrapper(span)
    return AgentRun(
        span,
        name=_text_of(shape.values_of("agent name")) or span.name,
        input=tuple(asked),
        output=tuple(answered),
        gaps=(_gap(shape, "sent", "received"),),
    )


def _is_answer(message: Message) -> bool:
    return message.role == "assistant" and bool(message.content) and not message.tool_calls


DIALECT = Dialect(name=BY_SHAPE, title="Unknown dialects", precedence=10_000, read=read)
