"""Tools of frameworks are answered from a recording, as the frameworks' own code runs them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Annotated, Any

import pytest
from agents import Agent as OpenAIAgent, FunctionTool, function_tool
from agents.tool import invoke_function_tool
from agents.tool_context import ToolContext
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolArg, ToolException, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode
from langgraph.types import Command
from mcp import Client
from mcp.server.mcpserver import MCPServer
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import FunctionToolset

from oteval.record.hooks import ToolAnswer, tool_hook
from oteval.replays.interceptors import install_tool_adapters

ran: list[str] = []


@pytest.fixture(autouse=True)
def adapters() -> None:
    ran.clear()
    install_tool_adapters()


class Recorded:
    """A hook with one answer for each tool; other tools run."""

    def __init__(self, **answers: ToolAnswer) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Any]] = []
        self.seen: list[tuple[str, Any, Any, str | None]] = []

    def answer(self, name: str, arguments: dict[str, Any]) -> ToolAnswer | None:
        """Return the tool's answer, if it has one."""
        self.asked.append((name, arguments))
        return self.answers.get(name)

    def observe(
        self, name: str, arguments: Any, result: Any, error: str | None, start: int, end: int
    ) -> None:
        """Note the call."""
        assert start <= end
        self.seen.append((name, arguments, result, error))


# LangChain and LangGraph


@tool
def refund(order: int, state: Annotated[dict, InjectedState], key: Annotated[str, InjectedToolArg]):
    """Refund an order."""
    ran.append(f"refund {order}")
    return {"refunded": order}


@tool(response_format="content_and_artifact")
def look_up(order: int) -> tuple[str, dict]:
    """Look up an order."""
    ran.append("look_up")
    return "found", {"order": order}


@tool
def hand_over(reason: str) -> Command:
    """Hand the conversation over."""
    ran.append("hand_over")
    return Command(update={"messages": [ToolMessage(reason, tool_call_id="c1")]}, goto=END)


def graph_answers(*tools: BaseTool, **call: Any) -> ToolMessage:
    """Run one call through a graph with a `ToolNode`."""
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(list(tools)))
    graph.add_edge(START, "tools")
    tool_request = AIMessage("", tool_calls=[{"id": "c1", "type": "tool_call", **call}])
    return graph.compile().invoke({"messages": [tool_request]})["messages"][-1]


def test_a_langgraph_tool_is_answered_with_its_call_id_and_without_injected_arguments() -> None:
    """The model's arguments are matched; the state that the graph injects is not among them."""
    hook = Recorded(refund=ToolAnswer('{"refunded": 17}'))

    with tool_hook(hook):
        message = graph_answers(refund, name="refund", args={"order": 17})

    assert (message.content, message.tool_call_id) == ('{"refunded": 17}', "c1")
    assert (message.name, message.status) == ("refund", "success")
    assert hook.asked == [("refund", {"order": 17})]
    assert ran == []


def test_a_failed_langgraph_tool_gives_the_message_that_the_model_received() -> None:
    """Its text is not wrapped in the node's own error message again."""
    hook = Recorded(refund=ToolAnswer("Error: no such order", error="no such order"))

    with tool_hook(hook):
        message = graph_answers(refund, name="refund", args={"order": 17})

    assert (message.content, message.status) == ("Error: no such order", "error")


def test_a_langchain_tool_outside_of_a_graph_raises_its_error() -> None:
    """LangChain's own kind of error, or the builtin one that was recorded."""
    plain = ToolAnswer(error="closed")
    with tool_hook(Recorded(look_up=plain)), pytest.raises(ToolException, match="closed"):
        look_up.invoke({"order": 1})
    builtin = ToolAnswer(error="closed", error_type="PermissionError")
    with tool_hook(Recorded(look_up=builtin)), pytest.raises(PermissionError, match="closed"):
        look_up.invoke({"order": 1})


async def test_a_langchain_tool_with_an_artifact_keeps_its_shape() -> None:
    """The recording has only the content, so the artifact is None; sync and async."""
    call = {"name": "look_up", "args": {"order": 1}, "id": "c7", "type": "tool_call"}

    with tool_hook(Recorded(look_up=ToolAnswer("recorded"))):
        messages = [look_up.invoke(call), await look_up.ainvoke(call)]

    for message in messages:
        assert (message.content, message.artifact) == ("recorded", None)
        assert message.tool_call_id == "c7"
    assert ran == []


def test_a_tool_that_moves_the_graph_runs() -> None:
    """A recording has a command's message, but not where it leads."""
    hook = Recorded(hand_over=ToolAnswer("recorded"))

    with tool_hook(hook):
        message = graph_answers(hand_over, name="hand_over", args={"reason": "angry"})

    assert (message.content, ran) == ("angry", ["hand_over"])


async def test_tools_that_run_are_observed() -> None:
    """Without a recorded answer the tool runs; the hook gets its result, or its error."""

    @tool
    def fails(text: str) -> str:
        """Fail."""
        raise ValueError(text)

    hook = Recorded()
    with tool_hook(hook):
        look_up.invoke({"order": 1})
        with pytest.raises(ValueError, match="no"):
            await fails.ainvoke({"text": "no"})

    assert hook.seen == [
        ("look_up", {"order": 1}, "found", None),
        ("fails", {"text": "no"}, None, "no"),
    ]


def test_without_a_hook_nothing_changes() -> None:
    """The adapters stay in place after a replay."""
    assert look_up.invoke({"order": 1}) == "found"


# Pydantic AI


def two_steps(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the only tool, then repeat its answer."""
    last = messages[-1].parts[-1]
    if last.part_kind == "user-prompt":
        name = info.function_tools[0].name
        return ModelResponse([ToolCallPart(name, {"order": 17}, tool_call_id="c1")])
    return ModelResponse([TextPart(f"{last.outcome}: {last.model_response_str()}")])


def shop_agent(*, prefixed: bool = False) -> Agent:
    toolset: FunctionToolset = FunctionToolset()

    @toolset.tool_plain
    def refund(order: int) -> dict[str, int]:
        ran.append(f"refund {order}")
        if order < 0:
            raise ModelRetry("which order?")
        return {"refunded": order}

    chosen = toolset.prefixed("shop") if prefixed else toolset
    return Agent(FunctionModel(two_steps), toolsets=[chosen])


async def test_pydantic_ai_tools_are_answered_by_the_names_that_the_model_uses() -> None:
    """A toolset with a prefix does not change which recorded call is meant."""
    hook = Recorded(refund=ToolAnswer("recorded"), shop_refund=ToolAnswer("prefixed"))

    with tool_hook(hook):
        plain = await shop_agent().run("Refund 17")
        prefixed = await shop_agent(prefixed=True).run("Refund 17")

    assert (plain.output, prefixed.output) == ("success: recorded", "success: prefixed")
    assert hook.asked == [("refund", {"order": 17}), ("shop_refund", {"order": 17})]
    assert ran == []


async def test_pydantic_ai_tools_ask_the_model_to_retry_as_recorded() -> None:
    """The model receives the recorded text once, as a retry that counts."""
    texts = ['{"error":"which order?"}', "which order?\n\nFix the errors and try again."]
    results = []

    for text in texts:
        with tool_hook(Recorded(refund=ToolAnswer(text, error=text))):
            results.append(await shop_agent().run("Refund 17"))

    assert [result.output for result in results] == ['retried: {"error":"which order?"}'] * 2


async def test_pydantic_ai_tools_that_return_an_error_do_not_retry() -> None:
    """Only a call that is recorded as failed is one."""
    with tool_hook(Recorded(refund=ToolAnswer('{"error":"closed"}'))):
        result = await shop_agent().run("Refund 17")

    assert result.output == 'success: {"error":"closed"}'


async def test_pydantic_ai_tools_that_run_are_observed() -> None:
    """The hook sees the result as plain JSON."""
    hook = Recorded()

    with tool_hook(hook):
        await shop_agent().run("Refund 17")

    assert hook.seen == [("refund", {"order": 17}, {"refunded": 17}, None)]


# OpenAI Agents


@function_tool
def cancel(order: int) -> str:
    """Cancel an order."""
    ran.append(f"cancel {order}")
    return f"cancelled {order}"


async def invoke(function_tool: FunctionTool, arguments: str) -> Any:
    """Invoke a tool as the runner does."""
    context: ToolContext[Any] = ToolContext(
        context=None,
        tool_name=function_tool.name,
        tool_call_id="c1",
        tool_arguments=arguments,
        agent=OpenAIAgent("a"),
    )
    return await invoke_function_tool(
        function_tool=function_tool, context=context, arguments=arguments
    )


async def test_openai_agents_tools_are_answered() -> None:
    """A failed tool gives the text that the model received; an exception that escaped is raised."""
    hook = Recorded(cancel=ToolAnswer("recorded"))
    with tool_hook(hook):
        assert await invoke(cancel, '{"order": 17}') == "recorded"
    with tool_hook(Recorded(cancel=ToolAnswer("An error occurred", error="no"))):
        assert await invoke(cancel, '{"order": 17}') == "An error occurred"
    with (
        tool_hook(Recorded(cancel=ToolAnswer(error="no", error_type="KeyError"))),
        pytest.raises(KeyError),
    ):
        await invoke(cancel, '{"order": 17}')
    with tool_hook(Recorded(cancel=ToolAnswer(error="no", error_type="KeyError", is_fault=True))):
        assert "An error occurred while running the tool" in await invoke(cancel, '{"order": 17}')

    assert hook.asked == [("cancel", {"order": 17})]
    assert ran == []


async def test_openai_agents_tools_that_run_are_observed() -> None:
    """The tool itself is not changed."""
    hook = Recorded()
    with tool_hook(hook):
        assert await invoke(cancel, '{"order": 17}') == "cancelled 17"
    assert await invoke(cancel, '{"order": 18}') == "cancelled 18"

    assert hook.seen == [("cancel", {"order": 17}, "cancelled 17", None)]


# MCP


async def test_mcp_tools_are_answered() -> None:
    """The result has the text, and its structured content if it is an object."""
    server = MCPServer("shop")

    @server.tool()
    def pay(order: int) -> str:
        ran.append(f"pay {order}")
        return f"paid {order}"

    answers = [ToolAnswer('{"paid": 17}'), ToolAnswer("closed", error="closed")]
    results = []
    async with Client(server) as client:
        for answer in answers:
            with tool_hook(Recorded(pay=answer)):
                results.append(await client.call_tool("pay", {"order": 17}))
        assert ran == []
        hook = Recorded()
        with tool_hook(hook):
            await client.call_tool("pay", {"order": 17})

    assert [result.content[0].text for result in results] == ['{"paid": 17}', "closed"]
    assert [result.is_error for result in results] == [False, True]
    assert [result.structured_content for result in results] == [{"paid": 17}, None]
    assert [(name, arguments) for name, arguments, *_ in hook.seen] == [("pay", {"order": 17})]
    assert ran == ["pay 17"]


# Imports


@pytest.mark.slow
def test_frameworks_are_adapted_when_they_are_imported_later() -> None:
    """Nothing is imported for it."""
    code = """
import sys
from oteval.replays.interceptors import install_tool_adapters
install_tool_adapters()
print(sorted({"langchain_core", "agents", "pydantic_ai", "mcp", "duckdb"} & set(sys.modules)))
from langchain_core.tools import BaseTool
print(hasattr(BaseTool.run, "__wrapped__"))
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)

    assert done.stdout.splitlines() == ["[]", "True"]


def test_parallel_tools_of_a_graph_are_answered_in_the_context_of_the_replay() -> None:
    """LangGraph runs tools in threads with a copy of the context."""
    hook = Recorded(look_up=ToolAnswer("recorded"))
    calls = [
        {"id": f"c{number}", "type": "tool_call", "name": "look_up", "args": {"order": number}}
        for number in range(4)
    ]

    async def both() -> list[Any]:
        node = StateGraph(MessagesState)
        node.add_node("tools", ToolNode([look_up]))
        node.add_edge(START, "tools")
        graph = node.compile()
        state = {"messages": [AIMessage("", tool_calls=calls)]}
        with tool_hook(hook):
            return [graph.invoke(state), await graph.ainvoke(state)]

    for result in asyncio.run(both()):
        assert [message.content for message in result["messages"][1:]] == ["recorded"] * 4
    assert len(hook.asked) == 8
