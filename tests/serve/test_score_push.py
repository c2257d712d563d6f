"""Scores are written to a trace backend as they are stored: a small server stands for Phoenix."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.otlp_load import requests, send
from benchmarks.served import Served, until
from oteval.base.errors import ConfigError
from oteval.extras.backends.connections import open_target
from oteval.scoring.config import parse_config
from oteval.serve.destinations import open_destinations, refused_folders
from oteval.serve.score_push import ScorePush
from oteval.store import Store

from ..extras.backends.json_server import Answer, Query, answering
from ..make import score
from .conftest import Clock

RULES = """
evaluators:
  - {{name: tools, type: tool_errors}}
completion: {{quiet: 300ms}}
push:
  - {{backend: phoenix, url: "{url}", timeout: 5s}}
"""


class Backend:
    """Annotations in the form of Phoenix' API, and the ways in which it may fail.

    Attributes:
        annotations: The stored annotations by span, name and identifier.
        posts: How often each was written.
        missing: The spans that it does not have.
        refused: The spans whose annotations it refuses.
        failure: An answer to every request, if set.
    """

    def __init__(self) -> None:
        self.annotations: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.posts: dict[tuple[str, str, str], int] = {}
        self.missing: set[str] = set()
        self.refused: set[str] = set()
        self.failure: Answer | None = None
        self.lock = threading.Lock()

    def answer(self, method: str, path: str, query: Query, body: Any) -> Answer:
        """Return the answer to a request."""
        if self.failure is not None:
            return self.failure
        if path == "/v1/projects":
            return 200, {"data": [{"name": "default", "id": "1"}], "next_cursor": None}
        with self.lock:
            if method == "GET":
                spans = set(query["span_ids"])
                matching = [
                    annotation for key, annotation in self.annotations.items() if key[0] in spans
                ]
                return 200, {"data": matching, "next_cursor": None}
            spans = {annotation["span_id"] for annotation in body["data"]}
            if spans & self.refused:
                return 422, {"detail": "bad value"}
            if spans & self.missing:
                return 404, b"Spans with IDs x do not exist."
            for annotation in body["data"]:
                key = (annotation["span_id"], annotation["name"], annotation["identifier"])
                self.annotations[key] = annotation
                self.posts[key] = self.posts.get(key, 0) + 1
        return 200, {"data": []}

    @property
    def spans(self) -> set[str]:
        """The spans that have an annotation."""
        with self.lock:
            return {key[0] for key in self.annotations}


@pytest.fixture
def backend() -> Backend:
    return Backend()


@pytest.fixture
def url(backend: Backend) -> Iterator[str]:
    with answering(backend.answer) as server:
        yield server.url


Opened = Callable[..., Any]


@pytest.fixture
def opened(url: str, tmp_path: Path, clock: Clock) -> Opened:
    """Return a context manager of a push without a thread."""

    @contextmanager
    def begin(**options: Any) -> Iterator[ScorePush]:
        target = open_target("phoenix", url, {}, {}, timeout=5.0, patience=0.0)
        push = ScorePush(
            tmp_path / "queue", target, name="phoenix", clock=clock, threaded=False, **options
        )
        try:
            yield push
        finally:
            push.close()

    return begin


def span_of(number: int) -> str:
    """Return the judged span of a score."""
    return score(number).span_id


def spans_of(*numbers: int) -> set[str]:
    """Return the judged spans of some scores."""
    return set(map(span_of, numbers))


def stored(store: Store, *numbers: int, **fields: Any) -> None:
    """Store scores of runs by number."""
    store.scores.write([score(number, **{"evaluator": "tools", **fields}) for number in numbers])


def pumped(push: ScorePush) -> None:
    """Send until nothing waits, or an attempt fails."""
    while push.pump() and push.state()["error"] is None:
        pass


def test_only_new_scores_are_written_and_each_once(store: Store, backend: Backend, opened: Opened):
    """A new queue begins after the present scores; a restart continues behind the last one."""
    stored(store, 1)
    with opened() as push:
        push.feed(store)
        stored(store, 2, 3)
        push.feed(store)
        push.feed(store)
        pumped(push)
        assert push.state()["written"] == 2
    # While no server runs, `oteval score` may store scores.
    stored(store, 4)
    with opened() as push:
        push.feed(store)
        pumped(push)
        assert push.state()["written"] == 1

    assert backend.spans == spans_of(2, 3, 4)
    assert set(backend.posts.values()) == {1}


def test_scores_that_wait_survive_the_end_of_the_process(
    store: Store, backend: Backend, opened: Opened
):
    """The next process sends what was taken, and nothing twice."""
    with opened() as push:
        push.feed(store)
        stored(store, *range(1, 250))
        push.feed(store)
        while len(backend.annotations) < 100:
            push.pump()
    with opened() as push:
        push.feed(store)
        pumped(push)

    assert len(backend.annotations) == 249
    assert set(backend.posts.values()) == {1}


def test_a_score_whose_request_is_sent_again_is_written_once(
    store: Store, backend: Backend, opened: Opened, tmp_path: Path
):
    """A process may die between the backend's answer and its note about it."""
    with opened() as push:
        push.feed(store)
        stored(store, 1, 2)
        push.feed(store)
        pumped(push)
    [note] = (tmp_path / "queue").glob("*.done")
    note.unlink()
    with opened() as push:
        pumped(push)
        assert push.state()["unchanged"] == 2

    assert set(backend.posts.values()) == {1}


def test_a_backend_that_is_away_fills_the_queue_up_to_its_quota(
    store: Store, backend: Backend, opened: Opened
):
    """Scores beyond the quota stay in the store; all arrive once the backend is back."""
    backend.failure = (503, {})
    with opened(quota=1 << 20) as push:
        push.feed(store)
        stored(store, *range(1, 4001), comment="x" * 500)
        for _ in range(10):
            push.feed(store)
        pumped(push)
        state = push.state()
        assert state["quota"] <= state["bytes"] < 2 * state["quota"]
        assert "503" in state["error"]
        assert state["failures"] == {"503": 1}
        backend.failure = None

    with opened(quota=1 << 20) as push:
        for _ in range(100):
            push.feed(store)
            pumped(push)
        assert push.state()["error"] is None
        assert push.state()["waiting_requests"] == 0

    assert len(backend.annotations) == 4000


def test_scores_wait_for_spans_that_arrive_later(
    store: Store, backend: Backend, opened: Opened, clock: Clock
):
    """Others are written meanwhile; a span that never arrives is given up and counted."""
    backend.missing = spans_of(1, 2)
    with opened(wait=60.0) as push:
        push.feed(store)
        stored(store, 1, 2, 3)
        push.feed(store)
        pumped(push)
        assert backend.spans == spans_of(3)
        assert push.state()["waiting_for_spans"] == 1
        assert not push.pump()

        backend.missing = spans_of(2)
        clock.move(3)
        pumped(push)
        assert backend.spans == spans_of(1, 3)
        assert push.state()["unknown"] == 0
        for _ in range(10):
            clock.move(30)
            pumped(push)
        state = push.state()

    assert (state["waiting_for_spans"], state["unknown"]) == (0, 1)


def test_waiting_scores_are_tried_again_after_a_restart(
    store: Store, backend: Backend, opened: Opened
):
    """A score that waits for its span is on disk."""
    backend.missing = spans_of(1)
    with opened() as push:
        push.feed(store)
        stored(store, 1)
        push.feed(store)
        pumped(push)
    backend.missing = set()
    with opened() as push:
        pumped(push)

    assert backend.spans == spans_of(1)


def test_a_refused_score_does_not_hold_back_others(store: Store, backend: Backend, opened: Opened):
    """The backend's refusal is counted."""
    backend.refused = spans_of(2)
    with opened() as push:
        push.feed(store)
        stored(store, 1, 2, 3)
        push.feed(store)
        pumped(push)
        state = push.state()

    assert backend.spans == spans_of(1, 3)
    assert (state["refused_scores"], state["error"]) == (1, None)


def test_answers_that_cannot_be_read_are_an_error(store: Store, backend: Backend, opened: Opened):
    """Another server at that URL is named in the state, and nothing is lost."""
    backend.failure = (200, {"data": [{}]})
    with opened() as push:
        push.feed(store)
        stored(store, 1)
        push.feed(store)
        pumped(push)
        assert push.state()["error"]
        assert push.state()["waiting_requests"] == 1


def test_errors_and_other_evaluators_are_left_out(store: Store, backend: Backend, opened: Opened):
    """An error is never a score, and the configuration may name evaluators."""
    with opened(evaluators=["tools"]) as push:
        push.feed(store)
        stored(store, 1, status="error")
        stored(store, 2, evaluator="other")
        stored(store, 3)
        push.feed(store)
        pumped(push)

    assert backend.spans == spans_of(3)


def test_a_verdict_is_withdrawn_when_the_next_attempt_fails(
    store: Store, backend: Backend, opened: Opened
):
    """The annotation of a pass says so, and a later verdict replaces it again."""
    with opened() as push:
        push.feed(store)
        labels = []
        for fields in ({}, {"status": "error", "passed": None, "score": None}, {}):
            stored(store, 1, **fields)
            push.feed(store)
            pumped(push)
            (annotation,) = backend.annotations.values()
            labels.append(annotation["result"]["label"])

    assert labels == ["pass", "withdrawn", "pass"]


def test_another_database_begins_anew(store: Store, backend: Backend, opened: Opened):
    """A restored backup has lower numbers; its later scores are written nevertheless."""
    with opened() as push:
        push.feed(store)
        stored(store, *range(1, 20))
        push.feed(store)
        pumped(push)
    with Store() as other:
        stored(other, 30)
        for numbers in ((31,), (32,)):
            with opened() as push:
                push.feed(other)
                stored(other, *numbers)
                push.feed(other)
                pumped(push)

    assert spans_of(31, 32) < backend.spans
    assert span_of(30) not in backend.spans


def test_the_configuration_names_backends_once():
    """A double, an unknown evaluator and a wrong URL are errors with their lines."""
    begin = "evaluators:\n  - {name: tools, type: tool_errors}\npush:\n"
    for lines, message in (
        ("  - {backend: phoenix}\n  - {backend: phoenix}\n", ":5: push names the same phoenix"),
        ("  - {backend: mlflow, evaluators: [tool]}\n", "did you mean 'tools'?"),
        ("  - {backend: mlflow, url: 'ftp://x'}\n", "is not a URL"),
        ("  - {backend: jaeger}\n", ":4:"),
    ):
        with pytest.raises(ConfigError, match=r"oteval\.yaml:\d") as caught:
            parse_config(begin + lines)
        assert message in str(caught.value)


def test_keys_come_from_the_environment(tmp_path: Path):
    """A header may refer to a variable; one that is not set is named."""
    text = RULES.format(url="http://127.0.0.1:9").replace(
        "timeout: 5s", "headers: {x-key: '${KEY}'}"
    )
    with pytest.raises(ConfigError, match="KEY"):
        open_destinations(parse_config(text), tmp_path, environment={})
    config = parse_config(text)
    opened = open_destinations(config, tmp_path, environment={"KEY": "very-secret"})
    state = opened.state()
    opened.close()

    assert [destination["name"] for destination in state["push"]] == [
        "phoenix at http://127.0.0.1:9"
    ]
    assert "secret" not in str(state)
    [(folder, client)] = refused_folders(config, tmp_path, environment={"KEY": "very-secret"})
    client.close()
    assert folder.parent.is_dir()


@pytest.mark.slow
def test_a_server_that_is_killed_writes_every_score(
    tmp_path: Path, backend: Backend, url: str, start: Callable[..., Served]
):
    """While the backend is away, scoring goes on and /readyz says so; kills lose nothing."""
    (tmp_path / "oteval.yaml").write_text(RULES.format(url=url))
    served = start(tmp_path)
    send(served.http, list(requests(10, 4, batch=40)))
    until(lambda: len(backend.annotations) == 10, 60)
    backend.failure = (503, {})
    send(served.http, list(requests(20, 4, batch=40)))
    until(lambda: _scored(served) == 30, 60)
    until(lambda: any("push to phoenix" in warning for warning in served.state()["warnings"]), 60)
    assert b'oteval_push_ok{backend="phoenix at' in served.get("/metrics")[1]
    served.kill("storage")
    until(lambda: _scored(served) == 30, 60)
    served.kill("listener")
    backend.failure = None
    until(lambda: len(backend.annotations) == 30, 90)
    send(served.http, list(requests(5, 4, batch=40)))
    until(lambda: len(backend.annotations) == 35, 60)

    assert served.stop() == 0
    assert set(backend.posts.values()) == {1}


def _scored(served: Served) -> int:
    return len(served.cli("scores", "--json").stdout.splitlines())
