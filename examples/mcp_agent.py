"""A hand-written agent whose tools are on an MCP server, which it starts itself.

python examples/mcp_agent.py [QUESTION]
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import openai
import shop
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

import oteval

SYSTEM = "You are the order desk of a shop. Use the tools, and answer in one sentence per order."
SERVER = StdioServerParameters(
    command=sys.executable, args=[str(Path(__file__).with_name("mcp_orders.py"))]
)


@oteval.agent(name="order-desk")
async def answer(question: str) -> str:
    """Answer a question about orders."""
    context = shop.gather_context("ada@example.com")
    messages: list[Any] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"{context} Question: {question}"},
    ]
    client = openai.AsyncOpenAI()
    async with stdio_client(SERVER) as streams, ClientSession(*streams) as session:
        await session.initialize()
        tools: Any = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.input_schema,
                },
            }
            for tool in (await session.list_tools()).tools
        ]
        while True:
            completion = await client.chat.completions.create(
                model="scripted", messages=messages, tools=tools
            )
            message = completion.choices[0].message
            if not message.tool_calls:
                return message.content or ""
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls:
                messages.append(await run_tool(session, call))


async def run_tool(session: ClientSession, call: Any) -> dict[str, Any]:
    """Run one tool call on the MCP server, and return its message."""
    result = await session.call_tool(call.function.name, json.loads(call.function.arguments))
    text = "".join(getattr(part, "text", "") for part in result.content)
    return {"role": "tool", "tool_call_id": call.id, "content": text}


def main() -> None:
    """Answer the question on the command line."""
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    if "--instrument" in sys.argv:
        oteval.instrument(os.environ.get("TRACES"))
    print(asyncio.run(answer(" ".join(words) or "Where are my orders A100 and B200?")))


if __name__ == "__main__":
    main()
