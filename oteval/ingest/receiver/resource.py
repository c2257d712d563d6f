"""Resource attributes set on a request, in place of what its sender wrote there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..spool import Encoding

__all__ = ["set_attributes"]


def set_attributes(encoding: Encoding, request: Any, attributes: Mapping[str, str]) -> None:
    """Set attributes on every resource of a parsed request, in place.

    Args:
        encoding: ``json`` or ``protobuf``.
        request: The request.
        attributes: The attributes. A resource keeps its other ones.
    """
    if encoding == "json":
        for group in _groups(request):
            _set_json(group, attributes)
        return
    is_traces = hasattr(request, "resource_spans")
    for group in request.resource_spans if is_traces else request.resource_logs:
        resource = group.resource
        kept = [one for one in resource.attributes if one.key not in attributes]
        del resource.attributes[:]
        resource.attributes.extend(kept)
        for key, value in attributes.items():
            resource.attributes.add(key=key).value.string_value = value


def _groups(request: Any) -> list[Any]:
    names = ("resourceSpans", "resource_spans", "resourceLogs", "resource_logs")
    found = (request.get(name) for name in names)
    return [group for groups in found if isinstance(groups, list) for group in groups]


def _set_json(group: Any, attributes: Mapping[str, str]) -> None:
    if not isinstance(group, dict):
        return
    resource = group.get("resource")
    if not isinstance(resource, dict):
        resource = group["resource"] = {}
    given = resource.get("attributes")
    known = given if isinstance(given, list) else []
    kept = [one for one in known if not (isinstance(one, dict) and one.get("key") in attributes)]
    own = [{"key": key, "value": {"stringValue": text}} for key, text in attributes.items()]
    resource["attributes"] = [*kept, *own]
