"""Traces of requests and database calls, which have no agent."""

from __future__ import annotations

import pytest

from oteval.reconstruct import explain, reconstruct

from .builders import TRACE, agent, chat, codes, only, said, span, texts, user

REQUEST = {"http.request.method": "GET", "url.full": "https://x/v1"}
NOISE = [
    {"http.method": "GET"},
    {"db.system": "postgresql", "db.statement": "SELECT 1"},
    {"rpc.system": "grpc"},
    {"messaging.system": "kafka"},
    {"asgi.event.type": "http.response.body"},
]


@pytest.mark.parametrize("attributes", NOISE)
def test_a_trace_of_requests_and_queries_gives_no_trajectory(attributes: dict[str, str]):
    """Web servers and databases write traces without an agent; these are no runs."""
    spans = [
        span("a", 1, attributes=REQUEST, end=9),
        span("b", 2, parent="a", attributes=attributes),
    ]

    assert reconstruct(spans) == []
    assert [account.note.split(":")[0] for account in explain(TRACE, spans).accounts] == [
        "ignored",
        "ignored",
    ]


@pytest.mark.parametrize(
    "attributes",
    [{}, {"llm.foo": "bar"}, {"gen_ai.operation.name": "embeddings"}, {"app.step": "plan"}],
)
def test_a_trace_with_anything_else_is_not_passed_over(attributes: dict[str, str]):
    """One span that may be an agent's keeps the trace in sight, with the gap that says why."""
    found = only(
        span("a", 1, attributes=REQUEST, end=9), span("b", 2, parent="a", attributes=attributes)
    )

    assert codes(found)[0] in ("no_model_spans", "unknown_dialect")


@pytest.mark.parametrize("kind", [2, 5])
def test_the_steps_of_a_web_framework_are_of_the_request(kind: int):
    """FastAPI writes them by itself; a request without a model call is no run."""
    step = {"code.function.name": "app.endpoint"}
    spans = [
        span("a", 1, attributes=REQUEST, end=9, kind=kind, scope="fastapi"),
        span("b", 2, parent="a", attributes=step, scope="fastapi"),
    ]

    assert reconstruct(spans) == []


def test_the_spans_of_an_application_in_a_request_are_not_passed_over():
    """They may be an agent's."""
    found = only(
        span("a", 1, attributes=REQUEST, end=9, kind=2, scope="fastapi"),
        span("b", 2, parent="a", attributes={"app.step": "plan"}, scope="app"),
    )

    assert codes(found) == ["no_model_spans"]


def test_requests_around_an_agent_are_of_its_trace():
    """An agent behind a web server is a run as ever."""
    found = only(
        span("r", 1, attributes=REQUEST, end=99),
        agent("a", 2, parent="r", end=50),
        chat("c", 3, [user("q")], said("a"), parent="a"),
    )

    assert (texts(found), codes(found)) == (["q", "a"], [])
