"""Rules of redaction: values are found by globs of their keys, text by patterns."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..patterns import Pattern, PatternError

__all__ = ["RedactionRule", "key_pattern"]

# A set of characters in a glob, after `re.escape`.
_SET = re.compile(r"\\\[((?:[^\[\]\\]|\\[-.^])+)\\\]")


class RedactionRule(NamedTuple):
    """A rule of redaction.

    Attributes:
        keys: Globs for the names of attributes whose values are replaced.
        pattern: A regular expression whose matches are replaced.
        replace: The replacement.
    """

    keys: tuple[str, ...] = ()
    pattern: str | None = None
    replace: str = "[redacted]"


def key_pattern(text: str) -> Pattern:
    """Return a glob such as ``*.password`` as a pattern for whole keys.

    Brackets match both as a set of characters and literally.
    """
    literal = re.escape(text).replace(r"\*", ".*").replace(r"\?", ".")
    try:
        return Pattern(f"(?s)(?:{literal}|{_SET.sub(_set, literal)})")
    except PatternError:
        return Pattern(f"(?s){literal}")


def _set(found: re.Match[str]) -> str:
    members = found[1].replace(r"\-", "-")
    sign = "^" if members.startswith("!") else ""
    return f"[{sign}{members[len(sign) :]}]"
