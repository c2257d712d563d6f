"""Compare recorded text with that of a replay, where the recording has ``[redacted]``.

A placeholder stands for one value, not for any text: for a whole text or a whole value of JSON, or
else for a part of a line, or for a private key of several lines. One with a kind of data, such
as ``[redacted card]``, equals only such data. So a replay that sends other text beside a secret, or
in its place, differs from its recording.
"""

from __future__ import annotations

import re

from ..base.redaction.personal_data import DATA_WORDS, is_data

__all__ = ["is_same_text"]

# In canonical JSON, a number that was redacted has become a text.
_REDACTED = re.compile(r'"?\[redacted([^\]\n]{0,80})\]"?', re.IGNORECASE)
_JSON_VALUE = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null', re.DOTALL)
_PART_OF_LINE = re.compile(r"[^\r\n]{1,4096}")
_PRIVATE_KEY = re.compile(r"-----BEGIN [^\r\n]*PRIVATE KEY[^-]*-----.*", re.DOTALL)


def is_same_text(recorded: str, actual: str) -> bool:
    """Whether texts are equal; a placeholder in the recorded one equals one value."""
    if recorded == actual:
        return True
    placeholders = list(_REDACTED.finditer(recorded))
    if not placeholders:
        return False
    first, last = placeholders[0], placeholders[-1]
    tail = recorded[last.end() :]
    if not actual.startswith(recorded[: first.start()]) or not actual.endswith(tail):
        return False
    at, end = first.start(), len(actual) - len(tail)
    is_whole = len(placeholders) == 1 and first.span() == (0, len(recorded))
    for placeholder, following in zip(placeholders, [*placeholders[1:], None], strict=True):
        part = recorded[placeholder.end() : following.start()] if following else ""
        value_end = actual.find(part, at + 1, end) if following else end
        if value_end < at:
            return False
        if not _is_value(placeholder, actual[at:value_end], is_whole=is_whole):
            return False
        at = value_end + len(part)
    return True


def _is_value(placeholder: re.Match[str], value: str, *, is_whole: bool) -> bool:
    """Whether a placeholder may stand for a value."""
    if _REDACTED.fullmatch(value):
        return True
    text, word = placeholder[0], placeholder[1].strip()
    if word in DATA_WORDS:
        return is_data(value.strip('"') if text[0] == '"' else value, word)
    if is_whole:
        return True
    if text[0] == text[-1] == '"':
        return _JSON_VALUE.fullmatch(value) is not None
    return bool(_PART_OF_LINE.fullmatch(value) or _PRIVATE_KEY.fullmatch(value))
