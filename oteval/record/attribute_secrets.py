"""Secrets in the attributes and texts of spans and log records, found without any rule.

A secret is recognised as in recorded HTTP exchanges: by the name of its attribute, by names inside
of its text, by its form, or because the process has it in its environment or has sent it as a
credential. URLs are treated as in recorded exchanges.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..base.redaction.known_secrets import PROCESS_SECRETS
from ..base.redaction.secret_names import secret_kind
from ..base.redaction.secret_values import PLACEHOLDER, is_secret_value
from ..base.redaction.secrets import SecretRedactor

__all__ = ["AttributeSecrets"]

_URLS = frozenset(("url.full", "http.url", "http.target", "url.query", "url.fragment"))
_QUERIES = {"url.query": "?", "url.fragment": "#"}
_DEEPEST = 20


class AttributeSecrets:
    """Removes secrets from attributes and texts. The given values are never changed."""

    def __init__(self) -> None:
        self._redactor = SecretRedactor()
        self._own: frozenset[str] = frozenset()

    def recurring(
        self, attributes: Iterable[Mapping[str, Any]], texts: Iterable[str]
    ) -> AttributeSecrets:
        """Return a copy that also removes the secrets that a span or log record names elsewhere.

        Args:
            attributes: The attributes of a span and of its events.
            texts: Other texts.
        """
        secrets: set[str] = set()
        contents = list(texts)
        for each in attributes:
            for key, value in each.items():
                kind = secret_kind(key) if isinstance(key, str) else ""
                values = list(_texts(value))
                contents += values
                secrets.update(text for text in values if is_secret_value(kind, text))
        redactor = self._current()
        for text in contents:
            secrets |= redactor.text_secrets(text)
        if not secrets:
            return self
        extended = copy.copy(self)
        extended._own = frozenset(secrets)
        return extended

    def are_in(self, attributes: Iterable[Mapping[str, Any]], texts: Iterable[str]) -> bool:
        """Return whether attributes or texts may have secrets.

        Args:
            attributes: The attributes of a span and of its events.
            texts: Other texts.
        """
        found = list(texts)
        for each in attributes:
            for key, value in each.items():
                if secret_kind(key) and not isinstance(value, (int, float)):
                    return True
                if key in _URLS and isinstance(value, str):
                    if self._url(key, value) != value:
                        return True
                elif type(value) is str:
                    found.append(value)
                elif isinstance(value, bytes):
                    if self._current().body(value) != value:
                        return True
                elif isinstance(value, (Sequence, Mapping)):
                    found += _texts(value)
        return self._current().has_secrets("\n".join(found))

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        return self._current().text(text)

    def attributes(self, attributes: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
        """Return attributes, or another mapping, without secrets."""
        out: dict[str, Any] = {}
        for key, value in attributes.items():
            if key in _URLS and isinstance(value, str):
                out[key] = self._url(key, value)
            elif isinstance(key, str) and (kind := secret_kind(key)):
                out[key] = self._named(kind, value, depth)
            else:
                out[key] = self.value(value, depth)
        return out

    def value(self, value: Any, depth: int = 0) -> Any:
        """Return a value without secrets; sequences become tuples, mappings become dicts."""
        if isinstance(value, str):
            return self._current().text(value)
        if depth > _DEEPEST:
            return value
        if isinstance(value, Mapping):
            return self.attributes(value, depth + 1)
        if isinstance(value, bytes):
            return self._current().body(value)
        if isinstance(value, Sequence) and not isinstance(value, bytearray):
            return self._items(value, depth + 1)
        return value

    def _url(self, key: str, url: str) -> str:
        mark = _QUERIES.get(key, "")
        return self._current().url(f"{mark}{url}").removeprefix(mark)

    def _items(self, values: Sequence[Any], depth: int) -> tuple[Any, ...]:
        """Return a sequence without secrets, also those after options such as ``--api-key``."""
        out: list[Any] = []
        kind = ""
        for value in values:
            is_text = isinstance(value, str)
            is_secret = kind and is_text and is_secret_value(kind, value)
            out.append(PLACEHOLDER if is_secret else self.value(value, depth))
            is_option = is_text and value.startswith("--") and "=" not in value
            kind = secret_kind(value) if is_option else ""
        return tuple(out)

    def _named(self, kind: str, value: Any, depth: int) -> Any:
        """Return the value of an attribute whose name means a kind of secret."""
        if isinstance(value, str):
            return PLACEHOLDER if is_secret_value(kind, value) else self.value(value)
        if isinstance(value, (list, tuple)):
            return tuple(self._named(kind, item, depth) for item in value)
        return self.value(value, depth)

    def _current(self) -> SecretRedactor:
        """Return the redactor that also knows the secrets that the process has sent by now."""
        redactor = self._redactor.with_secrets(PROCESS_SECRETS.secrets)
        return redactor.with_secrets(self._own) if self._own else redactor


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth > _DEEPEST:
        return
    elif isinstance(value, Mapping):
        for key, item in value.items():
            # As in JSON, so that a key that names a secret is seen.
            yield f'"{key}":'
            yield from _texts(item, depth + 1)
    elif isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        for item in value:
            yield from _texts(item, depth + 1)
