"""Runs whose trace just ended: shown before they are stored and scored, and then replaced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from oteval.model import Span
from oteval.scoring import refresh_traces
from oteval.store import CompletedTrace, Store
from oteval.views.pages.app import create_app
from oteval.views.pages.just_ended import Previews, previews_text
from oteval.views.pages.site import Site

from .conftest import SECOND, START

TRACE = "ab" * 16


def said(role: str, text: str) -> str:
    """Return one message as an attribute has it."""
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def spans(question: str = "Refund order 7", trace_id: str = TRACE) -> tuple[Span, Span]:
    """Return the root span of an agent's run, and its model call."""
    common: dict[str, Any] = {"start_ns": START, "end_ns": START + SECOND}
    resource = {"service.name": "web"}
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "shop"}
    chat = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": said("user", question),
        "gen_ai.output.messages": said("assistant", "Done."),
    }
    root = Span(
        trace_id, "1" * 16, name="invoke_agent", attributes=agent, resource=resource, **common
    )
    call = Span(
        trace_id,
        "2" * 16,
        parent_id="1" * 16,
        name="chat m",
        attributes=chat,
        resource=resource,
        **common,
    )
    return root, call


def complete(store: Store, trace_id: str = TRACE) -> None:
    """Store the runs of a trace and note its completion, as a server does."""
    refresh_traces(store, [trace_id])
    store.live.note_completions([CompletedTrace(trace_id, 2, "quiet", 1)], 1, START)


@pytest.fixture
def client(store: Store) -> Iterator[TestClient]:
    """Return a client of the pages of a served store."""
    site = Site("test", store.sibling, clock=lambda: START + 60 * SECOND, is_served=True)
    yield TestClient(create_app(site), base_url="http://127.0.0.1", follow_redirects=False)
    site.close()


def test_a_run_is_listed_from_its_end_on_and_replaced_by_the_stored_run(
    store: Store, client: TestClient
):
    """The preview has the question and no score; the stored run is shown instead of it, once."""
    root, call = spans()
    store.spans.write([call])
    assert "Refund order 7" not in client.get("/runs").text
    store.spans.write([root])
    before = client.get("/runs").text
    assert before.count("Refund order 7</span>") == 1
    assert "just ended; scores follow" in before
    assert f'href="/runs/{TRACE}"' in before
    assert store.trajectories.ids_with_prefix("") == []

    complete(store)
    after = client.get("/runs").text
    assert after.count("Refund order 7</span>") == 1
    assert "just ended" not in after


def test_the_page_of_a_trace_that_just_ended_leads_to_the_stored_run(
    store: Store, client: TestClient
):
    """It shows the conversation so far; once the run is stored, it redirects there."""
    store.spans.write(spans())
    shown = client.get(f"/runs/{TRACE}")
    assert shown.status_code == 200
    assert "Done." in shown.text
    assert "scores follow" in shown.text
    assert client.get("/runs/" + "cd" * 16).status_code == 404

    complete(store)
    led = client.get(f"/runs/{TRACE}")
    assert led.status_code == 303
    assert "Done." in client.get(led.headers["location"]).text


@pytest.mark.parametrize(
    ("search", "is_shown"),
    [
        ("agent=shop refund", True),
        ("since=2026-11-01", True),
        ("agent=other", False),
        ("headphones", False),
        ("until=2026-11-01", False),
        ("passed=false", False),
    ],
)
def test_previews_obey_the_search(store: Store, client: TestClient, search: str, is_shown: bool):
    """Agent, text and time are known; a filter on scores hides them, and the page says so."""
    store.spans.write(spans())
    text = client.get("/runs", params={"q": search}).text
    assert ("Refund order 7</span>" in text) is is_shown
    assert ("this search hides them" in text) is (search == "passed=false")


def test_a_large_trace_is_a_plain_row(store: Store, client: TestClient):
    """A trace of many spans is listed by its root span, and not reconstructed."""
    root, call = spans()
    others = [
        Span(TRACE, f"{at:016x}", parent_id=root.span_id, start_ns=START, end_ns=START + 1)
        for at in range(1000, 1600)
    ]
    store.spans.write([root, call, *others])
    text = client.get("/runs").text
    assert "just ended" in text
    assert "question not captured" in text
    assert "too large for a preview" in client.get(f"/runs/{TRACE}").text


def put_ended(store: Store, count: int) -> None:
    """Store traces that just ended, each with its own question."""
    store.spans.write(
        [one for at in range(count) for one in spans(f"question {at}", f"{at + 1:032x}")]
    )


def test_a_hundred_runs_that_end_at_once_are_listed(store: Store, client: TestClient):
    """Each has its row at the first look already, and only the newest hundred have one."""
    put_ended(store, 110)
    text = client.get("/runs").text
    assert text.count("just ended; scores follow") == 100
    assert "question 109<" in text
    assert "question 9<" not in text


def test_each_look_reconstructs_some_of_many_traces(store: Store):
    """A run waits for its question, not for its row, and the state changes with each look."""
    put_ended(store, 25)
    previews = Previews(is_on=True, patience=0)
    states = []
    for known in (10, 20, 25, 25):
        found = previews.newest(store)
        states.append(previews_text(found))
        assert [one.run.question is not None for one in found] == [True] * known + [False] * (
            25 - known
        )
        assert {one.run.agent for one in found} == {"shop"}
    assert len(set(states)) == 3


def test_a_search_does_not_wait_for_many_traces_that_just_ended(store: Store):
    """It shows those that are known; few are reconstructed at once."""
    put_ended(store, 25)
    previews = Previews(is_on=True, patience=60)
    assert all(one.is_pending for one in previews.newest(store, is_patient=False))
    assert not any(one.is_pending for one in previews.newest(store))
    assert not any(one.is_pending for one in previews.newest(store, is_patient=False))

    few = Previews(is_on=True, most=10)
    assert not any(one.is_pending for one in few.newest(store, is_patient=False))


def test_a_trace_without_an_agent_has_no_preview(store: Store, client: TestClient):
    """Requests alone give no run, and so no row."""
    request = Span(TRACE, "1" * 16, name="GET /", attributes={"http.request.method": "GET"})
    store.spans.write([request])
    assert "just ended" not in client.get("/runs").text


def test_a_late_span_of_a_stored_run_makes_no_preview(store: Store, client: TestClient):
    """The trace is open again, but its run is listed already."""
    root, call = spans()
    store.spans.write([call, root])
    complete(store)
    late = Span(TRACE, "3" * 16, parent_id=root.span_id, start_ns=START, end_ns=START + 1)
    store.spans.write([late])
    assert "just ended" not in client.get("/runs").text


def test_a_database_without_a_server_has_no_previews(store: Store, pages: Any):
    """Nothing completes the traces of a file later."""
    store.spans.write(spans())
    assert "just ended" not in pages(store).get("/runs").text


def test_runs_that_just_ended_are_named_beside_the_count(store: Store, client: TestClient):
    """The number of runs that match does not seem to miss them."""
    store.spans.write(spans("Refund order 6", "cd" * 16))
    complete(store, "cd" * 16)
    store.spans.write(spans())
    assert '<span id="count">1 and runs that just ended</span>' in client.get("/runs").text
