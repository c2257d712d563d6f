"""Pull from a small server that answers as the API of Jaeger's query service is described.

No real Jaeger was asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from oteval.base.errors import BackendError
from oteval.extras.backends.jaeger import Jaeger
from oteval.extras.backends.json_api import JsonApi
from oteval.extras.backends.transfer import pull
from oteval.store import Store

from ...commands import Run
from .json_server import Answer, JsonServer, Query, answering

NOW_US = 10_000_000


class FakeJaeger:
    """The state of the small server: when each trace began (µs)."""

    def __init__(self) -> None:
        self.began = {1: 1000, 2: 2000, 3: 2010, 4: 5_000_000, 5: 9_999_999}

    def answer(self, method: str, path: str, query: Query, body: Any) -> Answer:
        """Return the answer to a request."""
        del method, body
        if path == "/api/services":
            return 200, {"data": ["agent"], "total": 1, "errors": None}
        start, end, limit = (int(query[name][0]) for name in ("start", "end", "limit"))
        found = [one for one, at in self.began.items() if start <= at <= end]
        newest = sorted(found, key=lambda one: -self.began[one])[:limit]
        return 200, {"data": [self._trace(one) for one in newest], "errors": None}

    def _trace(self, number: int) -> dict[str, Any]:
        name = f"{number:032x}"
        span = {"traceID": name, "spanID": f"{number:016x}", "operationName": "chat"}
        span |= {"startTime": self.began[number], "duration": 5, "processID": "p1"}  # type: ignore[dict-item]
        return {"traceID": name, "spans": [span], "processes": {"p1": {"serviceName": "agent"}}}


@pytest.fixture
def fake() -> FakeJaeger:
    return FakeJaeger()


@pytest.fixture
def server(fake: FakeJaeger) -> Iterator[JsonServer]:
    with answering(fake.answer) as found:
        yield found


@pytest.fixture
def jaeger(server: JsonServer) -> Iterator[Jaeger]:
    api = JsonApi(server.url, "Jaeger", {}, patience=5, sleep=lambda _seconds: None)
    yield Jaeger(api, limit=2, clock=lambda: NOW_US * 1000)
    api.close()


def test_a_jaeger_that_is_full_at_every_moment_is_an_error(fake: FakeJaeger):
    """One that fills each range of two microseconds would be asked for each single one."""

    def answer(method: str, path: str, query: Query, body: Any) -> Answer:
        if path == "/api/services":
            return fake.answer(method, path, query, body)
        is_smallest = int(query["end"][0]) - int(query["start"][0]) == 1
        return 200, {"data": [] if is_smallest else [fake._trace(1)] * 3}

    with answering(answer) as server, closing(JsonApi(server.url, "Jaeger", {})) as api:
        jaeger = Jaeger(api, limit=3, clock=lambda: NOW_US * 1000)
        with pytest.raises(BackendError, match="every two microseconds"):
            list(jaeger.pages("agent", {"since_ns": 0}))


def test_ranges_with_many_traces_are_halved(store: Store, jaeger: Jaeger):
    """No trace is lost behind the limit of a search, and a second pull stores nothing."""
    [first] = pull(store, jaeger, 0)
    [again] = pull(store, jaeger, 0)

    assert (first.written.stored, first.problems) == (5, [])
    assert again.written.stored == 0


def test_an_interrupted_pull_continues(jaeger: Jaeger):
    """The rest begins where the last page ended."""
    first = next(jaeger.pages("agent", {"since_ns": 0}))
    rest = [one for page in jaeger.pages("agent", first.position) for one in page.spans]

    names = {one.trace_id for one in (*first.spans, *rest)}
    assert len(names) == 5
    assert len(rest) < 5


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, {}), "JAEGER_TOKEN"),
        ((200, b"<html>"), "is this the URL of Jaeger?"),
        ((200, {"x": 1}), "is this the right URL?"),
        ((302, {}, {"Location": "https://other.example/"}), "give that URL"),
    ],
)
def test_errors_are_one_line_without_the_key(
    oteval: Run, monkeypatch: pytest.MonkeyPatch, answer: Answer, said: str
):
    """A wrong token or URL names the remedy, and no message holds a secret."""
    monkeypatch.setenv("JAEGER_TOKEN", "very-secret")
    with answering(lambda *_: answer) as server:
        done = oteval("pull", "jaeger", server.url)

    assert done.status == 2
    assert said in done.err
    assert "secret" not in done.err + done.out
