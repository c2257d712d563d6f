"""Backends that answer something else than their API says: each is an error of one line, in time.

The small servers of the other tests give good answers. Here one value of one answer is another, or
pages come again, or an answer drips.
"""

from __future__ import annotations

import copy
import itertools
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from oteval.base.clients.otlp_client import HttpClient
from oteval.base.errors import BackendError, ConfigError
from oteval.base.jsontext import dumps
from oteval.extras.backends.connections import open_source
from oteval.extras.backends.json_api import JsonApi
from oteval.extras.backends.transfer import pull
from oteval.model import Span
from oteval.scoring.annotations import PushReport
from oteval.store import Store

from .backend_servers import BACKENDS, SECRET, TARGETS, Answers, annotation_for, connected
from .json_server import Answer, Query, answering

# More requests than any good list of these servers needs.
MOST_REQUESTS = 1200
WRONG_ANSWERS: dict[str, Any] = {
    "html": b"<!doctype html><title>Sign in</title>",
    "null": None,
    "nothing": b"",
    "list": [],
    "list of lists": [[]],
    "text": "ok",
    "number": 7,
    "list of numbers": [1, 2],
    "another object": {"status": "ok"},
    "data of numbers": {"data": [1], "items": [1], "traces": [1], "experiments": [1]},
    "data of null": {"data": 0, "items": 0, "traces": 0, "experiments": 0},
}
WRONG_VALUES: list[Any] = [None, 5, True, "x", "", [None], {"x": []}]


def run_all(name: str, client: Any, store: Store) -> None:
    """Pull all projects, and push a score if the backend takes scores."""
    pull(store, client, 0)
    if BACKENDS[name].writes:
        client.write([annotation_for(name)], PushReport())


def limited(answers: Answers) -> Answers:
    """Return the same answers, and a failure of the test after too many of them."""
    counts = [0]

    def answer(method: str, path: str, query: Query, body: Any) -> Answer:
        counts[0] += 1
        if counts[0] > MOST_REQUESTS:
            return 418, b"the client does not end"
        return answers(method, path, query, body)

    return answer


def outcome(name: str, store: Store, answers: Answers, **options: Any) -> str:
    """Return the error of a pull and a push, "" for none."""
    text = ""
    try:
        with connected(name, limited(answers), **options) as (client, _):
            run_all(name, client, store)
    except BackendError as error:
        text = str(error)
    assert "the client does not" not in text
    assert "\n" not in text
    assert len(text) < 500
    return text


@pytest.mark.parametrize("wrong", WRONG_ANSWERS)
@pytest.mark.parametrize("name", BACKENDS)
def test_an_answer_of_another_type_is_an_error_of_one_line(name: str, wrong: str, store: Store):
    """HTML, a list, null or a number in place of an object is never taken for an empty list."""
    error = outcome(name, store, lambda *_request: (200, WRONG_ANSWERS[wrong]))

    assert "is this the" in error


def _nodes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths to all values in JSON, of lists only to their first elements."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _nodes(item, (*path, key))
    elif isinstance(value, list) and value:
        yield from _nodes(value[0], (*path, 0))


def _replaced(value: Any, path: tuple[Any, ...], wrong: Any) -> Any:
    if not path:
        return wrong
    made = copy.copy(value)
    made[path[0]] = _replaced(value[path[0]], path[1:], wrong)
    return made


def _good_answers(name: str) -> list[Any]:
    """Return the bodies of the answers to a good pull, a push, and a push again."""
    bodies: list[Any] = []
    fake = BACKENDS[name].fake()

    def answer(method: str, path: str, query: Query, body: Any) -> Answer:
        found = fake.answer(method, path, query, body)
        bodies.append(json.loads(json.dumps(found[1])))
        return found

    with connected(name, answer) as (client, _), Store() as store:
        run_all(name, client, store)
        if BACKENDS[name].writes:
            client.write([annotation_for(name)], PushReport())
    return bodies


@pytest.mark.slow
@pytest.mark.parametrize("name", BACKENDS)
def test_any_value_of_another_type_is_an_error_or_a_problem_of_one_line(name: str, store: Store):
    """Whichever value of an answer is another, pull and push end, and what was read is stored."""
    case: list[Any] = []
    current: list[Answers] = []
    read: list[Span] = []
    shapes: set[str] = set()
    with answering(lambda *request: current[0](*request)) as server:
        for number, good in enumerate(_good_answers(name)):
            for path in _nodes(good):
                shape = f"{sorted(good) if isinstance(good, dict) else ''} {path}"
                if shape in shapes:
                    continue
                shapes.add(shape)
                for wrong in WRONG_VALUES:
                    case[:] = (number, path, wrong)
                    current[:] = [limited(_with_value(name, number, path, wrong))]
                    error = _read_all(name, server.url, read)
                    assert "\n" not in error, case
                    assert "the client does not" not in error, case
    store.spans.write(read)
    assert read


def _read_all(name: str, url: str, read: list[Span]) -> str:
    """Pull and push once, and return the error, "" for none."""
    api = JsonApi(url, name, {}, patience=0.0)
    with closing(BACKENDS[name].client(api)) as client:
        try:
            for project in client.projects(()):
                for page in client.pages(project, {"since_ns": 0}):
                    read.extend(page.spans)
                    dumps(page.position)
                    assert not any("\n" in problem for problem in page.problems)
            if BACKENDS[name].writes:
                client.write([annotation_for(name)], PushReport())
        except BackendError as error:
            return str(error)
    return ""


def _with_value(name: str, number: int, path: tuple[Any, ...], wrong: Any) -> Answers:
    """Return answers of which one has another value at a path."""
    fake = BACKENDS[name].fake()
    counts = [0]

    def answer(method: str, request: str, query: Query, body: Any) -> Answer:
        status, value, *rest = fake.answer(method, request, query, body)
        counts[0] += 1
        if counts[0] - 1 == number and isinstance(value, (dict, list)):
            value = _replaced(json.loads(json.dumps(value)), path, wrong)
        return status, value, *rest  # type: ignore[return-value]

    return answer


def _first_again(fake: Any) -> Answers:
    """Return answers in which the first page of each list comes again and again."""
    first: dict[str, Answer] = {}

    def answer(method: str, path: str, query: Query, body: Any) -> Answer:
        asked = "" if "query" not in query else query["query"][0][:8]
        key = f"{method} {path} {asked}"
        if key not in first:
            first[key] = fake.answer(method, path, query, body)
        return first[key]

    return answer


def _with_cursor(fake: Any, *, has_elements: bool, is_new: bool) -> Answers:
    """Return answers that always have a further page, in each list of a backend."""
    counts = [0]

    def answer(method: str, path: str, query: Query, body: Any) -> Answer:
        for name in ("cursor", "page_token"):
            query.pop(name, None)
            if isinstance(body, dict):
                body.pop(name, None)
        status, value, *_ = fake.answer(method, path, query, body)
        if not isinstance(value, dict):
            return status, value
        counts[0] += 1
        cursor = f"c{counts[0]}" if is_new else "c"
        lists = {key: item if has_elements else [] for key, item in value.items()}
        more = {"next_cursor": cursor, "next_page_token": cursor, "meta": {"cursor": cursor}}
        return status, {**lists, **more}

    return answer


@pytest.mark.parametrize("name", ["phoenix", "mlflow", "langfuse", "langsmith"])
@pytest.mark.parametrize(
    ("has_elements", "is_new"),
    [(True, False), (True, True), (False, False), (False, True)],
    ids=["same page and cursor", "same page", "empty, same cursor", "empty"],
)
def test_a_list_without_an_end_is_an_error(
    name: str, has_elements: bool, is_new: bool, store: Store
):
    """The same cursor, the same page under new cursors, and empty pages end the pull."""
    answers = _with_cursor(BACKENDS[name].fake(), has_elements=has_elements, is_new=is_new)

    assert "its list does not end" in outcome(name, store, answers)


def test_rows_that_come_again_are_an_error(store: Store):
    """ClickHouse, or a proxy with a cache, that returns the same rows for every key."""
    error = outcome("clickhouse", store, _first_again(BACKENDS["clickhouse"].fake()))

    assert "its list does not end" in error


@pytest.mark.parametrize("name", TARGETS)
def test_a_push_ends_when_its_lists_do_not(name: str):
    """The lists that a push reads (projects, stored scores, runs of a trace) end as well."""
    answers = _with_cursor(BACKENDS[name].fake(), has_elements=True, is_new=True)
    text = ""
    with connected(name, limited(answers)) as (client, server):
        try:
            client.write([annotation_for(name)], PushReport())
        except BackendError as error:
            text = str(error)
        assert len(server.requests) < MOST_REQUESTS
    assert not text or "its list does not end" in text


@contextmanager
def dripping(head: bytes, drop: bytes) -> Iterator[str]:
    """Serve an answer that never ends: a beginning, then some bytes every few milliseconds."""
    is_over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                try:
                    connection.sendall(head)
                    while not is_over.wait(0.01):
                        connection.sendall(drop)
                except OSError:
                    pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        is_over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


DRIPS = {
    "status line": (b"HTTP/1.1 200 ", b"O"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"x"),
    "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": (b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n", b" "),
    "chunks": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "body without length": (b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n", b" "),
}


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each look at the clock of an exchange take five seconds.

    So an exchange is over after some reads, however long a busy machine takes for each.
    """
    looks = itertools.count(step=5)
    clock = SimpleNamespace(monotonic=lambda: float(next(looks)))
    monkeypatch.setattr("oteval.base.clients.http_connection.time", clock)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("kind", DRIPS)
def test_an_answer_that_drips_is_an_error(kind: str):
    """Each byte begins the timeout of a socket anew; the limit is that of the whole answer."""
    with dripping(*DRIPS[kind]) as url:
        api = JsonApi(url, "Phoenix", {}, timeout=60, patience=0.5)
        with pytest.raises(BackendError, match="too slowly"):
            api.get("/v1/projects")
        api.close()


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("kind", DRIPS)
def test_an_endpoint_that_drips_does_not_hold_up_its_client(kind: str):
    """Endpoints for traces, events and webhooks are asked by the same connection."""
    with dripping(*DRIPS[kind]) as url:
        client = HttpClient(url, timeout=60)
        result = client.export("traces", b"")
        client.close()

    assert result.status == 0
    assert "SlowAnswer" in result.reason


@pytest.mark.parametrize("status", [400, 404, 422, 500])
@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    "echo",
    [
        "bad key {}",
        '{{"detail": "Authorization: Bearer {}"}}',
        "{}" + " " * 50,
        "x" * 390 + "{}",
        "x" * 3990 + "{}",
    ],
)
def test_an_error_that_repeats_the_key_is_cleaned(name: str, status: int, echo: str, store: Store):
    """A key without a known form is removed from the text of the backend, wherever it stands."""
    body = echo.format(SECRET).encode()
    error = outcome(name, store, lambda *_request: (status, body), patience=0.0)

    assert error
    assert SECRET[:8] not in error
    assert SECRET[-8:] not in error


@pytest.mark.parametrize("key", ["secret-key\n", "secret-key\r\nx: y", "secret-\u20ac"])
def test_a_key_that_is_no_header_is_an_error_without_the_key(key: str):
    """Keys that were read from files end in line breaks; libraries show them in their errors."""
    api = JsonApi("http://127.0.0.1:9", "Phoenix", {"X-Api-Key": key}, key_hint="set THE_KEY")
    with pytest.raises(BackendError, match="line break") as raised:
        api.get("/")

    assert "secret" not in str(raised.value)
    assert "set THE_KEY" in str(raised.value)


@pytest.mark.parametrize("url", ["http://h:99999", "http://h:x", "http://[::1", "http://", "h:80"])
@pytest.mark.parametrize("name", BACKENDS)
def test_an_address_that_is_none_is_an_error_of_one_line(name: str, url: str):
    """The message says how to write one."""
    with pytest.raises(ConfigError, match="write http://HOST:PORT"):
        open_source(name, url, {}, {})
