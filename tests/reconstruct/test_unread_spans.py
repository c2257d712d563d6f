"""What is no run of an agent: requests, database calls, transport, and anything without a model."""

from __future__ import annotations

from typing import Any

import pytest

from oteval.model import Span
from oteval.reconstruct import explain, reconstruct

from .builders import TRACE, agent, asks, chat, codes, gives, only, said, span, texts, tool, user

REQUEST = {"http.request.method": "GET", "url.full": "https://x/v1"}
CALL = "tools/call"


def mcp(name: str, method: str, kind: int, start: int = 5, **fields: Any) -> Span:
    """Return a span of an MCP library; of a call, with the tool's name unless it is a request's."""
    attributes = {"mcp.method.name": method}
    if method == CALL and not fields.pop("is_request", False):
        attributes |= {"gen_ai.tool.name": "look", "gen_ai.operation.name": "execute_tool"}
    return span(name, start, title=method, kind=kind, attributes=attributes, **fields)


NO_RUNS = {
    "request with a database call": [
        span("a", 1, attributes=REQUEST, end=9),
        span("b", 2, parent="a", attributes={"db.system": "postgresql", "db.statement": "S"}),
    ],
    "message queue": [span("a", attributes={"messaging.system": "kafka"})],
    "steps of an application": [
        span("a", 1, attributes=REQUEST, end=9, kind=2, scope="fastapi"),
        span("b", 2, parent="a", attributes={"app.step": "plan"}, scope="app"),
    ],
    "embeddings": [span("a", attributes={"gen_ai.operation.name": "embeddings"})],
    "creation of an agent": [span("a", attributes={"gen_ai.operation.name": "create_agent"})],
    "MCP handshake": [mcp("a", "initialize", 2)],
    "MCP server's side of a call": [mcp("a", CALL, 2)],
    "MCP server behind a gateway": [
        span("g", 1, attributes=REQUEST, kind=2, end=9),
        mcp("a", CALL, 2, parent="g"),
    ],
    "MCP server whose caller's spans are elsewhere": [mcp("a", CALL, 2, parent="gone")],
    "MCP request of the protocol's own client": [
        mcp("a", CALL, 3, end=9, is_request=True),
        mcp("b", CALL, 2, 6, parent="a"),
    ],
    "tool behind a request": [
        span("g", 1, attributes=REQUEST, kind=2, end=9),
        tool("t", 2, parent="g", args='{"x": 1}', result="r"),
    ],
    "call that is still going on": [
        span(
            "p",
            parent="c",
            attributes={"logfire.span_type": "pending_span", "gen_ai.operation.name": "chat"},
        )
    ],
}


@pytest.mark.parametrize("spans", NO_RUNS.values(), ids=NO_RUNS)
def test_without_an_agent_and_a_model_call_there_is_no_run(spans: list[Span]):
    """It gives no trajectory, alone or beside an agent's trace, and each span is accounted for."""
    beside = [
        agent("z", 1, end=90, trace="f" * 32),
        chat("y", 2, [user("q")], asks(("other", {"x": 9}, "k")), parent="z", trace="f" * 32),
        tool("x", 4, parent="z", of="other", id="k", result="r", trace="f" * 32),
        chat(
            "w",
            8,
            [user("q"), asks(("other", {"x": 9}, "k")), gives("r", "k")],
            said("a"),
            parent="z",
            trace="f" * 32,
        ),
    ]

    assert reconstruct(spans) == []
    assert [t.trace_ids for t in reconstruct([*spans, *beside])] == [("f" * 32,)]
    told = explain(TRACE, spans)
    assert all(account.note for account in told.accounts)
    assert all(account.trajectory_id == "" for account in told.accounts)
    assert [gap.code for gap in told.hints] == ["no_model_spans"]


@pytest.mark.parametrize(
    ("spans", "gap"),
    [
        ([span("b", 2, parent="a", attributes={"llm.foo": "bar"})], "unknown_dialect"),
        ([agent("b", 2, parent="a")], "no_model_spans"),
    ],
)
def test_what_may_be_an_agents_is_not_passed_over(spans: list[Span], gap: str):
    """A span that may be an agent's keeps the trace in sight, with the gap that says why."""
    found = only(span("a", 1, attributes=REQUEST, end=9), *spans)

    assert codes(found) == [gap]


def test_a_tool_with_nothing_around_it_waits_for_the_run_that_asked_for_it():
    """A loop without a span writes its tools as roots; their run may come later."""
    found = only(tool("t", 2, id="k1", args='{"x": 1}', result="r"))

    assert codes(found) == ["no_model_spans"]


def test_requests_around_an_agent_are_of_its_trace():
    """An agent behind a web server is a run as ever."""
    found = only(
        span("r", 1, attributes=REQUEST, end=99),
        agent("a", 2, parent="r", end=50),
        chat("c", 3, [user("q")], said("a"), parent="a"),
    )

    assert (texts(found), codes(found)) == (["q", "a"], [])
