"""The canonical form of a request to a model, by which a replay finds the recorded answer.

Two requests are equal if they mean the same to the model:

- Ids of tool calls count by the order in which they appear. Results of the calls of one message are
  equal in any order; `RequestKey.result_orders` keeps it.
- Arguments, and tool results that are JSON, are equal as JSON. Other texts are equal exactly.
- ``developer`` is ``system``; a list with one text is that text; reasoning does not count.
- Tools are equal with equal descriptions and schemas, in the same order.
- Options are equal as JSON; the id of a stored request does not count.

Two requests that were sent over HTTP are then compared as a whole, see `wire_requests`. A request
that was rebuilt from a trace is *partial*: it is compared as far as the trace has it.
A value that was redacted when it was recorded equals any value, see `redacted_text`. Patterns
(``--normalize``) replace variable parts of texts on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any

from ..base.jsontext import canonical, restore
from ..base.patterns import Pattern
from ..evaluators import schemas_of
from ..messages import SYSTEM_ROLES
from ..model import Message, RecordedRequest
from .canonical_messages import (
    CanonicalCall,
    CanonicalMessage,
    CanonicalReader,
    ResultOrder,
    without_variable_parts,
)
from .redacted_text import is_same_text
from .request_differences import (
    DifferenceKind,
    RequestDifference,
    shortened,
    suggestion_for,
)
from .whole_bodies import ID_OPTIONS, without_random_key
from .wire_requests import WireRequest, wire_differences

__all__ = [
    "DifferenceKind",
    "RequestDifference",
    "RequestKey",
    "difference",
    "key_of",
]


@dataclass(frozen=True)
class RequestKey:
    """A request in canonical form. Equal keys are equal requests.

    Attributes:
        api: The API; "" for a partial request.
        model: The model.
        messages: The messages.
        tools: The canonical JSON of the definitions of the tools, by name and in their order; None
            where the definition has no schema.
        response_format: The canonical JSON of the requested format, or "".
        settings: The canonical JSON of the settings that count, by name.
        result_orders: The order of the results of each message with several calls. It does not
            count when keys are compared.
        indexes: The index of each message in the request. It does not count either.
        request: The request itself. It does not count either.
        normalize: The patterns of texts that do not count.
        wire: The HTTP request, or None. It does not count when keys are compared.
    """

    api: str
    model: str
    messages: tuple[CanonicalMessage, ...]
    tools: tuple[tuple[str, str | None], ...] = ()
    response_format: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    result_orders: tuple[ResultOrder, ...] = field(default=(), compare=False)
    indexes: tuple[int, ...] = field(default=(), compare=False, repr=False)
    request: RecordedRequest = field(default_factory=RecordedRequest, compare=False, repr=False)
    normalize: tuple[Pattern, ...] = field(default=(), compare=False, repr=False)
    wire: WireRequest | None = field(default=None, compare=False, repr=False)

    @property
    def is_continuation(self) -> bool:
        """Whether the request has only new messages, and the provider keeps those before."""
        settings = self.request.settings
        return bool(settings.get("previous_response_id") or settings.get("conversation"))

    @property
    def is_partial(self) -> bool:
        """Whether the request was rebuilt from a trace."""
        return not self.api

    @cached_property
    def rough(self) -> RequestKey:
        """The key as it is compared with a partial one: one system message, no names, no parts."""
        texts = [message.text.strip() for message in self.messages if message.role == "system"]
        system = [CanonicalMessage("system", "\n".join(filter(None, texts)))] if texts else []
        places = [i for i, message in enumerate(self.messages) if message.role != "system"]
        spoken = [self.messages[i] for i in places]
        first = next((i for i, message in enumerate(self.messages) if message.role == "system"), 0)
        indexes = [self.indexes[i] for i in ([first] if texts else []) + places]
        plain = [
            message._replace(text=message.text.strip(), name="", parts=()) for message in spoken
        ]
        return replace(self, messages=(*system, *plain), indexes=tuple(indexes))

    def message(self, position: int) -> Message:
        """The message of the request that is at a place in `messages`."""
        return self.request.messages[self.indexes[position]]


def key_of(
    request: RecordedRequest,
    normalize: Sequence[Pattern] = (),
    reader: CanonicalReader | None = None,
    wire: WireRequest | None = None,
) -> RequestKey:
    """Make the canonical form of a request.

    Args:
        request: The request.
        normalize: Patterns of texts that do not count.
        reader: Reads the messages; one with the same patterns that has read similar requests is
            faster.
        wire: The HTTP request, or None.
    """
    canonical_messages = (reader or CanonicalReader(normalize)).read(request.messages)
    answer_format = request.response_format
    return RequestKey(
        api=request.api,
        model=request.model,
        messages=canonical_messages.messages,
        tools=_tools(request.tools, normalize),
        response_format="" if answer_format is None else canonical(answer_format),
        settings=tuple(_settings(request, normalize)),
        result_orders=canonical_messages.result_orders,
        indexes=canonical_messages.indexes,
        request=request,
        normalize=tuple(normalize),
        wire=wire,
    )


def _settings(request: RecordedRequest, normalize: Sequence[Pattern]) -> Iterator[tuple[str, str]]:
    """Yield the options of a request that count, by name."""
    settings = {**request.settings, **({"stream": True} if request.is_stream else {})}
    for name in sorted(settings.keys() - ID_OPTIONS):
        text = without_variable_parts(canonical(settings[name]), normalize)
        yield name, without_random_key(text) if name == "prompt_cache_key" else text


def _tools(
    tools: Sequence[Mapping[str, Any]], normalize: Sequence[Pattern]
) -> tuple[tuple[str, str | None], ...]:
    schemas = schemas_of(tools)
    definitions: dict[str, str | None] = {}
    for tool in tools:
        inner = tool.get("function") or tool.get("custom")
        fields = inner if isinstance(inner, Mapping) else tool
        name, kind = str(fields.get("name") or ""), str(fields.get("type") or "")
        schema = schemas.get(name) if name else None
        if name and schema is None and "description" not in fields and "custom" not in tool:
            definitions[name] = None
        elif name:
            definition = {"description": fields.get("description") or "", "schema": schema}
            if fields.get("strict"):
                definition["strict"] = True
            definitions[name] = without_variable_parts(canonical(definition), normalize)
        else:  # A tool that the provider runs.
            definitions[kind] = without_variable_parts(canonical(tool), normalize)
    return tuple(definitions.items())


def difference(recorded: RequestKey, actual: RequestKey) -> RequestDifference | None:
    """The first difference of an actual request from a recorded one, or None."""
    return next(_differences(recorded, actual), None)


def _differences(recorded: RequestKey, actual: RequestKey) -> Iterator[RequestDifference]:
    if recorded != actual:
        yield from _of_meaning(recorded, actual)
    if recorded.wire is not None and actual.wire is not None and not recorded.is_partial:
        yield from wire_differences(recorded.wire, actual.wire, recorded.normalize)


def _of_meaning(recorded: RequestKey, actual: RequestKey) -> Iterator[RequestDifference]:
    yield from _of_messages(recorded, actual)
    yield from _of_tools(recorded, actual)
    yield from _of_settings(recorded, actual)


def _of_messages(recorded: RequestKey, actual: RequestKey) -> Iterator[RequestDifference]:
    if recorded.is_partial:
        if not recorded.messages:
            return
        if actual.is_continuation:
            recorded = _tail(recorded, actual)
        recorded, actual = recorded.rough, actual.rough
        if recorded.messages[0].role != "system" and actual.messages[:1]:
            actual = _without_system(actual)
    pairs = zip_longest(recorded.messages, actual.messages)
    for position, (before, after) in enumerate(pairs):
        if before == after:
            continue
        if before is None or after is None or before.role != after.role:
            yield _moved(recorded, actual, position)
            return
        if not _is_same(before, after, recorded.is_partial):
            if _is_shifted(recorded.messages, actual.messages, position):
                yield _moved(recorded, actual, position)
                return
            yield _changed(recorded, actual, position)


def _is_shifted(
    recorded: Sequence[CanonicalMessage], actual: Sequence[CanonicalMessage], position: int
) -> bool:
    """Whether one request has a message more at a place, and then goes on as the other."""
    if len(recorded) == len(actual):
        return False
    shorter, longer = sorted((recorded, actual), key=len)
    return longer[position + 1 : position + 2] == shorter[position : position + 1]


def _tail(recorded: RequestKey, actual: RequestKey) -> RequestKey:
    """A recorded request with as many of its last messages as an actual one has."""
    has_prompt = any(message.role in SYSTEM_ROLES for message in actual.request.messages)
    prompts = [
        message
        for message in recorded.request.messages
        if message.role in SYSTEM_ROLES and has_prompt
    ]
    spoken = [message for message in recorded.request.messages if message.role not in SYSTEM_ROLES]
    count = sum(message.role not in SYSTEM_ROLES for message in actual.request.messages)
    messages = (*prompts, *spoken[len(spoken) - min(count, len(spoken)) :])
    return key_of(replace(recorded.request, messages=messages), recorded.normalize)


def _without_system(key: RequestKey) -> RequestKey:
    if key.messages[0].role != "system":
        return key
    return replace(key, messages=key.messages[1:], indexes=key.indexes[1:])


def _is_same(recorded: CanonicalMessage, actual: CanonicalMessage, is_partial: bool) -> bool:
    """Whether messages of one role are equal as far as the recorded one is known."""
    if is_partial and recorded.is_unknown:
        return True
    if recorded[3:] != actual[3:] or len(recorded.calls) != len(actual.calls):
        return False
    calls = zip(recorded.calls, actual.calls, strict=True)
    return is_same_text(recorded.text, actual.text) and all(
        _is_call(recorded_call, actual_call, is_partial) for recorded_call, actual_call in calls
    )


def _is_call(recorded: CanonicalCall, actual: CanonicalCall, is_partial: bool) -> bool:
    if recorded[:2] != actual[:2]:
        return False
    if recorded.arguments is None:
        return is_partial or actual.arguments is None
    return is_same_text(recorded.arguments, actual.arguments or "")


def _changed(recorded: RequestKey, actual: RequestKey, position: int) -> RequestDifference:
    """The difference of the messages at a place, which have the same role."""
    recorded_message, actual_message = recorded.messages[position], actual.messages[position]
    index = actual.indexes[position]
    before, after = recorded.message(position), actual.message(position)
    if actual_message.role == "tool":
        tool = _tool_of(actual, position)
        return _text_difference(
            "tool_result",
            f"the result of tool {tool!r} differs",
            index,
            recorded_message.text,
            actual_message.text,
        )
    if recorded_message.calls != actual_message.calls:
        return RequestDifference(
            "tool_call",
            f"message {index} ({actual_message.role}): the tool calls differ",
            f"messages[{index}].tool_calls",
            index,
            before,
            after,
            suggestion_for(canonical(recorded_message.calls), canonical(actual_message.calls)),
        )
    if recorded_message.text != actual_message.text:
        text = f"message {index} ({after.role}): the text differs"
        return _text_difference("prompt", text, index, recorded_message.text, actual_message.text)
    what = "name" if recorded_message.name != actual_message.name else "content"
    summary = f"message {index} ({after.role}): the {what} differs"
    return RequestDifference("prompt", summary, f"messages[{index}].{what}", index, before, after)


def _tool_of(key: RequestKey, position: int) -> str:
    """The name of the tool whose result is at a place."""
    number = key.messages[position].answers
    calls = (call for message in key.messages for call in message.calls)
    tool_name = next((call.name for call in calls if call.number == number), "")
    return tool_name or key.message(position).name


def _text_difference(
    kind: DifferenceKind, summary: str, index: int, recorded: str, actual: str
) -> RequestDifference:
    path = f"messages[{index}].content"
    suggestion = suggestion_for(recorded, actual)
    return RequestDifference(kind, summary, path, index, recorded, actual, suggestion)


def _moved(recorded: RequestKey, actual: RequestKey, position: int) -> RequestDifference:
    """The difference at a place where one request has another message, or none."""
    recorded_message, actual_message = _at(recorded, position), _at(actual, position)
    here = recorded.messages[position : position + 1], actual.messages[position : position + 1]
    after = (
        recorded.messages[position + 1 : position + 2],
        actual.messages[position + 1 : position + 2],
    )
    if recorded_message is not None and (actual_message is None or after[0] == here[1]):
        actual_message, summary = None, "is missing"
    elif actual_message is not None and (recorded_message is None or after[1] == here[0]):
        recorded_message, summary = None, "is additional"
    else:
        summary = f"is recorded as {recorded_message.role if recorded_message else 'nothing'}"
    message = actual_message or recorded_message
    assert message is not None
    kind: DifferenceKind = "tool_call" if message.tool_calls else "prompt"
    index = (
        actual.indexes[position] if position < len(actual.indexes) else len(actual.request.messages)
    )
    return RequestDifference(
        "tool_result" if message.role == "tool" else kind,
        f"message {index} ({message.role}) {summary}",
        f"messages[{index}]",
        index,
        recorded_message,
        actual_message,
    )


def _at(key: RequestKey, position: int) -> Message | None:
    return key.message(position) if position < len(key.messages) else None


def _of_tools(recorded: RequestKey, actual: RequestKey) -> Iterator[RequestDifference]:
    recorded_tools, offered_tools = dict(recorded.tools), dict(actual.tools)
    if recorded.is_partial and not recorded_tools:
        return
    for name in sorted(recorded_tools.keys() | offered_tools.keys()):
        recorded_tool, actual_tool = recorded_tools.get(name), offered_tools.get(name)
        path = f"tools.{name}"
        if name not in offered_tools:
            yield RequestDifference(
                "tool_schema", f"tool {name!r} is not offered", path, recorded=name
            )
        elif name not in recorded_tools:
            yield RequestDifference(
                "tool_schema", f"tool {name!r} is not recorded", path, actual=name
            )
        elif (
            recorded_tool is not None
            and actual_tool is not None
            and is_same_text(recorded_tool, actual_tool)
        ):
            continue
        elif recorded_tool != actual_tool and not (
            recorded.is_partial and _is_definition(recorded_tool, actual_tool)
        ):
            summary = f"the definition of tool {name!r} differs"
            before, after = (
                None if text is None else restore(text) for text in (recorded_tool, actual_tool)
            )
            hint = suggestion_for(recorded_tool, actual_tool)
            yield RequestDifference("tool_schema", summary, path, None, before, after, hint)
    order, new_order = list(recorded_tools), list(offered_tools)
    if not recorded.is_partial and order != new_order and sorted(order) == sorted(new_order):
        summary = "the order of the tool definitions differs"
        yield RequestDifference("tool_schema", summary, "tools", None, order, new_order)


def _is_definition(recorded: str | None, actual: str | None) -> bool:
    """Whether a definition is equal as far as a trace has it: often not its schema."""
    if recorded is None or actual is None:
        return True
    before, after = restore(recorded), restore(actual)
    same_text = not before["description"] or before["description"] == after["description"]
    return same_text and (before["schema"] is None or before["schema"] == after["schema"])


def _of_settings(recorded: RequestKey, actual: RequestKey) -> Iterator[RequestDifference]:
    if not _is_model(recorded, actual):
        summary = f"the model is {actual.model!r} instead of {recorded.model!r}"
        yield RequestDifference("model", summary, "model", None, recorded.model, actual.model)
    if recorded.api and recorded.api != actual.api:
        summary = f"the API is {actual.api} instead of {recorded.api}"
        yield RequestDifference("settings", summary, "api", None, recorded.api, actual.api)
        return
    recorded_settings, actual_settings = dict(recorded.settings), dict(actual.settings)
    pairs = [
        (f"settings.{name}", recorded_settings.get(name, ""), actual_settings.get(name, ""))
        for name in sorted(recorded_settings.keys() | actual_settings.keys())
        if name in recorded_settings or not recorded.is_partial
    ]
    if recorded.response_format or not recorded.is_partial:
        pairs.append(("response_format", recorded.response_format, actual.response_format))
    for path, recorded_text, actual_text in pairs:
        if is_same_text(recorded_text, actual_text) or (recorded.is_partial and not actual_text):
            continue
        before, after = (restore(text) if text else None for text in (recorded_text, actual_text))
        name = path.removeprefix("settings.")
        summary = f"{name} is {actual_text or 'not set'} instead of {recorded_text or 'not set'}"
        yield RequestDifference("settings", shortened(summary), path, None, before, after)


def _is_model(recorded: RequestKey, actual: RequestKey) -> bool:
    """Whether the model is the same; a trace may have its dated name, or a provider's."""
    if recorded.model == actual.model or not recorded.model:
        return True
    if not recorded.is_partial:
        return False
    recorded_name, actual_name = (
        name.rpartition("/")[2] for name in (recorded.model, actual.model)
    )
    return recorded_name.startswith(actual_name) or actual_name.startswith(recorded_name)
