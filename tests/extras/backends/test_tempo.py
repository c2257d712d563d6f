"""Pull from a small server that answers as the HTTP API of Grafana Tempo is described.

No real Tempo was asked.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from oteval.base.errors import BackendError
from oteval.extras.backends.json_api import JsonApi
from oteval.extras.backends.tempo import ALL_SERVICES, Tempo
from oteval.extras.backends.transfer import pull
from oteval.store import Store

from ...commands import Run
from .json_server import Answer, JsonServer, Query, answering

NOW_S = 200_000


class FakeTempo:
    """The state of the small server: when each trace began (s), and the traces it cannot give."""

    def __init__(self) -> None:
        self.began = {1: 100, 2: 100, 3: 100, 4: 5000, 5: 90_000, 6: 199_999}
        self.traces: dict[int, Answer] = {}
        self.failures: list[Answer] = []
        self.read: list[int] = []

    def answer(self, method: str, path: str, query: Query, body: Any) -> Answer:
        """Return the answer to a request: the next failure, if one is set."""
        del method, body
        if self.failures:
            return self.failures.pop(0)
        if path == "/api/search":
            return self._found(query)
        number = int(path.removeprefix("/api/v2/traces/"), 16)
        self.read.append(number)
        return self.traces.get(number) or (200, trace(number, self.began[number]))

    def _found(self, query: Query) -> Answer:
        start, end, limit = (int(query[name][0]) for name in ("start", "end", "limit"))
        if start >= end or end - start > 604_800:
            return 400, b"range specified by start and end exceeds 168h0m0s"
        if query["q"][0] not in ("{}", '{ resource.service.name = "agent" }'):
            return 200, {"metrics": {}}
        names = [one for one, at in self.began.items() if start <= at <= end]
        # Tempo shortens ids that begin with zeros.
        return 200, {"traces": [{"traceID": f"{one:x}"} for one in names[:limit]], "metrics": {}}


def trace(number: int, began: int) -> dict[str, Any]:
    """Return a trace of one span as Tempo's API gives it, with ids in base64."""
    name = number.to_bytes(16, "big")
    span = {
        "traceId": base64.b64encode(name).decode(),
        "spanId": base64.b64encode(name[8:]).decode(),
        "name": "chat",
        "startTimeUnixNano": str(began * 10**9),
        "endTimeUnixNano": str(began * 10**9 + 5),
    }
    return {"trace": {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}, "status": "COMPLETE"}


@pytest.fixture
def fake() -> FakeTempo:
    return FakeTempo()


@pytest.fixture
def server(fake: FakeTempo) -> Iterator[JsonServer]:
    with answering(fake.answer) as found:
        yield found


@pytest.fixture
def tempo(server: JsonServer) -> Iterator[Tempo]:
    api = JsonApi(server.url, "Tempo", {}, patience=5, sleep=lambda _seconds: None)
    yield Tempo(api, limit=2, clock=lambda: NOW_S * 10**9)
    api.close()


def test_every_trace_of_a_second_is_read(store: Store, tempo: Tempo):
    """A search returns some traces up to a limit: ranges are halved, then the limit grows."""
    [first] = pull(store, tempo, 0)
    [again] = pull(store, tempo, 0)

    assert (first.written.stored, first.problems) == (6, [])
    assert again.written.stored == 0


def test_an_interrupted_pull_continues(store: Store, fake: FakeTempo, tempo: Tempo):
    """What was stored before a failure is kept, and is not read again."""
    fake.traces[5] = (403, {})
    with pytest.raises(BackendError, match="403"):
        pull(store, tempo, 0)
    assert store.spans.count()[0] == 4
    fake.traces.clear()
    fake.read.clear()

    [report] = pull(store, tempo, 0)

    assert report.written.stored == 2
    assert not set(fake.read) & {1, 2, 3}


def test_late_traces_are_read(store: Store, fake: FakeTempo, tempo: Tempo):
    """A trace that began within an hour before the end of the last pull is found by the next."""
    pull(store, tempo, 0)
    fake.began[7] = NOW_S - 3000
    [report] = pull(store, tempo, 0)

    assert report.written.stored == 1


def test_traces_that_tempo_cannot_give_are_named(store: Store, fake: FakeTempo, tempo: Tempo):
    """A trace that is gone, too large, or cut is reported, and the others are stored."""
    fake.traces = {
        1: (404, b""),
        2: (422, b"trace exceeds max size"),
        4: (200, {**trace(4, 5000), "status": "PARTIAL", "message": "too large"}),
        5: (200, {"trace": {"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "x"}]}]}]}}),
    }
    [report] = pull(store, tempo, 0)

    assert report.written.stored == 3
    assert len(report.problems) == 4
    for number, said in ((1, "no more"), (2, "too large"), (4, "a part of the trace"), (5, "")):
        [line] = [one for one in report.problems if f"{number:032x}" in one]
        assert said in line


def test_a_rate_limit_is_waited_for(store: Store, fake: FakeTempo, server: JsonServer):
    """The wait is the one that Tempo asks for."""
    fake.failures = [(429, {}, {"Retry-After": "3"})]
    waits: list[float] = []
    api = JsonApi(server.url, "Tempo", {}, sleep=waits.append)
    [report] = pull(store, Tempo(api, clock=lambda: NOW_S * 10**9), 0)
    api.close()

    assert waits == [3.0]
    assert report.written.stored == 6


def test_a_service_without_traces_is_reported(store: Store, tempo: Tempo):
    """A misspelt name does not look like a service that did nothing; a known one selects."""
    [none, some] = pull(store, tempo, 0, ["agnet", "agent"])

    assert "agnet" in none.problems[0]
    assert (some.written.stored, some.problems) == (6, [])


def test_a_position_is_stored_with_each_page(tempo: Tempo):
    """Positions are JSON, and only the last page is complete."""
    positions = [json.loads(json.dumps(page.position)) for page in
                 tempo.pages(ALL_SERVICES, {"since_ns": 0})]  # fmt: skip

    assert [one["is_complete"] for one in positions[:-1]] == [False] * (len(positions) - 1)
    assert positions[-1]["is_complete"]
    reads = [one["read_ns"] for one in positions]
    assert reads == sorted(reads)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, {}), "TEMPO_TOKEN"),
        ((200, b"<html>"), "is this the URL of Tempo?"),
        ((200, {"x": 1}), "is this the right URL?"),
        ((302, {}, {"Location": "https://other.example/"}), "give that URL"),
    ],
)
def test_errors_are_one_line_without_the_key(
    oteval: Run, monkeypatch: pytest.MonkeyPatch, answer: Answer, said: str
):
    """A wrong token or URL names the remedy, and no message holds a secret."""
    monkeypatch.setenv("TEMPO_TOKEN", "very-secret")
    with answering(lambda *_: answer) as server:
        done = oteval("pull", "tempo", server.url)
        assert server.requests[0][3]["Authorization"] == "Bearer very-secret"

    assert done.status == 2
    assert said in done.err
    assert "secret" not in done.err + done.out
