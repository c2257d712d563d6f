"""Redaction without rules: a recording must never contain a secret.

- **Headers** are kept by an allow-list of names.
- **URLs** lose the user and password. A value in the query is kept if its name is known to be
  harmless. It is also kept if it consists of words and numbers and its name names no secret.
- **Bodies and other texts** lose the values at names of secrets, texts with the form of a key or
  token, and known secrets: plausible values at a name of a secret elsewhere in the text, in the
  request's headers, or in the environment. This also works across the pieces of a stream, and
  between the deltas of its events.

Everything else is kept byte for byte. The same input always gives the same output, so a redacted
request equals its redacted recording.
"""

from __future__ import annotations

import copy
import functools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from ..patterns import Pattern
from .exchange_secrets import (
    AUTHORITY,
    credentials,
    encoded_edits,
    multipart_secrets,
    request_secrets,
    response_secrets,
)
from .json_secrets import named_spans, parameter_spans
from .rules import CompiledRules, RedactionRule
from .secret_forms import SecretSearch, form_spans, has_form, occurrences
from .secret_names import is_safe_header, is_secret_parameter, names_in
from .secret_places import manifest_spans, name_stretches
from .secret_values import PLACEHOLDER, SHORTEST_LITERAL, environment_secrets, is_words, may_recur
from .stream_deltas import delta_edits
from .text import TextRedactor, decoded_body, plain_view, plain_views
from .text_edits import Edit, edited, edited_pieces, merged
from .text_secrets import text_spans

__all__ = ["PLACEHOLDER", "SecretRedactor", "credentials", "request_secrets", "response_secrets"]

_SAFE_PARAMETERS = names_in("""
    alt api-version api_version beta deployment fields format include lang language limit locale
    model offset order page page_size per_page sort stream timeout units v version
""")
_LONGEST_REMEMBERED = 300
_MAX_REMEMBERED = 256
_URL_HEADERS = frozenset(("content-location", "link", "location", "operation-location"))
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
            ConfigError: A rule names data that cannot be found.
        """
        self._rules = CompiledRules(rules)
        self._text = TextRedactor(self._rules.matchers)
        from_environment = environment_secrets(os.environ if environment is None else environment)
        self._known = from_environment.union(literals)
        self._search = SecretSearch(_all_forms(self._known))
        self._literals: tuple[str, ...] = ()
        # Most requests of an agent have the same secrets as the request before.
        self._last: tuple[frozenset[str], SecretRedactor] | None = None
        self._remember()

    def with_secrets(self, secrets: Iterable[str]) -> SecretRedactor:
        """A redactor that also replaces the literal secrets of a request.

        Args:
            secrets: The secrets, see `request_secrets`; only plausible ones count.
        """
        more = frozenset(filter(may_recur, secrets)) - self._known
        if not more:
            return self
        last = self._last
        if last is not None and last[0] == more:
            return last[1]
        extended = copy.copy(self)
        extended._last = None
        extended._remember()
        extended._literals = tuple(sorted({*self._literals, *_all_forms(more)}))
        self._last = more, extended
        return extended

    def headers(self, headers: Iterable[tuple[str, str]]) -> dict[str, str]:
        """The headers that may be kept, by lower-case names."""
        out: dict[str, str] = {}
        for name, value in headers:
            key = name.lower()
            if is_safe_header(key):
                value = self.url(value) if key in _URL_HEADERS else self.text(value)
                out[key] = f"{out[key]}, {value}" if key in out else value
        return out

    def url(self, url: str) -> str:
        """A URL without its user, password, and secret values of the query."""
        return self._clean_urls(url) if len(url) <= _LONGEST_REMEMBERED else self._url(url)

    def text(self, text: str) -> str:
        """A text without secrets."""
        return (
            self._clean_texts(text) if len(text) <= _LONGEST_REMEMBERED else self._clean_text(text)
        )

    def _remember(self) -> None:
        """Remember short texts: most exchanges repeat the headers and the URL of the last one."""
        self._clean_urls = functools.lru_cache(_MAX_REMEMBERED)(self._url)
        self._clean_texts = functools.lru_cache(_MAX_REMEMBERED)(self._clean_text)

    def _url(self, url: str) -> str:
        url = AUTHORITY.sub(f"{PLACEHOLDER}@", url)
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
        """A body without secrets.

        Args:
            data: The body, without content encoding.
            content_type: Its ``Content-Type``.
        """
        return self.pieces((data,), content_type)[0]

    def body_secrets(self, data: bytes, content_type: str = "") -> frozenset[str]:
        """The plausible values in a body whose names mark them as secrets.

        A response may repeat the secrets of its request under other names.

        Args:
            data: The body, without content encoding.
            content_type: Its ``Content-Type``.
        """
        text = plain_view(decoded_body(data)[0]).text
        is_form = "urlencoded" in content_type
        stretches = name_stretches(text)
        spans = [(start, end) for start, end, _ in named_spans(text, stretches)]
        spans += text_spans(text, stretches, is_plain=_is_plain(content_type))
        spans += parameter_spans(text, stretches, is_form=is_form)
        if "multipart/" in content_type:
            spans += multipart_secrets(text, content_type)
        secrets = {_unescaped(text[start:end]) for start, end in spans}
        if is_form:
            secrets.update(map(unquote_plus, tuple(secrets)))
        return frozenset(filter(may_recur, secrets))

    def text_secrets(self, text: str) -> frozenset[str]:
        """The plausible values in a text whose names mark them as secrets."""
        return self.body_secrets(text.encode("utf-8", "replace"))

    def pieces(self, pieces: Sequence[bytes], content_type: str = "") -> list[bytes]:
        """The pieces of a body without secrets, even if a secret crosses a border.

        Args:
            pieces: The pieces, without content encoding.
            content_type: The body's ``Content-Type``.
        """
        text, encoding = decoded_body(b"".join(pieces))
        is_form = "urlencoded" in content_type
        edits = list(self._edits(text, is_form=is_form, is_plain=_is_plain(content_type)))
        if is_form:
            edits += encoded_edits(text, self.text)
        if "multipart/" in content_type:
            spans = multipart_secrets(text, content_type)
            edits += [Edit(start, end, PLACEHOLDER) for start, end in spans]
        if _is_stream(text, content_type):
            edits += delta_edits(text, self._delta_edits)
        out = edited_pieces(text, merged(edits), pieces, encoding) if edits else list(pieces)
        return self._ruled_pieces(out) if self._text else out

    def _parameter(self, pair: str) -> str:
        """A pair of a query, its value replaced unless it is harmless."""
        name, equals, value = pair.partition("=")
        plain = unquote_plus(value)
        if not value or plain == PLACEHOLDER:
            return pair if not value else f"{name}={PLACEHOLDER}"
        if unquote(name).lower() in _SAFE_PARAMETERS:
            return pair
        if is_words(plain) and not is_secret_parameter(name):
            return pair
        return f"{name}{equals}{PLACEHOLDER}"

    def has_secrets(self, text: str) -> bool:
        """Whether a text may have secrets: if not, `text` returns it as it is."""
        return bool(
            self._rules.globs
            or self._text
            or any(_has_names_or_forms(view.text) for view in plain_views(text))
            or self._search.is_in(text)
            or any(literal in text for literal in self._literals)
        )

    def _edits(self, text: str, *, is_form: bool = False, is_plain: bool = False) -> list[Edit]:
        """The merged edits that remove the secrets from a text."""
        edits = [Edit(start, end, PLACEHOLDER) for start, end in self._known_spans(text)]
        for view in plain_views(text):
            for edit in self._found_edits(view.text, is_form=is_form, is_plain=is_plain):
                start = view.source(edit.start, is_end=False)
                edits.append(Edit(start, view.source(edit.end, is_end=True), edit.text))
        if self._rules.globs:
            edits += self._glob_edits(text)
        return merged(edits) if edits else []

    def _known_spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the places of known secrets."""
        yield from self._search.spans(text)
        for literal in self._literals:
            yield from occurrences(text, literal)

    def _found_edits(self, text: str, *, is_form: bool, is_plain: bool) -> Iterator[Edit]:
        """Yield the edits of values at names, of their repetitions, and of known forms."""
        for start, end in (*form_spans(text), *manifest_spans(text)):
            yield Edit(start, end, PLACEHOLDER)
        stretches = name_stretches(text)
        for start, end in parameter_spans(text, stretches, is_form=is_form):
            yield Edit(start, end, PLACEHOLDER)
        if not stretches:
            return
        spans = [*text_spans(text, stretches, is_plain=is_plain)]
        for start, end, quotes in named_spans(text, stretches):
            yield Edit(start, end, f"{quotes}{PLACEHOLDER}{quotes}")
            spans.append((start, end))
        recurring = {text[start:end] for start, end in spans}
        for literal in _all_forms(filter(may_recur, recurring)):
            spans += occurrences(text, literal)
        for start, end in spans:
            yield Edit(start, end, PLACEHOLDER)

    def _delta_edits(self, text: str) -> list[Edit]:
        edits = self._edits(text)
        for pattern, replacement in self._rules.matchers:
            edits += [Edit(start, end, replacement) for start, end in pattern.spans(text)]
        return merged(edits)

    def _glob_edits(self, text: str) -> Iterator[Edit]:
        """Yield the edits of the values whose keys the user's rules name."""
        for glob, replacement in self._rules.globs:

            @functools.lru_cache(4096)
            def kind(name: str, glob: Pattern = glob) -> str:
                return "rule" if glob.fullmatch(name) else ""

            for start, end, quotes in named_spans(text, (), kind):
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


def _common_start(first: bytes, second: bytes) -> int:
    """The length of the longest common beginning."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[:middle] == second[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _unescaped(value: str) -> str:
    """A value as it is outside JSON, if it is escaped."""
    if "\\" not in value:
        return value
    try:
        return str(json.loads(f'"{value}"'))
    except ValueError:
        return value


def _all_forms(secrets: Iterable[str]) -> set[str]:
    """The forms of secrets that are long enough not to occur by chance."""
    return {
        form
        for secret in secrets
        for form in _forms(secret)
        if len(form) >= SHORTEST_LITERAL and form not in PLACEHOLDER
    }


def _forms(secret: str) -> Iterator[str]:
    """Yield the possible forms of a secret: plain, in JSON, and in URLs."""
    yield secret
    for ascii_only in (True, False):
        escaped = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        yield escaped
        yield escaped.replace("/", "\\/")
        yield json.dumps(escaped, ensure_ascii=ascii_only)[1:-1]
    yield quote(secret, safe="")
    yield quote(secret)
    yield quote_plus(secret)


def _has_names_or_forms(text: str) -> bool:
    """Whether a text may have secrets besides the known secrets."""
    if has_form(text) or name_stretches(text):
        return True
    return next(manifest_spans(text), None) is not None


@functools.lru_cache(64)
def _is_plain(content_type: str) -> bool:
    return _PLAIN_TYPE.match(content_type) is not None


def _is_stream(text: str, content_type: str) -> bool:
    if "event-stream" in content_type or "ndjson" in content_type or "jsonl" in content_type:
        return True
    return text.startswith(("data:", "event:"))
