"""Texts that are secrets wherever they occur: API keys of known forms, tokens and private keys.

A search for any of the forms on RE2 takes a tenth of the time of the patterns themselves. It
ignores their conditions on the text around a match, so they run only on the few texts it finds.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator

from ..patterns import Pattern

__all__ = ["ANY_FORM", "SecretSearch", "form_spans", "occurrences"]


def _form(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


# Not inside a word: "task-12..." has no key.
_START = r"(?<![A-Za-z0-9_-])"
_LONGEST_PATTERN = 5000
_LONGEST_START = 500
_FEW = 12
_LETTERS = r"[A-Za-z0-9_-]"

_FORMS = (
    # OpenAI, Anthropic, OpenRouter, DeepSeek, Langfuse. With a digit, as in no ordinary name.
    _form(rf"{_START}[sp]k-(?={_LETTERS}{{0,80}}[0-9]){_LETTERS}{{12,}}"),
    _form(rf"{_START}(?:[sr]k_(?:live|test)_|whsec_)[A-Za-z0-9]{{10,}}"),
    _form(rf"{_START}(?:gsk_|xai-|pplx-|hf_|r8_)[A-Za-z0-9]{{20,}}"),
    _form(rf"{_START}lsv2_[ps][tk]_[A-Za-z0-9_]{{20,}}"),
    _form(rf"{_START}gh[pousr]_[A-Za-z0-9]{{16,}}"),
    _form(rf"{_START}github_pat_[A-Za-z0-9_]{{20,}}"),
    _form(rf"{_START}gl(?:pat|dt|rt)-{_LETTERS}{{16,}}"),
    _form(rf"{_START}(?:xox[abceoprs]|xapp)-[A-Za-z0-9-]{{10,}}"),
    _form(r"hooks\.slack\.com/(?:services|workflows)/([A-Za-z0-9/_-]+)"),
    _form(r"(?<![A-Za-z0-9])A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}(?![A-Z0-9])"),
    _form(rf"{_START}AIza{_LETTERS}{{30,}}"),
    _form(rf"{_START}ya29\.{_LETTERS}{{20,}}"),
    _form(rf"{_START}npm_[A-Za-z0-9]{{30,}}"),
    _form(rf"{_START}pypi-{_LETTERS}{{40,}}"),
    _form(rf"{_START}SG\.{_LETTERS}{{16,}}\.{_LETTERS}{{16,}}"),
    _form(rf"{_START}(?:dapi|dop_v1_|fc-|key-)[0-9a-f]{{32,}}"),
    # Tavily, NVIDIA, Jina, Grafana, Linear, Notion, Shopify, Docker, HashiCorp Vault, E2B.
    _form(rf"{_START}(?:tvly-|nvapi-|jina_|glsa_|lin_api_|ntn_)[A-Za-z0-9_-]{{20,}}"),
    _form(rf"{_START}(?:shpat_|dckr_pat_|hvs\.|e2b_)[A-Za-z0-9_-]{{20,}}"),
    _form(r"AGE-SECRET-KEY-1[A-Z0-9]{50,}"),
    _form(r"(?<![0-9])[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}"),
    # JSON Web Tokens.
    _form(rf"{_START}eyJ{_LETTERS}{{8,}}\.eyJ{_LETTERS}{{4,}}(?:\.{_LETTERS}*)?"),
    _form(
        r"\b[Bb](?:earer|EARER)(?:[ \t]|%20|\+)+((?=[^\s\"'\\]{0,80}[0-9=])"
        r"[A-Za-z0-9._~+/=-]{7,}[A-Za-z0-9_~+/=-])",
    ),
    _form(
        r"\b[Bb]asic (?=[A-Za-z0-9+/]{0,200}[0-9=])([A-Za-z0-9+/]{8,}={0,2})(?![A-Za-z0-9])",
    ),
    # User and password in a URL.
    _form(r"://([^\s/\"'<>@\\:?#\[\]]{0,200}:[^\s/\"'<>@\\?#\[\]]{1,300})@"),
)


_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")
# In JSON, the line ends of a key are escaped.
_KEY_TEXT = re.compile(r"[A-Za-z0-9+/=:,. \r\n\\-]*")
_CUT_KEY = re.compile(r"[A-Za-z0-9+/=\r\n\\-]*")

_CONDITION = re.compile(r"\(\?(?:<!|[=!])(?:[^()\\]|\\.)*\)")
ANY_FORM = "|".join(
    f"(?:{re.sub(r'{[01],[0-9]{2,}}', '*', _CONDITION.sub('', form.pattern))})"
    for form in (*_FORMS, _BEGIN)
)
"""A pattern that is found in each text in which `form_spans` finds secrets."""


def form_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of secrets of known forms; they may overlap."""
    if _any_form().search(text):
        for form in _FORMS:
            group = 1 if form.groups else 0
            for found in form.finditer(text):
                yield found.span(group)
        yield from _private_keys(text)


@functools.cache
def _any_form() -> Pattern:
    return Pattern(ANY_FORM)


class SecretSearch:
    """A search for literal secrets."""

    def __init__(self, literals: Iterable[str]) -> None:
        """Compile the search.

        Args:
            literals: The secrets to find wherever they occur.
        """
        self._literals = sorted(literals)
        # Patterns have a limited length. To look for a few texts takes less time one by one.
        is_many = len(self._literals) > _FEW
        self._any = [Pattern(text) for text in _alternatives(self._literals)] if is_many else []

    def is_in(self, text: str) -> bool:
        """Return whether a text has one of the secrets."""
        if self._any:
            return any(pattern.search(text) for pattern in self._any)
        return any(literal in text for literal in self._literals)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the places of the secrets; they may overlap."""
        if self.is_in(text):
            for literal in self._literals:
                yield from occurrences(text, literal)


def occurrences(text: str, literal: str) -> Iterator[tuple[int, int]]:
    """Yield the places of a text in another one."""
    at = text.find(literal)
    while at >= 0:
        yield at, at + len(literal)
        at = text.find(literal, at + len(literal))


def _alternatives(literals: Iterable[str]) -> Iterator[str]:
    """Yield patterns that match the beginnings of texts."""
    parts: list[str] = []
    for literal in (re.escape(each[:_LONGEST_START]) for each in literals):
        if parts and sum(map(len, parts)) + len(parts) + len(literal) > _LONGEST_PATTERN:
            yield "|".join(parts)
            parts = []
        parts.append(literal)
    if parts:
        yield "|".join(parts)


def _private_keys(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of private keys. Of one without an end, the rest is taken."""
    begins = list(_BEGIN.finditer(text))
    for index, begin in enumerate(begins):
        after = begins[index + 1].start() if index + 1 < len(begins) else len(text)
        end = _END.search(text, begin.end(), after)
        if end and _KEY_TEXT.fullmatch(text, begin.end(), end.start()):
            yield begin.start(), end.end()
        else:
            cut = _CUT_KEY.match(text, begin.end(), after)
            yield begin.start(), cut.end() if cut else begin.end()
