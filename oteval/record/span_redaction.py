"""Redact ended spans and log records of OpenTelemetry's SDK before they are exported.

Rules apply to everything in which an agent or an instrumentation can write text: names, attributes,
events, links, status messages, log bodies, and the attributes of resources and scopes.

Without a rule, everything loses secrets as recorded HTTP exchanges do: tools print keys, clients
put them into URLs, and servers quote them in errors. Most spans have none; one search over all of
their texts shows it.
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

from ..base.redaction import ValueRedactor
from ..model import EVENT_NAME
from .attribute_secrets import AttributeSecrets

__all__ = ["TelemetryRedactor"]

# Processes have few resources and scopes; more are not remembered.
_MAX_CACHED = 256
# Before it became the only way, mappings as values had to be asked for.
_NAME = "extended_attributes"
_EXTENDED = {_NAME: True} if _NAME in inspect.signature(BoundedAttributes).parameters else {}


class TelemetryRedactor:
    """Applies redaction rules to spans and log records, and returns changed copies of them."""

    def __init__(self, values: ValueRedactor) -> None:
        self._values = values
        self._secrets = AttributeSecrets()
        # By identity, as hashing a resource serialises it. The originals are kept, so that their
        # identities stay theirs.
        self._resources: dict[int, tuple[Resource, Resource]] = {}
        self._scopes: dict[int, tuple[InstrumentationScope, InstrumentationScope]] = {}

    def span(self, span: Any) -> Any:
        """Return an ended span redacted.

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
        """Return a redactor for one span or log record, which knows the secrets that it names."""
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
        """Return a log record redacted.

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
        kept = self._secrets.attributes(self._values.attributes(attributes or {}))
        redacted = BoundedAttributes(attributes=kept, immutable=False, **_EXTENDED)
        redacted.dropped = dropped
        return redacted

    def _resource(self, resource: Resource) -> Resource:
        known = self._resources.get(id(resource))
        if known is None:
            attributes = self._secrets.attributes(self._values.attributes(resource.attributes))
            is_same = attributes == dict(resource.attributes)
            redacted = resource if is_same else Resource(attributes, resource.schema_url)
            known = resource, redacted
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


def _contents(span: Any) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Return the attributes and the other texts of a span, its events and its links."""
    attributes = [span.attributes or {}]
    attributes += [each.attributes or {} for each in (*span.events, *span.links)]
    texts = [span.name, span.status.description or "", *(event.name for event in span.events)]
    return attributes, texts


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
