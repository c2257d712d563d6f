"""Observations of Langfuse's public API as spans, with the attributes that its own SDK writes.

The dialect ``langfuse`` therefore reads them as it reads the SDK's export. Langfuse's server keeps
the resource of a span in the observation's metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...base.jsontext import dumps, loads
from ...model import Span
from .ids import span_id_of, trace_id_of
from .times import ns_of

__all__ = ["METADATA", "has_ended", "read_observation"]

METADATA = ("langgraph_node", "lc_agent_name", "tool_call_id", "resourceAttributes", "scope")
"""The keys of an observation's metadata that are needed in full."""
_OBSERVATION = "langfuse.observation"
_TEXTS = {
    "level": "langfuse.observation.level",
    "statusMessage": "langfuse.observation.status_message",
    "model": "langfuse.observation.model.name",
    "completionStartTime": "langfuse.observation.completion_start_time",
    "promptName": "langfuse.observation.prompt.name",
    "promptVersion": "langfuse.observation.prompt.version",
    "traceName": "langfuse.trace.name",
    "tags": "langfuse.trace.tags",
    "userId": "user.id",
    "sessionId": "session.id",
    "environment": "langfuse.environment",
    "release": "langfuse.release",
    "version": "langfuse.version",
}
_JSON = {
    "input": f"{_OBSERVATION}.input",
    "output": f"{_OBSERVATION}.output",
    "modelParameters": f"{_OBSERVATION}.model.parameters",
    "usageDetails": f"{_OBSERVATION}.usage_details",
    "costDetails": f"{_OBSERVATION}.cost_details",
}
_ERROR = 2
_EVENT = "EVENT"


def has_ended(value: Mapping[str, Any]) -> bool:
    """Whether an observation is finished; events have no end."""
    return bool(value.get("endTime")) or value.get("type") == _EVENT


def read_observation(value: Mapping[str, Any], project: str) -> Span:
    """The span of an observation; it ends at its start if it has no end.

    Args:
        value: The observation.
        project: The project, which names the service if the observation does not.

    Raises:
        ValueError: A field is missing or has an invalid value.
    """
    try:
        metadata = value.get("metadata") or {}
        start_ns = ns_of(value["startTime"])
        end = value.get("endTime")
        parent = value.get("parentObservationId")
        is_error = value.get("level") == "ERROR"
        resource = _object(metadata.get("resourceAttributes"))
        scope = _object(metadata.get("scope"))
        return Span(
            trace_id_of(_id(value["traceId"])),
            span_id_of(_id(value["id"])),
            parent_id=span_id_of(str(parent)) if parent else "",
            name=value.get("name") or "",
            start_ns=start_ns,
            end_ns=ns_of(end) if end else start_ns,
            status_code=_ERROR if is_error else 0,
            status_message=str(value.get("statusMessage") or "") if is_error else "",
            attributes=_attributes(value, metadata),
            scope=str(scope.get("name") or "langfuse-sdk"),
            resource={"service.name": project, **resource, "langfuse.project": project},
        )
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _attributes(value: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    attributes: dict[str, Any] = {f"{_OBSERVATION}.type": str(value["type"]).lower()}
    attributes |= {
        name: value[key] for key, name in _TEXTS.items() if value.get(key) not in (None, "")
    }
    attributes |= {
        name: _text(value[key]) for key, name in _JSON.items() if value.get(key) is not None
    }
    for key, item in metadata.items():
        if key not in ("resourceAttributes", "scope"):
            attributes[f"{_OBSERVATION}.metadata.{key}"] = _text(item)
    # Ids that became others are kept.
    attributes["langfuse.observation.id"] = value["id"]
    return attributes


def _id(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"id {value!r}")
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)


def _object(value: Any) -> Mapping[str, Any]:
    """An object that may be JSON text."""
    if isinstance(value, str):
        try:
            value = loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}
