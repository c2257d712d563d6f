"""Model Context Protocol: ``mcp.method.name`` on the spans of clients and servers.

Convention: the MCP page of OpenTelemetry's GenAI conventions. One call may be written three
times, one inside the other (the framework's client, the SDK's request, the server); what is inside
another tool's span is of no account. The SDKs' own spans hold no content.
"""

from __future__ import annotations

from ...model import Span
from ..gaps import gap
from ..readings import Reading, ToolRun, Wrapper
from ..values import parse_arguments
from .base import Dialect, Logs, attribute_gaps, result_text

__all__ = ["MCP"]

SWITCH = (
    "the spans of MCP itself hold none; instrument the agent that calls the tool, whose "
    "execute_tool span has arguments and result"
)
METHOD, NAME = "mcp.method.name", "gen_ai.tool.name"
ARGUMENTS, RESULT = "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"
CALL = "tools/call"


def claims(span: Span, logs: Logs) -> bool:  # noqa: ARG001
    """Return whether the span names a method of MCP."""
    return METHOD in span.attributes


def read(span: Span, logs: Logs) -> Reading:  # noqa: ARG001
    """Return a tool run for ``tools/call``; discovery and listing only surround it."""
    attributes = span.attributes
    if attributes[METHOD] != CALL:
        return Wrapper(span)
    gaps = attribute_gaps(span, (ARGUMENTS, RESULT), SWITCH)
    arguments = attributes.get(ARGUMENTS)
    if arguments is None and RESULT not in attributes:
        gaps.append(gap("content_not_captured", span.span_id, switch=SWITCH))
    return ToolRun(
        span,
        name=str(attributes.get(NAME) or span.name.rpartition(f"{CALL} ")[2]),
        call_id=str(attributes.get("gen_ai.tool.call.id") or ""),
        arguments=None if arguments is None else parse_arguments(arguments),
        result=result_text(span, attributes.get(RESULT)),
        is_error=span.is_error or "error.type" in attributes,
        gaps=tuple(gaps),
    )


MCP = Dialect("mcp", claims, read)
