"""The same small agent, written with several libraries, for a process of its own.

Run with ``python -m tests.record.travel_agents NAME MODEL_URL TRACE_FILE [LIBRARY...]``:
the agent asks the model at the URL, and oteval exports its spans to the file. `converse` is the
script of the model server: two calls at once, then one more, then the answer.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

from tests.model_server import Body, Reply

QUESTION = "How is the weather?"
CALLS = (
    (("c1", "weather", {"city": "Paris"}), ("c2", "weather", {"city": "Rome"})),
    (("c3", "population", {"city": "Rome"}),),
)
ANSWER = "Sunny in both; Rome has 3 million people."


def converse(body: Body, number: int) -> Reply:
    """Return the model's next message: calls of tools until all have results, then the answer."""
    results = [message for message in body["messages"] if message["role"] == "tool"]
    message: Body = {"role": "assistant", "content": None}
    if len(results) < 3:
        calls = CALLS[0 if not results else 1]
        message["tool_calls"] = [
            {
                "id": call_id,
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for call_id, name, arguments in calls
        ]
    else:
        message["content"] = ANSWER
    reason = "tool_calls" if len(results) < 3 else "stop"
    return Reply(
        {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        }
    )


def weather(city: str) -> str:
    """Return the weather."""
    return f"{city}: sunny"


def population(city: str) -> str:
    """Return the population."""
    return f"{city}: 3 million"


TOOLS: dict[str, Callable[[str], str]] = {"weather": weather, "population": population}


def plain(url: str) -> None:
    """Run a loop around the client of OpenAI."""
    _loop(url)


def graph(url: str) -> None:
    """Run the loop in a node of a graph of LangGraph, by OpenAI's client and not LangChain's."""
    from langchain_core.messages import AIMessage
    from langgraph.graph import END, START, MessagesState, StateGraph

    def work(state: MessagesState) -> Any:
        return {"messages": [AIMessage(_loop(url))]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("work", work)
    builder.add_edge(START, "work")
    builder.add_edge("work", END)
    builder.compile(name="travel").invoke({"messages": [("user", QUESTION)]})


def langgraph(url: str) -> None:
    """Run LangGraph's own agent."""
    import warnings

    from langchain_openai import ChatOpenAI

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from langgraph.prebuilt import create_react_agent

        model = ChatOpenAI(model="m", base_url=url, api_key="key")  # type: ignore[arg-type]
        agent: Any = create_react_agent(model, list(TOOLS.values()), name="travel")
    agent.invoke({"messages": [("user", QUESTION)]})


def openai_agents(url: str) -> None:
    """Run an agent of the OpenAI Agents SDK."""
    import logging

    # Without a key, the SDK says that it exports no traces to OpenAI.
    logging.getLogger("openai.agents").setLevel(logging.CRITICAL)
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
    from openai import AsyncOpenAI

    model = OpenAIChatCompletionsModel("m", AsyncOpenAI(base_url=url, api_key="key"))
    tools: Any = [function_tool(tool) for tool in TOOLS.values()]
    asyncio.run(Runner.run(Agent(name="travel", model=model, tools=tools), QUESTION))


def pydantic_ai(url: str) -> None:
    """Run an agent of Pydantic AI."""
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=url, api_key="key"))
    agent: Any = Agent(model, name="travel", tools=list(TOOLS.values()))
    agent.run_sync(QUESTION)


def mcp(url: str) -> None:
    """Run the loop with the tools of an MCP server, in a span of the agent."""
    asyncio.run(_with_mcp(url))


async def _with_mcp(url: str) -> None:
    from mcp import Client
    from mcp.server import MCPServer
    from opentelemetry import trace

    server: Any = MCPServer("travel", log_level="ERROR")
    for tool in TOOLS.values():
        server.tool()(tool)
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "travel"}
    tracer = trace.get_tracer("travel")
    async with Client(server) as client:

        async def call(name: str, arguments: dict[str, Any]) -> str:
            result: Any = await client.call_tool(name, arguments)
            return str(result.content[0].text)

        with tracer.start_as_current_span("invoke_agent travel", attributes=attributes):
            await _loop_async(url, call)


def _loop(url: str) -> str:
    async def call(name: str, arguments: dict[str, Any]) -> str:
        return TOOLS[name](**arguments)

    return asyncio.run(_loop_async(url, call))


async def _loop_async(url: str, call: Callable[[str, dict[str, Any]], Any]) -> str:
    from openai import AsyncOpenAI

    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    async with AsyncOpenAI(base_url=url, api_key="key") as client:
        while True:
            completion = await client.chat.completions.create(model="m", messages=messages)
            message = completion.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return message.content or ""
            for asked in message.tool_calls:
                function: Any = asked.function  # type: ignore[union-attr]
                content = await call(function.name, json.loads(function.arguments))
                messages.append({"role": "tool", "tool_call_id": asked.id, "content": content})


def main() -> None:
    """Run the agent that the arguments name; print the states of the libraries as JSON."""
    import dataclasses

    import oteval

    name, url, path, *libraries = sys.argv[1:]
    oteval.instrument(path, libraries=libraries or None)
    globals()[name](url)

    from oteval.record.discovery import library_states

    print(json.dumps([dataclasses.asdict(state) for state in library_states()]))


if __name__ == "__main__":
    main()
