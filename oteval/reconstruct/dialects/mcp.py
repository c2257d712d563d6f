"""Model Context Protocol: ``mcp.method.name`` on the spans of clients and servers.

Convention: the MCP page of OpenTelemetry's GenAI conventions. One call may be written three
times, one inside the other (the framework's client, the SDK's request, the server); spans
inside another tool's span are ignored. The SDKs' own spans hold no content.
"""

from __future__ import annotations

from ...messages.values import parse_arguments
from ...model import Span
from ..dialect import Dialect, Logs
from ..gaps import gap
from ..operations import Operation, Wrapper
from ..readers.spans import attribute_gaps
from ..tool_spans import tool_run

__all__ = ["DIALECT"]

SWITCH = (
    "MCP's spans hold no content; instrument the agent that calls the tool, whose "
    "execute_tool span has arguments and result"
)
METHOD, NAME = "mcp.method.name", "gen_ai.tool.name"
ARGUMENTS, RESULT = "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"
CALL = "tools/call"


def read(span: Span, logs: Logs) -> Operation:  # noqa: ARG001
    """Return a tool run for ``tools/call``; discovery and listing only surround it."""
    attributes = span.attributes
    if attributes[METHOD] != CALL:
        return Wrapper(span)
    gaps = attribute_gaps(span, (ARGUMENTS, RESULT), SWITCH)
    arguments = attributes.get(ARGUMENTS)
    if arguments is None and RESULT not in attributes:
        gaps.append(gap("content_not_captured", span.span_id, switch=SWITCH))
    return tool_run(
        span,
        name=str(attributes.get(NAME) or span.name.rpartition(f"{CALL} ")[2]),
        call_id=attributes.get("gen_ai.tool.call.id"),
        arguments=None if arguments is None else parse_arguments(arguments),
        result=attributes.get(RESULT),
        gaps=gaps,
    )


DIALECT = Dialect(
    name="mcp",
    title="MCP clients and servers",
    precedence=280,
    read=read,
    keys=(METHOD,),
)
