"""Real LangGraph threads, one for each thing that their checkpoints show differently."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt

CONFIG: Any = {"configurable": {"thread_id": "t"}}


class State(TypedDict):
    """A list that nodes append to."""

    log: Annotated[list[str], operator.add]


def note(name: str) -> Callable[[State], Any]:
    """Return a node that notes its name."""
    return lambda _state: {"log": [name]}


def chain(*nodes: tuple[str, Any], state: Any = State) -> StateGraph:
    """Return a graph that runs some nodes one after the other."""
    graph = StateGraph(state)
    for before, (name, node) in zip([START, *(name for name, _ in nodes)], nodes, strict=False):
        graph.add_node(name, node)
        graph.add_edge(before, name)
    graph.add_edge(nodes[-1][0], END)
    return graph


def kept(graph: StateGraph) -> Any:
    """Return a graph that keeps its threads."""
    return graph.compile(checkpointer=InMemorySaver())


def turns() -> Any:
    """Two turns of a chain of two nodes."""
    graph = kept(chain(("a", note("a")), ("b", note("b"))))
    graph.invoke({"log": ["one"]}, CONFIG)
    graph.invoke({"log": ["two"]}, CONFIG)
    return graph


def chat() -> Any:
    """Two turns of a chat, whose state is its messages."""
    answer = chain(
        ("model", lambda state: {"messages": [AIMessage(f"answer {len(state['messages'])}")]}),
        state=MessagesState,
    )
    graph = kept(answer)
    graph.invoke({"messages": [HumanMessage("hello")]}, CONFIG)
    graph.invoke({"messages": [("user", "again")]}, CONFIG)
    return graph


def ask(state: State) -> Any:
    """Ask a person."""
    return {"log": [interrupt("sure?")]}


def interrupted() -> Any:
    """A turn that waits for a person."""
    graph = kept(chain(("a", note("a")), ("ask", ask), ("b", note("b"))))
    graph.invoke({"log": ["one"]}, CONFIG)
    return graph


def resumed() -> Any:
    """A turn that waited for a person and went on, and a turn after it."""
    graph = interrupted()
    graph.invoke(Command(resume="yes"), CONFIG)
    graph.invoke({"log": ["two"]}, CONFIG)
    graph.invoke(Command(resume="no"), CONFIG)
    return graph


def subgraph() -> Any:
    """A node that is a graph."""
    inner = chain(("x", note("x")), ("y", note("y")))
    graph = kept(chain(("a", note("a")), ("inner", inner.compile()), ("b", note("b"))))
    graph.invoke({"log": ["one"]}, CONFIG)
    return graph


def subgraph_interrupted() -> Any:
    """A graph in a node that waits for a person, once answered and once not."""
    inner = chain(("x", note("x")), ("ask", ask))
    graph = kept(chain(("a", note("a")), ("inner", inner.compile())))
    graph.invoke({"log": ["one"]}, CONFIG)
    graph.invoke(Command(resume="yes"), CONFIG)
    graph.invoke({"log": ["two"]}, CONFIG)
    return graph


def subgraph_kept() -> Any:
    """A graph in a node that keeps a thread of its own, in a graph in a node."""
    deep = chain(("z", note("z"))).compile(checkpointer=True)
    inner = chain(("x", note("x")), ("deep", deep)).compile(checkpointer=True)
    graph = kept(chain(("a", note("a")), ("inner", inner)))
    graph.invoke({"log": ["one"]}, CONFIG)
    graph.invoke({"log": ["two"]}, CONFIG)
    return graph


def command() -> Any:
    """A node that says where to go on."""
    graph = StateGraph(State)
    graph.add_node("a", lambda _: Command(goto="c", update={"log": ["a"]}), destinations=("c",))
    graph.add_node("b", note("b"))
    graph.add_node("c", note("c"))
    graph.add_edge(START, "a")
    made = kept(graph)
    made.invoke({"log": ["one"]}, CONFIG)
    return made


def sent() -> Any:
    """A node whose work is sent to several at once."""
    graph = StateGraph(State)
    graph.add_node("split", note("split"))
    graph.add_node("work", note("work"))
    graph.add_node("join", note("join"))
    graph.add_edge(START, "split")
    graph.add_conditional_edges(
        "split", lambda _state: [Send("work", {"log": [n]}) for n in "123"], ["work"]
    )
    graph.add_edge("work", "join")
    made = kept(graph)
    made.invoke({"log": ["one"]}, CONFIG)
    return made


def failed() -> Any:
    """A turn in which a node raises, after one that went well."""
    broken = lambda state: {"log": [str(1 / (len(state["log"]) < 4))]}  # noqa: E731
    graph = kept(chain(("a", note("a")), ("b", broken)))
    graph.invoke({"log": ["one"]}, CONFIG)
    try:
        graph.invoke({"log": ["two"]}, CONFIG)
    except ZeroDivisionError:
        return graph
    raise AssertionError("the node did not raise")


THREADS = {
    made.__name__: made
    for made in (
        *(turns, chat, interrupted, resumed, subgraph, subgraph_interrupted),
        *(subgraph_kept, command, sent, failed),
    )
}
