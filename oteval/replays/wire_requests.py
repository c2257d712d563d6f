"""Comparison of whole HTTP requests to models, after the comparison of their meaning.

The method, the address, the headers and the body of a request are compared with the recorded ones.
`oteval.record.wire.request_headers`, `whole_bodies` and these lines list the parts that may differ:

- a port of this machine that the system chose (from 32768 on);
- user and password in the URL, and parameters of the query that are named like secrets;
- the order of the parameters of the query.

Patterns (``--normalize``) apply to the parts of the URL, to headers as ``name: value``, and to the
texts of the body.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from ..base.jsontext import dumps, loads
from ..base.patterns import Pattern
from ..base.redaction.secret_names import is_secret_parameter
from ..model import Exchange
from ..record import compared_headers, is_checksum, is_same_header
from .canonical_messages import without_variable_parts
from .redacted_text import is_same_text
from .request_differences import RequestDifference, shortened, suggestion_for
from .whole_bodies import first_difference

__all__ = ["WireRequest", "header_differences", "plain_address", "wire_differences"]

_USER = re.compile(r"(?<=://)[^/?#@]*@")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_FIRST_FREE_PORT = 32768
"""Systems choose free ports from here on: Linux from 32768, others from 49152."""


@dataclass(frozen=True)
class WireRequest:
    """An HTTP request to a model.

    Attributes:
        method: The method.
        url: The URL; path and query alone if it was sent to a replay's own endpoint.
        headers: The headers, with lower-case names.
        body: The body.
        has_all_headers: Whether `headers` has every header that is compared.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    has_all_headers: bool = True

    @classmethod
    def of_exchange(cls, exchange: Exchange) -> WireRequest:
        """The request of a recorded exchange."""
        return cls(
            exchange.method,
            exchange.url,
            exchange.request_headers,
            exchange.request_body,
            has_all_headers=exchange.has_all_headers,
        )

    @cached_property
    def json(self) -> Any:
        """The body as plain JSON; the text of one that is not JSON."""
        try:
            return loads(self.body)
        except ValueError:
            return self.body.decode("latin-1")


def wire_differences(
    recorded: WireRequest, actual: WireRequest, normalize: Sequence[Pattern] = ()
) -> Iterator[RequestDifference]:
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
    body_difference = first_difference(recorded.json, actual.json, normalize)
    if body_difference is not None:
        path = body_difference.path or "body"
        yield _difference(
            "prompt" if body_difference.is_in_messages else "settings",
            path,
            body_difference.recorded,
            body_difference.actual,
        )


def header_differences(
    recorded: WireRequest, actual: WireRequest, normalize: Sequence[Pattern] = ()
) -> Iterator[RequestDifference]:
    """Yield the headers in which an actual request differs from a recorded one.

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
    # Of a value that a pattern hides, the recording has no more than a checksum.
    return is_checksum(recorded) and after != f"{name}: {actual}"


class _AddressParts(NamedTuple):
    """The parts of a URL that are compared."""

    scheme: str
    host: str
    path: str
    query: dict[str, list[str]]


def _address_differences(
    recorded: WireRequest, actual: WireRequest, normalize: Sequence[Pattern]
) -> Iterator[RequestDifference]:
    if recorded.method.upper() != actual.method.upper():
        yield _difference("address", "method", recorded.method, actual.method)
    if recorded.url == actual.url:
        return
    before, after = _address(recorded.url), _address(actual.url)
    names = ("scheme", "host", "path") if after.host else ()
    pairs = [(name, getattr(before, name), getattr(after, name)) for name in names]
    for name in sorted(before.query.keys() | after.query.keys()):
        if not is_secret_parameter(name):
            values = [query.get(name) for query in (before.query, after.query)]
            recorded_value, actual_value = (
                None if value is None else ", ".join(value) for value in values
            )
            pairs.append((f"query parameter {name}", recorded_value, actual_value))
    for name, recorded_value, actual_value in pairs:
        texts = [
            None if value is None else without_variable_parts(value, normalize)
            for value in (recorded_value, actual_value)
        ]
        if texts[0] == texts[1] or (None not in texts and is_same_text(*map(str, texts))):
            continue
        yield _difference("address", name, recorded_value, actual_value)


def _address(url: str) -> _AddressParts:
    try:
        parts = urlsplit(plain_address(url))
        return _AddressParts(
            parts.scheme, parts.netloc, parts.path, parse_qs(parts.query, keep_blank_values=True)
        )
    except ValueError:
        return _AddressParts("", url, "", {})


def plain_address(url: str) -> str:
    """Strip a URL of its user, its fragment and a port that says nothing.

    Such a port is the default one, or one of this machine that the system chose.
    """
    url = _USER.sub("", url)
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:  # such as a host that was replaced by text in brackets
        return url
    is_chosen = port is not None and port >= _FIRST_FREE_PORT and _is_loopback(host)
    address = f"[{host}]" if ":" in host else host
    if port is not None and not is_chosen and port != _DEFAULT_PORTS.get(parts.scheme):
        address += f":{port}"
    return parts._replace(netloc=address, fragment="").geturl()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _difference(kind: Any, path: str, recorded: Any, actual: Any) -> RequestDifference:
    values = ("not set" if value is None else dumps(value) for value in (actual, recorded))
    texts = [value if isinstance(value, str) else dumps(value) for value in (recorded, actual)]
    summary = "{} is {} instead of {}".format(path, *values)
    return RequestDifference(
        kind, shortened(summary), path, None, recorded, actual, suggestion_for(*texts)
    )
