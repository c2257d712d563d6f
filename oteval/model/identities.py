"""Identities in attributes: the conversation, user, version and prompts that spans belong to.

A placeholder identifies nothing: `undefined`, or the text that a redaction left, would join two
users' chats. The form of a text decides whether it counts as an id, see `identity`. If an
application writes an identity to another attribute, `name_attribute` sets that attribute.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ..base.jsontext import dumps
from . import semconv
from .telemetry import Span

__all__ = [
    "IDENTITIES",
    "IDENTITY_KEYS",
    "IdentityKind",
    "conversation_id",
    "identity",
    "identity_in",
    "name_attribute",
    "own_attribute",
    "own_attributes",
    "own_names",
    "own_value",
    "user_of",
    "version_of",
]


class IdentityKind(NamedTuple):
    """The attributes with which spans name one kind of identity.

    Attributes:
        description: The value of the application's attribute.
        variable: The environment variable that names the application's attribute.
        copy: The attribute that receives a copy of the application's attribute when a span is
            stored.
        in_resource: Whether the application's attribute may be a resource attribute.
    """

    description: str
    variable: str
    copy: str
    in_resource: bool = True


IDENTITIES: Mapping[str, IdentityKind] = {
    "conversation": IdentityKind(
        "the conversation's id",
        "OTEVAL_CONVERSATION_ATTRIBUTE",
        semconv.OWN_CONVERSATION_ID,
        in_resource=False,
    ),
    "user": IdentityKind("the user's id", "OTEVAL_USER_ATTRIBUTE", semconv.OWN_USER_ID),
    "version": IdentityKind("the agent's version", "OTEVAL_VERSION_ATTRIBUTE", semconv.OWN_VERSION),
    "prompt": IdentityKind(
        "the prompt, as name or name@version", "OTEVAL_PROMPT_ATTRIBUTE", semconv.OWN_PROMPT
    ),
}
"""The kinds of identities for which an application may name an attribute."""

_USUAL_KEYS = {"user": semconv.USER_ID, "version": semconv.VERSION}
IDENTITY_KEYS = frozenset(
    [
        *(semconv.CONVERSATION_ID + semconv.USER_ID + semconv.VERSION),
        *(about.copy for about in IDENTITIES.values()),
    ]
)
"""The attributes of identities; an application may name others, see `own_attributes`."""
# Zeros and `default` are placeholders for a user, but valid names of a version or a prompt.
_NAMES = ("version", "prompt")
_PLAIN_NAME = re.compile(r"v?0(\.0+)*|default", re.IGNORECASE)
_USUAL = re.compile(r"\w[^\s1-9]*[1-9]")
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
_own = {
    kind: name for kind, about in IDENTITIES.items() if (name := os.environ.get(about.variable, ""))
}
_fixed = set(_own)


def identity(text: str) -> str:
    """A text that names something, or "" for a placeholder.

    An id contains letters or digits that are not all zeros or the same ``x``. It does not begin
    like a template or a mark (``<redacted>``, ``[Scrubbed due to 'session']``, ``{{id}}``,
    ``***``). It does not consist of words for a missing id (``None``, ``anonymous user``).
    """
    # An id occurs once or twice, a placeholder again and again.
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
    """Whether a text consists of words for a missing id."""
    if any(character.isdigit() for character in alphanumeric):
        return False
    words = set(_WORD.findall(lowered))
    is_absent = bool(words & _NOTHING) or words in ({"n", "a"}, {"na"}, {"guest"})
    return is_absent and words <= _NOTHING | _BESIDE_NOTHING


def name_attribute(kind: str, name: str, *, is_default: bool = False) -> None:
    """Read an identity from an attribute first, also in processes started from here.

    Args:
        kind: A key of `IDENTITIES`.
        name: The attribute, or "" for none.
        is_default: Whether a name from an option or the environment takes precedence.
    """
    if is_default and kind in _fixed:
        return
    variable = IDENTITIES[kind].variable
    _own.pop(kind, None)
    _fixed.discard(kind)
    os.environ.pop(variable, None)
    if name:
        _own[kind] = os.environ[variable] = name
        if not is_default:
            _fixed.add(kind)


def own_attribute(kind: str) -> str:
    """The name of the application's attribute for an identity, or ""."""
    return _own.get(kind, "")


def own_attributes() -> Collection[str]:
    """The names of all attributes that the application has for identities."""
    return _own.values()


def own_value(
    kind: str, attributes: Mapping[str, Any], resource: Mapping[str, Any] | None = None
) -> str:
    """The identity in the application's attribute, or its copy in a stored span, or ""."""
    places = [attributes] if resource is None else [attributes, resource]
    return _first(kind, places, own_names(kind))


def conversation_id(attributes: Mapping[str, Any]) -> str:
    """The id of the conversation that a span's attributes name, or ""."""
    if "conversation" in _own and (own := own_value("conversation", attributes)):
        return own
    for key in semconv.CONVERSATION_ID:
        if key in attributes and (text := _text_of("conversation", attributes[key])):
            return text
    return ""


def identity_in(kind: str, attributes: Mapping[str, Any]) -> str:
    """The user or version that attributes name, or ""."""
    places = [attributes]
    return _first(kind, places, own_names(kind)) or _first(kind, places, _USUAL_KEYS[kind])


def user_of(spans: Sequence[Span], names: Collection[str]) -> str:
    """The id of the user whom any of a run's spans names, or "".

    Args:
        spans: The spans.
        names: The names of identities' attributes that the spans or their resources have.
    """
    return _identified("user", spans, spans, names)


def version_of(spans: Sequence[Span], names: Collection[str]) -> str:
    """The version of the agent whose spans these are, or "".

    Without the application's attribute, only the first span, the run's root, counts. Other spans
    may come from other services, such as a tool server, and carry that service's version.

    Args:
        spans: The spans, the root first.
        names: The names of identities' attributes that the spans or their resources have.
    """
    return _identified("version", spans, spans[:1], names)


def _places(spans: Sequence[Span]) -> list[Mapping[str, Any]]:
    if len(spans) == 1:
        return [spans[0].attributes, spans[0].resource]
    resources = {id(span.resource): span.resource for span in spans}
    return [*(span.attributes for span in spans), *resources.values()]


def _identified(
    kind: str, own: Sequence[Span], usual: Sequence[Span], names: Collection[str]
) -> str:
    """The identity in the application's attribute, or else in the usual attributes."""
    for keys, spans in ((own_names(kind), own), (_USUAL_KEYS[kind], usual)):
        used = [key for key in keys if key in names]
        if used and (text := _first(kind, _places(spans), used)):
            return text
    return ""


def own_names(kind: str) -> tuple[str, ...]:
    """The names of the attributes that have the application's identity of a kind."""
    copy = IDENTITIES[kind].copy
    return (_own[kind], copy) if kind in _own else (copy,)


def _first(kind: str, places: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> str:
    for key in keys:
        for attributes in places:
            if key in attributes and (text := _text_of(kind, attributes[key])):
                return text
    return ""


def _text_of(kind: str, value: Any) -> str:
    """An attribute's value if it is an identity, else ""."""
    text = dumps(value) if isinstance(value, (int, float)) else value
    if not isinstance(text, str):
        return ""
    is_name = kind in _NAMES and _PLAIN_NAME.fullmatch(text)
    return text if is_name else identity(text)
