"""Redaction of HTTP exchanges: a recording must never contain a secret.

- **Headers** are kept by an allow-list of names.
- **URLs** lose the user and password. Values in the query are kept if the name is known to be
  harmless, or if the value consists of words and numbers and the name names no secret.
- **Bodies and other texts** lose the values that JSON, forms, XML, assignments and options of
  commands name as secrets, texts with the form of a key or token, and every literal secret: the
  values of the request's own secret headers, and of environment variables that are named like
  secrets. This also works across the pieces of a stream, and between the deltas of its events.

Everything else is kept byte for byte. The same input always gives the same output, so a redacted
request equals its redacted recording.
"""

from __future__ import annotations

import base64
import binascii
import copy
import functools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from ..patterns import Pattern
from .command_secrets import COMMAND_SECRET, command_spans
from .form_secrets import encoded_edits, multipart_secrets
from .json_secrets import SECRET_KEY_END, SECRET_PARAMETER, named_spans, parameter_spans
from .known_secrets import is_credential_header
from .rules import RedactionRule, key_pattern
from .secret_names import (
    environment_secrets,
    is_safe_header,
    is_secret_header,
    is_secret_parameter,
    names_in,
)
from .secret_patterns import ANY_FORM, SecretSearch, form_spans, occurrences
from .stream_deltas import delta_edits
from .text import TextRedactor
from .text_edits import Edit, edited, edited_pieces, merged
from .text_secrets import TEXT_SECRET, text_spans

__all__ = ["PLACEHOLDER", "SecretRedactor", "credentials", "request_secrets", "response_secrets"]

PLACEHOLDER = "[redacted]"
"""The text in place of a secret."""

_SHORTEST_LITERAL = 8
_SAFE_PARAMETERS = names_in("""
    alt api-version api_version beta deployment fields format include lang language limit locale
    model offset order page page_size per_page sort stream timeout units v version
""")
# Words and numbers: a value without any longer mixture of letters and digits.
_HARMLESS = re.compile(r"(?:(?:[^\W\d_]{1,24}|\d{1,12})(?:[\W_]+|$))*")
_LONGEST_HARMLESS = 200
_LONGEST_REMEMBERED = 300
_MAX_REMEMBERED = 256
_URL_HEADERS = frozenset(("content-location", "link", "location", "operation-location"))
_AUTHORITY = re.compile(r"(?<=://)[^/?#@]*@")
# One search in place of one for each way in which a secret is recognised; most texts lack all.
_SUSPECT = "|".join((ANY_FORM, SECRET_KEY_END, SECRET_PARAMETER, TEXT_SECRET, COMMAND_SECRET))
_PLAIN_TYPE = re.compile(
    r"text/(?!csv|css|event-stream|html|javascript|markdown|xml)|[^;]*(?:yaml|toml|properties)",
    re.IGNORECASE,
)


class SecretRedactor:
    """Removes secrets from the parts of HTTP exchanges."""

    def __init__(
        self,
        rules: Iterable[RedactionRule] = (),
        *,
        environment: Mapping[str, str] | None = None,
        literals: Iterable[str] = (),
    ) -> None:
        """Set the rules and the known secrets.

        Args:
            rules: More rules: keys of JSON objects whose values are replaced, and patterns.
            environment: The environment whose secrets are replaced; None for the process's.
            literals: Secrets to replace wherever they occur.

        Raises:
            PatternError: A pattern of a rule is invalid.
        """
        self._rules = tuple(rules)
        self._globs = [
            (key_pattern(key), rule.replace) for rule in self._rules for key in rule.keys
        ]
        self._patterns = [
            (Pattern(rule.pattern), rule.replace)
            for rule in self._rules
            if rule.pattern is not None
        ]
        self._text = TextRedactor(self._patterns)
        known = environment_secrets(os.environ if environment is None else environment)
        self._known = known.union(literals)
        self._search = SecretSearch(_all_forms(self._known))
        self._literals: tuple[str, ...] = ()
        # Most requests of an agent have the same secrets as the one before.
        self._last: tuple[frozenset[str], SecretRedactor] | None = None
        self._remember()

    def with_secrets(self, secrets: Iterable[str]) -> SecretRedactor:
        """Return a redactor that also replaces the literal secrets of a request.

        Args:
            secrets: The secrets, see `request_secrets`.
        """
        more = frozenset(secrets) - self._known
        if not more:
            return self
        last = self._last
        if last is not None and last[0] == more:
            return last[1]
        made = copy.copy(self)
        made._last = None
        made._remember()
        made._literals = tuple(sorted({*self._literals, *_all_forms(more)}))
        self._last = more, made
        return made

    def headers(self, headers: Iterable[tuple[str, str]]) -> dict[str, str]:
        """Return the headers that may be kept, by lower-case names."""
        out: dict[str, str] = {}
        for name, value in headers:
            key = name.lower()
            if is_safe_header(key):
                value = self.url(value) if key in _URL_HEADERS else self.text(value)
                out[key] = f"{out[key]}, {value}" if key in out else value
        return out

    def url(self, url: str) -> str:
        """Return a URL without its user, password, and secret values of the query."""
        return self._clean_urls(url) if len(url) <= _LONGEST_REMEMBERED else self._url(url)

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        return (
            self._clean_texts(text) if len(text) <= _LONGEST_REMEMBERED else self._clean_text(text)
        )

    def _remember(self) -> None:
        """Remember short texts: most exchanges have the headers and the URL of the one before."""
        self._clean_urls = functools.lru_cache(_MAX_REMEMBERED)(self._url)
        self._clean_texts = functools.lru_cache(_MAX_REMEMBERED)(self._clean_text)

    def _url(self, url: str) -> str:
        url = _AUTHORITY.sub(f"{PLACEHOLDER}@", url)
        address, hash_, fragment = url.partition("#")
        address, mark, query = address.partition("?")
        if mark:
            query = "&".join(map(self._parameter, query.split("&")))
        if "=" in fragment:
            path, question, pairs = fragment.rpartition("?")
            fragment = path + question + "&".join(map(self._parameter, pairs.split("&")))
        return self.text(f"{address}{mark}{query}{hash_}{fragment}")

    def _clean_text(self, text: str) -> str:
        return self._ruled(edited(text, self._edits(text)))

    def body(self, data: bytes, content_type: str = "") -> bytes:
        """Return a body without secrets.

        Args:
            data: The body, without content encoding.
            content_type: Its ``Content-Type``.
        """
        return self.pieces((data,), content_type)[0]

    def body_secrets(self, data: bytes, content_type: str = "") -> frozenset[str]:
        """Return the values in a body whose names say that they are secrets.

        A response may repeat the secrets of its request under other names.

        Args:
            data: The body, without content encoding.
            content_type: Its ``Content-Type``.
        """
        text = data.decode("utf-8", "replace")
        is_form = "urlencoded" in content_type
        found = {text[start:end] for start, end, _ in named_spans(text)}
        spans = [*parameter_spans(text, is_form=is_form)]
        spans += text_spans(text, is_plain=_is_plain(content_type))
        if "multipart/" in content_type:
            spans += multipart_secrets(text, content_type, _is_harmless)
        found.update(text[start:end] for start, end in spans)
        if is_form:
            found.update(map(unquote_plus, tuple(found)))
        return frozenset(each for each in found if len(each) >= _SHORTEST_LITERAL)

    def pieces(self, pieces: Sequence[bytes], content_type: str = "") -> list[bytes]:
        """Return the pieces of a body without secrets, also those that cross their borders.

        Args:
            pieces: The pieces, without content encoding.
            content_type: The body's ``Content-Type``.
        """
        data = b"".join(pieces)
        try:
            encoding = "utf-8"
            text = data.decode()
        except UnicodeDecodeError:
            encoding = "latin-1"
            text = data.decode("latin-1")
        is_form = "urlencoded" in content_type
        edits = list(self._edits(text, is_form=is_form, is_plain=_is_plain(content_type)))
        if is_form:
            edits += encoded_edits(text, self.text)
        if "multipart/" in content_type:
            spans = multipart_secrets(text, content_type, _is_harmless)
            edits += [Edit(start, end, PLACEHOLDER) for start, end in spans]
        if _is_stream(text, content_type):
            edits += delta_edits(text, self._delta_edits)
        out = edited_pieces(text, merged(edits), pieces, encoding) if edits else list(pieces)
        return self._ruled_pieces(out) if self._text else out

    def _parameter(self, pair: str) -> str:
        """Return a pair of a query, its value replaced unless it is harmless."""
        name, equals, value = pair.partition("=")
        plain = unquote_plus(value)
        if not value or plain == PLACEHOLDER:
            return pair if not value else f"{name}={PLACEHOLDER}"
        if unquote(name).lower() in _SAFE_PARAMETERS:
            return pair
        if _is_harmless(plain) and not is_secret_parameter(name):
            return pair
        return f"{name}{equals}{PLACEHOLDER}"

    def has_secrets(self, text: str) -> bool:
        """Return whether a text may have secrets: if not, `text` returns it as it is."""
        return bool(
            self._globs
            or self._text
            or _suspect().search(text)
            or self._search.is_in(text)
            or any(literal in text for literal in self._literals)
        )

    def _edits(self, text: str, *, is_form: bool = False, is_plain: bool = False) -> list[Edit]:
        """Return the edits that remove the secrets from a text, merged."""
        edits: list[Edit] = []
        spans = [*self._search.spans(text)]
        for literal in self._literals:
            spans += occurrences(text, literal)
        if is_form or _suspect().search(text):
            spans += parameter_spans(text, is_form=is_form)
            edits += [
                Edit(start, end, f"{quotes}{PLACEHOLDER}{quotes}")
                for start, end, quotes in named_spans(text)
            ]
            spans += form_spans(text)
            spans += text_spans(text, is_plain=is_plain)
            spans += command_spans(text)
        edits += [Edit(start, end, PLACEHOLDER) for start, end in spans]
        if self._globs:
            edits += self._glob_edits(text)
        return merged(edits) if edits else []

    def _delta_edits(self, text: str) -> list[Edit]:
        edits = self._edits(text)
        for pattern, replacement in self._patterns:
            edits += [Edit(start, end, replacement) for start, end in pattern.spans(text)]
        return merged(edits)

    def _glob_edits(self, text: str) -> Iterator[Edit]:
        """Yield the edits of the values whose keys the user's rules name."""
        for glob, replacement in self._globs:

            @functools.lru_cache(4096)
            def kind(name: str, glob: Pattern = glob) -> str:
                return "secret" if glob.fullmatch(name) else ""

            for start, end, quotes in named_spans(text, kind=kind):
                yield Edit(start, end, f"{quotes}{replacement}{quotes}")

    def _ruled(self, text: str) -> str:
        return self._text.text(text) if self._text else text

    def _ruled_pieces(self, pieces: list[bytes]) -> list[bytes]:
        """Apply the user's patterns. Pieces within the changed part become one piece."""
        before = b"".join(pieces)
        after = self._text.data(before)
        if after == before:
            return pieces
        head = _common_start(before, after)
        shortest = min(len(before), len(after)) - head
        tail = _common_start(before[::-1][:shortest], after[::-1][:shortest])
        out, at, end = [], 0, 0
        for piece in pieces:
            end += len(piece)
            if end <= head:
                border = end
            elif end >= len(before) - tail:
                border = len(after) - (len(before) - end)
            else:
                border = max(at, head)
            out.append(after[at:border])
            at = border
        return out


def request_secrets(headers: Iterable[tuple[str, str]], url: str) -> frozenset[str]:
    """Return the literal secrets of a request, to be removed wherever they recur.

    Args:
        headers: The request's headers.
        url: Its URL.
    """
    found: set[str] = set()
    for name, value in headers:
        if not is_secret_header(name):
            continue
        if "cookie" in name.lower():
            found.update(_cookie_values(value))
            continue
        scheme, _, token = value.strip().partition(" ")
        found.update((value.strip(), token.strip()))
        if scheme.lower() == "basic":
            found.update(_basic_parts(token.strip()))
    authority = _AUTHORITY.search(url)
    if authority:
        found.update(unquote(part) for part in authority[0][:-1].split(":"))
    query = url.partition("?")[2].partition("#")[0]
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        if is_secret_parameter(name):
            found.add(unquote_plus(value))
    return frozenset(each for each in found if len(each) >= _SHORTEST_LITERAL)


def credentials(headers: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the credentials in the headers of a request, which recur in other requests.

    Args:
        headers: The headers.
    """
    for name, value in headers:
        if is_credential_header(name) and not value.startswith("AWS4-"):
            yield from _credentials(value)


@functools.lru_cache(256)
def _credentials(value: str) -> tuple[str, ...]:
    scheme, _, token = value.strip().partition(" ")
    if not token:
        return (scheme,)
    token = token.strip()
    return (token, *(_basic_parts(token)[1:] if scheme.lower() == "basic" else ()))


def response_secrets(headers: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return the values of the cookies that a response sets.

    Args:
        headers: The headers of the response.
    """
    return frozenset(
        value.strip().strip('"')
        for name, header in headers
        if name.lower() == "set-cookie"
        for value in [header.partition(";")[0].partition("=")[2]]
        if len(value) >= _SHORTEST_LITERAL and not _is_harmless(value)
    )


def _common_start(one: bytes, other: bytes) -> int:
    """Return the length of the longest common beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _cookie_values(header: str) -> Iterator[str]:
    for part in header.split(";"):
        yield part.partition("=")[2].strip()


def _basic_parts(token: str) -> list[str]:
    try:
        user, _, password = base64.b64decode(token, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return []
    return [user, password]


def _all_forms(secrets: Iterable[str]) -> set[str]:
    """Return the forms of secrets that are long enough not to occur by chance."""
    return {
        form
        for secret in secrets
        for form in _forms(secret)
        if len(form) >= _SHORTEST_LITERAL and form not in PLACEHOLDER
    }


def _forms(secret: str) -> Iterator[str]:
    """Yield the forms in which a secret may occur: plain, in JSON, and in URLs."""
    yield secret
    for ascii_only in (True, False):
        escaped = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        yield escaped
        yield escaped.replace("/", "\\/")
        yield json.dumps(escaped, ensure_ascii=ascii_only)[1:-1]
    yield quote(secret, safe="")
    yield quote(secret)
    yield quote_plus(secret)


@functools.cache
def _suspect() -> Pattern:
    return Pattern(_SUSPECT)


def _is_harmless(value: str) -> bool:
    """Return whether a value consists of words and numbers."""
    return len(value) <= _LONGEST_HARMLESS and _HARMLESS.fullmatch(value) is not None


@functools.lru_cache(64)
def _is_plain(content_type: str) -> bool:
    return _PLAIN_TYPE.match(content_type) is not None


def _is_stream(text: str, content_type: str) -> bool:
    if "event-stream" in content_type or "ndjson" in content_type or "jsonl" in content_type:
        return True
    return text.startswith(("data:", "event:"))
