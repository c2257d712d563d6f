"""LangChain and LangGraph."""

from __future__ import annotations

from typing import Any

from langchain_core.tools import BaseTool, StructuredTool, tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from . import shop


def _model() -> ChatOpenAI:
    return ChatOpenAI(model=shop.MODEL, base_url=shop.base_url(), api_key=shop.KEY)


def _graph(tools: list[Any], **options: Any) -> Any:
    model = _model().bind_tools(tools)

    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke([("system", shop.SYSTEM), *state["messages"]])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", ask)
    graph.add_node("tools", ToolNode(tools, **options))
    graph.add_edge(START, "model")
    graph.add_conditional_edges(
        "model", lambda state: "tools" if state["messages"][-1].tool_calls else END
    )
    graph.add_edge("tools", "model")
    return graph.compile()


def _text(state: Any) -> str:
    return str(state["messages"][-1].content)


def function(question: str) -> str:
    """A decorated function in a graph."""
    return _text(_graph([tool(shop.refund)]).invoke({"messages": [("user", question)]}))


def plain_function(question: str) -> str:
    """A plain function in a graph."""
    return _text(_graph([shop.refund]).invoke({"messages": [("user", question)]}))


async def coroutine(question: str) -> str:
    """A coroutine function in a graph that is awaited."""
    refund = StructuredTool.from_function(coroutine=shop.refund_later, name="refund")
    return _text(await _graph([refund]).ainvoke({"messages": [("user", question)]}))


class _Refund(BaseTool):
    name: str = "refund"
    description: str = "Refund an order."

    def _run(self, order_id: int, amount: int) -> Any:
        return shop.act(order_id, amount)


def own_class(question: str) -> str:
    """A class of tools."""
    return _text(_graph([_Refund()]).invoke({"messages": [("user", question)]}))


def failing(question: str) -> str:
    """A tool that raises an exception, which the graph shows to the model."""
    refund = StructuredTool.from_function(shop.refund_fails, name="refund")
    graph = _graph([refund], handle_tool_errors=True)
    return _text(graph.invoke({"messages": [("user", question)]}))


def own_loop(question: str) -> str:
    """A loop that invokes the tools by itself."""
    refund = tool(shop.refund)
    model = _model().bind_tools([refund])
    messages: list[Any] = [("system", shop.SYSTEM), ("user", question)]
    while True:
        answer = model.invoke(messages)
        messages.append(answer)
        if not answer.tool_calls:
            return str(answer.content)
        messages += [refund.invoke(call) for call in answer.tool_calls]


def agent(question: str) -> str:
    """LangChain's agent."""
    from langchain.agents import create_agent

    clerk = create_agent(_model(), [tool(shop.refund)], system_prompt=shop.SYSTEM)
    return _text(clerk.invoke({"messages": [("user", question)]}))


KINDS = {
    "@tool": function,
    "plain function": plain_function,
    "coroutine": coroutine,
    "BaseTool": own_class,
    "failing": failing,
    "own loop": own_loop,
    "create_agent": agent,
}
