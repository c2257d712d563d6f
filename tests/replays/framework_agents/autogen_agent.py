"""AutoGen."""

from __future__ import annotations

from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient

from . import shop


async def _ask(question: str, refund: Any) -> str:
    client = OpenAIChatCompletionClient(
        model="gpt-4o-mini", base_url=shop.base_url(), api_key=shop.KEY
    )
    agent = AssistantAgent(
        "clerk", client, tools=[refund], system_message=shop.SYSTEM, reflect_on_tool_use=True
    )
    return str((await agent.run(task=question)).messages[-1].content)


async def function(question: str) -> str:
    """A plain function."""
    return await _ask(question, shop.refund)


async def failing(question: str) -> str:
    """A function that raises an exception."""
    return await _ask(question, FunctionTool(shop.refund_fails, "Refund an order.", name="refund"))


KINDS = {"function": function, "failing": failing}
