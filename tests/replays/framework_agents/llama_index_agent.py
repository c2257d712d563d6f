"""LlamaIndex."""

from __future__ import annotations

from typing import Any

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAI

from . import shop


def _agent(tools: list[Any], **options: Any) -> FunctionAgent:
    model = OpenAI("gpt-4o-mini", api_base=shop.base_url(), api_key=shop.KEY)
    return FunctionAgent(tools=tools, llm=model, system_prompt=shop.SYSTEM, **options)


async def function(question: str) -> str:
    """A plain function."""
    return str(await _agent([shop.refund]).run(question))


async def coroutine(question: str) -> str:
    """A coroutine function."""
    refund = FunctionTool.from_defaults(async_fn=shop.refund_later, name="refund")
    return str(await _agent([refund]).run(question))


async def failing(question: str) -> str:
    """A function that raises an exception."""
    refund = FunctionTool.from_defaults(shop.refund_fails, name="refund")
    return str(await _agent([refund]).run(question))


async def workflow(question: str) -> str:
    """An agent in a workflow."""
    clerk = _agent([shop.refund], name="clerk", description="Refunds orders.")
    return str(await AgentWorkflow(agents=[clerk]).run(question))


def own_loop(question: str) -> str:
    """A model that calls the tools by itself."""
    model = OpenAI("gpt-4o-mini", api_base=shop.base_url(), api_key=shop.KEY)
    refund = FunctionTool.from_defaults(shop.refund, name="refund")
    return str(model.predict_and_call([refund], user_msg=question))


KINDS = {
    "function": function,
    "coroutine": coroutine,
    "failing": failing,
    "AgentWorkflow": workflow,
    "predict_and_call": own_loop,
}
