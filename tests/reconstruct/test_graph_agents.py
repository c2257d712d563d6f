"""Agents in the nodes of LangGraph's graphs, by the marks of each instrumentation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Span
from oteval.reconstruct import reconstruct

from .builders import asks, brief, chat, codes, gives, said, span, system, tool, user

LANGGRAPH, AGENT = "langgraph", "langchain_create_agent"
TRACELOOP = "opentelemetry.instrumentation.langchain"


def openinference(
    name: str, start: int, title: str, metadata: dict[str, Any], **fields: Any
) -> Span:
    """Return a step's span of OpenInference: of kind AGENT if its name says so."""
    kind = "AGENT" if "agent" in title else "CHAIN"
    attributes = {"openinference.span.kind": kind, "metadata": json.dumps(metadata)}
    scope = "openinference.instrumentation.langchain"
    return span(name, start, title=title, attributes=attributes, scope=scope, **fields)


def langfuse(name: str, start: int, title: str, metadata: dict[str, Any], **fields: Any) -> Span:
    """Return a step's span of Langfuse 5, whose metadata is JSON."""
    kind = "agent" if "agent" in title else "chain"
    attributes = {"langfuse.observation.type": kind}
    for key, value in metadata.items():
        attributes[f"langfuse.observation.metadata.{key}"] = json.dumps(value)
    return span(name, start, title=title, attributes=attributes, scope="langfuse-sdk", **fields)


def traceloop(name: str, start: int, title: str, metadata: dict[str, Any], **fields: Any) -> Span:
    """Return a step's span of Traceloop: a task, whatever it is."""
    attributes = {
        "traceloop.span.kind": "task" if "parent" in fields else "workflow",
        "traceloop.entity.name": title,
        "gen_ai.operation.name": "execute_task",
    }
    for key, value in metadata.items():
        attributes[f"traceloop.association.properties.{key}"] = value
    title = f"execute_task {title}"
    return span(name, start, title=title, attributes=attributes, scope=TRACELOOP, **fields)


def in_node(node: str, agent: str = "") -> dict[str, Any]:
    """Return the metadata of a step in a node, and in the agent that LangChain made."""
    metadata = {"ls_integration": AGENT if agent else LANGGRAPH, "langgraph_node": node}
    return {**metadata, "lc_agent_name": agent} if agent else metadata


def worker(step: Any, letter: str, city: str, begin: int) -> list[Span]:
    """Return the spans of one run of the node ``research``, whose function calls an agent."""
    call, result = asks(("look", {"city": city}, f"k{letter}")), gives("sun", f"k{letter}")
    first = [system("work"), user(city)]
    node, model = in_node("research"), in_node("model", "worker")
    tools, agent = in_node("tools", "worker"), in_node("research", "worker")
    ids = [f"{letter}{at}" for at in range(9)]
    return [
        step(ids[0], begin, "research", node, parent="g", end=60),
        step(ids[1], begin + 1, "worker", agent, parent=ids[0], end=59),
        step(ids[2], begin + 2, "model", model, parent=ids[1], end=20),
        chat(ids[3], begin + 3, first, call, parent=ids[2], end=19),
        step(ids[4], 21, "tools", tools, parent=ids[1], end=30),
        tool(ids[5], 22, parent=ids[4], id=f"k{letter}", result="sun", end=29),
        step(ids[6], 31, "model", model, parent=ids[1], end=50),
        chat(ids[7], 32, [*first, call, result], said(f"{city}: sun"), parent=ids[6], end=49),
    ]


@pytest.mark.parametrize("step", [openinference, langfuse, traceloop])
def test_agents_that_a_node_fans_out_to_are_sub_agents(step: Any):
    """`Send` runs a node several times at once; each agent has its own messages."""
    spans = [
        step("g", 1, "team", {"ls_integration": LANGGRAPH}, end=99),
        step("p", 2, "plan", in_node("plan"), parent="g", end=5),
        chat("q", 3, [user("weather?")], said("two cities"), parent="p"),
        *worker(step, "a", "Paris", 6),
        *worker(step, "b", "Tokyo", 7),
        step("e", 70, "write", in_node("write"), parent="g", end=80),
        chat("f", 71, [user("sum up")], said("fine"), parent="e"),
    ]

    outer, *inner = reconstruct(spans)

    assert outer.agent == "team"
    assert brief(outer.messages) == [
        ("user", "weather?"),
        ("assistant", "two cities"),
        ("user", "sum up"),
        ("assistant", "fine"),
    ]
    assert [(t.parent_id, t.agent) for t in inner] == [(outer.id, "worker")] * 2
    for city, run in zip(("Paris", "Tokyo"), inner, strict=True):
        assert brief(run.messages) == [
            ("system", "work"),
            ("user", city),
            ("assistant", [("look", {"city": city})]),
            ("tool", "sun"),
            ("assistant", f"{city}: sun"),
        ]
    assert [codes(t) for t in (outer, *inner)] == [[], [], []]


def test_a_span_that_only_lists_a_graphs_nodes_is_no_agent():
    """Traceloop writes one beside the span around the steps."""
    beside = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "worker",
        "gen_ai.workflow.nodes": ("model", "tools"),
    }
    spans = [
        traceloop("g", 1, "team", {"ls_integration": LANGGRAPH}, end=99),
        *worker(traceloop, "a", "Paris", 6),
        span("i", 6, parent="a0", end=60, scope=TRACELOOP, attributes=beside),
    ]

    found = reconstruct(spans)

    assert [(t.agent, len(t.messages), codes(t)) for t in found] == [
        ("team", 0, []),
        ("worker", 5, []),
    ]
