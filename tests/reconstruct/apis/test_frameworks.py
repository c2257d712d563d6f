"""Rebuilt answers are accepted by the frameworks that agents are written with."""

from __future__ import annotations

import asyncio
import warnings

import pytest

from oteval.model import ToolCall

from .rebuilt import Rebuilt, asks, says

CALLS = (ToolCall("weather", {"city": "Bern"}, ""), ToolCall("weather", {"city": "Basel"}, ""))
ANSWER = "It is sunny in both."
SCRIPT = [asks(*CALLS), says(ANSWER)]


def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"sunny in {city}"


def check(rebuilt: Rebuilt, api: str) -> None:
    """Check that both results were sent back to the calls that asked for them."""
    first, second = rebuilt.requests
    assert (first.api, second.api) == (api, api)
    results = {m.tool_call_id: m.content for m in second.messages if m.role == "tool"}
    (asked,) = [m for m in second.messages if m.tool_calls]
    assert [results[call.id] for call in asked.tool_calls] == ["sunny in Bern", "sunny in Basel"]


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("api", ["chat_completions", "responses"])
def test_langchain(api: str, is_stream: bool) -> None:
    """LangChain's model runs a loop with two parallel calls, also streamed."""
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    rebuilt = Rebuilt(SCRIPT)
    model = ChatOpenAI(
        model="m",
        api_key="none",
        base_url="http://model/v1",
        http_client=rebuilt.client._client,
        use_responses_api=api == "responses",
        streaming=is_stream,
    ).bind_tools([tool(weather)])
    messages = [HumanMessage("Weather?")]
    asked = model.invoke(messages)
    results = [
        ToolMessage(weather(**call["args"]), tool_call_id=call["id"]) for call in asked.tool_calls
    ]
    answer = model.invoke([*messages, asked, *results])
    assert answer.text == ANSWER
    if not is_stream:
        assert answer.usage_metadata["input_tokens"] == 11
    check(rebuilt, api)


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("api", ["chat_completions", "responses"])
def test_pydantic_ai(api: str, is_stream: bool) -> None:
    """Pydantic AI's agent runs its tools and ends with the recorded answer."""
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    rebuilt = Rebuilt(SCRIPT)
    kind = OpenAIResponsesModel if api == "responses" else OpenAIChatModel
    model = kind("m", provider=OpenAIProvider(openai_client=rebuilt.async_client))
    agent = Agent(model, tools=[weather])

    async def run() -> str:
        if not is_stream:
            return (await agent.run("Weather?")).output
        async with agent.run_stream("Weather?") as result:
            return await result.get_output()

    assert asyncio.run(run()) == ANSWER
    check(rebuilt, api)


@pytest.mark.slow  # The import of the SDK takes two seconds.
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("api", ["chat_completions", "responses"])
def test_openai_agents(api: str, is_stream: bool) -> None:
    """The OpenAI Agents SDK runs its tools and ends with the recorded answer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from agents import (
            Agent,
            OpenAIChatCompletionsModel,
            OpenAIResponsesModel,
            RunConfig,
            Runner,
            function_tool,
        )

    rebuilt = Rebuilt(SCRIPT)
    kind = OpenAIResponsesModel if api == "responses" else OpenAIChatCompletionsModel
    model = kind(model="m", openai_client=rebuilt.async_client)
    agent = Agent("a", instructions="Be brief.", model=model, tools=[function_tool(weather)])
    config = RunConfig(tracing_disabled=True)

    async def run() -> str:
        if not is_stream:
            return (await Runner.run(agent, "Weather?", run_config=config)).final_output
        result = Runner.run_streamed(agent, "Weather?", run_config=config)
        async for _ in result.stream_events():
            pass
        return result.final_output

    assert asyncio.run(run()) == ANSWER
    check(rebuilt, api)
