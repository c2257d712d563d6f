"""The canonical form of a request to a model: a replay finds the recorded answer by it.

Two requests are equal if they mean the same to the model:

- Ids of tool calls count by the order of their appearance. Results of the calls of one message are
  equal in any order; `RequestKey.result_orders` keeps the order.
- Arguments, and tool results that are JSON, are equal as JSON. Other texts are equal exactly.
- ``developer`` is ``system``; a list with one text is that text; reasoning does not count.
- Tools are equal with equal descriptions and schemas, in the same order.
- Options are equal as JSON; the id of a stored request does not count.

If both requests were sent over HTTP, they are then compared as a whole, see `wire_requests`. A
request that was rebuilt from a trace is *partial*: only the parts that the trace has are compared.
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
)
from .divergence import Divergence, DivergenceKind
from .http_answers import HttpRequest
from .text_comparison import is_same_text, without_variable_parts
from .wire_requests import (
    ID_OPTIONS,
    shortened,
    suggestion_for,
    wire_differences,
    without_random_key,
)

__all__ = [
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
    wire: HttpRequest | None = field(default=None, compare=False, repr=False)

    @property
    def is_continuation(self) -> bool:
        """Whether the request has only new messages, and the provider keeps the earlier ones."""
        settings = self.request.settings
        return bool(settings.get("previous_response_id") or settings.get("conversation"))

    @property
    def is_partial(self) -> bool:
        """Whether the request was rebuilt from a trace."""
        return not self.api

    @cached_property
    def rough(self) -> RequestKey:
        """The key for a comparison with a partial key: one system message, no names, no parts."""
        texts = [m.text.strip() for m in self.messages if m.role == "system"]
        system = [CanonicalMessage("system", "\n".join(filter(None, texts)))] if texts else []
        places = [i for i, m in enumerate(self.messages) if m.role != "system"]
        spoken = [self.messages[i] for i in places]
        first = next((i for i, m in enumerate(self.messages) if m.role == "system"), 0)
        indexes = [self.indexes[i] for i in ([first] if texts else []) + places]
        plain = [m._replace(text=m.text.strip(), name="", parts=()) for m in spoken]
        return replace(self, messages=(*system, *plain), indexes=tuple(indexes))

    def message(self, at: int) -> Message:
        """The message of the request that is at a place in `messages`."""
        return self.request.messages[self.indexes[at]]


def key_of(
    request: RecordedRequest,
    normalize: Sequence[Pattern] = (),
    reader: CanonicalReader | None = None,
    wire: HttpRequest | None = None,
) -> RequestKey:
    """Make the canonical form of a request.

    Args:
        request: The request.
        normalize: Patterns of texts that do not count.
        reader: Reads the messages. It needs the same patterns, and is faster if it has read similar
            requests.
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


def difference(recorded: RequestKey, actual: RequestKey) -> Divergence | None:
    """The first difference of an actual request from a recorded one, or None."""
    return next(_differences(recorded, actual), None)


def _differences(recorded: RequestKey, actual: RequestKey) -> Iterator[Divergence]:
    if recorded != actual:
        yield from _of_meaning(recorded, actual)
    if recorded.wire is not None and actual.wire is not None and not recorded.is_partial:
        yield from wire_differences(recorded.wire, actual.wire, recorded.normalize)


def _of_meaning(recorded: RequestKey, actual: RequestKey) -> Iterator[Divergence]:
    yield from _of_messages(recorded, actual)
    yield from _of_tools(recorded, actual)
    yield from _of_settings(recorded, actual)


def _of_messages(recorded: RequestKey, actual: RequestKey) -> Iterator[Divergence]:
    if recorded.is_partial:
        if not recorded.messages:
            return
        if actual.is_continuation:
            recorded = _tail(recorded, actual)
        recorded, actual = recorded.rough, actual.rough
        if recorded.messages[0].role != "system" and actual.messages[:1]:
            actual = _without_system(actual)
    pairs = zip_longest(recorded.messages, actual.messages)
    for at, (before, after) in enumerate(pairs):
        if before == after:
            continue
        if before is None or after is None or before.role != after.role:
            yield _moved(recorded, actual, at)
            return
        if not _is_same(before, after, recorded.is_partial):
            if _is_shifted(recorded.messages, actual.messages, at):
                yield _moved(recorded, actual, at)
                return
            yield _changed(recorded, actual, at)


def _is_shifted(
    recorded: Sequence[CanonicalMessage], actual: Sequence[CanonicalMessage], at: int
) -> bool:
    """Whether one request has an additional message at a place, and then equals the other."""
    if len(recorded) == len(actual):
        return False
    shorter, longer = sorted((recorded, actual), key=len)
    return longer[at + 1 : at + 2] == shorter[at : at + 1]


def _tail(recorded: RequestKey, actual: RequestKey) -> RequestKey:
    """A recorded request, cut to the last messages: as many as an actual request has."""
    has_prompt = any(m.role in SYSTEM_ROLES for m in actual.request.messages)
    prompts = [m for m in recorded.request.messages if m.role in SYSTEM_ROLES and has_prompt]
    spoken = [m for m in recorded.request.messages if m.role not in SYSTEM_ROLES]
    count = sum(m.role not in SYSTEM_ROLES for m in actual.request.messages)
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


def _changed(recorded: RequestKey, actual: RequestKey, at: int) -> Divergence:
    """The difference of the messages at a place, which have the same role."""
    old, new = recorded.messages[at], actual.messages[at]
    index = actual.indexes[at]
    before, after = recorded.message(at), actual.message(at)
    name = f"message {index} ({after.role})"
    if new.role == "tool":
        tool = _tool_of(actual, at)
        text = f"the result of tool {tool!r} differs"
        return _text_difference("tool_result", text, index, old.text, new.text)
    if old.calls != new.calls:
        hint = suggestion_for(canonical(old.calls), canonical(new.calls))
        summary = f"message {index} ({new.role}): the tool calls differ"
        return Divergence(
            "tool_call", summary, message=index, recorded=before, actual=after, suggestion=hint
        )
    if old.text != new.text:
        return _text_difference("prompt", f"{name}: the text differs", index, old.text, new.text)
    part = "name" if old.name != new.name else "content"
    return Divergence(
        "prompt", f"{name}: the {part} differs", message=index, recorded=before, actual=after
    )


def _tool_of(key: RequestKey, at: int) -> str:
    """The name of the tool whose result is at a place."""
    number = key.messages[at].answers
    calls = (call for message in key.messages for call in message.calls)
    tool_name = next((call.name for call in calls if call.number == number), "")
    return tool_name or key.message(at).name


def _text_difference(
    kind: DivergenceKind, summary: str, index: int, recorded: str, actual: str
) -> Divergence:
    hint = suggestion_for(recorded, actual)
    return Divergence(
        kind, summary, message=index, recorded=recorded, actual=actual, suggestion=hint
    )


def _moved(recorded: RequestKey, actual: RequestKey, at: int) -> Divergence:
    """The difference at a place where one request has another message, or none."""
    before, after = _at(recorded, at), _at(actual, at)
    here = recorded.messages[at : at + 1], actual.messages[at : at + 1]
    following = recorded.messages[at + 1 : at + 2], actual.messages[at + 1 : at + 2]
    if before is not None and (after is None or following[0] == here[1]):
        after, change = None, "is missing"
    elif after is not None and (before is None or following[1] == here[0]):
        before, change = None, "is additional"
    else:
        change = f"is recorded as {before.role if before else 'nothing'}"
    message = after or before
    assert message is not None
    kind: DivergenceKind = "tool_call" if message.tool_calls else "prompt"
    kind = "tool_result" if message.role == "tool" else kind
    index = actual.indexes[at] if at < len(actual.indexes) else len(actual.request.messages)
    summary = f"message {index} ({message.role}) {change}"
    return Divergence(kind, summary, message=index, recorded=before, actual=after)


def _at(key: RequestKey, at: int) -> Message | None:
    return key.message(at) if at < len(key.messages) else None


def _of_tools(recorded: RequestKey, actual: RequestKey) -> Iterator[Divergence]:
    recorded_tools, offered_tools = dict(recorded.tools), dict(actual.tools)
    if recorded.is_partial and not recorded_tools:
        return
    for name in sorted(recorded_tools.keys() | offered_tools.keys()):
        before, after = recorded_tools.get(name), offered_tools.get(name)
        if name not in offered_tools:
            yield Divergence("tool_schema", f"tool {name!r} is not offered", recorded=name)
        elif name not in recorded_tools:
            yield Divergence("tool_schema", f"tool {name!r} is not recorded", actual=name)
        elif before is not None and after is not None and is_same_text(before, after):
            continue
        elif before != after and not (recorded.is_partial and _is_definition(before, after)):
            summary = f"the definition of tool {name!r} differs"
            old, new = (None if text is None else restore(text) for text in (before, after))
            hint = suggestion_for(before, after)
            yield Divergence("tool_schema", summary, recorded=old, actual=new, suggestion=hint)
    order, new_order = list(recorded_tools), list(offered_tools)
    if not recorded.is_partial and order != new_order and sorted(order) == sorted(new_order):
        summary = "the order of the tool definitions differs"
        yield Divergence("tool_schema", summary, recorded=order, actual=new_order)


def _is_definition(recorded: str | None, actual: str | None) -> bool:
    """Whether a definition is equal as far as a trace has it; the schema is often missing."""
    if recorded is None or actual is None:
        return True
    before, after = restore(recorded), restore(actual)
    same_text = not before["description"] or before["description"] == after["description"]
    return same_text and (before["schema"] is None or before["schema"] == after["schema"])


def _of_settings(recorded: RequestKey, actual: RequestKey) -> Iterator[Divergence]:
    if not _is_model(recorded, actual):
        summary = f"the model is {actual.model!r} instead of {recorded.model!r}"
        yield Divergence("model", summary, recorded=recorded.model, actual=actual.model)
    if recorded.api and recorded.api != actual.api:
        summary = f"the API is {actual.api} instead of {recorded.api}"
        yield Divergence("settings", summary, recorded=recorded.api, actual=actual.api)
        return
    recorded_settings, actual_settings = dict(recorded.settings), dict(actual.settings)
    pairs = [
        (name, recorded_settings.get(name, ""), actual_settings.get(name, ""))
        for name in sorted(recorded_settings.keys() | actual_settings.keys())
        if name in recorded_settings or not recorded.is_partial
    ]
    if recorded.response_format or not recorded.is_partial:
        pairs.append(("response_format", recorded.response_format, actual.response_format))
    for name, recorded_text, actual_text in pairs:
        if is_same_text(recorded_text, actual_text) or (recorded.is_partial and not actual_text):
            continue
        before, after = (restore(text) if text else None for text in (recorded_text, actual_text))
        summary = f"{name} is {actual_text or 'not set'} instead of {recorded_text or 'not set'}"
        yield Divergence("settings", shortened(summary), recorded=before, actual=after)


def _is_model(recorded: RequestKey, actual: RequestKey) -> bool:
    """Whether the model is the same; a trace may have its dated name, or the name of a provider."""
    if recorded.model == actual.model or not recorded.model:
        return True
    if not recorded.is_partial:
        return False
    before, after = (name.rpartition("/")[2] for name in (recorded.model, actual.model))
    return before.startswith(after) or after.startswith(before)
