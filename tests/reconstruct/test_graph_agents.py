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

    trajectories = reconstruct(spans)

    assert [(t.agent, len(t.messages), codes(t)) for t in trajectories] == [
        ("team", 0, []),
        ("worker", 5, []),
    ]


def supervised(step: Any) -> list[Span]:
    """Return a supervisor's turn that is handed to ``desk`` and back, as langgraph-supervisor's.

    The desk's agent is inside of a function ``call_agent``, which writes the call that hands back.
    """
    first = [system("lead"), user("q")]
    give, gone = asks(("transfer_to_desk", {}, "k1")), gives("transferred", "k1")
    look, sun = asks(("look", {"x": 1}, "k2")), gives("sun", "k2")
    back, came = asks(("transfer_back_to_supervisor", {}, "k3")), gives("transferred back", "k3")
    history = [
        *first,
        give,
        gone,
        {**back, "parts": [*said("sun!")["parts"], *back["parts"]]},
        came,
    ]
    desk_input = [system("desk"), user("q"), give, gone]
    node, lead = in_node("desk"), in_node("supervisor")
    return [
        step("g", 1, "team", {"ls_integration": LANGGRAPH}, end=99),
        step("s", 2, "supervisor", lead, parent="g", end=19),
        step("s0", 3, "supervisor", lead, parent="s", end=18),
        step("s1", 4, "agent", in_node("agent"), parent="s0", end=9),
        chat("c1", 5, first, give, parent="s1"),
        step("s2", 10, "tools", in_node("tools"), parent="s0", end=15),
        tool("t1", 11, of="transfer_to_desk", id="k1", result="transferred", parent="s2"),
        step("d", 20, "desk", node, parent="g", end=59),
        step("d0", 21, "call_agent", node, parent="d", end=58),
        step("d1", 22, "desk", in_node("desk", "desk"), parent="d0", end=57),
        step("d2", 23, "model", in_node("model", "desk"), parent="d1", end=30),
        chat("c2", 24, desk_input, look, parent="d2"),
        step("d3", 31, "tools", in_node("tools", "desk"), parent="d1", end=40),
        tool("t2", 32, id="k2", result="sun", parent="d3"),
        step("d4", 41, "model", in_node("model", "desk"), parent="d1", end=50),
        chat("c3", 42, [*desk_input, look, sun], said("sun!"), parent="d4"),
        step("r", 60, "supervisor", lead, parent="g", end=90),
        step("r0", 61, "supervisor", lead, parent="r", end=89),
        step("r1", 62, "agent", in_node("agent"), parent="r0", end=80),
        chat("c4", 63, history, said("it is sunny"), parent="r1"),
    ]


@pytest.mark.parametrize("step", [openinference, langfuse, traceloop])
def test_a_turn_that_is_handed_to_another_agent_and_back_is_one_trajectory(step: Any):
    """Each message appears once, with the name of its agent."""
    outer, turn = reconstruct(supervised(step))

    assert (outer.agent, turn.parent_id) == ("team", outer.id)
    assert turn.agents == ("supervisor", "desk")
    assert brief(turn.messages) == [
        ("system", "lead"),
        ("user", "q"),
        ("assistant", [("transfer_to_desk", {})]),
        ("tool", "transferred"),
        ("system", "desk"),
        ("assistant", [("look", {"x": 1})]),
        ("tool", "sun"),
        ("assistant", "sun!"),
        ("system", "lead"),
        ("assistant", "it is sunny"),
    ]
    assert [m.name for m in turn.messages if m.role == "assistant"] == [
        "supervisor",
        "desk",
        "desk",
        "supervisor",
    ]
    assert codes(turn) == ["handoff_summarized"]
