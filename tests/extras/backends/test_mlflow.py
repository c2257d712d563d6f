"""Pull from and push to a small server that answers as MLflow 3.17 does, by its source.

`test_mlflow_round_trip.py` does the same with a real MLflow.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

import pytest

from oteval.base.errors import BackendError
from oteval.extras.backends.json_api import JsonApi
from oteval.extras.backends.mlflow import MLflow
from oteval.extras.backends.transfer import pull
from oteval.scoring.annotations import Annotation, PushReport
from oteval.store import Store

from ...commands import Run
from .json_server import Answer, JsonServer, Query, answering


def name_of(number: int) -> str:
    return f"tr-{number:032x}"


class FakeMLflow:
    """The state of the small server: when each trace began (ms), and the assessments."""

    def __init__(self) -> None:
        self.began = {1: 1000, 2: 2000, 3: 2000, 4: 2000, 5: 3000}
        self.assessments: dict[str, dict[str, Any]] = {}
        self.failures: list[Answer] = []
        self.largest = 1000
        self.writes = 0

    def answer(self, method: str, path: str, query: Query, body: Any) -> Answer:
        """Return the answer to a request: the next failure, if one is set."""
        if self.failures:
            return self.failures.pop(0)
        if path.endswith("/experiments/search"):
            return 200, {"experiments": [{"experiment_id": "0", "name": "Default"}]}
        if path.endswith("/traces/search"):
            return self._found(body)
        if path.endswith("/batchGet"):
            return self._spans(query["trace_ids"])
        if path.endswith("/batchGetInfos"):
            return 200, {
                "trace_infos": [self._info(one) for one in body["trace_ids"] if self._has(one)]
            }
        self.writes += 1
        if method == "DELETE":
            self.assessments.pop(path.rpartition("/")[2], None)
            return 200, {}
        given = body["assessment"]
        name = given.get("assessment_id") or f"a-{self.writes}"
        given = {"create_time": f"2026-11-20T00:00:00.{self.writes:03d}Z", **given}
        self.assessments[name] = {**self.assessments.get(name, {}), **given, "assessment_id": name}
        return 200, {"assessment": self.assessments[name]}

    def _has(self, name: str) -> bool:
        return int(name.removeprefix("tr-"), 16) in self.began

    def _info(self, name: str) -> dict[str, Any]:
        own = [one for one in self.assessments.values() if one["trace_id"] == name]
        seconds, ms = divmod(self.began[int(name.removeprefix("tr-"), 16)], 1000)
        time = f"2026-11-20T00:00:{seconds:02d}.{ms:03d}Z"
        return {"trace_id": name, "request_time": time, "assessments": own}

    def _found(self, body: Any) -> Answer:
        since = int(re.findall(r"\d+$", body["filter"])[0])
        base = 1_795_132_800_000  # 2026-11-20
        names = [
            name_of(number)
            for number, at in sorted(self.began.items(), key=lambda one: (one[1], one[0]))
            if base + at >= since
        ]
        start = int(body.get("page_token", 0))
        end = start + body["max_results"]
        answer: dict[str, Any] = {"traces": [self._info(one) for one in names[start:end]]}
        if end <= len(names):
            answer["next_page_token"] = str(end)
        return 200, answer

    def _spans(self, names: list[str]) -> Answer:
        if len(names) > self.largest:
            return 500, {"error_code": "INTERNAL_ERROR"}
        return 200, {
            "traces": [{"trace_info": self._info(one), "spans": [_span(one)]} for one in names]
        }


def _span(name: str) -> dict[str, Any]:
    number = bytes.fromhex(name.removeprefix("tr-"))
    return {
        "trace_id": base64.b64encode(number).decode(),
        "span_id": base64.b64encode(number[8:]).decode(),
        "name": "chat",
        "start_time_unix_nano": 1,
        "end_time_unix_nano": 2,
        "status": {},
    }


@pytest.fixture
def fake() -> FakeMLflow:
    return FakeMLflow()


@pytest.fixture
def server(fake: FakeMLflow) -> Iterator[JsonServer]:
    with answering(fake.answer) as found:
        yield found


@pytest.fixture
def mlflow(server: JsonServer) -> Iterator[MLflow]:
    """Return a client with small pages that waits for nothing."""
    api = JsonApi(server.url, "MLflow", {}, patience=5, sleep=lambda _seconds: None)
    yield MLflow(api, page=2)
    api.close()


def test_traces_of_one_millisecond_are_all_read(store: Store, mlflow: MLflow):
    """More traces than a page may begin at the same time."""
    [report] = pull(store, mlflow, 0)

    assert (report.spans, report.written.stored) == (5, 5)


def test_late_traces_are_read(store: Store, fake: FakeMLflow, mlflow: MLflow):
    """A trace that began before the newest one is found by the next pull."""
    pull(store, mlflow, 0)
    fake.began[6] = 1500
    [report] = pull(store, mlflow, 0)

    assert report.written.stored == 1


def test_an_interrupted_pull_continues(store: Store, fake: FakeMLflow, mlflow: MLflow):
    """Only the traces of the last millisecond are read again."""
    found = mlflow.pages("Default", {"since_ns": 0})
    [first, second] = [next(found), next(found)]

    rest = [span for page in mlflow.pages("Default", second.position) for span in page.spans]

    assert len(first.spans) == 2
    assert len({one.trace_id for one in (*first.spans, *second.spans, *rest)}) == 5
    assert len(rest) == 4


def test_fewer_traces_are_asked_for_when_that_fails(store: Store, fake: FakeMLflow, mlflow: MLflow):
    fake.largest = 1
    [report] = pull(store, mlflow, 0)

    assert report.written.stored == 5


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
        **fields,
    }
    return Annotation(**given)


def test_a_second_push_writes_nothing(fake: FakeMLflow, mlflow: MLflow):
    """A changed score updates its assessment, a new version adds one, and others are counted."""
    first, second, changed = PushReport(), PushReport(), PushReport()
    some = [annotation(number) for number in (1, 2, 99)]
    mlflow.write(some, first)
    mlflow.write(some, second)
    mlflow.write([annotation(1, score=1.0), annotation(2, identifier="oteval:v2")], changed)

    assert (first.written, first.unknown) == (2, 1)
    assert (second.written, second.unchanged, second.unknown) == (0, 2, 1)
    assert changed.written == 2
    assert fake.writes == 4
    assert len(fake.assessments) == 3


def test_two_pushes_at_once_leave_one_assessment(fake: FakeMLflow, mlflow: MLflow):
    """A push finds that another created the same assessment after it had asked, and one stays."""
    is_other_done = False

    def answer(method: str, path: str, query: Query, body: Any) -> Answer:
        nonlocal is_other_done
        found = fake.answer(method, path, query, body)
        if path.endswith("batchGetInfos") and not is_other_done:
            is_other_done = True
            mlflow.write([annotation(1)], PushReport())
        return found

    report = PushReport()
    with answering(answer) as slow:
        api = JsonApi(slow.url, "MLflow", {})
        MLflow(api).write([annotation(1)], report)
        api.close()

    assert report.written == 1
    assert fake.writes == 3
    assert list(fake.assessments) == ["a-1"]


def test_doubles_of_an_interrupted_push_are_removed(fake: FakeMLflow, mlflow: MLflow):
    """Only oteval's own assessments are removed, and the oldest stays."""
    report = PushReport()
    mlflow.write([annotation(1)], PushReport())
    [first] = fake.assessments.values()
    later = {**first, "create_time": "2026-11-21T00:00:00Z"}
    strange = {**later, "metadata": {"identifier": "other"}}
    for name, one in {"b": later, "c": later, "d": strange, "e": strange}.items():
        fake.assessments[name] = {**one, "assessment_id": name}
    mlflow.write([annotation(1)], report)

    assert report.unchanged == 1
    assert sorted(fake.assessments) == ["a-1", "d", "e"]


def test_an_older_mlflow_is_refused(store: Store, fake: FakeMLflow, mlflow: MLflow):
    fake.failures = [(200, {"traces": "none"})]

    with pytest.raises(BackendError, match="not one of MLflow"):
        pull(store, mlflow, 0)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, {}), "set MLFLOW_TRACKING_TOKEN"),
        ((200, b"<html>"), "is this the URL of MLflow?"),
        ((200, {"x": 1}), "is this the right URL?"),
        ((302, {}, {"Location": "https://other.example/?k=secret"}), "give that URL"),
    ],
)
def test_errors_are_one_line_without_the_key(
    oteval: Run,
    fake: FakeMLflow,
    server: JsonServer,
    monkeypatch: pytest.MonkeyPatch,
    answer: Answer,
    said: str,
):
    """A wrong key or URL names the remedy, and no message holds a secret."""
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "very-secret")
    fake.failures = [answer]
    done = oteval("pull", "mlflow", server.url)

    assert done.status == 2
    assert said in done.err
    assert "secret" not in done.err + done.out
    assert server.requests[0][3]["Authorization"] == "Bearer very-secret"
