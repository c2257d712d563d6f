"""Redact ended spans and log records of OpenTelemetry's SDK before they are exported.

Rules apply to all text that an agent or an instrumentation can write: names, attributes, events,
links, status messages, log bodies, and the attributes of resources and scopes.

Secrets are removed without any rule, as in recorded HTTP exchanges: tools print keys, clients put
them into URLs, and servers quote them in errors. A secret is recognised by the name of its
attribute, by names inside of its text, by its form, or because the process has it in its
environment or has sent it as a credential. Most spans have no secrets, and one search over all of
their texts shows that.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, Status

from ..base.redaction import ValueRedactor
from ..base.redaction.exchange_secrets import PROCESS_SECRETS
from ..base.redaction.secret_names import secret_kind
from ..base.redaction.secret_values import PLACEHOLDER, is_secret_value
from ..base.redaction.secrets import SecretRedactor
from ..model import EVENT_NAME

__all__ = ["AttributeSecrets", "TelemetryRedactor"]

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
        """A copy that removes the secrets of one span or log record wherever they recur.

        Args:
            attributes: The attributes of a span and of its events.
            texts: Other texts.
        """
        secrets: set[str] = set()
        contents = list(texts)
        for mapping in attributes:
            for key, value in mapping.items():
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
        """Whether attributes or texts may have secrets.

        Args:
            attributes: The attributes of a span and of its events.
            texts: Other texts.
        """
        contents = list(texts)
        for mapping in attributes:
            for key, value in mapping.items():
                if secret_kind(key) and not isinstance(value, (int, float)):
                    return True
                if key in _URLS and isinstance(value, str):
                    if self._url(key, value) != value:
                        return True
                elif type(value) is str:
                    contents.append(value)
                elif isinstance(value, bytes):
                    if self._current().body(value) != value:
                        return True
                elif isinstance(value, (Sequence, Mapping)):
                    contents += _texts(value)
        return self._current().has_secrets("\n".join(contents))

    def text(self, text: str) -> str:
        """Remove the secrets of a text."""
        return self._current().text(text)

    def attributes(self, attributes: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
        """Remove the secrets of attributes, or of another mapping."""
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
        """Remove the secrets of a value; sequences become tuples, mappings become dicts."""
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
        """Remove the secrets of a sequence, also after options such as ``--api-key``."""
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
        """Remove the secrets of an attribute whose name means a kind of secret."""
        if isinstance(value, str):
            return PLACEHOLDER if is_secret_value(kind, value) else self.value(value)
        if isinstance(value, (list, tuple)):
            return tuple(self._named(kind, item, depth) for item in value)
        return self.value(value, depth)

    def _current(self) -> SecretRedactor:
        """The redactor, with the secrets that the process has sent by now."""
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


# Processes have few resources and scopes; more are not remembered.
_MAX_CACHED = 256
# Before this became the only way, mappings as values had to be requested.
_NAME = "extended_attributes"
_EXTENDED = {_NAME: True} if _NAME in inspect.signature(BoundedAttributes).parameters else {}


class TelemetryRedactor:
    """Applies redaction rules to spans and log records, and returns changed copies of them."""

    def __init__(self, values: ValueRedactor) -> None:
        self._values = values
        self._secrets = AttributeSecrets()
        # By identity, because hashing a resource serialises it. The originals are kept, so that no
        # other object gets their identities.
        self._resources: dict[int, tuple[Resource, Resource]] = {}
        self._scopes: dict[int, tuple[InstrumentationScope, InstrumentationScope]] = {}

    def span(self, span: Any) -> Any:
        """Redact an ended span.

        Raises:
            ValueError: A text has too many escapes.
        """
        resource = self._resource(span.resource)
        is_same = not self._values and resource is span.resource
        attributes, texts = _contents(span)
        if is_same and not self._secrets.are_in(attributes, texts):
            return span
        return self._for_one(self._secrets.recurring(attributes, texts))._redacted_span(
            span, resource
        )

    def _for_one(self, secrets: AttributeSecrets) -> TelemetryRedactor:
        """A redactor for one span or log record, which knows the secrets that it names."""
        if secrets is self._secrets:
            return self
        redactor = copy.copy(self)
        redactor._secrets = secrets
        return redactor

    def _redacted_span(self, span: Any, resource: Resource) -> _RedactedSpan:
        status = span.status
        return _RedactedSpan(
            span,
            name=self._text(span.name),
            context=span.context,
            parent=span.parent,
            resource=resource,
            attributes=self._attributes(span.attributes, span.dropped_attributes),
            events=[self._event(event) for event in span.events],
            links=[
                Link(link.context, self._attributes(link.attributes, link.dropped_attributes))
                for link in span.links
            ],
            kind=span.kind,
            status=Status(
                status.status_code,
                self._optional(status.description),
            ),
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=self._scope(span.instrumentation_scope),
        )

    def log_record(self, emitted: Any) -> Any:
        """Redact a log record.

        Raises:
            ValueError: A text has too many escapes.
        """
        record = copy.copy(emitted.log_record)
        if record.event_name != EVENT_NAME:
            attributes = [record.attributes or {}, {"": record.body}]
            own = self._secrets.recurring(attributes, ())
            if own is not self._secrets:
                return self._for_one(own)._redacted_log(emitted, record)
        return self._redacted_log(emitted, record)

    def _redacted_log(self, emitted: Any, record: Any) -> Any:
        if record.event_name == EVENT_NAME:
            # The secrets of an HTTP exchange were removed when it was recorded.
            if not self._values:
                return emitted
            record.body = self._values.value(record.body)
        else:
            record.body = self._secrets.value(self._values.value(record.body))
        record.attributes = self._attributes(record.attributes, emitted.dropped_attributes)
        record.severity_text = self._optional(record.severity_text)
        record.event_name = self._optional(record.event_name)
        return ReadableLogRecord(
            record,
            self._resource(emitted.resource),
            self._scope(emitted.instrumentation_scope),
            emitted.limits,
        )

    def _text(self, text: str) -> str:
        return self._secrets.text(self._values.text(text))

    def _optional(self, text: str | None) -> str | None:
        return self._text(text) if text else text

    def _event(self, event: Any) -> Event:
        attributes = self._attributes(event.attributes, getattr(event, "dropped_attributes", 0))
        return Event(self._text(event.name), attributes, event.timestamp)

    def _attributes(self, attributes: Mapping[str, Any] | None, dropped: int) -> BoundedAttributes:
        values = self._secrets.attributes(self._values.attributes(attributes or {}))
        redacted = BoundedAttributes(attributes=values, immutable=False, **_EXTENDED)
        redacted.dropped = dropped
        return redacted

    def _resource(self, resource: Resource) -> Resource:
        cached = self._resources.get(id(resource))
        if cached is None:
            attributes = self._secrets.attributes(self._values.attributes(resource.attributes))
            is_same = attributes == dict(resource.attributes)
            redacted = resource if is_same else Resource(attributes, resource.schema_url)
            cached = resource, redacted
            if len(self._resources) < _MAX_CACHED:
                self._resources[id(resource)] = cached
        return cached[1]

    def _scope(self, scope: InstrumentationScope | None) -> InstrumentationScope | None:
        if scope is None:
            return None
        cached = self._scopes.get(id(scope))
        if cached is None:
            redacted = InstrumentationScope(
                self._values.text(scope.name),
                self._optional(scope.version),
                scope.schema_url,
                self._values.attributes(scope.attributes or {}),
            )
            cached = scope, redacted
            if len(self._scopes) < _MAX_CACHED:
                self._scopes[id(scope)] = cached
        return cached[1]


def _contents(span: Any) -> tuple[list[Mapping[str, Any]], list[str]]:
    """The attributes and the other texts of a span, its events and its links."""
    attributes = [span.attributes or {}]
    attributes += [part.attributes or {} for part in (*span.events, *span.links)]
    texts = [span.name, span.status.description or "", *(event.name for event in span.events)]
    return attributes, texts


class _RedactedSpan(ReadableSpan):
    """A redacted copy of a span, which keeps the original's counts of dropped parts."""

    def __init__(self, original: Any, **fields: Any) -> None:
        super().__init__(**fields)
        self._dropped: tuple[int, int] = (original.dropped_events, original.dropped_links)

    @property
    def dropped_events(self) -> int:
        """The number of events beyond the limit of the span."""
        return self._dropped[0]

    @property
    def dropped_links(self) -> int:
        """The number of links beyond the limit of the span."""
        return self._dropped[1]
