"""A LangGraph agent: two nodes gather context, then the model and its tools take turns.

python examples/langgraph_agent.py [QUESTION]
"""

from __future__ import annotations

import os
import sys
from typing import Any

import shop
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

import oteval

SYSTEM = "You are the order desk of a shop. Use the tools, and answer in one sentence per order."
TOOLS = [tool(shop.track_parcel), tool(shop.refund)]


class State(MessagesState):
    """The messages of the conversation, and its context."""

    question: str


def gather(state: State) -> dict[str, Any]:
    """Gather the context, and write the first messages."""
    context = shop.gather_context("ada@example.com")
    text = f"{context} Question: {state['question']}"
    return {"messages": [SystemMessage(SYSTEM), HumanMessage(text)]}


def call_model(state: State) -> dict[str, Any]:
    """Ask the model."""
    model = ChatOpenAI(model="scripted").bind_tools(TOOLS)
    return {"messages": [model.invoke(state["messages"])]}


def next_node(state: State) -> str:
    """Return the tools' node while the model asks for tools."""
    return "tools" if getattr(state["messages"][-1], "tool_calls", None) else END


def build() -> Any:
    """Return the compiled graph."""
    graph = StateGraph(State)
    graph.add_node("gather", gather)
    graph.add_node("model", call_model)
    graph.add_node("tools", ToolNode(TOOLS))
    graph.add_edge(START, "gather")
    graph.add_edge("gather", "model")
    graph.add_conditional_edges("model", next_node)
    graph.add_edge("tools", "model")
    return graph.compile(name="order-desk")


def answer(question: str) -> str:
    """Answer a question about orders."""
    return str(build().invoke({"question": question})["messages"][-1].content)


def main() -> None:
    """Answer the question on the command line."""
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    if "--instrument" in sys.argv:
        oteval.instrument(os.environ.get("TRACES"))
    print(answer(" ".join(words) or "Where are my orders A100 and B200?"))


if __name__ == "__main__":
    main()
