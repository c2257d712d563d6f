"""Names of secrets: keys of JSON objects, query parameters, headers and environment variables.

A name is split into words, so that ``OPENAI_API_KEY``, ``apiKey`` and ``x-api-key`` are alike, and
is judged by its last words: ``password_hint`` and ``max_tokens`` name no secrets.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from urllib.parse import unquote

__all__ = [
    "KEY_ENDS",
    "KEY_KINDS",
    "PARAMETER_ENDS",
    "SAFE_HEADERS",
    "environment_secrets",
    "is_safe_header",
    "is_secret_header",
    "is_secret_parameter",
    "is_secret_value",
    "names_in",
    "secret_kind",
]


def names_in(text: str) -> frozenset[str]:
    """Return the words of a text, as a set of names."""
    return frozenset(text.split())


SAFE_HEADERS = names_in("""
    accept anthropic-beta anthropic-version cache-control content-disposition content-encoding
    content-language content-location content-type date etag last-modified link location
    mcp-protocol-version openai-beta openai-model openai-processing-ms openai-version
    operation-location request-id retry-after retry-after-ms server user-agent vary x-request-id
    x-should-retry
""")
"""The headers that a recording keeps, besides those about rate limits."""

_LIMIT_HEADER = re.compile(r"(?:x|anthropic)-ratelimit-[a-z-]+")
_CAMEL = re.compile(r"([a-z0-9])([A-Z])")
_NOT_WORD = re.compile(r"[^a-z0-9]+")

_SECRET_WORDS = names_in("""
    password passwords passwd passphrase passcode pwd secret secrets credential credentials
    apikey apikeys authtoken accesstoken accesskey privatekey secretkey authorization jwt
""")
KEY_KINDS = names_in("""
    access account admin api app auth encryption function license master private secret service
    shared signing storage subscription
""")
_TOKEN_WORDS = frozenset({"token", "auth", "bearer"})
# Words before "token" by which it is a piece of text, a count or a place in a list.
_PLAIN_TOKENS = names_in("""
    accepted audio average bos bytes cached cancellation cls completion continuation cost count
    current decode end eos first image input last mask max min next num output page pad per
    prediction prefill previous price prompt reasoning redaction rejected rest sampled sep
    special start stop sync text thinking time to total unk usage
""")
KEY_ENDS = frozenset({*_SECRET_WORDS, *_TOKEN_WORDS, "key", "keys", "cookie", "cookies", "string"})
"""The last words of all names for which `secret_kind` returns a kind."""

_PARAMETER_WORDS = names_in("""
    assertion auth code cookie credential credentials hmac jwt key keys otp pass pin session
    sessionid sid sig sign signature state ticket token tokens
""")
PARAMETER_ENDS = KEY_ENDS | _PARAMETER_WORDS
"""The last words of all names of parameters that name secrets."""

_HEADER_WORDS = _PARAMETER_WORDS | _SECRET_WORDS | {"cookie2", "csrf", "xsrf"}
_PLAIN_VALUES = names_in("""
    false include none null omit optional required same-origin string true undefined
""")
# A word, perhaps with punctuation, such as the pieces of an answer.
_WORD = re.compile(r"\s*[A-Za-z]{0,24}[^A-Za-z0-9]{0,8}")
_COUNT = re.compile(r"[0-9]{1,9}")

_ENVIRONMENT_WORD = re.compile(
    r"(?:[A-Z0-9]*(?:API|AUTH|ACCESS|SECRET|PRIVATE|SIGNING))?"
    r"(?:KEY|KEYS|TOKEN|TOKENS)|[A-Z0-9]*(?:SECRET|SECRETS|PASSWORD|PASSWORDS|PASSWD|PASS|PWD)"
)
_ENVIRONMENT_ENDS = names_in("""
    COUNT DIR FILE LENGTH LIMIT NAME PATH TYPE
""")
_SHORTEST_LITERAL = 8
_USERINFO = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")


@functools.lru_cache(8192)
def secret_kind(name: str) -> str:
    """Return the kind of secret that a key of a JSON object names, or "".

    The kinds are ``secret``, ``token``, ``bare token`` and ``cookie``: see `is_secret_value`.
    """
    words = _words(name)
    if not words:
        return ""
    last = words[-1]
    if last in _SECRET_WORDS or words[-2:] == ("connection", "string"):
        return "secret"
    if last in ("key", "keys"):
        return "secret" if len(words) > 1 and words[-2] in KEY_KINDS else ""
    if last in _TOKEN_WORDS:
        if len(words) == 1:
            return "bare token"
        return "" if words[-2] in _PLAIN_TOKENS else "token"
    return "cookie" if last in ("cookie", "cookies") else ""


def is_secret_value(kind: str, value: str) -> bool:
    """Return whether the text under a key of a kind is a secret.

    The key ``token`` alone also names pieces of text: words and short texts are not secrets there.
    """
    if not kind or value.lower() in _PLAIN_VALUES or not value:
        return False
    if kind == "cookie":
        return "=" in value
    if kind == "secret":
        return True
    if _COUNT.fullmatch(value):
        return False
    return kind == "token" or (len(value) > 5 and not _WORD.fullmatch(value))


@functools.lru_cache(1024)
def is_secret_parameter(name: str) -> bool:
    """Return whether a parameter of a query or form is named like a secret."""
    words = _words(unquote(name))
    return bool(secret_kind(unquote(name))) or not _PARAMETER_WORDS.isdisjoint(words[-1:])


@functools.lru_cache(1024)
def is_secret_header(name: str) -> bool:
    """Return whether a header's value is a secret, to be removed wherever it recurs."""
    name = name.lower()
    if name in SAFE_HEADERS or _LIMIT_HEADER.fullmatch(name) or name == "idempotency-key":
        return False
    return not _HEADER_WORDS.isdisjoint(_words(name))


def is_safe_header(name: str) -> bool:
    """Return whether a recording keeps a header."""
    name = name.lower()
    return name in SAFE_HEADERS or _LIMIT_HEADER.fullmatch(name) is not None


def environment_secrets(environment: Mapping[str, str]) -> frozenset[str]:
    """Return the values of variables that are named like secrets, and passwords in URLs."""
    found = set()
    for name, value in environment.items():
        words = name.upper().split("_")
        if words[-1] not in _ENVIRONMENT_ENDS and any(map(_ENVIRONMENT_WORD.fullmatch, words)):
            found.add(value.strip())
        found.update(_USERINFO.findall(value))
    return frozenset(each for each in found if len(each) >= _SHORTEST_LITERAL)


@functools.lru_cache(4096)
def _words(name: str) -> tuple[str, ...]:
    lowered = _CAMEL.sub(r"\1_\2", name).lower()
    return tuple(word for word in _NOT_WORD.split(lowered) if word)
