"""An MCP server that answers the recorded tools of a session.

The recorded model requests define the tools; a tool that was executed without a definition takes
any arguments. It serves standard input and output, or streamable HTTP as part of the endpoint of
``oteval replay serve``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette

from .. import __version__
from ..base.errors import ReplayDiverged
from ..model import Recording
from .player import Player

__all__ = ["mcp_app", "mcp_server", "serve_stdio"]

_ANY_OBJECT = {"type": "object"}


def mcp_server(player: Player) -> Server[Any]:
    """Make a server that answers the tools of a player's recording."""

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=recorded_tools(player.recording))

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            execution = await asyncio.to_thread(
                player.answer_tool, params.name, dict(params.arguments or {})
            )
        except ReplayDiverged as error:
            return _result(f"oteval replay: {error}", is_error=True)
        if execution is None:
            return _result("oteval replay: this endpoint cannot run tools", is_error=True)
        return _result(execution.result or "", is_error=execution.is_error)

    return Server(
        f"oteval-replay-{player.recording.session[:12]}",
        version=__version__,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def mcp_app(player: Player, path: str) -> Starlette:
    """Make an ASGI application that serves a player's tools over streamable HTTP.

    Args:
        player: The player.
        path: The path of the endpoint, such as ``/mcp``.
    """
    return mcp_server(player).streamable_http_app(
        streamable_http_path=path,
        json_response=True,
        # The endpoint checks hosts and origins, for all of its paths alike.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )


def serve_stdio(player: Player) -> None:
    """Serve a player's tools on standard input and output until input ends."""

    async def serve() -> None:
        server = mcp_server(player)
        async with stdio_server() as (read_stream, write_stream):
            options = server.create_initialization_options()
            await server.run(read_stream, write_stream, options)

    asyncio.run(serve())


def recorded_tools(recording: Recording) -> list[types.Tool]:
    """The tools of a recording, in the order of their first appearance."""
    tools: dict[str, types.Tool] = {}
    for call in recording.model_calls:
        for definition in call.request.tools:
            tool = _tool(definition)
            if tool is not None:
                tools.setdefault(tool.name, tool)
    for run in recording.tool_calls:
        tools.setdefault(run.name, types.Tool(name=run.name, input_schema=_ANY_OBJECT))
    return list(tools.values())


def _tool(definition: Mapping[str, Any]) -> types.Tool | None:
    """The tool of a definition in OpenAI's format; None for tools of the provider."""
    function = definition.get("function", definition)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not name:
        return None
    schema = function.get("parameters") or function.get("input_schema")
    schema = dict(schema) if isinstance(schema, Mapping) else dict(_ANY_OBJECT)
    schema.setdefault("type", "object")
    description = function.get("description")
    return types.Tool(
        name=name,
        description=description if isinstance(description, str) else None,
        input_schema=schema,
    )


def _result(text: str, *, is_error: bool = False) -> types.CallToolResult:
    content = [types.TextContent(type="text", text=text)]
    return types.CallToolResult(content=list(content), is_error=is_error)
