"""The id of an invocation: one process tree of `oteval run`, or one process with `instrument()`.

Everything that an invocation records carries the id as the resource attribute
``oteval.invocation.id``: the spans and HTTP exchanges of all its processes, in whatever trace they
are, and of whichever tracer provider. Requests that an agent made outside of its trace, such as one
at import, can so be found beside the rest.

`oteval run` makes the id and hands it to its children. Without it, the process makes one; forks of
the process inherit it.
"""

from __future__ import annotations

import copy
import secrets
from typing import Any

from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.resources import Resource

from ..model import INVOCATION_ID
from .export_pipeline import Exportable

__all__ = ["INVOCATION_ID", "InvocationMarker", "current_invocation", "join_invocation"]

# Processes have few resources; more are not remembered.
_MAX_CACHED = 256
_current = ""


def join_invocation(invocation_id: str) -> None:
    """Let the records of this process belong to an invocation from now on.

    Args:
        invocation_id: The id that `oteval run` gave to its children; "" is ignored.
    """
    global _current
    if invocation_id:
        _current = invocation_id


def current_invocation() -> str:
    """Return the id of the invocation of this process, a new one if it has joined none."""
    global _current
    if not _current:
        _current = secrets.token_hex(8)
    return _current


class InvocationMarker:
    """Adds the id to the resources of spans and log records that are exported.

    Resources of a provider that oteval sets up have it already. Those of an agent's own provider
    have it in the export only: other exporters of the agent do not see it.
    """

    def __init__(self) -> None:
        # By identity, as hashing a resource serialises it. The originals are kept, so that their
        # identities stay theirs.
        self._resources: dict[int, tuple[Resource, Resource]] = {}

    def marked(self, exportable: Exportable) -> Exportable:
        """Return a span or log record whose resource has the id of the invocation."""
        item = exportable.item
        resource = self._marked_resource(item.resource)
        if resource is item.resource:
            return exportable
        if exportable.is_log:
            return exportable._replace(item=_moved_record(item, resource))
        # A shallow copy: the span itself may be exported by others, with its own resource.
        span = copy.copy(item)
        span._resource = resource
        return exportable._replace(item=span)

    def _marked_resource(self, resource: Resource | None) -> Resource:
        cached = self._resources.get(id(resource))
        if cached is not None:
            return cached[1]
        original = resource if resource is not None else Resource.get_empty()
        invocation = current_invocation()
        marked = original
        if original.attributes.get(INVOCATION_ID) != invocation:
            attributes = {**original.attributes, INVOCATION_ID: invocation}
            marked = Resource(attributes, original.schema_url)
        if resource is not None and len(self._resources) < _MAX_CACHED:
            self._resources[id(resource)] = original, marked
        return marked


def _moved_record(emitted: Any, resource: Resource) -> Any:
    scope = emitted.instrumentation_scope
    return ReadableLogRecord(emitted.log_record, resource, scope, emitted.limits)
