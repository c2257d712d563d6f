"""Microsoft Agent Framework."""

from __future__ import annotations

from typing import Any

from agent_framework import Agent, tool
from agent_framework.openai import OpenAIChatCompletionClient

from . import shop


async def _ask(question: str, refund: Any) -> str:
    client = OpenAIChatCompletionClient(shop.MODEL, base_url=shop.base_url(), api_key=shop.KEY)
    agent = Agent(client, shop.SYSTEM, name="clerk", tools=[refund])
    return str((await agent.run(question)).text)


async def function(question: str) -> str:
    """A plain function."""
    return await _ask(question, shop.refund)


async def decorated(question: str) -> str:
    """A decorated coroutine function."""
    return await _ask(question, tool(name="refund")(shop.refund_later))


async def failing(question: str) -> str:
    """A function that raises an exception."""
    return await _ask(question, tool(name="refund")(shop.refund_fails))


KINDS = {"function": function, "@tool": decorated, "failing": failing}
