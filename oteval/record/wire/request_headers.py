"""The headers of a request that a recording keeps, and that a replay compares.

A recording stores the name of every header that the agent set. It stores the value if the header is
known to be harmless. Otherwise it stores a short checksum, which shows whether a later value is the
same without revealing the secret. Some kinds of headers do not change the meaning of a request,
vary from run to run, or are missing where a replay has no keys. These kinds are not compared:

- of the transport: ``host`` (the URL has it), ``content-length``, ``accept-encoding``,
  ``connection``, ``user-agent``, ``date`` and the like; ``sec-*`` and ``x-forwarded-*``;
- of the client library: ``x-stainless-*``, ``x-goog-api-client``, ``amz-sdk-*``, ``x-fern-*``;
- ids of one request, and traces: ``idempotency-key``, ``x-request-id``, ``traceparent``,
  ``tracestate``, ``baggage``, ``b3``, ``x-datadog-*``, ``sentry-trace`` and the like;
- credentials, sessions, cookies and signatures: ``authorization``, ``x-api-key``, ``x-amz-date``;
- conditions of a cache: ``if-none-match``, ``if-modified-since``.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Mapping

from ...base.redaction.secret_names import is_safe_header, is_secret_header, names_in
from ...base.redaction.secrets import SecretRedactor

__all__ = ["compared_headers", "is_checksum", "is_same_header", "recorded_headers"]

_VARYING = names_in("""
    accept-encoding age b3 baggage connection content-encoding content-length date dnt expect
    forwarded grpc-trace-bin host if-modified-since if-none-match keep-alive newrelic priority
    request-context te traceparent tracestate trailer transfer-encoding upgrade
    upgrade-insecure-requests user-agent via x-amz-content-sha256 x-amz-date x-cloud-trace-context
    x-goog-api-client x-ms-date
""")
_VARYING_START = (
    *("amz-sdk-", "proxy-", "sec-", "x-b3-", "x-datadog-", "x-fern-", "x-forwarded-"),
    "x-stainless-",
)
_VARYING_END = (
    *("correlation-id", "idempotency-key", "invocation-id", "request-id", "span-id", "trace-id"),
    *("sentry-trace", "traceparent", "tracestate"),
)
_CHECKSUMS = re.compile(r"\[sha256:[0-9a-f]{6}\](?:, \[sha256:[0-9a-f]{6}\])*")
_REDACTED = "[redacted]"
# A body of several parts is divided by a random text.
_BOUNDARY = re.compile(r";\s*boundary=[^;]*", re.IGNORECASE)


def recorded_headers(
    headers: Iterable[tuple[str, str]], redactor: SecretRedactor
) -> dict[str, str]:
    """The headers of a request as they are recorded, by lower-case names.

    Args:
        headers: The headers; they may be from a recording.
        redactor: Removes the secrets in the values of harmless headers.
    """
    pairs = [(name.lower(), value) for name, value in headers]
    recorded = redactor.headers(pairs)
    for name, value in pairs:
        if not is_safe_header(name) and _is_compared(name):
            digest = _checksum(value, redactor)
            recorded[name] = f"{recorded[name]}, {digest}" if name in recorded else digest
    return recorded


def compared_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that a replay compares, without the boundary of a multipart body."""
    return {
        name: _BOUNDARY.sub("", value) if name == "content-type" else value
        for name, value in headers.items()
        if _is_compared(name)
    }


def is_checksum(value: str) -> bool:
    """Whether a recording has only the checksum of a value, or of several."""
    return _CHECKSUMS.fullmatch(value) is not None


def is_same_header(recorded: str, actual: str) -> bool:
    """Whether an actual value is the recorded value, or has the recorded checksum."""
    if not is_checksum(recorded):
        return recorded == actual
    return recorded in (_digest(actual), ", ".join(map(_digest, actual.split(", "))))


@functools.lru_cache(1024)
def _is_compared(name: str) -> bool:
    is_varying = name in _VARYING or name.startswith(_VARYING_START) or name.endswith(_VARYING_END)
    return not is_varying and not is_secret_header(name)


def _checksum(value: str, redactor: SecretRedactor) -> str:
    """The checksum of a value; checksums stay, and a value with a secret is redacted."""
    if is_checksum(value) or _REDACTED in value:
        return value
    clean = redactor.text(value)
    return _digest(value) if clean == value else _REDACTED


@functools.lru_cache(1024)
def _digest(value: str) -> str:
    return f"[sha256:{hashlib.sha256(value.encode('utf-8', 'replace')).hexdigest()[:6]}]"
