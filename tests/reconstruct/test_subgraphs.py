"""Graphs inside of the nodes of other graphs, as LangGraph's `Send` starts several at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Span
from oteval.reconstruct import reconstruct

from .builders import asks, brief, chat, gives, said, span, tool, user

OPENINFERENCE = "openinference.instrumentation.langchain"


def chain(name: str, start: int, node: str, title: str = "", **fields: Any) -> Span:
    """Return the span of a graph's step, with the node that it is in."""
    metadata = {"langgraph_node": node, "ls_integration": "langgraph"} if node else {}
    attributes = {
        "openinference.span.kind": "CHAIN",
        "metadata": json.dumps(metadata or {"ls_integration": "langgraph"}),
    }
    scope = OPENINFERENCE
    return span(name, start, title=title or node, attributes=attributes, scope=scope, **fields)


def branch(letter: str, city: str, begin: int, graph: str) -> list[Span]:
    """Return the spans of one run of the node ``worker``, with a graph inside."""
    call = asks(("look", {"city": city}, f"k{letter}"))
    result = gives(f"sun in {city}", f"k{letter}")
    return [
        chain(f"{letter}1", begin, "worker", parent="g", end=60),
        chain(f"{letter}2", begin + 1, "worker", graph, parent=f"{letter}1", end=59),
        chain(f"{letter}3", begin + 2, "model", parent=f"{letter}2", end=20),
        chat(f"{letter}4", begin + 3, [user(city)], call, parent=f"{letter}3", end=19),
        chain(f"{letter}5", 21, "tools", parent=f"{letter}2", end=30),
        tool(
            f"{letter}6",
            22,
            parent=f"{letter}5",
            id=f"k{letter}",
            args=json.dumps({"city": city}),
            result=f"sun in {city}",
            end=29,
        ),
        chain(f"{letter}7", 31, "model", parent=f"{letter}2", end=50),
        chat(
            f"{letter}8",
            32,
            [user(city), call, result],
            said(f"{city} done"),
            parent=f"{letter}7",
            end=49,
        ),
    ]


@pytest.mark.parametrize("graph", ["team", "LangGraph", "worker"])
def test_graphs_that_a_node_fans_out_to_are_sub_agents(graph: str):
    """Each is a run with a parent, whatever the graph's name; none is mixed into the outer run."""
    spans = [
        chain("g", 1, "", "LangGraph", end=99),
        chain("p", 2, "plan", parent="g", end=5),
        chat("q", 3, [user("weather?")], said("two cities"), parent="p"),
        *branch("a", "Paris", 6, graph),
        *branch("b", "Tokyo", 7, graph),
        chain("e", 70, "end", parent="g", end=80),
        chat("f", 71, [user("sum up")], said("fine"), parent="e"),
    ]

    outer, *inner = reconstruct(spans)

    assert brief(outer.messages) == [
        ("user", "weather?"),
        ("assistant", "two cities"),
        ("user", "sum up"),
        ("assistant", "fine"),
    ]
    assert [t.parent_id for t in inner] == [outer.id, outer.id]
    assert [t.agent for t in inner] == [graph, graph]
    for city, run in zip(("Paris", "Tokyo"), inner, strict=True):
        assert brief(run.messages) == [
            ("user", city),
            ("assistant", [("look", {"city": city})]),
            ("tool", f"sun in {city}"),
            ("assistant", f"{city} done"),
        ]


def test_the_steps_of_a_node_are_no_graph():
    """A runnable inside of a node is part of the run, as the node is."""
    spans = [
        chain("g", 1, "", "LangGraph", end=99),
        chain("n", 2, "model", parent="g", end=50),
        chain("r", 3, "model", "RunnableSequence", parent="n", end=49),
        chat("c", 4, [user("q")], said("a"), parent="r"),
    ]

    (found,) = reconstruct(spans)

    assert brief(found.messages) == [("user", "q"), ("assistant", "a")]
