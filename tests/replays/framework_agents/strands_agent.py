"""Strands Agents."""

from __future__ import annotations

from typing import Any

from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.tools.tools import PythonAgentTool

from . import shop


def _ask(question: str, refund: Any) -> str:
    arguments = {"base_url": shop.base_url(), "api_key": shop.KEY}
    model = OpenAIModel(client_args=arguments, model_id=shop.MODEL)
    agent = Agent(model=model, tools=[refund], system_prompt=shop.SYSTEM, callback_handler=None)
    return str(agent(question))


def function(question: str) -> str:
    """A decorated function."""
    return _ask(question, tool(shop.refund))


def coroutine(question: str) -> str:
    """A decorated coroutine function."""
    return _ask(question, tool(name="refund")(shop.refund_later))


def failing(question: str) -> str:
    """A function that raises an exception."""
    return _ask(question, tool(name="refund")(shop.refund_fails))


def module_tool(question: str) -> str:
    """A function that takes the model's request."""

    def refund(tool_use: Any, **_state: Any) -> Any:
        result = str(shop.act(**tool_use["input"]))
        content = [{"text": result}]
        return {"toolUseId": tool_use["toolUseId"], "status": "success", "content": content}

    properties = {"order_id": {"type": "integer"}, "amount": {"type": "integer"}}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    spec: Any = {
        "name": "refund",
        "description": "Refund an order.",
        "inputSchema": {"json": schema},
    }
    return _ask(question, PythonAgentTool("refund", spec, refund))


KINDS = {
    "@tool": function,
    "coroutine": coroutine,
    "failing": failing,
    "PythonAgentTool": module_tool,
}
