"""Pull from and push to a small server that answers as LangSmith's API is described.

The description is the client that LangSmith generates from it (``langsmith`` 0.15.1). No real
LangSmith was asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oteval.base.errors import BackendError
from oteval.extras.backends.json_api import JsonApi
from oteval.extras.backends.langsmith import LangSmith
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
PROJECT = "00000000-0000-0000-0000-0000000000aa"


def uuid_of(number: int) -> str:
    return f"018f2f6e-0000-7000-8000-{number:012x}"


def run(number: int, **fields: Any) -> dict[str, Any]:
    """Return a run in the form of the API."""
    return {
        "id": uuid_of(number),
        "trace_id": uuid_of(number),
        "project_id": PROJECT,
        "parent_run_ids": [],
        "name": "ChatOpenAI",
        "run_type": "LLM",
        "status": "SUCCESS",
        "start_time": (BEGAN + timedelta(minutes=number)).isoformat(),
        "end_time": (BEGAN + timedelta(minutes=number, seconds=1)).isoformat(),
        "inputs": {"messages": [{"role": "user", "content": "hi"}]},
        "outputs": {"role": "assistant", "content": "ho"},
        "extra": {},
        **fields,
    }


class FakeLangSmith:
    """The state of the small server: its runs and feedback."""

    def __init__(self) -> None:
        self.runs = [run(number) for number in range(1, 6)]
        self.feedback: dict[str, dict[str, Any]] = {}
        self.hidden: set[str] = set()
        self.failures: list[Answer] = []
        self.largest = 1000
        self.writes = 0
        self.others: list[dict[str, Any]] = [{"id": uuid_of(99), "name": "empty"}]

    def answer(self, method: str, path: str, query: Query, body: Any) -> Answer:
        """Return the answer to a request: the next failure, if one is set."""
        if self.failures:
            return self.failures.pop(0)
        if path == "/api/v2/sessions":
            return self._sessions(query)
        if path == "/api/v2/runs/query":
            return self._found(body)
        if method == "GET":
            start, limit = int(query["offset"][0]), int(query["limit"][0])
            page = [
                feedback
                for name, feedback in self.feedback.items()
                if feedback["run_id"] in query["run"] and name not in self.hidden
            ]
            return 200, page[start : start + limit]
        return self._written(method, path, body)

    def _sessions(self, query: Query) -> Answer:
        if "cursor" not in query:
            return 200, {"items": self.others, "next_cursor": "more"}
        return 200, {"items": [{"id": PROJECT, "name": "support"}], "next_cursor": None}

    def _found(self, body: Any) -> Answer:
        if body["page_size"] > self.largest:
            return 504, {"error": "timeout"}
        begin = datetime.fromisoformat(body["min_start_time"])
        end = datetime.fromisoformat(body.get("max_start_time") or "2100-01-01T00:00:00Z")
        matching = [
            run_record
            for run_record in self.runs
            if run_record["project_id"] in body["project_ids"]
            and body.get("trace_id") in (None, run_record["trace_id"])
            and begin <= _time(run_record) <= end
        ]
        matching.sort(key=_time, reverse=True)
        start = int(body.get("cursor") or 0)
        stop = start + body["page_size"]
        # Fields that were not selected are left out.
        names = [name.lower() for name in body["selects"]]
        page = [
            {key: run_record[key] for key in names if key in run_record}
            for run_record in matching[start:stop]
        ]
        return 200, {"items": page, "next_cursor": str(stop) if stop < len(matching) else None}

    def _written(self, method: str, path: str, body: Any) -> Answer:
        if method == "DELETE":
            deleted = self.feedback.pop(path.rpartition("/")[2], None)
            return (404, {"detail": "unknown"}) if deleted is None else (200, {})
        if body.get("score") is not None and round(body["score"], 4) != body["score"]:
            return 422, {"detail": "too many decimal places"}
        self.writes += 1
        if method == "PATCH":
            self.feedback[path.rpartition("/")[2]].update(body)
            return 200, {}
        if body["id"] in self.feedback:
            return 409, {"detail": "exists"}
        self.feedback[body["id"]] = body
        return 200, body


def _time(run_record: dict[str, Any]) -> datetime:
    try:
        return datetime.fromisoformat(run_record["start_time"])
    except ValueError:
        return BEGAN


@pytest.fixture
def fake() -> FakeLangSmith:
    return FakeLangSmith()


@pytest.fixture
def server(fake: FakeLangSmith) -> Iterator[JsonServer]:
    with answering(fake.answer) as json_server:
        yield json_server


@pytest.fixture
def langsmith(server: JsonServer) -> Iterator[LangSmith]:
    """Return a client with small pages that waits for nothing."""
    api = JsonApi(server.url, "LangSmith", {}, patience=5, sleep=lambda _seconds: None)
    yield LangSmith(api, page=2, clock=lambda: NOW_NS)
    api.close()


def test_a_second_pull_stores_only_late_runs(
    store: Store, fake: FakeLangSmith, langsmith: LangSmith
):
    """All projects and pages are stored once; a run of the last hour is found later."""
    [empty, first] = pull(store, langsmith, 0)
    [_, again] = pull(store, langsmith, 0)
    fake.runs.append(run(6, start_time=(NOW - timedelta(minutes=50)).isoformat()))
    [_, later] = pull(store, langsmith, 0)

    assert (empty.project, empty.spans) == ("empty", 0)
    assert (first.written.stored, first.problems) == (5, [])
    assert again.written.stored == 0
    assert later.written.stored == 1


def test_an_interrupted_pull_continues(store: Store, fake: FakeLangSmith, langsmith: LangSmith):
    """The list continues behind the last page that was stored."""
    pages = langsmith.pages("support", {"since_ns": 0})
    page = next(pages)
    key = f"{langsmith.url} support"
    store.spans.commit_pulled(page.spans, key, json.dumps(page.position))
    fake.failures = [(403, {})]
    with pytest.raises(BackendError, match="403"):
        next(pages)

    [report] = pull(store, langsmith, 0, ["support"])

    assert report.written.stored == 3
    assert store.spans.count()[0] == 5


def test_pages_become_smaller_when_they_fail(store: Store, fake: FakeLangSmith, server: JsonServer):
    """A page that LangSmith cannot answer is asked for in halves."""
    fake.largest = 2
    api = JsonApi(server.url, "LangSmith", {}, patience=5, sleep=lambda _seconds: None)
    [report] = pull(store, LangSmith(api, clock=lambda: NOW_NS), 0, ["support"])
    api.close()

    assert report.written.stored == 5


def test_bad_and_unfinished_runs_are_named(store: Store, fake: FakeLangSmith, langsmith: LangSmith):
    """One without an end is read once it has one; after an hour it is read as it is."""
    recent = (NOW - timedelta(minutes=10)).isoformat()
    fake.runs = [
        run(1, start_time="yesterday"),
        run(2, end_time=None),
        run(3, start_time=recent, end_time=None),
        run(4, trace_id=""),
        run(5),
    ]
    [first] = pull(store, langsmith, 0, ["support"])
    fake.runs[2]["end_time"] = NOW.isoformat()
    [second] = pull(store, langsmith, 0, ["support"])

    assert first.written.stored == 2
    assert len(first.problems) == 4
    assert sum("skipped" in problem for problem in first.problems) == 2
    assert second.written.stored == 1


def test_a_rate_limit_is_waited_for(store: Store, fake: FakeLangSmith, server: JsonServer):
    """The wait is the one that LangSmith asks for."""
    fake.failures = [(429, {}, {"Retry-After": "2"})]
    waits: list[float] = []
    api = JsonApi(server.url, "LangSmith", {}, sleep=waits.append)
    [report] = pull(store, LangSmith(api, clock=lambda: NOW_NS), 0, ["support"])
    api.close()

    assert waits == [2.0]
    assert report.written.stored == 5


def _as_run(span: Span) -> dict[str, Any]:
    """Return the run that LangSmith's SDK exported as a span.

    Its export keeps the first half of a run's id; the second half is made up here.
    """
    attributes = span.attributes
    prefix = "langsmith.metadata."
    metadata = {
        key.removeprefix(prefix): value
        for key, value in attributes.items()
        if key.startswith(prefix)
    }
    errors = [
        event.attributes["exception.message"] for event in span.events if event.name == "exception"
    ]
    extra: dict[str, Any] = {"metadata": metadata}
    if tools := attributes.get("gen_ai.tool.definitions"):
        extra["invocation_params"] = {"tools": json.loads(tools)}
    if call_id := attributes.get("gen_ai.tool.call.id"):
        extra["tool_call_id"] = call_id
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return {
        "id": _uuid(span.span_id * 2),
        "trace_id": _uuid(span.trace_id),
        "project_id": PROJECT,
        "parent_run_ids": [_uuid(span.parent_id * 2)] if span.parent_id else [],
        "name": attributes["langsmith.trace.name"],
        "run_type": attributes["langsmith.span.kind"].upper(),
        "status": "ERROR" if errors else "SUCCESS",
        "error": errors[0] if errors else None,
        "start_time": (epoch + timedelta(microseconds=span.start_ns // 1000)).isoformat(),
        "end_time": (epoch + timedelta(microseconds=span.end_ns // 1000)).isoformat(),
        "inputs": json.loads(attributes["gen_ai.prompt"])
        if "gen_ai.prompt" in attributes
        else None,
        "outputs": json.loads(attributes["gen_ai.completion"])
        if "gen_ai.completion" in attributes
        else None,
        "prompt_tokens": attributes.get("gen_ai.usage.input_tokens"),
        "completion_tokens": attributes.get("gen_ai.usage.output_tokens"),
        "total_tokens": attributes.get("gen_ai.usage.total_tokens"),
        "extra": extra,
    }


def _uuid(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _content(store: Store) -> list[Any]:
    refresh(store)
    run_objects = [trajectory.as_dict() for trajectory in store.trajectories.read()]
    return [
        (
            run_fields["root_span"],
            run_fields["messages"],
            run_fields["usage"],
            run_fields["conversation_id"],
        )
        for run_fields in run_objects
    ]


def test_the_runs_are_those_of_the_sdks_export(
    store: Store, fake: FakeLangSmith, server: JsonServer
):
    """Messages, calls, tokens and the conversation survive the form of LangSmith's API."""
    spans, _ = capture("langgraph_langsmith")
    fake.runs = [_as_run(span) for span in spans]
    api = JsonApi(server.url, "LangSmith", {}, patience=5)
    source = LangSmith(api, page=10, clock=lambda: spans[0].end_ns + 10**13)
    [report] = pull(store, source, 0, ["support"])
    api.close()
    with Store() as direct:
        direct.spans.write(spans)
        expected = _content(direct)

    assert report.problems == []
    assert report.written.stored == len(spans)
    assert _content(store) == expected
    assert expected


def annotation(number: int, **fields: Any) -> Annotation:
    digits = uuid_of(number).replace("-", "")
    annotation_fields: dict[str, Any] = {
        "trace_id": digits,
        "span_id": digits[16:],
        "name": "tools",
        "kind": "CODE",
        "identifier": "oteval:v1",
        "score": 1 / 3,
        "label": "pass",
        "explanation": "why",
        "metadata": {"version": "v1"},
        **fields,
    }
    return Annotation(**annotation_fields)


def test_a_second_push_writes_nothing(fake: FakeLangSmith, langsmith: LangSmith):
    """A changed score updates its feedback, a new version adds one, and others are counted."""
    first, second, changed = PushReport(), PushReport(), PushReport()
    some = [annotation(number) for number in (1, 2, 98)]
    langsmith.write(some, first)
    langsmith.write(some, second)
    langsmith.write([annotation(1, score=1.0), annotation(2, identifier="oteval:v2")], changed)

    assert (first.written, first.unknown) == (2, 1)
    assert (second.written, second.unchanged, second.unknown) == (0, 2, 1)
    assert changed.written == 2
    assert fake.writes == 4
    assert len(fake.feedback) == 3


def test_feedback_names_the_run_and_the_evaluator(fake: FakeLangSmith, langsmith: LangSmith):
    """A judge's feedback is a model's, with the version; the run is found by either span id."""
    other = annotation(1, kind="LLM", span_id=uuid_of(1).replace("-", "")[:16])
    langsmith.write([other], PushReport())

    [feedback] = fake.feedback.values()
    assert (feedback["run_id"], feedback["trace_id"], feedback["session_id"]) == (
        uuid_of(1),
        uuid_of(1),
        PROJECT,
    )
    assert (feedback["key"], feedback["score"], feedback["value"], feedback["comment"]) == (
        "tools",
        0.3333,
        "pass",
        "why",
    )
    assert feedback["feedback_source"]["type"] == "model"
    assert feedback["feedback_source"]["metadata"]["version"] == "v1"


def test_two_pushes_at_once_write_one_feedback(fake: FakeLangSmith, langsmith: LangSmith):
    """A push that does not see the other's feedback finds it by its id, and updates it."""
    langsmith.write([annotation(1)], PushReport())
    fake.hidden = set(fake.feedback)
    langsmith.write([annotation(1, score=0.75)], PushReport())

    [feedback] = fake.feedback.values()
    assert feedback["score"] == 0.75


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((401, {}), "set LANGSMITH_API_KEY"),
        ((404, {}), "upgrade it"),
        ((200, b"<html>"), "is this the URL of LangSmith?"),
        ((200, {"x": 1}), "is this the right URL?"),
        ((302, {}, {"Location": "https://other.example/?k=secret"}), "give that URL"),
    ],
)
def test_errors_are_one_line_without_the_key(
    oteval: Run,
    fake: FakeLangSmith,
    server: JsonServer,
    monkeypatch: pytest.MonkeyPatch,
    answer: Answer,
    message: str,
):
    """A wrong key or URL names the remedy, and no message holds a secret."""
    monkeypatch.setenv("LANGSMITH_API_KEY", "very-secret")
    monkeypatch.setenv("LANGSMITH_ENDPOINT", f"{server.url}/api/v1")
    fake.failures = [answer]
    done = oteval("pull", "langsmith")

    assert done.status == 2
    assert message in done.err
    assert "secret" not in done.err + done.out
    assert server.requests[0][3]["X-API-Key"] == "very-secret"


def test_an_unknown_project_is_named_with_those_that_exist(oteval: Run, server: JsonServer):
    """The message helps to correct a misspelt name."""
    done = oteval("pull", "langsmith", server.url, "--project", "other")

    assert done.status == 2
    assert "'other'" in done.err
    assert "support" in done.err


def test_experiments_are_pulled_by_name_only(fake: FakeLangSmith, langsmith: LangSmith):
    """Projects that LangSmith makes for evaluations are no traces of an agent at work."""
    fake.others = [
        {"id": uuid_of(90), "name": "refunds-1a2b", "type": "EXPERIMENT"},
        {"id": uuid_of(91), "name": "older", "reference_dataset_id": uuid_of(7)},
        {"id": uuid_of(92), "name": "agent", "type": "AGENT", "reference_dataset_id": None},
    ]

    assert langsmith.projects(()) == ["agent", "support"]
    assert langsmith.projects(["refunds-1a2b", "older"]) == ["refunds-1a2b", "older"]


def test_feedback_leaves_the_retention_of_traces(fake: FakeLangSmith, langsmith: LangSmith):
    """By default, feedback moves a trace to a longer and dearer retention."""
    langsmith.write([annotation(1)], PushReport())
    [written] = fake.feedback.values()

    assert written["extend_trace_retention"] is False
