"""The first part in which the JSON bodies of two requests to a model differ.

Everything is compared: every field, the order of lists, roles and the form of content. These may
differ:

- the order of keys in JSON, also in texts that are JSON themselves, such as arguments;
- ``null`` in place of a missing field;
- ids of calls, results and items, ``previous_response_id`` and ``conversation``;
- the order of the results of tools, and their content: the comparison of messages, which comes
  before this one, covers both;
- a random ``prompt_cache_key`` that a library generates;
- text that was redacted, and matches of ``--normalize``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from ..base.jsontext import canonical, loads
from ..base.patterns import Pattern
from .canonical_messages import without_variable_parts
from .redacted_text import is_same_text

__all__ = ["ID_OPTIONS", "BodyDifference", "first_difference", "without_random_key"]

ID_OPTIONS = frozenset({"conversation", "previous_response_id"})
"""The options of a request that name state of the provider."""

_CALL_IDS = ("tool_call_id", "tool_use_id", "toolUseId", "call_id")
_IDS = frozenset({*_CALL_IDS, "id", "item_id", "toolCallId"})
_RESULT_IDS = frozenset({"tool_call_id", "tool_use_id"})
# Objects around a result, as Bedrock and Gemini write it.
_AROUND_RESULT = ("toolResult", "functionResponse", "function_response")
_RESULT_CONTENT = frozenset({"content", "output", "response"})
_MESSAGES = frozenset({"contents", "input", "instructions", "messages", "system"})
# OpenAI's Agents SDK sends `agents-sdk:run:` and the random id of the run.
_RANDOM_KEY = re.compile(
    r"(?<![0-9A-Za-z])(?:[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"
    r"(?![0-9A-Za-z])"
)


class BodyDifference(NamedTuple):
    """A difference of two bodies.

    Attributes:
        path: The part that differs, such as ``messages[1].role``.
        recorded: The recorded value; None if there is none.
        actual: The actual value; None if there is none.
    """

    path: str
    recorded: Any
    actual: Any

    @property
    def is_in_messages(self) -> bool:
        """Whether the part belongs to the messages."""
        return _is_in_messages(self.path)


def without_random_key(value: str) -> str:
    """A ``prompt_cache_key`` without the random id in it."""
    return _RANDOM_KEY.sub("*", value)


def first_difference(
    recorded: Any, actual: Any, normalize: Sequence[Pattern] = ()
) -> BodyDifference | None:
    """The first difference of two bodies, or None.

    Args:
        recorded: The recorded body as plain JSON.
        actual: The actual body as plain JSON.
        normalize: Patterns of texts that do not count.
    """
    if recorded == actual:
        return None
    order = _CallOrder(recorded), _CallOrder(actual)
    return next(_Comparison(order, normalize).differences(recorded, actual, ""), None)


class _CallOrder:
    """Finds the place of each call by its id, so that results are compared with their equals."""

    def __init__(self, body: Any) -> None:
        self._places: dict[str, int] = {}
        for call_id in _call_ids(body):
            self._places.setdefault(call_id, len(self._places))

    def sorted(self, results: Iterable[Any]) -> list[Any]:
        """Sort results into the order of their calls."""
        return sorted(results, key=self._key)

    def _key(self, result: Mapping[str, Any]) -> tuple[int, str]:
        inner = _result(result) or {}
        call_id = next((inner[name] for name in _CALL_IDS if name in inner), inner.get("id"))
        return self._places.get(str(call_id), len(self._places)), str(inner.get("name") or "")


class _Comparison:
    def __init__(self, order: tuple[_CallOrder, _CallOrder], normalize: Sequence[Pattern]) -> None:
        self._recorded_order, self._actual_order = order
        self._normalize = normalize

    def differences(self, recorded: Any, actual: Any, path: str) -> Iterator[BodyDifference]:
        if recorded == actual or self._is_same(recorded, actual):
            return
        if isinstance(recorded, dict) and isinstance(actual, dict):
            yield from self._of_fields(recorded, actual, path)
        elif isinstance(recorded, list) and isinstance(actual, list):
            yield from self._of_items(recorded, actual, path)
        else:
            yield BodyDifference(path, recorded, actual)

    def _of_fields(
        self, recorded: dict[str, Any], actual: dict[str, Any], path: str
    ) -> Iterator[BodyDifference]:
        ignored = _RESULT_CONTENT if _is_bare_result(recorded) else frozenset()
        for name in dict.fromkeys((*recorded, *actual)):
            value, actual_value = recorded.get(name), actual.get(name)
            is_id = isinstance(value, str) and isinstance(actual_value, str) and name in _IDS
            is_id = is_id and _is_in_messages(path)
            if name in ignored or is_id or (not path and name in ID_OPTIONS):
                continue
            if not path and name == "prompt_cache_key":
                value, actual_value = (
                    without_random_key(text) if isinstance(text, str) else text
                    for text in (value, actual_value)
                )
            inside = f"{path}.{name}" if path else name
            if (
                name in _AROUND_RESULT
                and isinstance(value, dict)
                and isinstance(actual_value, dict)
            ):
                value, actual_value = _without_content(value), _without_content(actual_value)
            yield from self.differences(value, actual_value, inside)

    def _of_items(
        self, recorded: list[Any], actual: list[Any], path: str
    ) -> Iterator[BodyDifference]:
        if len(recorded) != len(actual):
            yield BodyDifference(path, recorded, actual)
            return
        ordered = _ordered(recorded, self._recorded_order)
        pairs = zip(ordered, _ordered(actual, self._actual_order), strict=True)
        for index, (item, actual_item) in enumerate(pairs):
            yield from self.differences(item, actual_item, f"{path}[{index}]")

    def _is_same(self, recorded: Any, actual: Any) -> bool:
        """Whether values are equal without variable parts, or as the JSON that they are."""
        if isinstance(recorded, (dict, list)):
            if not self._normalize or type(recorded) is not type(actual):
                return False
            return self._text(canonical(recorded)) == self._text(canonical(actual))
        if recorded is None or actual is None:
            return recorded is actual
        if isinstance(recorded, str) and isinstance(actual, str):
            if is_same_text(self._text(recorded), self._text(actual)):
                return True
            before, after = _parsed(recorded), _parsed(actual)
            return before is not None and after is not None and self._is_same_json(before, after)
        return self._is_same_json(recorded, actual)

    def _is_same_json(self, recorded: Any, actual: Any) -> bool:
        before, after = canonical(recorded), canonical(actual)
        return is_same_text(self._text(before), self._text(after))

    def _text(self, text: str) -> str:
        return without_variable_parts(text, self._normalize) if self._normalize else text


def _is_in_messages(path: str) -> bool:
    return re.split(r"[.\[]", path, maxsplit=1)[0] in _MESSAGES


def _ordered(items: list[Any], order: _CallOrder) -> Iterator[Any]:
    """Yield the items of a list; results that follow each other are in the order of their calls."""
    for is_result, group in groupby(items, lambda item: _result(item) is not None):
        run = list(group)
        yield from order.sorted(run) if is_result else run


def _result(item: Any) -> Mapping[str, Any] | None:
    """The fields of a tool's result, or None for anything else."""
    if not isinstance(item, dict):
        return None
    inner = next((item[name] for name in _AROUND_RESULT if isinstance(item.get(name), dict)), None)
    if inner is not None:
        return dict(inner)
    return item if _is_bare_result(item) else None


def _is_bare_result(item: Mapping[str, Any]) -> bool:
    is_output = str(item.get("type")).endswith("_output") and "call_id" in item
    return is_output or not _RESULT_IDS.isdisjoint(item)


def _without_content(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name not in _RESULT_CONTENT}


def _call_ids(value: Any) -> Iterator[str]:
    """Yield the ids of the calls in a body, in their order."""
    if isinstance(value, dict):
        if _result(value) is not None:
            return
        for name, inner in value.items():
            if name in _IDS and isinstance(inner, str):
                yield inner
            elif isinstance(inner, (dict, list)):
                yield from _call_ids(inner)
    elif isinstance(value, list):
        for item in value:
            yield from _call_ids(item)


def _parsed(text: str) -> Any:
    """The JSON object or list that a text is, or None."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return loads(text)
    except ValueError:
        return None
