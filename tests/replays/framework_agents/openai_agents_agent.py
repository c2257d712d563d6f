"""The OpenAI Agents SDK."""

from __future__ import annotations

from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
from openai import AsyncOpenAI

from . import shop


def _agent(name: str, **options: Any) -> Agent[Any]:
    client = AsyncOpenAI(base_url=shop.base_url(), api_key=shop.KEY)
    model = OpenAIChatCompletionsModel(shop.MODEL, client)
    return Agent(name, instructions=shop.SYSTEM, model=model, **options)


async def _ask(question: str, **options: Any) -> str:
    return str((await Runner.run(_agent("clerk", **options), question)).final_output)


async def function(question: str) -> str:
    """A decorated function."""
    return await _ask(question, tools=[function_tool(shop.refund)])


async def streamed(question: str) -> str:
    """A decorated coroutine function of an agent that streams."""
    refund = function_tool(shop.refund_later, name_override="refund")
    result = Runner.run_streamed(_agent("clerk", tools=[refund]), question)
    async for _ in result.stream_events():
        pass
    return str(result.final_output)


async def failing(question: str) -> str:
    """A function that raises an exception."""
    return await _ask(question, tools=[function_tool(shop.refund_fails, name_override="refund")])


async def approval(question: str) -> str:
    """A function that needs an approval."""
    clerk = _agent("clerk", tools=[function_tool(shop.refund, needs_approval=True)])
    result = await Runner.run(clerk, question)
    while result.interruptions:
        state = result.to_state()
        for interruption in result.interruptions:
            state.approve(interruption)
        result = await Runner.run(clerk, state)
    return str(result.final_output)


async def agent_as_tool(question: str) -> str:
    """Another agent as a tool, which has the tool."""
    clerk = _agent("clerk", tools=[function_tool(shop.refund)])
    helper = clerk.as_tool(tool_name="ask_clerk", tool_description="Asks the clerk.")
    return str((await Runner.run(_agent("triage", tools=[helper]), question)).final_output)


KINDS = {
    "function_tool": function,
    "streamed": streamed,
    "failing": failing,
    "approval": approval,
    "agent as tool": agent_as_tool,
}
