"""Spans of unknown dialects, read by their shape as a last resort.

Two things together identify the content of an attribute: a word in its name, as in
``acme.llm.request``, ``foo.output`` and ``bar.args``, and a value in a form that `oteval.messages`
reads completely. The kind of the span must be identified too: by an attribute with its kind, by a
tool's name with arguments or a result, or by a model or its tokens with messages. Ambiguous spans
and values with unknown fields are not read.

`run_detection` uses it only in traces without a model call of another dialect. Each operation
has the gap ``read_by_shape``, because the span may contain content that was not recognised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...messages import hidden, parse, returned_value, text_message, tool_definitions
from ...model import Gap, Message, Role, Span, Usage, read_tokens, span_tokens
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, Wrapper
from ..gaps import gap
from ..readers.attribute_shapes import Shape, shape_of, token_attributes, words_of
from ..readers.spans import call_arguments, model_failure
from ..readers.strict_messages import (
    TOOL_NAME,
    Reading,
    agreed,
    answers_of,
    collected,
    received,
    sent,
)
from ..tool_spans import tool_run

__all__ = ["BY_SHAPE", "DIALECT"]

BY_SHAPE = "by-shape"
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
    # Other known kinds, which outrank everything else on the span.
    **dict.fromkeys(
        (
            *("chain", "embedding", "embeddings", "evaluator", "event", "guardrail", "retriever"),
            *("reranker", "retrieval", "step", "task", "workflow"),
        ),
        "other",
    ),
}


def read(span: Span, logs: Logs) -> Operation:  # noqa: ARG001
    """The operation that a span's shape identifies, or a `Wrapper` if it is ambiguous."""
    shape = None if span.dropped_attributes else shape_of(span)
    if shape is None:
        return Wrapper(span)
    keys = shape.keys
    kinds = {kind for key in keys["kind"] if (kind := _kind(key, shape.values[key]))}
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


def _kind(key: str, value: Any) -> str:
    """The kind of operation that an attribute names, or "".

    A ``type`` may be a ticket's or a room's type: if its value is a common word, only a span's type
    counts.
    """
    value = parse(value).value
    if not isinstance(value, str) or len(value) > 40:
        return ""
    word = "".join(filter(str.isalpha, value.lower()))
    is_of_span = not _SPAN_WORDS.isdisjoint(words_of(key))
    return _KINDS.get(word, "") if is_of_span or word not in _COMMON_WORDS else ""


_SPAN_WORDS = frozenset({"kind", "observation", "operation", "run", "span"})
_COMMON_WORDS = frozenset({"agent", "chat", "completion", "generation", "model", "tool"})


def _text_of(values: Sequence[Any]) -> str:
    """The text that some values agree on, or ""."""
    parsed = [parse(value).value for value in values if not hidden(value)]
    texts = {value for value in parsed if isinstance(value, str)}
    return texts.pop() if len(texts) == 1 else ""


def _usage(span: Span) -> Usage:
    """The tokens that a span reports, by the last two words of its attributes."""
    usage = span_tokens(span.attributes).usage
    keys = [] if _has_tokens(usage) else token_attributes(span)
    if not keys:
        return usage
    return read_tokens({"_".join(words_of(key)[-2:]): span.attributes[key] for key in keys}).usage


def _has_tokens(usage: Usage) -> bool:
    return bool(usage.input_tokens or usage.output_tokens)


def _model_call(shape: Shape, *, is_named: bool) -> Operation:
    """A model call if its request and answer are readable and the span identifies it."""
    span, keys = shape.span, shape.keys
    request = agreed([sent(value, span) for value in shape.values_of("sent")])
    answers = answers_of(shape.values_of("received"), shape.values_of("calls"), span)
    failures = model_failure(span)
    is_lost = bool(keys["received"] or keys["calls"])
    answer = agreed(answers) or (Reading(()) if failures and not is_lost else None)
    if request is None or answer is None:
        return Wrapper(span)
    usage, model = _usage(span), _text_of(shape.values_of("model")[-1:]) or answer.model
    is_text = request.is_text and answer.is_text
    signs = (bool(model), _has_tokens(usage))
    is_model = is_named or (all(signs) if is_text else any(signs))
    if not is_model or not any(m.role in ("user", "tool") for m in request.messages):
        return Wrapper(span)
    messages = request.messages
    if keys["system"] and not any(message.role == "system" for message in messages):
        system = {"role": "system", "content": parse(shape.values_of("system")[0]).value}
        messages = (*(collected([system], span, "") or ()), *messages)
    offered = [tool for value in shape.values_of("tools") for tool in tool_definitions(value)]
    return ModelCall(
        span,
        input=messages,
        output=answer.messages,
        choices=answer.choices,
        tools=request.tools or tuple(offered),
        model=model,
        response_id=answer.response_id,
        usage=_counted(usage),
        is_delta=request.is_delta,
        gaps=(_gap(shape, "sent", "received", "calls", "system"), *failures),
    )


def _counted(usage: Usage) -> Usage:
    return usage if usage.model_calls else usage + Usage(model_calls=1)


def _gap(shape: Shape, *meanings: str) -> Gap:
    """The gap that names the attributes that were read."""
    key_names = ", ".join(key for meaning in meanings for key in shape.keys[meaning])
    return gap("read_by_shape", shape.span.span_id, keys=key_names)


def _tool(shape: Shape, *, is_named: bool) -> Operation:
    """The run of a tool if its name, arguments and result are in one attribute each."""
    span, keys = shape.span, shape.keys
    name = _text_of(shape.values_of("tool name"))
    if not name and is_named and not keys["tool name"] and TOOL_NAME.fullmatch(span.name):
        name = span.name
    side = _side_of_arguments(shape)
    values = [_values(shape.values_of(side)), _values(shape.values_of("received"))]
    if not name or not any(values) or any(len(value) > 1 for value in values):
        return Wrapper(span)
    arguments, returned = (value[0] if value else None for value in values)
    arguments = None if hidden(arguments) else call_arguments(arguments)
    result = returned_value(returned, returned)
    call_id = _text_of(shape.values_of("call id")) or result.call_id
    if arguments is not None and not isinstance(arguments, Mapping):
        # A text may be an argument without its name, or an agent's whole input.
        if not (is_named and call_id):
            return Wrapper(span)
        arguments = None
    return tool_run(
        span,
        name=name,
        call_id=call_id,
        arguments=arguments,
        result=result.content,
        failed=result.is_error,
        gaps=(_gap(shape, "tool name", side, "received"),),
    )


def _side_of_arguments(shape: Shape) -> str:
    """The meaning of the attributes with a tool's arguments.

    Parameters may also describe the arguments, which are then the tool's input.
    """
    if shape.keys["arguments"]:
        return "arguments"
    values = [parse(value).value for value in shape.values_of("parameters")]
    is_given = any(isinstance(value, Mapping) and not _is_schema(value) for value in values)
    return "parameters" if is_given else "sent"


def _is_schema(parameters: Mapping[str, Any]) -> bool:
    """Whether parameters are a schema rather than arguments."""
    if "properties" in parameters:
        return True
    return bool(parameters) and all(
        isinstance(value, Mapping) and "type" in value for value in parameters.values()
    )


def _values(attributes: Sequence[Any]) -> list[Any]:
    """The distinct values of some attributes."""
    values: list[Any] = []
    for attribute in attributes:
        parsed = parse(attribute)
        value = attribute if parsed.truncated else parsed.value
        if value not in values:
            values.append(value)
    return values


def _agent(shape: Shape) -> Operation:
    """The run of an agent if its question and answer are readable."""
    span = shape.span
    requests = [sent(value, span) for value in shape.values_of("sent")]
    # An answer, or the whole transcript, which ends with the answer.
    answers = [received(value, span) or sent(value, span) for value in shape.values_of("received")]
    question = _last_of(requests, "user", span)
    answer = _last_of(answers, "assistant", span)
    if not question or not (answer or span.is_error):
        return Wrapper(span)
    return AgentRun(
        span,
        name=_text_of(shape.values_of("agent name")) or span.name,
        input=question,
        output=answer,
        gaps=(_gap(shape, "sent", "received"),),
    )


def _last_of(readings: Sequence[Reading | None], role: Role, span: Span) -> tuple[Message, ...]:
    """The last text of a role if all readings agree on it."""
    transcripts = [reading.messages for reading in readings if reading]
    pools = transcripts if role == "user" else [messages[-1:] for messages in transcripts]
    last_messages = [[m for m in messages if m.role == role][-1:] for messages in pools]
    texts = {(m.content or "").strip() for messages in last_messages for m in messages}
    if len(texts) != 1 or not all(last_messages) or "" in texts:
        return ()
    return text_message(texts.pop(), span, role)


DIALECT = Dialect(name=BY_SHAPE, title="Unknown dialects", precedence=10_000, read=read)
