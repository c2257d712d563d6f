"""Where in a text there may be names of secrets: one search in place of one for each form.

Most texts have no such place. In the others, only the stretches around them are searched for the
forms, one after the other.
"""

from __future__ import annotations

import functools

from ..patterns import Pattern
from .json_secrets import JSON_TAIL, PARAMETER
from .secret_names import NAME_ENDS
from .text_secrets import OTHER_FORMS, TEXT_TAILS

__all__ = ["name_stretches"]

_NAMES = rf"(?i:(?:{NAME_ENDS})(?:{TEXT_TAILS}|{JSON_TAIL}))|{PARAMETER}|{OTHER_FORMS}"
_BEFORE = 80
_AFTER = 1000


def name_stretches(text: str) -> list[tuple[int, int]]:
    """Return the stretches of a text in which there may be names of secrets, in order."""
    stretches: list[tuple[int, int]] = []
    for start, end in _names().spans(text):
        first = max(0, start - _BEFORE)
        last = min(len(text), end + _AFTER)
        if stretches and first <= stretches[-1][1]:
            stretches[-1] = stretches[-1][0], max(last, stretches[-1][1])
        else:
            stretches.append((first, last))
    return stretches


@functools.cache
def _names() -> Pattern:
    return Pattern(_NAMES)
