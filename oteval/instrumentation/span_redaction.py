"""Redact ended spans and log records of OpenTelemetry's SDK before they are exported.

Rules apply to everything in which an agent or an instrumentation can write text: names, attributes,
events, links, status messages, log bodies, and the attributes of resources and scopes.

Without a rule, the URLs of spans and the texts of their errors lose secrets, as recorded HTTP
exchanges do: clients put keys into URLs, and servers quote them in errors.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, Status

from ..redaction import ValueRedactor
from ..redaction.secrets import SecretRedactor

__all__ = ["TelemetryRedactor"]

_URLS = ("url.full", "http.url", "http.target", "url.query")
_ERRORS = ("exception.message", "exception.stacktrace", "error.message")
# Processes have few resources and scopes; more are not remembered.
_MAX_CACHED = 256
# Before it became the only way, mappings as values had to be asked for.
_NAME = "extended_attributes"
_EXTENDED = {_NAME: True} if _NAME in inspect.signature(BoundedAttributes).parameters else {}


class TelemetryRedactor:
    """Applies redaction rules to spans and log records, and returns changed copies of them."""

    def __init__(self, values: ValueRedactor) -> None:
        self._values = values
        self._secrets = SecretRedactor()
        # By identity, as hashing a resource serialises it. The originals are kept, so that their
        # identities stay theirs.
        self._resources: dict[int, tuple[Resource, Resource]] = {}
        self._scopes: dict[int, tuple[InstrumentationScope, InstrumentationScope]] = {}

    def span(self, span: Any) -> Any:
        """Return an ended span redacted.

        Raises:
            ValueError: A text has too many escapes.
        """
        if not self._values and not _may_have_secrets(span):
            return span
        status = span.status
        return _RedactedSpan(
            span,
            name=self._values.text(span.name),
            context=span.context,
            parent=span.parent,
            resource=self._resource(span.resource),
            attributes=self._attributes(span.attributes, span.dropped_attributes),
            events=[self._event(event) for event in span.events],
            links=[
                Link(link.context, self._attributes(link.attributes, link.dropped_attributes))
                for link in span.links
            ],
            kind=span.kind,
            status=Status(
                status.status_code,
                self._error(status.description) if status.description else None,
            ),
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=self._scope(span.instrumentation_scope),
        )

    def log_record(self, emitted: Any) -> Any:
        """Return a log record redacted.

        Raises:
            ValueError: A text has too many escapes.
        """
        if not self._values:
            return emitted
        record = copy.copy(emitted.log_record)
        record.body = self._values.value(record.body)
        record.attributes = self._attributes(record.attributes, emitted.dropped_attributes)
        record.severity_text = self._optional(record.severity_text)
        record.event_name = self._optional(record.event_name)
        return ReadableLogRecord(
            record,
            self._resource(emitted.resource),
            self._scope(emitted.instrumentation_scope),
            emitted.limits,
        )

    def _error(self, text: str) -> str:
        return self._secrets.text(self._values.text(text))

    def _optional(self, text: str | None) -> str | None:
        return self._values.text(text) if text else text

    def _event(self, event: Any) -> Event:
        attributes = self._attributes(event.attributes, getattr(event, "dropped_attributes", 0))
        return Event(self._values.text(event.name), attributes, event.timestamp)

    def _attributes(self, attributes: Mapping[str, Any] | None, dropped: int) -> BoundedAttributes:
        kept = dict(self._values.attributes(attributes or {}))
        for name in _URLS:
            if isinstance(url := kept.get(name), str):
                is_query = name == "url.query"
                kept[name] = (
                    self._secrets.url(f"?{url}")[1:] if is_query else self._secrets.url(url)
                )
        for name in _ERRORS:
            if isinstance(text := kept.get(name), str):
                kept[name] = self._secrets.text(text)
        redacted = BoundedAttributes(attributes=kept, immutable=False, **_EXTENDED)
        redacted.dropped = dropped
        return redacted

    def _resource(self, resource: Resource) -> Resource:
        known = self._resources.get(id(resource))
        if known is None:
            attributes = self._values.attributes(resource.attributes)
            known = resource, Resource(attributes, resource.schema_url)
            if len(self._resources) < _MAX_CACHED:
                self._resources[id(resource)] = known
        return known[1]

    def _scope(self, scope: InstrumentationScope | None) -> InstrumentationScope | None:
        if scope is None:
            return None
        known = self._scopes.get(id(scope))
        if known is None:
            redacted = InstrumentationScope(
                self._values.text(scope.name),
                self._optional(scope.version),
                scope.schema_url,
                self._values.attributes(scope.attributes or {}),
            )
            known = scope, redacted
            if len(self._scopes) < _MAX_CACHED:
                self._scopes[id(scope)] = known
        return known[1]


def _may_have_secrets(span: Any) -> bool:
    """Return whether a span has a URL, an error or an event."""
    attributes = span.attributes or {}
    named = any(name in attributes for name in (*_URLS, *_ERRORS))
    return bool(named or span.status.description or span.events)


class _RedactedSpan(ReadableSpan):
    """A redacted copy of a span, which keeps the original's counts of dropped parts."""

    def __init__(self, original: Any, **fields: Any) -> None:
        super().__init__(**fields)
        self._dropped: tuple[int, int] = (original.dropped_events, original.dropped_links)

    @property
    def dropped_events(self) -> int:
        """The number of events that the span could not hold."""
        return self._dropped[0]

    @property
    def dropped_links(self) -> int:
        """The number of links that the span could not hold."""
        return self._dropped[1]
