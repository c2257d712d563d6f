"""OpenInference's flat messages: ``llm.input_messages.0.message.role`` and their like.

Emitters write messages differently. Content is one text or indexed parts. A call is in
``tool_calls``, also among the parts, or in the older ``function_call_name``. AutoGen writes all
results of a step into one message of role ``function``. Processors that translate a framework's own
spans put the results of parallel calls into one message, under the last call's id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

from ...messages import active, folded, from_messages, list_of, mappings_of, parse
from ...model import Gap, Message, Span
from ..gaps import gap
from .flat_lists import nested

__all__ = [
    "RECEIVED",
    "SENT",
    "completions",
    "cut_arguments",
    "flat_messages",
    "prompts",
    "tool_schemas",
]

SENT, RECEIVED = "llm.input_messages.", "llm.output_messages."
_CALL_PARTS = ("tool_use", "server_tool_use", "mcp_tool_use", "tool_call", "function_call")
# Google's client libraries report a tool's exception as the only field of its response.
_GOOGLE = ("google", "vertexai", "gemini")
# A placeholder for a result whose content is unknown; no attribute has this text.
_UNKNOWN = "\0"


def flat_messages(span: Span, prefix: str, role: str) -> list[Message]:
    """The messages in a span's flat attributes.

    Args:
        span: The span.
        prefix: `SENT` or `RECEIVED`.
        role: The role of messages without one.
    """
    # SDKs drop the oldest attributes first, so a message without a role is incomplete.
    read = _read_some if span.dropped_attributes else _read_all
    items = _with_each_result(_folded(read, nested(span.attributes, prefix)))
    if any(word in _origin(span) for word in _GOOGLE):
        items = _folded(_with_errors, items)
    messages = from_messages(items, span, role)
    if folded(messages, _has_unknown):
        return [replace(m, content=None) if m.content == _UNKNOWN else m for m in messages]
    return messages


def prompts(span: Span) -> list[Message]:
    """The prompts of a completion, the API before messages."""
    return _texts(span, "llm.prompts.", "prompt", "user")


def completions(span: Span) -> list[Message]:
    """The texts that answered a prompt, one for each choice."""
    return _texts(span, "llm.choices.", "completion", "assistant")


def _texts(span: Span, prefix: str, key: str, role: str) -> list[Message]:
    items = [item.get(key) for item in mappings_of(nested(span.attributes, prefix))]
    texts = [item.get("text") for item in mappings_of(items)]
    messages = [{"role": role, "content": text} for text in texts if isinstance(text, str)]
    return from_messages(messages, span, role)


def _has_unknown(previous: bool | None, messages: Sequence[Message]) -> bool:
    """Whether any message, previous or further, is an unknown result."""
    return bool(previous) or _UNKNOWN in map(attrgetter("content"), messages)


def _folded(
    work: Callable[[Sequence[Any]], list[Mapping[str, Any]]], items: Sequence[Any]
) -> list[Mapping[str, Any]]:
    """The results of work on each item, cached for items of earlier lists."""

    def extend(
        previous: list[Mapping[str, Any]] | None, further: Sequence[Any]
    ) -> list[Mapping[str, Any]]:
        return [*(previous or ()), *work(further)]

    cache = active()
    return cache.fold(work, items, extend) if cache and items else work(items)


def _read_all(items: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return flat messages in OpenAI's form."""
    messages: list[Mapping[str, Any]] = []
    for item in items:
        fields = item.get("message") if isinstance(item, dict) else None
        if isinstance(fields, dict):
            results = _functions(item["function"]) if "function" in item else []
            messages += results or [_message(fields, item.get("thought"))]
    return messages


def _read_some(items: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return flat messages in OpenAI's form, without messages that have no role."""
    with_role = [item for item in items if isinstance(item, dict) and _has_role(item)]
    return _read_all(with_role)


def _has_role(item: Mapping[str, Any]) -> bool:
    fields = item.get("message")
    return isinstance(fields, dict) and "role" in fields


def _origin(span: Span) -> str:
    attributes = span.attributes
    names = (attributes.get("llm.provider"), attributes.get("llm.system"), span.scope)
    return " ".join(str(name or "") for name in names).lower()


def _functions(results: Any) -> list[Mapping[str, Any]]:
    """The results in AutoGen's message of role ``function``, each of them JSON."""
    return [
        {
            "role": "tool",
            "content": result.get("content"),
            "tool_call_id": result.get("call_id"),
            "name": result.get("name"),
            "is_error": result.get("is_error"),
        }
        for result in mappings_of([parse(text).value for text in list_of(results)])
    ]


def _message(fields: Mapping[str, Any], thought: Any) -> dict[str, Any]:
    """A flat message in OpenAI's form; AutoGen writes the text of calls as a thought."""
    content = fields.get("content")
    parts = mappings_of(fields.get("contents"))
    calls = _calls(fields, parts)
    if content is None and calls and isinstance(thought, str):
        content = thought
    if content is None and parts:
        content = [form for form in map(_part, parts) if form is not None] or None
    return {**fields, "content": content, "tool_calls": calls}


def _calls(fields: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> list[Any]:
    """A message's calls, from the first attributes that contain any."""
    calls = [call.get("tool_call", call) for call in mappings_of(fields.get("tool_calls"))]
    if not calls:
        calls = [part["tool_call"] for part in parts if isinstance(part.get("tool_call"), Mapping)]
    if not calls and fields.get("function_call_name"):
        arguments = fields.get("function_call_arguments_json")
        calls = [{"name": fields["function_call_name"], "arguments": arguments}]
    call_id = fields.get("tool_call_id")
    if len(calls) == 1 and call_id and fields.get("role") == "assistant":
        # In the Responses API, a call's own id is the id of its item.
        return [{**calls[0], "id": call_id}]
    return calls


def _part(part: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A part in the form that all dialects share, or None for a call."""
    content = part.get("message_content", part)
    if not isinstance(content, Mapping):
        return {"type": "text", "text": content}
    kind = content.get("type")
    if kind in _CALL_PARTS or ("tool_call" in part and kind is None):
        return None
    if kind is None and "text" in content:
        return {**content, "type": "text"}
    if kind == "reasoning" and "text" in content:
        return {**content, "content": content["text"]}
    return content


class _Answered(NamedTuple):
    """Messages with one result for each call, and the last message, whose successor is unknown.

    Attributes:
        done: All but the last.
        before: The original message before the last.
        last: The original last message.
    """

    done: list[Mapping[str, Any]]
    before: Mapping[str, Any] | None = None
    last: Mapping[str, Any] | None = None


def _with_each_result(items: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages, where a merged result of several calls is split into one result each."""
    cache = active()
    if cache and items:
        answered = cache.fold(_answered, items, _answered)
    else:
        answered = _answered(previous=None, items=items)
    return [*answered.done, *_given(answered.before, answered.last, after=None)]


def _answered(previous: _Answered | None, items: Sequence[Mapping[str, Any]]) -> _Answered:
    done, before, last = previous or _Answered([])
    done = done.copy()
    for item in items:
        done += _given(before, last, item)
        before, last = last, item
    return _Answered(done, before, last)


def _given(
    before: Mapping[str, Any] | None,
    item: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
) -> Sequence[Mapping[str, Any]]:
    """A message, or the results merged in it, from the messages before and after it."""
    if item is None:
        return ()
    calls = before.get("tool_calls") if before else None
    is_last = after is None or after.get("role") != "tool"
    merged = item.get("role") == "tool" and is_last and calls and _is_merged(item, calls)
    return _results(item.get("content"), calls) if merged and calls else (item,)


def _is_merged(item: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the only result of several calls has the last call's id.

    Each result overwrote the result before.
    """
    ids = [call.get("id") for call in calls]
    return len(ids) > 1 and all(ids) and item.get("tool_call_id") == ids[-1]


def _results(content: Any, calls: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """A result for each call.

    If there are as many parts as calls, the parts are the results, in order. A text cannot be
    split: then only the tools' spans contain each result.
    """
    parts = content if isinstance(content, list) and len(content) == len(calls) else None
    contents: Sequence[Any] = [[part] for part in parts] if parts else [_UNKNOWN] * len(calls)
    return [
        {"role": "tool", "tool_call_id": call.get("id"), "name": _name(call), "content": result}
        for call, result in zip(calls, contents, strict=True)
    ]


def _name(call: Mapping[str, Any]) -> Any:
    function = call.get("function")
    return function.get("name") if isinstance(function, Mapping) else call.get("name")


def _with_errors(items: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [_with_error(item) for item in items]


def _with_error(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """A function's response, marked as an error if an error is its only field."""
    content = item.get("content")
    if item.get("role") != "tool" or not isinstance(content, str):
        return item
    value = parse(content).value
    failed = isinstance(value, Mapping) and set(value) == {"error"} and bool(value["error"])
    return {**item, "is_error": True} if failed else item


def tool_schemas(span: Span) -> list[Any]:
    """The definitions of the tools that a model was offered."""
    schemas = []
    for item in nested(span.attributes, "llm.tools."):
        tool = item.get("tool") if isinstance(item, Mapping) else None
        if not isinstance(tool, Mapping):
            continue
        schema = parse(tool.get("json_schema")).value
        if (
            isinstance(schema, Mapping)
            and tool.get("name")
            and not {"name", "function"} & set(schema)
        ):
            # Only the parameters: the name is in another attribute.
            identity = {key: tool[key] for key in ("name", "description") if key in tool}
            schema = {"type": "function", **identity, "parameters": schema}
        if schema is not None:
            schemas.append(schema)
    return schemas


def cut_arguments(span: Span, sent: Sequence[Message], received: Sequence[Message]) -> list[Gap]:
    """The gaps of calls whose JSON arguments were cut."""
    cut = (*folded(sent, _cut_calls), *_cut_calls(previous=None, messages=received))
    keys = (f"the arguments of {name}" for name in dict.fromkeys(cut))
    return [gap("content_truncated", span.span_id, key=key) for key in keys]


def _cut_calls(previous: tuple[str, ...] | None, messages: Sequence[Message]) -> tuple[str, ...]:
    """The names of calls with cut arguments: previous calls, and calls in messages."""
    cut = [
        call.name
        for message in messages
        for call in message.tool_calls
        if isinstance(call.arguments, str) and parse(call.arguments).truncated
    ]
    return (*(previous or ()), *cut)
