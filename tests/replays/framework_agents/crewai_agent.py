"""CrewAI."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")
os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")

from crewai import LLM, Agent, Crew, Task
from crewai.tools import BaseTool, tool

from . import shop


def _ask(question: str, refund: Any) -> str:
    model = LLM(model=f"openai/{shop.MODEL}", base_url=shop.base_url(), api_key=shop.KEY)
    clerk = Agent(role="clerk", goal=shop.SYSTEM, backstory="b", tools=[refund], llm=model)
    task = Task(description=question, expected_output="the state", agent=clerk)
    return str(Crew(agents=[clerk], tasks=[task], verbose=False).kickoff().raw)


def function(question: str) -> str:
    """A decorated function."""
    return _ask(question, tool("refund")(shop.refund))


class _Refund(BaseTool):
    name: str = "refund"
    description: str = "Refund an order."

    def _run(self, order_id: int, amount: int) -> Any:
        return shop.act(order_id, amount)


def own_class(question: str) -> str:
    """A class of tools."""
    return _ask(question, _Refund())


def failing(question: str) -> str:
    """A function that raises an exception."""
    return _ask(question, tool("refund")(shop.refund_fails))


KINDS = {"@tool": function, "BaseTool": own_class, "failing": failing}
