"""The shop's tools as an MCP server in this process."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer

from . import shop


def server() -> MCPServer:
    """Return the server."""
    served = MCPServer("shop")
    served.tool()(shop.refund)
    return served
