"""Runs of LangSmith's API as spans, with the attributes that its own OpenTelemetry export writes.

The dialect ``langsmith`` therefore reads them as it reads the export.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...base.jsontext import dumps
from ...model import Event, Span
from .ids import span_id_of, trace_id_of
from .times import ns_of

__all__ = ["SELECTED", "read_run", "span_ids_of"]

SELECTED = (
    *("ID", "NAME", "RUN_TYPE", "STATUS", "START_TIME", "END_TIME", "ERROR", "EXTRA", "METADATA"),
    *("INPUTS", "OUTPUTS", "PARENT_RUN_IDS", "TRACE_ID", "THREAD_ID", "TAGS"),
    *("PROMPT_TOKENS", "COMPLETION_TOKENS", "TOTAL_TOKENS"),
)
"""The fields of runs to request."""
_METADATA = "langsmith.metadata"
_TOKENS = {
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "completion_tokens": "gen_ai.usage.output_tokens",
    "total_tokens": "gen_ai.usage.total_tokens",
}
_OK, _ERROR = 1, 2


def span_ids_of(run_id: str) -> tuple[str, str]:
    """The span ids of a run: by `read_run`, and by LangSmith's own export."""
    return span_id_of(run_id), run_id.replace("-", "").lower()[:16]


def read_run(value: Mapping[str, Any], project: str) -> Span:
    """The span of a run; it ends at its start if it has no end.

    Args:
        value: The run.
        project: The project, which names the service.

    Raises:
        ValueError: A field is missing or has an invalid value.
    """
    try:
        start_ns = ns_of(value["start_time"])
        end_ns = ns_of(value["end_time"]) if value.get("end_time") else start_ns
        parents = value.get("parent_run_ids") or ()
        error = value.get("error")
        is_error = bool(error) or value.get("status") == "ERROR"
        return Span(
            trace_id_of(_id(value["trace_id"])),
            span_id_of(_id(value["id"])),
            parent_id=span_id_of(_id(parents[-1])) if parents else "",
            name=str(value.get("name") or ""),
            start_ns=start_ns,
            end_ns=end_ns,
            status_code=_ERROR if is_error else _OK,
            attributes=_attributes(value),
            events=(_exception(str(error), end_ns),) if error else (),
            scope="langsmith",
            resource={"service.name": project, "langsmith.project": project},
        )
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _attributes(value: Mapping[str, Any]) -> dict[str, Any]:
    extra = value.get("extra") or {}
    metadata = {**(extra.get("metadata") or {}), **(value.get("metadata") or {})}
    name, kind = str(value.get("name") or ""), str(value["run_type"]).lower()
    attributes: dict[str, Any] = {
        "langsmith.span.kind": kind,
        "langsmith.trace.name": name,
        "langsmith.run.id": value["id"],
    }
    attributes |= {
        f"{_METADATA}.{key}": _plain(item) for key, item in metadata.items() if item is not None
    }
    if value.get("thread_id"):
        attributes.setdefault(f"{_METADATA}.thread_id", str(value["thread_id"]))
    attributes |= {name: value[key] for key, name in _TOKENS.items() if value.get(key) is not None}
    for key, attribute in (("inputs", "gen_ai.prompt"), ("outputs", "gen_ai.completion")):
        if value.get(key) is not None:
            attributes[attribute] = _text(value[key])
    if model := metadata.get("ls_model_name"):
        attributes["gen_ai.request.model"] = str(model)
    if tools := (extra.get("invocation_params") or {}).get("tools"):
        attributes["gen_ai.tool.definitions"] = _text(tools)
    if value.get("tags"):
        attributes["langsmith.span.tags"] = ", ".join(map(str, value["tags"]))
    if kind == "tool":
        attributes["gen_ai.tool.name"] = name
        call_id = extra.get("tool_call_id") or metadata.get("tool_call_id")
        if call_id is not None:
            attributes["gen_ai.tool.call.id"] = str(call_id)
    return attributes


def _exception(reason: str, time_ns: int) -> Event:
    return Event("exception", time_ns, {"exception.type": "Exception", "exception.message": reason})


def _id(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"id {value!r}")
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)


def _plain(value: Any) -> str | bool | int | float:
    return value if isinstance(value, (str, bool, int, float)) else dumps(value)
