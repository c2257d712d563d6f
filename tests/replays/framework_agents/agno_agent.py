"""Agno."""

from __future__ import annotations

from typing import Any

from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.tools import Toolkit

from . import shop


def _agent(tools: list[Any]) -> Agent:
    model = OpenAIChat(id=shop.MODEL, base_url=shop.base_url(), api_key=shop.KEY)
    return Agent(model=model, tools=tools, instructions=shop.SYSTEM, telemetry=False)


def function(question: str) -> str:
    """A plain function."""
    return str(_agent([shop.refund]).run(question).content)


async def coroutine(question: str) -> str:
    """A coroutine function."""

    async def refund(order_id: int, amount: int) -> dict:
        """Refund an order."""
        return shop.act(order_id, amount)

    return str((await _agent([refund]).arun(question)).content)


def toolkit(question: str) -> str:
    """A toolkit."""
    return str(_agent([Toolkit("shop", tools=[shop.refund])]).run(question).content)


def failing(question: str) -> str:
    """A function that raises an exception."""

    def refund(order_id: int, amount: int) -> str:
        """Refund an order."""
        return shop.refund_fails(order_id, amount)

    return str(_agent([refund]).run(question).content)


KINDS = {"function": function, "coroutine": coroutine, "Toolkit": toolkit, "failing": failing}
