"""An MCP server with the tools of the order desk, over standard input and output."""

from __future__ import annotations

import shop
from mcp.server.mcpserver import MCPServer

server = MCPServer("orders")
server.tool()(shop.track_parcel)
server.tool()(shop.refund)

if __name__ == "__main__":
    server.run("stdio")
