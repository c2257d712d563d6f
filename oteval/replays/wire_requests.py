"""Comparison of whole HTTP requests to models, after the comparison of their meaning.

The method, the address, the headers and the body of a request are compared with the recording.
Everything is compared: every field, the order of lists, roles and the form of content.
`oteval.record.wire.request_headers` and these lines list the parts that may differ:

- a port of this machine that the system chose (from 32768 on);
- user and password in the URL, and parameters of the query that have names of secrets;
- the order of the parameters of the query;
- the order of keys in JSON, also in texts that are JSON themselves, such as arguments;
- ``null`` in place of a missing field;
- ids of calls, results and items, ``previous_response_id`` and ``conversation``;
- the order of the results of tools, and their content: the earlier comparison of messages covers
  both;
- a random ``prompt_cache_key`` that a library generates;
- text that was redacted.

Patterns (``--normalize``) apply to the parts of the URL, to headers as ``name: value``, and to the
texts of the body.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from itertools import groupby
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ..base.jsontext import canonical, dumps, loads
from ..base.patterns import Pattern
from ..base.redaction.secret_names import is_secret_parameter
from ..record import compared_headers, is_checksum, is_same_header
from .address_list import DEFAULT_PORTS
from .divergence import Divergence, DivergenceKind
from .http_answers import HttpRequest
from .text_comparison import is_same_text, suggest_normalization, without_variable_parts

__all__ = [
    "ID_OPTIONS",
    "header_differences",
    "plain_address",
    "shortened",
    "suggestion_for",
    "wire_differences",
    "without_random_key",
]


def shortened(summary: str) -> str:
    """Shorten a summary to one line."""
    return summary if len(summary) <= 200 else f"{summary[:199]}…"


def suggestion_for(recorded: str | None, actual: str | None) -> str:
    """The option that allows the difference of two texts, or ""."""
    pattern = suggest_normalization(recorded or "", actual or "")
    return f"--normalize '{pattern}' allows this difference" if pattern else ""


_USER = re.compile(r"(?<=://)[^/?#@]*@")
_PLACE = ("scheme", "host", "path")
_BodyDifference = tuple[str, Any, Any]
"""A path such as ``messages[1].role``, with the recorded and the actual value."""
_FIRST_FREE_PORT = 32768
"""Systems choose free ports from here on: Linux from 32768, others from 49152."""


def wire_differences(
    recorded: HttpRequest, actual: HttpRequest, normalize: Sequence[Pattern] = ()
) -> Iterator[Divergence]:
    """Yield the differences of an actual request from a recorded one.

    Args:
        recorded: The recorded request.
        actual: The actual request.
        normalize: Patterns of texts that do not count.
    """
    yield from _address_differences(recorded, actual, normalize)
    yield from header_differences(recorded, actual, normalize)
    if recorded.body == actual.body:
        return
    body_difference = _first_difference(recorded.json, actual.json, normalize)
    if body_difference is not None:
        path, *values = body_difference
        yield _difference(
            "prompt" if _is_in_messages(path) else "settings", path or "body", *values
        )


def header_differences(
    recorded: HttpRequest, actual: HttpRequest, normalize: Sequence[Pattern] = ()
) -> Iterator[Divergence]:
    """Yield the headers that differ between an actual request and a recorded one.

    Args:
        recorded: The recorded request.
        actual: The actual request.
        normalize: Patterns of headers as ``name: value`` that do not count.
    """
    before, after = compared_headers(recorded.headers), compared_headers(actual.headers)
    names = before.keys() | after.keys() if recorded.has_all_headers else before.keys()
    for name in sorted(names):
        before_value, after_value = before.get(name), after.get(name)
        if not _is_same_value(name, before_value, after_value, normalize):
            yield _difference("header", f"header {name}", before_value, after_value)


def _is_same_value(
    name: str, recorded: str | None, actual: str | None, normalize: Sequence[Pattern]
) -> bool:
    before, after = (
        None if value is None else without_variable_parts(f"{name}: {value}", normalize)
        for value in (recorded, actual)
    )
    if recorded is None or actual is None or before is None or after is None:
        return after is not None and after != f"{name}: {actual}"
    if is_same_header(recorded, actual) or is_same_text(before, after):
        return True
    # If a pattern hides a value, the recording has only a checksum of the value.
    return is_checksum(recorded) and after != f"{name}: {actual}"


def _address_differences(
    recorded: HttpRequest, actual: HttpRequest, normalize: Sequence[Pattern]
) -> Iterator[Divergence]:
    if recorded.method.upper() != actual.method.upper():
        yield _difference("address", "method", recorded.method, actual.method)
    if recorded.url == actual.url:
        return
    before, after = _address_parts(recorded.url), _address_parts(actual.url)
    parameters = sorted((before.keys() | after.keys()) - set(_PLACE))
    for name in (*(_PLACE if after["host"] else ()), *parameters):
        texts = [
            None if (text := parts.get(name)) is None else without_variable_parts(text, normalize)
            for parts in (before, after)
        ]
        if texts[0] == texts[1] or (None not in texts and is_same_text(*map(str, texts))):
            continue
        yield _difference("address", name, before.get(name), after.get(name))


def _address_parts(url: str) -> dict[str, str]:
    """The parts of a URL that are compared, by their names for people."""
    try:
        parts = urlsplit(plain_address(url))
        query = parse_qs(parts.query, keep_blank_values=True)
    except ValueError:
        return dict(zip(_PLACE, ("", url, ""), strict=True))
    return dict(zip(_PLACE, (parts.scheme, parts.netloc, parts.path), strict=True)) | {
        f"query parameter {name}": ", ".join(values)
        for name, values in query.items()
        if not is_secret_parameter(name)
    }


def plain_address(url: str) -> str:
    """Remove the user, the fragment and an insignificant port from a URL.

    Such a port is the default port, or a port of this machine that the system chose.
    """
    url = _USER.sub("", url)
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:  # such as a host that is text in brackets now
        return url
    is_chosen = port is not None and port >= _FIRST_FREE_PORT and _is_loopback(host)
    address = f"[{host}]" if ":" in host else host
    if port is not None and not is_chosen and port != DEFAULT_PORTS.get(parts.scheme):
        address += f":{port}"
    return parts._replace(netloc=address, fragment="").geturl()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _difference(kind: DivergenceKind, part: str, recorded: Any, actual: Any) -> Divergence:
    values = ("not set" if value is None else dumps(value) for value in (actual, recorded))
    texts = [value if isinstance(value, str) else dumps(value) for value in (recorded, actual)]
    summary = "{} is {} instead of {}".format(part, *values)
    hint = suggestion_for(*texts)
    return Divergence(kind, shortened(summary), recorded=recorded, actual=actual, suggestion=hint)


ID_OPTIONS = frozenset({"conversation", "previous_response_id"})
"""The options of a request that name state of the provider."""

_CALL_IDS = ("tool_call_id", "tool_use_id", "toolUseId", "call_id")
_IDS = frozenset({*_CALL_IDS, "id", "item_id", "toolCallId"})
_RESULT_IDS = frozenset({"tool_call_id", "tool_use_id"})
# Objects that contain a result in requests to Bedrock and Gemini.
_AROUND_RESULT = ("toolResult", "functionResponse", "function_response")
_RESULT_CONTENT = frozenset({"content", "output", "response"})
_MESSAGES = frozenset({"contents", "input", "instructions", "messages", "system"})
# OpenAI's Agents SDK sends `agents-sdk:run:` and the random id of the run.
_RANDOM_KEY = re.compile(
    r"(?<![0-9A-Za-z])(?:[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"
    r"(?![0-9A-Za-z])"
)


def without_random_key(value: str) -> str:
    """A ``prompt_cache_key`` without the random id in it."""
    return _RANDOM_KEY.sub("*", value)


def _first_difference(
    recorded: Any, actual: Any, normalize: Sequence[Pattern] = ()
) -> _BodyDifference | None:
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
    """Finds the place of each call by its id, so that results of the same call are compared."""

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

    def differences(self, recorded: Any, actual: Any, path: str) -> Iterator[_BodyDifference]:
        if recorded == actual or self._is_same(recorded, actual):
            return
        if isinstance(recorded, dict) and isinstance(actual, dict):
            yield from self._of_fields(recorded, actual, path)
        elif isinstance(recorded, list) and isinstance(actual, list):
            yield from self._of_items(recorded, actual, path)
        else:
            yield path, recorded, actual

    def _of_fields(
        self, recorded: dict[str, Any], actual: dict[str, Any], path: str
    ) -> Iterator[_BodyDifference]:
        ignored = _RESULT_CONTENT if _is_bare_result(recorded) else frozenset()
        for name in dict.fromkeys((*recorded, *actual)):
            before, after = recorded.get(name), actual.get(name)
            is_id = isinstance(before, str) and isinstance(after, str) and name in _IDS
            is_id = is_id and _is_in_messages(path)
            if name in ignored or is_id or (not path and name in ID_OPTIONS):
                continue
            if not path and name == "prompt_cache_key":
                before, after = (
                    without_random_key(text) if isinstance(text, str) else text
                    for text in (before, after)
                )
            inside = f"{path}.{name}" if path else name
            if name in _AROUND_RESULT and isinstance(before, dict) and isinstance(after, dict):
                before, after = _without_content(before), _without_content(after)
            yield from self.differences(before, after, inside)

    def _of_items(
        self, recorded: list[Any], actual: list[Any], path: str
    ) -> Iterator[_BodyDifference]:
        if len(recorded) != len(actual):
            yield path, recorded, actual
            return
        ordered = _ordered(recorded, self._recorded_order)
        pairs = zip(ordered, _ordered(actual, self._actual_order), strict=True)
        for index, (item, actual_item) in enumerate(pairs):
            yield from self.differences(item, actual_item, f"{path}[{index}]")

    def _is_same(self, recorded: Any, actual: Any) -> bool:
        """Whether values are equal without variable parts, or as parsed JSON."""
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
    """Yield the items of a list; adjacent results are in the order of their calls."""
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
    """The JSON object or list in a text, or None."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return loads(text)
    except ValueError:
        return None
