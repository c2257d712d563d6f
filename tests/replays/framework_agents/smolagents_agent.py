"""smolagents."""

from __future__ import annotations

from typing import Any

from smolagents import CodeAgent, OpenAIServerModel, Tool, ToolCallingAgent, tool

from . import shop


def _model() -> OpenAIServerModel:
    return OpenAIServerModel(shop.MODEL, api_base=shop.base_url(), api_key=shop.KEY)


@tool
def refund(order_id: int, amount: int) -> dict:
    """Refund an order.

    Args:
        order_id: The order.
        amount: The amount.
    """
    return shop.act(order_id, amount)


class _Refund(Tool):
    name = "refund"
    description = "Refund an order."
    inputs = {  # noqa: RUF012
        "order_id": {"type": "integer", "description": "The order."},
        "amount": {"type": "integer", "description": "The amount."},
    }
    output_type = "object"

    def forward(self, order_id: int, amount: int) -> Any:
        return shop.act(order_id, amount)


class _Failing(_Refund):
    def forward(self, order_id: int, amount: int) -> Any:
        return shop.refund_fails(order_id, amount)


def function(question: str) -> str:
    """A decorated function."""
    return str(ToolCallingAgent(tools=[refund], model=_model(), verbosity_level=0).run(question))


def own_class(question: str) -> str:
    """A class of tools."""
    agent = ToolCallingAgent(tools=[_Refund()], model=_model(), verbosity_level=0)
    return str(agent.run(question))


def failing(question: str) -> str:
    """A tool that raises an exception."""
    agent = ToolCallingAgent(tools=[_Failing()], model=_model(), verbosity_level=0)
    return str(agent.run(question))


def code(question: str) -> str:
    """A tool that the model's code calls."""
    return str(CodeAgent(tools=[refund], model=_model(), verbosity_level=0).run(question))


KINDS = {"@tool": function, "Tool": own_class, "failing": failing, "CodeAgent": code}
