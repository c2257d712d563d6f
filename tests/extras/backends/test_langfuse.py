"""Pull from and push to a small server that answers as Langfuse's public API is described.

The description is the client that Langfuse generates from it (``langfuse`` 5.0.4). No real Langfuse
was asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oteval.base.errors import BackendError
from oteval.extras.backends.json_api import JsonApi
from oteval.extras.backends.langfuse import Langfuse
from oteval.extras.backends.transfer import pull
from oteval.model import Span
from oteval.scoring import refresh
from oteval.scoring.annotations import Annotation, PushReport
from oteval.store import Store

from ...commands import Run
from ...make import capture
from .json_server import Answer, JsonServer, Query, answering

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
NOW_NS = int(NOW.timestamp()) * 10**9
BEGAN = NOW - timedelta(hours=6)


def iso(when: datetime) -> str:
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def observation(number: int, **fields: Any) -> dict[str, Any]:
    """Return an observation in the form of the API."""
    return {
        "id": f"{number:016x}",
        "traceId": f"{number:032x}",
        "startTime": iso(BEGAN + timedelta(minutes=number)),
        "endTime": iso(BEGAN + timedelta(minutes=number, seconds=1)),
        "projectId": "p1",
        "parentObservationId": None,
        "type": "GENERATION",
        "name": "llm",
        "level": "DEFAULT",
        "input": '[{"role": "user", "content": "hi"}]',
        "output": '{"role": "assistant", "content": "ho"}',
        "metadata": {},
        **fields,
    }


class FakeLangfuse:
    """The state of the small server: its observations and scores."""

    def __init__(self) -> None:
        self.observations = [observation(number) for number in range(1, 6)]
        self.scores: dict[tuple[str, str], dict[str, Any]] = {}
        self.failures: list[Answer] = []
        self.largest = 1000
        self.cursors = 0
        self.sent = 0

    def answer(self, method: str, path: str, query: Query, body: Any) -> Answer:
        """Return the answer to a request: the next failure, if one is set."""
        if self.failures:
            return self.failures.pop(0)
        if path == "/api/public/projects":
            return 200, {"data": [{"id": "p1", "name": "support", "metadata": {}}]}
        if path == "/api/public/v2/observations":
            return self._listed(query)
        if method == "GET":
            ids = query["id"][0].split(",")
            found = [one for one in self.scores.values() if one["id"] in ids]
            return 200, {"data": found, "meta": {"limit": len(ids)}}
        return self._scored(body)

    def _listed(self, query: Query) -> Answer:
        limit = int(query["limit"][0])
        if limit > self.largest:
            return 500, {"message": "memory limit exceeded"}
        found = list(self.observations)
        if "traceId" in query:
            found = [one for one in found if one["traceId"] == query["traceId"][0]]
        if "fromStartTime" in query:
            begin, end = query["fromStartTime"][0], query["toStartTime"][0]
            found = [one for one in found if begin <= one["startTime"] < end]
        found.sort(key=lambda one: one["startTime"], reverse=True)
        start = 0
        if "cursor" in query:
            generation, _, offset = query["cursor"][0].partition(":")
            if int(generation) != self.cursors:
                return 400, {"message": "invalid cursor"}
            start = int(offset)
        meta = {"cursor": f"{self.cursors}:{start + limit}"} if start + limit < len(found) else {}
        return 200, {"data": found[start : start + limit], "meta": meta}

    def _scored(self, body: Any) -> Answer:
        for one in body:
            # The newest of the same id and time counts.
            value = bool(one["value"]) if one["dataType"] == "BOOLEAN" else one["value"]
            self.scores[one["id"], one["timestamp"]] = {**one, "value": value}
            self.sent += 1
        return 202, {"message": "Accepted"}


@pytest.fixture
def fake() -> FakeLangfuse:
    return FakeLangfuse()


@pytest.fixture
def server(fake: FakeLangfuse) -> Iterator[JsonServer]:
    with answering(fake.answer) as found:
        yield found


@pytest.fixture
def langfuse(server: JsonServer) -> Iterator[Langfuse]:
    """Return a client with small pages that waits for nothing."""
    api = JsonApi(server.url, "Langfuse", {}, patience=5, sleep=lambda _seconds: None)
    yield Langfuse(api, page=2, clock=lambda: NOW_NS)
    api.close()


def test_a_second_pull_stores_only_late_observations(
    store: Store, fake: FakeLangfuse, langfuse: Langfuse
):
    """All pages are stored once; what began within an hour before the last pull is found later."""
    [first] = pull(store, langfuse, 0)
    [again] = pull(store, langfuse, 0)
    fake.observations.append(observation(6, startTime=iso(NOW - timedelta(minutes=50))))
    [later] = pull(store, langfuse, 0)

    assert (first.written.stored, first.problems) == (5, [])
    assert again.written.stored == 0
    assert later.written.stored == 1


def test_an_interrupted_pull_continues(store: Store, fake: FakeLangfuse, langfuse: Langfuse):
    """The list continues behind the last page, though new observations came before it."""
    fake.failures = []
    pages = langfuse.pages("support", {"since_ns": 0})
    page = next(pages)
    key = f"{langfuse.url} support"
    store.spans.commit_pulled(page.spans, key, json.dumps(page.position))
    fake.failures = [(403, {})]
    with pytest.raises(BackendError, match="403"):
        next(pages)

    [report] = pull(store, langfuse, 0)

    assert report.written.stored == 3
    assert store.spans.count()[0] == 5


def test_a_forgotten_cursor_begins_the_range_again(
    store: Store, fake: FakeLangfuse, langfuse: Langfuse
):
    """A backend that does not know the cursor any more loses nothing, and stores nothing twice."""
    page = next(langfuse.pages("support", {"since_ns": 0}))
    store.spans.commit_pulled(page.spans, f"{langfuse.url} support", json.dumps(page.position))
    fake.cursors += 1

    [report] = pull(store, langfuse, 0)

    assert (report.written.stored, report.written.duplicate) == (3, 2)


def test_pages_become_smaller_when_they_fail(store: Store, fake: FakeLangfuse, server: JsonServer):
    """A page that Langfuse cannot answer is asked for in halves."""
    fake.largest = 2
    api = JsonApi(server.url, "Langfuse", {}, patience=5, sleep=lambda _seconds: None)
    [report] = pull(store, Langfuse(api, clock=lambda: NOW_NS), 0)
    api.close()

    assert report.written.stored == 5


def test_bad_and_unfinished_observations_are_named(
    store: Store, fake: FakeLangfuse, langfuse: Langfuse
):
    """One without an end is read once it has one; after an hour it is read as it is."""
    recent = iso(NOW - timedelta(minutes=10))
    fake.observations = [
        observation(1, startTime=5),
        observation(2, endTime=None),
        observation(3, startTime=recent, endTime=None),
        observation(4, type="EVENT", endTime=None),
        observation(5, id=None),
    ]
    fake.observations[0]["startTime"] = "2026-11-20 yesterday"
    [first] = pull(store, langfuse, 0)
    fake.observations[2]["endTime"] = iso(NOW)
    [second] = pull(store, langfuse, 0)

    assert first.written.stored == 2
    said = sorted(first.problems)
    assert len(said) == 4
    assert any("without an end" in one for one in said)
    assert any("has no end" in one for one in said)
    assert sum("skipped" in one for one in said) == 2
    assert second.written.stored == 1


def test_a_rate_limit_is_waited_for(store: Store, fake: FakeLangfuse, server: JsonServer):
    """The wait is the one that Langfuse asks for."""
    fake.failures = [(429, {}, {"Retry-After": "2"})]
    waits: list[float] = []
    api = JsonApi(server.url, "Langfuse", {}, sleep=waits.append)
    [report] = pull(store, Langfuse(api, clock=lambda: NOW_NS), 0)
    api.close()

    assert waits == [2.0]
    assert report.written.stored == 5


_TOKENS = {
    "prompt_tokens": "input",
    "completion_tokens": "output",
    "total_tokens": "total",
}


def _as_observation(span: Span) -> dict[str, Any]:
    """Return the observation that Langfuse's server makes of a span by its SDK."""
    given = span.attributes
    part = "langfuse.observation."
    usage = json.loads(given.get(f"{part}usage_details", "{}"))
    tokens = {name: usage[key] for key, name in _TOKENS.items() if key in usage}
    for key, value in (usage.get("prompt_tokens_details") or {}).items():
        tokens[f"input_{key}"] = value
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    metadata: dict[str, Any] = {
        key.removeprefix(f"{part}metadata."): value
        for key, value in given.items()
        if key.startswith(f"{part}metadata.")
    }
    return {
        "id": span.span_id,
        "traceId": span.trace_id,
        "parentObservationId": span.parent_id or None,
        "projectId": "p1",
        "startTime": (epoch + timedelta(microseconds=span.start_ns // 1000)).isoformat(),
        "endTime": (epoch + timedelta(microseconds=span.end_ns // 1000)).isoformat(),
        "type": given[f"{part}type"].upper(),
        "name": span.name,
        "level": given.get(f"{part}level", "DEFAULT"),
        "statusMessage": given.get(f"{part}status_message"),
        "input": given.get(f"{part}input"),
        "output": given.get(f"{part}output"),
        "model": given.get(f"{part}model.name"),
        "usageDetails": tokens or None,
        "userId": given.get("user.id"),
        "sessionId": given.get("session.id"),
        "metadata": {**metadata, "resourceAttributes": dict(span.resource)},
    }


def _content(store: Store) -> list[Any]:
    refresh(store)
    runs = [run.as_dict() for run in store.trajectories.read()]
    return [
        (run["root_span"], run["messages"], run["usage"], run["conversation_id"]) for run in runs
    ]


def test_the_runs_are_those_of_the_sdks_export(
    store: Store, fake: FakeLangfuse, server: JsonServer
):
    """Messages, calls, tokens and the conversation survive the form of Langfuse's API."""
    spans, _ = capture("langfuse_sdk")
    fake.observations = [_as_observation(span) for span in spans]
    api = JsonApi(server.url, "Langfuse", {}, patience=5)
    [report] = pull(store, Langfuse(api, page=2, clock=lambda: spans[0].end_ns + 10**13), 0)
    api.close()
    with Store() as direct:
        direct.spans.write(spans)
        expected = _content(direct)

    assert report.problems == []
    assert report.written.stored == len(spans)
    assert _content(store) == expected
    assert expected


def annotation(number: int, **fields: Any) -> Annotation:
    given: dict[str, Any] = {
        "trace_id": f"{number:032x}",
        "span_id": f"{number:016x}",
        "name": "tools",
        "kind": "CODE",
        "identifier": "oteval:v1",
        "score": 0.5,
        "label": "pass",
        "explanation": "why",
        "metadata": {"version": "v1"},
        **fields,
    }
    return Annotation(**given)


def test_a_second_push_writes_nothing(fake: FakeLangfuse, langfuse: Langfuse):
    """A changed score replaces its score, a new version adds one, and others are counted."""
    first, second, changed = PushReport(), PushReport(), PushReport()
    some = [annotation(number) for number in (1, 2, 99)]
    langfuse.write(some, first)
    langfuse.write(some, second)
    langfuse.write([annotation(1, score=1.0), annotation(2, identifier="oteval:v2")], changed)

    assert (first.written, first.unknown) == (2, 1)
    assert (second.written, second.unchanged, second.unknown) == (0, 2, 1)
    assert changed.written == 2
    assert fake.sent == 4
    assert len(fake.scores) == 3


def test_two_pushes_at_once_write_one_score(fake: FakeLangfuse, langfuse: Langfuse):
    """A push that does not see the other's score yet sends the same id and time."""
    langfuse.write([annotation(1)], PushReport())
    [(name, written)] = fake.scores.items()
    fake.scores.clear()
    langfuse.write([annotation(1)], PushReport())

    assert fake.scores == {name: written}


@pytest.mark.parametrize(
    ("fields", "kind", "value"),
    [
        ({"score": 0.25, "label": "fail"}, "NUMERIC", 0.25),
        ({"score": None, "label": "pass"}, "BOOLEAN", True),
        ({"score": None, "label": "fail"}, "BOOLEAN", False),
        ({"score": None, "label": "rude"}, "CATEGORICAL", "rude"),
    ],
)
def test_the_type_of_a_score_follows_the_verdict(
    fake: FakeLangfuse, langfuse: Langfuse, fields: dict[str, Any], kind: str, value: object
):
    """A number, a verdict and a word have their own types; a second push changes none."""
    again = PushReport()
    langfuse.write([annotation(1, **fields)], PushReport())
    langfuse.write([annotation(1, **fields)], again)

    [one] = fake.scores.values()
    assert (one["dataType"], one["value"], one["comment"]) == (kind, value, "why")
    assert (one["traceId"], one["observationId"]) == (f"{1:032x}", f"{1:016x}")
    assert one["metadata"]["version"] == "v1"
    assert again.unchanged == 1


def test_refused_scores_are_an_error(fake: FakeLangfuse, langfuse: Langfuse):
    """A partial refusal names the first reason; the accepted scores are counted."""
    report = PushReport()
    refusal = {"accepted": 1, "rejected": 1, "errors": [{"message": "bad value"}]}
    scored = fake.answer

    def answer(method: str, path: str, query: Query, body: Any) -> Answer:
        return (207, refusal) if method == "POST" else scored(method, path, query, body)

    with answering(answer) as server:
        api = JsonApi(server.url, "Langfuse", {}, patience=0)
        with pytest.raises(BackendError, match="bad value"):
            Langfuse(api).write([annotation(1), annotation(2)], report)
        api.close()

    assert report.written == 1


def test_traces_that_have_uuids_are_found(store: Store, fake: FakeLangfuse, langfuse: Langfuse):
    """Older SDKs name traces and observations by UUIDs; scores go to those names."""
    trace, own = "0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7"
    fake.observations = [observation(1, id=own, traceId=trace)]
    pull(store, langfuse, 0)
    [span] = store.spans.of_traces([trace.replace("-", "")])[0]
    langfuse.write([annotation(1, trace_id=span.trace_id, span_id=span.span_id)], PushReport())

    [one] = fake.scores.values()
    assert (one["traceId"], one["observationId"]) == (trace, own)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, {}), "set LANGFUSE_PUBLIC_KEY"),
        ((200, b"<html>"), "is this the URL of Langfuse?"),
        ((200, {"x": 1}), "is this the right URL?"),
        ((302, {}, {"Location": "https://other.example/?k=secret"}), "give that URL"),
    ],
)
def test_errors_are_one_line_without_the_key(
    oteval: Run,
    fake: FakeLangfuse,
    server: JsonServer,
    monkeypatch: pytest.MonkeyPatch,
    answer: Answer,
    said: str,
):
    """A wrong key or URL names the remedy, and no message holds a secret."""
    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", "pk-1")
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", "very-secret")
    monkeypatch.setenv("LANGFUSE_HOST", server.url)
    fake.failures = [answer]
    done = oteval("pull", "langfuse")

    assert done.status == 2
    assert said in done.err
    assert "secret" not in done.err + done.out
    assert server.requests[0][3]["Authorization"].startswith("Basic ")


def test_an_older_langfuse_is_refused(store: Store, fake: FakeLangfuse, langfuse: Langfuse):
    """A server without the API that is read says so."""
    langfuse.projects(())
    fake.failures = [(404, b"<html>")]
    with pytest.raises(BackendError, match="upgrade it"):
        next(langfuse.pages("support", {"since_ns": 0}))


@pytest.mark.parametrize(
    ("environment", "written"),
    [("staging", "staging"), (None, None), ("", None), ("langfuse-evaluation", None)],
)
def test_a_score_is_of_the_environment_of_its_observation(
    fake: FakeLangfuse, langfuse: Langfuse, environment: str | None, written: str | None
):
    """In the default environment, a filter by environment would not show it beside its trace."""
    fake.observations[0]["environment"] = environment
    langfuse.write([annotation(1)], PushReport())
    [score] = fake.scores.values()

    assert score.get("environment") == written
