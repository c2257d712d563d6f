"""Agents that a tool calls, though their spans are not below the tool's, and hand-overs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Span, Trajectory
from oteval.reconstruct import reconstruct

from .builders import agent, asks, chat, codes, gives, only, said, span, tool, user

CITIES = ("Oslo", "Rome")


def _desk(name: str, start: int, question: str, answer: str, **fields: Any) -> list[Span]:
    return [
        agent(name, start, of="desk", end=start + 3, **fields),
        chat(f"{name} call", start + 1, [user(question)], said(answer), parent=name),
    ]


def _delegated(results: tuple[str, str] = ("cold", "warm"), end: int = 20) -> list[Trajectory]:
    """Return the runs of an agent that calls another twice at once; their spans are siblings."""
    calls = asks(*(("ask", {"input": city}, f"c{i}") for i, city in enumerate(CITIES)))
    spans = [
        span("root", 1, end=40, attributes={"gen_ai.operation.name": "invoke_workflow"}),
        agent("lead run", 2, of="lead", parent="root", end=39),
        chat("first", 3, [user("both?")], calls, parent="lead run"),
        chat(
            "last",
            30,
            [user("both?"), calls, *(gives(text, f"c{i}") for i, text in enumerate(results))],
            said("done"),
            parent="lead run",
        ),
    ]
    for number, (city, text) in enumerate(zip(CITIES, results, strict=True)):
        args = {"input": city}
        spans += [
            tool(f"t{number}", 5, of="ask", args=args, result=text, parent="lead run", end=end),
            *_desk(f"desk {number}", 8 + number, city, ("cold", "warm")[number], parent="root"),
        ]
    return reconstruct(spans)


def test_agents_beside_the_tools_that_call_them_are_sub_agents():
    """The question, the answer and the time decide which call each run belongs to."""
    lead, *desks = _delegated()

    assert (lead.agent, lead.turn, lead.parent_id) == ("lead", 1, "")
    assert [(desk.agent, desk.parent_id) for desk in desks] == [("desk", lead.id)] * 2
    assert [desk.parent_call_id for desk in desks] == ["c0", "c1"]


@pytest.mark.parametrize(
    ("results", "end"),
    [(("other", "words"), 20), (("cold", "warm"), 9)],
    ids=["the tool returned something else", "the tool ended before"],
)
def test_an_agent_that_no_tool_called_stays_a_run(results: tuple[str, str], end: int):
    """Each of the three must agree; a guess would hide a run."""
    assert [run.parent_id for run in _delegated(results, end)] == ["", "", ""]


@pytest.mark.parametrize(
    ("history", "turn"),
    [
        ([user("a"), said("A"), user("b"), said("B")], 3),
        ([user("a"), user("more of a"), said("A")], 2),
        (
            [
                user("a"),
                said("A"),
                user("Transferred to desk, adopting the role of desk immediately."),
                said("B"),
            ],
            2,
        ),
    ],
    ids=["two questions", "a question in two messages", "a hand-over of AutoGen's"],
)
def test_only_a_users_question_begins_a_turn(history: list[dict[str, Any]], turn: int):
    """A run that brings its history has the number of its question."""
    run = only(agent("r", 1, end=9), chat("c", 2, [*history, user("now?")], said("x"), parent="r"))

    assert run.turn == turn


@pytest.mark.parametrize("answer", ["cold", None])
def test_an_empty_span_of_an_agent_beside_the_agents_spans_is_no_run(answer: str | None):
    """MLflow ends the runner's span without anything in it, and starts the agent's beside it."""
    output = {"gen_ai.output.messages": json.dumps([said(answer)])} if answer else {}
    lead, desk = reconstruct(
        [
            agent("lead run", 1, of="lead", end=40),
            chat("first", 2, [user("Oslo?")], asks(("ask", {"q": "Oslo"}, "c")), parent="lead run"),
            tool(
                "t",
                5,
                of="ask",
                id="c",
                args={"q": "Oslo"},
                result="cold",
                parent="lead run",
                end=20,
            ),
            agent("runner", 6, of="runner", parent="t", end=15, attributes=output),
            *_desk("desk run", 8, "Oslo", "cold", parent="t"),
        ]
    )

    assert (desk.agent, desk.parent_id, codes(desk)) == ("desk", lead.id, [])
