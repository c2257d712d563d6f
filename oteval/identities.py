"""Identities in attributes: which conversation a span belongs to.

A placeholder identifies nothing: with `undefined`, or the text that a redaction left, two users'
chats would be one. A text counts as an id by its form, see `identity`. Where an application writes
the id of its conversations to another attribute, `name_conversation_attribute` names that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from . import semconv
from .jsontext import dumps

__all__ = [
    "CONVERSATION_VARIABLE",
    "conversation_attribute",
    "conversation_id",
    "identity",
    "name_conversation_attribute",
    "own_conversation",
]

CONVERSATION_VARIABLE = "OTEVAL_CONVERSATION_ATTRIBUTE"
"""The environment variable that names the application's attribute for the conversation."""

_USUAL = re.compile(r"\w\S*[1-9]")
_BRACKETS = tuple("[<{(*$%#?")
_WORD = re.compile(r"[a-z]+")
_NOTHING = frozenset(
    [
        *(
            "undefined",
            "null",
            "none",
            "nil",
            "nan",
            "unknown",
            "anonymous",
            "redacted",
            "scrubbed",
        ),
        *("masked", "hidden", "removed", "filtered", "missing", "empty", "unset", "elided", "no"),
        *("placeholder", "default", "true", "false", "not"),
    ]
)
_BESIDE_NOTHING = frozenset(
    [
        *("a", "by", "captured", "conversation", "data", "due", "for", "guest", "id", "ids", "is"),
        *("n", "na", "of", "sensitive", "session", "set", "the", "thread", "to", "user", "value"),
    ]
)
_own = os.environ.get(CONVERSATION_VARIABLE, "")
_is_fixed = bool(_own)


def identity(text: str) -> str:
    """Return a text that names something, or "" for a placeholder.

    An id holds letters or digits that are not all zeros or the same ``x``; it does not begin like
    a template or a mark (``<redacted>``, ``[Scrubbed due to 'session']``, ``{{id}}``, ``***``);
    and it is not made of words that say that an id is missing (``None``, ``anonymous user``).
    """
    # An id is seen once or twice, a placeholder again and again.
    return text if _USUAL.match(text) else _unusual_identity(text)


@lru_cache(maxsize=1024)
def _unusual_identity(text: str) -> str:
    stripped = text.strip().strip("\"'")
    lowered = stripped.casefold()
    alphanumeric = {character for character in lowered if character.isalnum()}
    if not alphanumeric or stripped.startswith(_BRACKETS):
        return ""
    if len(lowered) > 1 and (alphanumeric <= {"0"} or alphanumeric <= {"x"}):
        return ""
    if lowered == "0" or _is_made_of_nothing(lowered, alphanumeric):
        return ""
    return text


def _is_made_of_nothing(lowered: str, alphanumeric: set[str]) -> bool:
    """Return whether a text only says that an id is missing."""
    if any(character.isdigit() for character in alphanumeric):
        return False
    words = set(_WORD.findall(lowered))
    is_absent = bool(words & _NOTHING) or words in ({"n", "a"}, {"na"}, {"guest"})
    return is_absent and words <= _NOTHING | _BESIDE_NOTHING


def name_conversation_attribute(name: str, *, is_default: bool = False) -> None:
    """Read the conversation's id from an attribute first, also in processes started from here.

    Args:
        name: The attribute, or "" for none.
        is_default: Whether a name that an option or the environment gave counts more.
    """
    global _own, _is_fixed
    if is_default and _is_fixed:
        return
    _own, _is_fixed = name, not is_default and bool(name)
    if name:
        os.environ[CONVERSATION_VARIABLE] = name
    else:
        os.environ.pop(CONVERSATION_VARIABLE, None)


def conversation_attribute() -> str:
    """Return the name of the application's attribute for the conversation, or ""."""
    return _own


def own_conversation(attributes: Mapping[str, Any]) -> str:
    """Return the id in the application's attribute for the conversation, or ""."""
    return _id_of(attributes.get(_own)) if _own else ""


def conversation_id(attributes: Mapping[str, Any]) -> str:
    """Return the id of the conversation that a span's attributes name, or ""."""
    if _own and (found := own_conversation(attributes)):
        return found
    for key in semconv.CONVERSATION_ID:
        if key in attributes and (found := _id_of(attributes[key])):
            return found
    return ""


def _id_of(value: Any) -> str:
    if isinstance(value, str):
        return identity(value)
    return identity(dumps(value)) if isinstance(value, (int, float)) else ""
