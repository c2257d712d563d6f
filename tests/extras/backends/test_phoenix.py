"""Pull from and push to a small server that answers as Phoenix 20.26 does, by its source.

`test_round_trip.py` does the same with a real Phoenix.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from oteval.base.errors import BackendError
from oteval.extras.backends.json_api import JsonApi
from oteval.extras.backends.phoenix import Phoenix
from oteval.extras.backends.transfer import pull
from oteval.scoring.annotations import Annotation, PushReport, annotation_of
from oteval.store import Store

from ...commands import Run
from ...make import score
from .json_server import Answer, JsonServer, Query, answering

TRACE = "a" * 32


def name_of(row: int) -> str:
    """Return the Relay id of a row."""
    return base64.b64encode(f"Span:{row}".encode()).decode()


def api_span(row: int, **fields: Any) -> dict[str, Any]:
    """Return a span in the form of Phoenix' API."""
    return {
        "id": name_of(row),
        "name": "chat",
        "context": {"trace_id": TRACE, "span_id": f"{row:016x}"},
        "span_kind": "LLM",
        "parent_id": None,
        "start_time": "2026-11-20T08:00:00.000001+00:00",
        "end_time": "2026-11-20T08:00:01+00:00",
        "status_code": "OK",
        "status_message": "",
        "attributes": {},
        "events": [],
        **fields,
    }


class FakePhoenix:
    """The state of the small server: its spans in the order of insertion, and its annotations."""

    def __init__(self) -> None:
        self.spans = [api_span(row) for row in range(1, 6)]
        self.annotations: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.failures: list[Answer] = []
        self.largest = 1000
        self.posts = 0

    def answer(self, method: str, path: str, query: Query, body: Any) -> Answer:
        """Return the answer to a request: the next failure, if one is set."""
        if self.failures:
            return self.failures.pop(0)
        if path == "/v1/projects":
            return 200, {"data": [{"name": "default", "id": "1"}], "next_cursor": None}
        if path.endswith("/spans"):
            return self._page(query)
        if method == "GET":
            return 200, {"data": list(self.annotations.values()), "next_cursor": None}
        return self._annotate(body)

    def _page(self, query: Query) -> Answer:
        limit = int(query["limit"][0])
        if limit > self.largest:
            return 500, {"detail": "out of memory"}
        names = [one["id"] for one in self.spans]
        start = names.index(query["cursor"][0]) if "cursor" in query else 0
        following = self.spans[start + limit : start + limit + 1]
        return 200, {
            "data": self.spans[start : start + limit],
            "next_cursor": following[0]["id"] if following else None,
        }

    def _annotate(self, body: Any) -> Answer:
        known = {one["context"]["span_id"] for one in self.spans}
        if any(one["span_id"] not in known for one in body["data"]):
            return 404, b"Spans with IDs x do not exist."
        for one in body["data"]:
            self.annotations[one["span_id"], one["name"], one["identifier"]] = one
            self.posts += 1
        return 200, {"data": []}


@pytest.fixture
def fake() -> FakePhoenix:
    return FakePhoenix()


@pytest.fixture
def server(fake: FakePhoenix) -> Iterator[JsonServer]:
    with answering(fake.answer) as found:
        yield found


@contextmanager
def connected(server: JsonServer, page: int = 2) -> Iterator[Phoenix]:
    """Return a client that waits for nothing."""
    api = JsonApi(server.url, "Phoenix", {}, patience=5, sleep=lambda _seconds: None)
    try:
        yield Phoenix(api, page=page)
    finally:
        api.close()


def test_a_second_pull_reads_only_what_is_new(store: Store, fake: FakePhoenix, server: JsonServer):
    """All pages are stored once; later only the spans inserted since then are read."""
    with connected(server) as phoenix:
        [first] = pull(store, phoenix, 0)
        [again] = pull(store, phoenix, 0)
        fake.spans.append(api_span(6))
        [later] = pull(store, phoenix, 0)

    assert (first.spans, first.written.stored) == (5, 5)
    assert again.spans == 0
    assert (later.spans, later.written.stored) == (1, 1)


def test_an_interrupted_pull_continues(store: Store, fake: FakePhoenix, server: JsonServer):
    """The pages before a failure are kept, and the next pull begins after them."""
    with connected(server) as phoenix:
        pages = phoenix.pages("default", {"since_ns": 0})
        page = next(pages)
        store.spans.commit_pulled(page.spans, f"{server.url} default", json.dumps(page.position))
        fake.failures = [(403, {"detail": "no"})]
        with pytest.raises(BackendError, match="403"):
            next(pages)
        fake.failures = []
        [report] = pull(store, phoenix, 0)

    assert report.written.stored == 3
    assert store.spans.count()[0] == 5


def test_an_earlier_time_begins_again(store: Store, server: JsonServer):
    """The spans are read again, and none is stored twice."""
    with connected(server) as phoenix:
        pull(store, phoenix, 10**18)
        [report] = pull(store, phoenix, 0)

    assert (report.written.stored, report.written.duplicate) == (0, 5)


def test_pages_become_smaller_when_they_fail(store: Store, fake: FakePhoenix, server: JsonServer):
    """A page that Phoenix cannot answer is asked for in halves."""
    fake.largest = 2
    with connected(server, page=500) as phoenix:
        [report] = pull(store, phoenix, 0)

    assert report.written.stored == 5


def test_a_bad_span_is_reported_and_the_others_are_stored(
    store: Store, fake: FakePhoenix, server: JsonServer
):
    fake.spans[1]["start_time"] = "yesterday"
    with connected(server) as phoenix:
        [report] = pull(store, phoenix, 0)

    assert report.written.stored == 4
    assert len(report.problems) == 1


def test_parsed_json_becomes_text_again(store: Store, fake: FakePhoenix, server: JsonServer):
    """Phoenix spreads `metadata` over several attributes; messages keep their names."""
    fake.spans = [
        api_span(
            1,
            attributes={
                "metadata.thread": "t1",
                "metadata.tags.0": "a",
                "metadata.tags.1": "b",
                "llm.input_messages.0.message.role": "user",
            },
        )
    ]
    with connected(server) as phoenix:
        pull(store, phoenix, 0)

    [span] = store.spans.of_traces([TRACE])[0]
    assert json.loads(span.attributes["metadata"]) == {"thread": "t1", "tags": ["a", "b"]}
    assert span.attributes["llm.input_messages.0.message.role"] == "user"
    assert span.attributes["openinference.span.kind"] == "LLM"
    assert span.start_ns % 1_000_000_000 == 1000


def test_a_rate_limit_is_waited_for(store: Store, fake: FakePhoenix, server: JsonServer):
    """The wait is the one that the backend asks for."""
    fake.failures = [(429, {}, {"Retry-After": "2"})]
    waits: list[float] = []
    api = JsonApi(server.url, "Phoenix", {}, sleep=waits.append)
    [report] = pull(store, Phoenix(api), 0)
    api.close()

    assert waits == [2.0]
    assert report.written.stored == 5


def test_an_old_phoenix_is_refused(store: Store, fake: FakePhoenix, server: JsonServer):
    """A version that ignores the order would lose spans between two pulls."""
    fake.spans.reverse()
    with connected(server) as phoenix, pytest.raises(BackendError, match="upgrade Phoenix"):
        pull(store, phoenix, 0)


def annotation(row: int, **fields: Any) -> Annotation:
    given: dict[str, Any] = {
        "trace_id": TRACE,
        "span_id": f"{row:016x}",
        "name": "tools",
        "kind": "CODE",
        "identifier": "oteval:v1",
        "score": 0.5,
        "label": "pass",
        "explanation": "why",
        **fields,
    }
    return Annotation(**given)


def test_a_second_push_writes_nothing(fake: FakePhoenix, server: JsonServer):
    """Only changed annotations are sent, and unknown spans do not keep back the others."""
    first, second, changed = PushReport(), PushReport(), PushReport()
    some = [annotation(row) for row in (1, 2, 99)]
    with connected(server) as phoenix:
        phoenix.write(some, first)
        phoenix.write(some, second)
        phoenix.write([annotation(1, score=1.0)], changed)

    assert (first.written, first.unknown) == (2, 1)
    assert (second.written, second.unchanged, second.unknown) == (0, 2, 1)
    assert changed.written == 1
    assert fake.posts == 3


def test_an_annotation_carries_the_version_and_the_verdict():
    """The identifier holds the version, so that a new version adds an annotation."""
    made = annotation_of(score(evaluator="tools", score=0.0, passed=False))

    assert made.identifier.startswith("oteval:")
    assert made.label == "fail"
    assert made.kind == "CODE"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, {}), "set PHOENIX_API_KEY"),
        ((200, b"<html>"), "is this the URL of Phoenix?"),
        ((200, {"x": 1}), "is this the right URL?"),
        ((302, {}, {"Location": "https://other.example/?k=secret"}), "give that URL"),
    ],
)
def test_errors_are_one_line_without_the_key(
    oteval: Run,
    fake: FakePhoenix,
    server: JsonServer,
    monkeypatch: pytest.MonkeyPatch,
    answer: Answer,
    said: str,
):
    """A wrong key or URL names the remedy, and no message holds a secret."""
    monkeypatch.setenv("PHOENIX_API_KEY", "very-secret")
    fake.failures = [answer]
    done = oteval("pull", "phoenix", server.url)

    assert done.status == 2
    assert said in done.err
    assert "secret" not in done.err + done.out
    assert server.requests[0][3]["Authorization"] == "Bearer very-secret"


def test_an_unknown_project_is_named_with_those_that_exist(oteval: Run, server: JsonServer):
    """The message helps to correct a misspelt name."""
    done = oteval("pull", "phoenix", server.url, "--project", "other")

    assert done.status == 2
    assert "'other'" in done.err
    assert "default" in done.err
