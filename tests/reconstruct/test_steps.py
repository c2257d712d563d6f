from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Span
from oteval.reconstruct import reconstruct

from .builders import agent, capture, chat, codes, said, span, tool, user

LANGGRAPH = ["langgraph_openinference", "langgraph_langsmith"]


def chain(name: str, start: int, parent: str = "", kind: str = "CHAIN", **metadata: Any) -> Span:
    """Return a span of LangChain's by OpenInference."""
    attributes = {"openinference.span.kind": kind, "metadata": json.dumps(metadata)}
    return span(f"{name}{start}", start, parent=parent, title=name, attributes=attributes, end=99)


@pytest.mark.parametrize("name", LANGGRAPH)
def test_a_graph_shows_its_nodes_in_order(name: str):
    """LangGraph's nodes are the steps, parallel ones each, a sub-agent's below their node."""
    first, second, third, inner = reconstruct(*capture(name))[:4]

    assert first.steps == (("__start__", "model", "tools", "tools", "model"),)
    assert second.steps == (("__start__", "model", "tools", "model"),)
    assert inner.steps == first.steps
    below = [f"tools:{node}" for node in inner.steps[0]]
    assert third.steps == (("__start__", "model", "tools", *below, "model"),)


@pytest.mark.parametrize("name", ["openai_agents_openinference", "openai_agents_genai_plus_llm"])
def test_without_a_graph_agents_are_the_steps(name: str):
    """Each run shows its agents, and those that they call as tools as ``parent:child``."""
    steps = [t.steps for t in reconstruct(*capture(name))]

    assert steps == [
        (("support_agent",),),
        (("support_agent",),),
        (("support_agent", "weather_agent"),),
        (("manager", "manager:sub_weather"),),
        (("sub_weather",),),
    ]


def test_a_node_that_is_called_agent_is_a_node():
    """OpenInference takes a node of that name for an agent; the graph is the agent."""
    node = {"langgraph_node": "agent", "langgraph_step": 1}
    found = reconstruct(
        [
            chain("LangGraph", 1),
            chain("agent", 2, "LangGraph1", "AGENT", **node),
            chat("c1", 3, [user("q")], said("a"), parent="agent2"),
            chain("tools", 10, "LangGraph1", langgraph_node="tools"),
            chain("agent", 20, "LangGraph1", "AGENT", **node),
            chat("c2", 21, [user("q"), said("a")], said("b"), parent="agent20"),
        ]
    )

    assert [(t.agent, t.steps) for t in found] == [
        ("LangGraph", (("__start__", "agent", "tools", "agent"),))
    ]
    assert found[0].usage.model_calls == 2


def test_a_graph_of_agents_keeps_its_own_trajectory():
    """A graph whose nodes are agents is a trajectory of its own, linked to theirs."""
    found = reconstruct(
        [
            chain("LangGraph", 1),
            chain("a", 2, "LangGraph1", "AGENT", langgraph_node="a", lc_agent_name="a"),
            chat("c1", 3, [user("q")], said("x"), parent="a2"),
            chain("b", 10, "LangGraph1", "AGENT", langgraph_node="b", lc_agent_name="b"),
            chat("c2", 11, [user("q")], said("y"), parent="b10"),
        ]
    )

    graph, one, two = found
    assert graph.steps == (("__start__", "a", "a:a", "b", "b:b"),)
    assert (one.parent_id, two.parent_id) == (graph.id, graph.id)
    assert [t.agent for t in found] == ["LangGraph", "a", "b"]
    assert codes(graph) == []


def test_agents_inside_tools_are_steps_of_the_one_that_calls_them():
    """An agent that a tool starts stands after its caller, in order of start."""
    first, *_ = reconstruct(
        [
            agent("g", 1, of="boss", end=100),
            tool("t1", 2, of="ask", parent="g", end=50),
            agent("s1", 3, of="clerk", parent="t1", end=40),
            chat("c1", 4, [user("q")], said("x"), parent="s1"),
            agent("s2", 60, of="cook", parent="g", end=70),
            chat("c2", 61, [user("q")], said("x"), parent="s2"),
        ]
    )

    assert first.steps == (("boss", "boss:clerk", "boss:cook"),)


def test_runs_without_any_name_have_no_steps():
    """Model calls below no agent, and agents without a name, show no graph."""
    (bare,) = reconstruct([chat("c", 1, [user("q")], said("a"))])

    assert bare.steps == ()
