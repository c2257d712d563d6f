"""Pydantic AI."""

from __future__ import annotations

from typing import Any

from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    RunContext,
    ToolDenied,
)
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset
from pydantic_ai.toolsets.abstract import ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from . import shop


def _agent(**options: Any) -> Agent[Any, Any]:
    provider = OpenAIProvider(base_url=shop.base_url(), api_key=shop.KEY)
    model = OpenAIChatModel(shop.MODEL, provider=provider)
    return Agent(model, instructions=shop.SYSTEM, **options)


async def _ask(question: str, **options: Any) -> Any:
    return (await _agent(**options).run(question)).output


async def function(question: str) -> Any:
    """A plain function."""
    return await _ask(question, tools=[shop.refund])


async def coroutine(question: str) -> Any:
    """A coroutine function with the context of the run."""
    agent = _agent()

    @agent.tool
    async def refund(_ctx: RunContext[Any], order_id: int, amount: int) -> dict[str, object]:
        return shop.act(order_id, amount)

    return (await agent.run(question)).output


async def prefixed_toolset(question: str) -> Any:
    """A toolset whose tools get other names."""
    toolset: FunctionToolset[Any] = FunctionToolset([shop.refund])
    return await _ask(question, toolsets=[toolset.prefixed("shop")])


class _ShopToolset(AbstractToolset[Any]):
    """A toolset that runs its tools by itself."""

    @property
    def id(self) -> str | None:
        return "shop"

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        properties = {"order_id": {"type": "integer"}, "amount": {"type": "integer"}}
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        validator = SchemaValidator(core_schema.dict_schema())
        definition = ToolDefinition(name="refund", parameters_json_schema=schema)
        return {
            "refund": ToolsetTool(
                toolset=self, tool_def=definition, max_retries=1, args_validator=validator
            )
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        return shop.act(**tool_args)


async def own_toolset(question: str) -> Any:
    """A toolset of the agent's own class."""
    return await _ask(question, toolsets=[_ShopToolset()])


async def retry(question: str) -> Any:
    """A tool that asks the model to try again, once."""
    orders: list[int] = []

    def refund(order_id: int, amount: int) -> dict[str, object]:
        """Refund an order."""
        orders.append(order_id)
        shop.act(order_id, amount)
        raise ModelRetry("the till is closed, say so")

    return await _ask(question, tools=[refund])


async def inline_approval(question: str) -> Any:
    """A tool that needs an approval, which the agent gives in the same run."""
    from pydantic_ai.capabilities import HandleDeferredToolCalls

    def approve(_ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        return requests.build_results(approve_all=True)

    agent = _agent(capabilities=[HandleDeferredToolCalls(handler=approve)])
    agent.tool_plain(requires_approval=True)(shop.refund)
    return (await agent.run(question)).output


async def approval(question: str) -> Any:
    """A tool that needs an approval; it is given in a second run."""
    agent = _agent(output_type=[str, DeferredToolRequests])
    agent.tool_plain(requires_approval=True)(shop.refund)
    return await _approved(agent, question)


async def approval_toolset(question: str) -> Any:
    """A toolset whose tools need an approval; it is given in a second run."""
    toolset: FunctionToolset[Any] = FunctionToolset([shop.refund])
    agent = _agent(toolsets=[toolset.approval_required()], output_type=[str, DeferredToolRequests])
    return await _approved(agent, question)


async def _approved(agent: Agent[Any, Any], question: str, *, denied: bool = False) -> Any:
    result = await agent.run(question)
    while isinstance(result.output, DeferredToolRequests):
        answers = DeferredToolResults()
        for call in result.output.approvals:
            answers.approvals[call.tool_call_id] = ToolDenied("no") if denied else True
        history = result.all_messages()
        result = await agent.run(message_history=history, deferred_tool_results=answers)
    return result.output


async def mcp(question: str) -> Any:
    """A tool of an MCP server."""
    from pydantic_ai.mcp import MCPToolset

    from .mcp_shop import server

    return await _ask(question, toolsets=[MCPToolset(server())])


KINDS = {
    "function": function,
    "coroutine": coroutine,
    "prefixed toolset": prefixed_toolset,
    "own toolset": own_toolset,
    "ModelRetry": retry,
    "approval": approval,
    "approval toolset": approval_toolset,
    "inline approval": inline_approval,
    "MCP": mcp,
}
