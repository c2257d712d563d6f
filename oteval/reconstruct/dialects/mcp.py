"""Model Context Protocol: ``mcp.method.name`` on the spans of clients and servers.

Convention: the MCP page of OpenTelemetry's GenAI conventions. One call may have three nested spans
(the framework's client, the SDK's request, the server); spans inside another tool's span are
ignored. The SDKs' spans have no content.
"""

from __future__ import annotations

from ...model import Span
from ..dialect import Dialect, Logs, Operation, Wrapper
from ..tool_spans import tool_of_attributes

__all__ = ["DIALECT"]

SWITCH = (
    "MCP's spans hold no content; instrument the agent that calls the tool, whose "
    "execute_tool span has arguments and result"
)
METHOD, NAME = "mcp.method.name", "gen_ai.tool.name"
ARGUMENTS, RESULT = "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"
CALL = "tools/call"


def read(span: Span, logs: Logs) -> Operation:  # noqa: ARG001
    """A tool run for ``tools/call``, or a wrapper for other methods."""
    attributes = span.attributes
    if attributes[METHOD] != CALL:
        return Wrapper(span)
    name = attributes.get(NAME) or span.name.rpartition(f"{CALL} ")[2]
    return tool_of_attributes(span, (ARGUMENTS, RESULT), SWITCH, name=name)


DIALECT = Dialect(
    name="mcp",
    title="MCP clients and servers",
    precedence=280,
    read=read,
    keys=(METHOD,),
)
