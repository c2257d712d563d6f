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
        texts = [one.text.strip() for one in self.messages if one.role == "system"]
        system = [CanonicalMessage("system", "\n".join(filter(None, texts)))] if texts else []
        places = [i for i, one in enumerate(self.messages) if one.role != "system"]
        others = [self.messages[i] for i in places]
        first = next((i for i, one in enumerate(self.messages) if one.role == "system"), 0)
        indexes = [self.indexes[i] for i in ([first] if texts else []) + places]
        plain = [one._replace(text=one.text.strip(), name="", parts=()) for one in others]
        return replace(self, messages=(*system, *plain), indexes=tuple(indexes))

    def message(self, place: int) -> Message:
        """Return the message of the request that is at a place in `messages`."""
        return self.request.messages[self.indexes[place]]


def key_of(
    request: RecordedRequest,
    normalize: Sequence[Pattern] = (),
    reader: CanonicalReader | None = None,
    wire: WireRequest | None = None,
) -> RequestKey:
    """Return the canonical form of a request.

    Args:
        request: The request.
        normalize: Patterns of texts that do not count.
        reader: Reads the messages; one with the same patterns that has read similar requests is
            faster.
        wire: The HTTP request, or None.
    """
    found = (reader or CanonicalReader(normalize)).read(request.messages)
    answer_format = request.response_format
    return RequestKey(
        api=request.api,
        model=request.model,
        messages=found.messages,
        tools=_tools(request.tools, normalize),
        response_format="" if answer_format is None else canonical(answer_format),
        settings=tuple(_settings(request, normalize)),
        result_orders=found.result_orders,
        indexes=found.indexes,
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
    found: dict[str, str | None] = {}
    for tool in tools:
        inner = tool.get("function") or tool.get("custom")
        fields = inner if isinstance(inner, Mapping) else tool
        name, kind = str(fields.get("name") or ""), str(fields.get("type") or "")
        schema = schemas.get(name) if name else None
        if name and schema is None and "description" not in fields and "custom" not in tool:
            found[name] = None
        elif name:
            shown = {"description": fields.get("description") or "", "schema": schema}
            if fields.get("strict"):
                shown["strict"] = True
            found[name] = without_variable_parts(canonical(shown), normalize)
        else:  # A tool that the provider runs.
            found[kind] = without_variable_parts(canonical(tool), normalize)
    return tuple(found.items())


def difference(recorded: RequestKey, actual: RequestKey) -> RequestDifference | None:
    """Return the first difference of an actual request from a recorded one, or None."""
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
    for place, (one, other) in enumerate(pairs):
        if one == other:
            continue
        if one is None or other is None or one.role != other.role:
            yield _moved(recorded, actual, place)
            return
        if not _is_same(one, other, recorded.is_partial):
            if _is_shifted(recorded.messages, actual.messages, place):
                yield _moved(recorded, actual, place)
                return
            yield _changed(recorded, actual, place)


def _is_shifted(
    recorded: Sequence[CanonicalMessage], actual: Sequence[CanonicalMessage], place: int
) -> bool:
    """Return whether one request has a message more at a place, and then goes on as the other."""
    if len(recorded) == len(actual):
        return False
    shorter, longer = sorted((recorded, actual), key=len)
    return longer[place + 1 : place + 2] == shorter[place : place + 1]


def _tail(recorded: RequestKey, actual: RequestKey) -> RequestKey:
    """Return a recorded request with as many of its last messages as an actual one has."""
    has_prompt = any(one.role in SYSTEM_ROLES for one in actual.request.messages)
    prompts = [one for one in recorded.request.messages if one.role in SYSTEM_ROLES and has_prompt]
    spoken = [one for one in recorded.request.messages if one.role not in SYSTEM_ROLES]
    count = sum(one.role not in SYSTEM_ROLES for one in actual.request.messages)
    messages = (*prompts, *spoken[len(spoken) - min(count, len(spoken)) :])
    return key_of(replace(recorded.request, messages=messages), recorded.normalize)


def _without_system(key: RequestKey) -> RequestKey:
    if key.messages[0].role != "system":
        return key
    return replace(key, messages=key.messages[1:], indexes=key.indexes[1:])


def _is_same(recorded: CanonicalMessage, actual: CanonicalMessage, is_partial: bool) -> bool:
    """Return whether messages of one role are equal as far as the recorded one is known."""
    if is_partial and recorded.is_unknown:
        return True
    if recorded[3:] != actual[3:] or len(recorded.calls) != len(actual.calls):
        return False
    calls = zip(recorded.calls, actual.calls, strict=True)
    return is_same_text(recorded.text, actual.text) and all(
        _is_call(one, other, is_partial) for one, other in calls
    )


def _is_call(recorded: CanonicalCall, actual: CanonicalCall, is_partial: bool) -> bool:
    if recorded[:2] != actual[:2]:
        return False
    if recorded.arguments is None:
        return is_partial or actual.arguments is None
    return is_same_text(recorded.arguments, actual.arguments or "")


def _changed(recorded: RequestKey, actual: RequestKey, place: int) -> RequestDifference:
    """Return the difference of the messages at a place, which have the same role."""
    one, other = recorded.messages[place], actual.messages[place]
    index = actual.indexes[place]
    before, after = recorded.message(place), actual.message(place)
    if other.role == "tool":
        tool = _tool_of(actual, place)
        return _text_difference(
            "tool_result", f"the result of tool {tool!r} differs", index, one.text, other.text
        )
    if one.calls != other.calls:
        return RequestDifference(
            "tool_call",
            f"message {index} ({other.role}): the tool calls differ",
            f"messages[{index}].tool_calls",
            index,
            before,
            after,
            suggestion_for(canonical(one.calls), canonical(other.calls)),
        )
    if one.text != other.text:
        text = f"message {index} ({after.role}): the text differs"
        return _text_difference("prompt", text, index, one.text, other.text)
    what = "name" if one.name != other.name else "content"
    summary = f"message {index} ({after.role}): the {what} differs"
    return RequestDifference("prompt", summary, f"messages[{index}].{what}", index, before, after)


def _tool_of(key: RequestKey, place: int) -> str:
    """Return the name of the tool whose result is at a place."""
    number = key.messages[place].answers
    calls = (call for message in key.messages for call in message.calls)
    named = next((call.name for call in calls if call.number == number), "")
    return named or key.message(place).name


def _text_difference(
    kind: DifferenceKind, summary: str, index: int, recorded: str, actual: str
) -> RequestDifference:
    path = f"messages[{index}].content"
    suggestion = suggestion_for(recorded, actual)
    return RequestDifference(kind, summary, path, index, recorded, actual, suggestion)


def _moved(recorded: RequestKey, actual: RequestKey, place: int) -> RequestDifference:
    """Return the difference at a place where one request has another message, or none."""
    one, other = _at(recorded, place), _at(actual, place)
    here = recorded.messages[place : place + 1], actual.messages[place : place + 1]
    after = recorded.messages[place + 1 : place + 2], actual.messages[place + 1 : place + 2]
    if one is not None and (other is None or after[0] == here[1]):
        other, summary = None, "is missing"
    elif other is not None and (one is None or after[1] == here[0]):
        one, summary = None, "is additional"
    else:
        summary = f"is recorded as {one.role if one else 'nothing'}"
    message = other or one
    assert message is not None
    kind: DifferenceKind = "tool_call" if message.tool_calls else "prompt"
    index = actual.indexes[place] if place < len(actual.indexes) else len(actual.request.messages)
    return RequestDifference(
        "tool_result" if message.role == "tool" else kind,
        f"message {index} ({message.role}) {summary}",
        f"messages[{index}]",
        index,
        one,
        other,
    )


def _at(key: RequestKey, place: int) -> Message | None:
    return key.message(place) if place < len(key.messages) else None


def _of_tools(recorded: RequestKey, actual: RequestKey) -> Iterator[RequestDifference]:
    known, offered = dict(recorded.tools), dict(actual.tools)
    if recorded.is_partial and not known:
        return
    for name in sorted(known.keys() | offered.keys()):
        one, other = known.get(name), offered.get(name)
        path = f"tools.{name}"
        if name not in offered:
            yield RequestDifference(
                "tool_schema", f"tool {name!r} is not offered", path, recorded=name
            )
        elif name not in known:
            yield RequestDifference(
                "tool_schema", f"tool {name!r} is not recorded", path, actual=name
            )
        elif one is not None and other is not None and is_same_text(one, other):
            continue
        elif one != other and not (recorded.is_partial and _is_definition(one, other)):
            summary = f"the definition of tool {name!r} differs"
            before, after = (None if text is None else restore(text) for text in (one, other))
            hint = suggestion_for(one, other)
            yield RequestDifference("tool_schema", summary, path, None, before, after, hint)
    order, new_order = list(known), list(offered)
    if not recorded.is_partial and order != new_order and sorted(order) == sorted(new_order):
        summary = "the order of the tool definitions differs"
        yield RequestDifference("tool_schema", summary, "tools", None, order, new_order)


def _is_definition(recorded: str | None, actual: str | None) -> bool:
    """Return whether a definition is equal as far as a trace has it: often not its schema."""
    if recorded is None or actual is None:
        return True
    one, other = restore(recorded), restore(actual)
    same_text = not one["description"] or one["description"] == other["description"]
    return same_text and (one["schema"] is None or one["schema"] == other["schema"])


def _of_settings(recorded: RequestKey, actual: RequestKey) -> Iterator[RequestDifference]:
    if not _is_model(recorded, actual):
        summary = f"the model is {actual.model!r} instead of {recorded.model!r}"
        yield RequestDifference("model", summary, "model", None, recorded.model, actual.model)
    if recorded.api and recorded.api != actual.api:
        summary = f"the API is {actual.api} instead of {recorded.api}"
        yield RequestDifference("settings", summary, "api", None, recorded.api, actual.api)
        return
    known, used = dict(recorded.settings), dict(actual.settings)
    pairs = [
        (f"settings.{name}", known.get(name, ""), used.get(name, ""))
        for name in sorted(known.keys() | used.keys())
        if name in known or not recorded.is_partial
    ]
    if recorded.response_format or not recorded.is_partial:
        pairs.append(("response_format", recorded.response_format, actual.response_format))
    for path, one, other in pairs:
        if is_same_text(one, other) or (recorded.is_partial and not other):
            continue
        before, after = (restore(text) if text else None for text in (one, other))
        name = path.removeprefix("settings.")
        summary = f"{name} is {other or 'not set'} instead of {one or 'not set'}"
        yield RequestDifference("settings", shortened(summary), path, None, before, after)


def _is_model(recorded: RequestKey, actual: RequestKey) -> bool:
    """Return whether the model is the same; a trace may have its dated name, or a provider's."""
    if recorded.model == actual.model or not recorded.model:
        return True
    if not recorded.is_partial:
        return False
    one, other = (name.rpartition("/")[2] for name in (recorded.model, actual.model))
    return one.startswith(other) or other.startswith(one)
