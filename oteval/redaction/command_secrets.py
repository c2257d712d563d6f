"""Secrets in commands, in lists of headers and in sentences, where no sign follows the name.

    curl -u user:...      mysql -p...      login ann password ...      set aws_secret_access_key ...
    STRIPE_KEY=...        ["x-api-key", "..."]      {"value": "...", "name": "API_KEY"}
    the password is ...

Each form ends with the first character of the value. The names alone prove little there, so a value
must also look like a secret.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

from ..patterns import Pattern
from .text_secrets import BARE, NAME_ENDS, is_secret_text

__all__ = ["COMMAND_SECRET", "command_spans"]

_GAP = r"(?:\s|\\+[nrt])*"
_QUOTE = r"\\*[\"']"


class _Form(NamedTuple):
    """A form of text with a secret.

    Attributes:
        pattern: The text up to the first character of the value.
        shortest: The length of the shortest value.
        has_user: Whether the value is a user's name, a colon and the password.
    """

    pattern: str
    shortest: int
    has_user: bool = False


_FORMS = (
    _Form(rf"(?i:{NAME_ENDS}[ \t]+is:?[ \t]+[^\s\\\"'`])", 6),
    _Form(rf"(?i:[a-z0-9][_-]{NAME_ENDS}[ \t]+[a-z0-9+/])", 16),
    _Form(r"(?i:login[ \t]+[^\s\\]+[ \t]+password[ \t]+[^\s\\])", 6),
    _Form(rf"(?i:{_QUOTE}[a-z0-9_-]*{NAME_ENDS}{_QUOTE}{_GAP},{_GAP}b?{_QUOTE}[a-z0-9+/])", 12),
    # The names of such variables also stand for other values: SORT_KEY=created_at.
    _Form(r"[A-Z0-9]_(?:KEY|PASS|PW)=[A-Za-z0-9+/]", 8),
    _Form(r"curl\b[^\r\n\\]*[ \t](?:-u|--user)[ \t=]*[^\s\\]", 3, has_user=True),
    _Form(r"mysql[a-z]*\b[^\r\n\\]*[ \t]-p[^\s\\]", 6),
)
# The only form in which the value comes first.
_REVERSED = re.compile(
    rf"(?i)\"value\\*\"{_GAP}:{_GAP}\\*\"([^\"\\]{{6,1024}})\\*\"{_GAP},{_GAP}\\*\"(?:key|name)\\*\""
    rf"{_GAP}:{_GAP}\\*\"[a-z0-9_-]*{NAME_ENDS}\\*\""
)
_REVERSED_END = (
    rf"\"{_GAP},{_GAP}\\*\"(?i:key|name)\\*\"{_GAP}:{_GAP}\\*\"(?i:[a-z0-9_-]*{NAME_ENDS})\\*\""
)
COMMAND_SECRET = "|".join((*(form.pattern for form in _FORMS), _REVERSED_END))
"""A pattern that is found in each text in which `command_spans` may find secrets."""


def command_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of secrets in commands, lists and sentences."""
    if not _any_form().search(text):
        return
    for form, pattern in _forms():
        for _, end in pattern.spans(text):
            found = BARE.match(text, end - 1)
            if found is None:
                continue
            value = found[0].rstrip(",;.)]}")
            start = end - 1
            if form.has_user:
                user, colon, value = value.partition(":")
                start += len(user) + len(colon)
            is_long = len(value) >= form.shortest
            if is_long and is_secret_text("secret", value, is_alone=form.has_user):
                yield start, start + len(value)
    for reversed_ in _REVERSED.finditer(text):
        if is_secret_text("secret", reversed_[1], is_alone=False):
            yield reversed_.span(1)


@functools.cache
def _any_form() -> Pattern:
    return Pattern(COMMAND_SECRET)


@functools.cache
def _forms() -> tuple[tuple[_Form, Pattern], ...]:
    return tuple((form, Pattern(form.pattern)) for form in _FORMS)
