"""The library requests: its calls are recorded whole, and the agent notices nothing."""

from __future__ import annotations

import gc
import gzip
import io
import json
import logging
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
import urllib3
from opentelemetry.sdk.trace import TracerProvider
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from oteval.base.redaction.secrets import SecretRedactor
from oteval.record.wire import interception
from oteval.record.wire.requests_responses import FAULTS

from .recordings import recording
from .web_server import Answer, Arrived, Web, answering

SECRET = "planted-" + "a1b2c3d4e5f6g7h8"
EVENTS = [b"data: %d\n\n" % number for number in range(3)] + [b"data: [DONE]\n\n"]


def serve(request: Arrived) -> Answer:
    """Answer by the path."""
    path = request.path.partition("?")[0]
    if path in ("/moved", "/seen"):
        location = "/echo" if path == "/moved" else "/list"
        return Answer([b"there"], 307 if path == "/moved" else 302, {"Location": location})
    if path == "/gzip":
        packed = gzip.compress(b"hello " * 1000, mtime=0)
        return Answer([packed[:10], packed[10:]], headers={"Content-Encoding": "gzip"})
    if path == "/events":
        return Answer(EVENTS, headers={"Content-Type": "text/event-stream"})
    if path == "/cut":
        return Answer([b"abc", b"def"], is_cut=True)
    if path == "/empty":
        return Answer(status=204)
    if path == "/busy":
        return Answer([b"busy"], status=503)
    headers = {"Content-Type": "text/plain", "Set-Cookie": "session=1", "X-Request-Id": "r1"}
    return Answer([request.body or b"nothing"], headers=headers)


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    with answering(serve) as running:
        yield running


def parts() -> Iterator[bytes]:
    yield from (b"one ", b"two ", b"three")


def shown(response: Any) -> tuple[Any, ...]:
    """Return what an agent may look at."""
    headers = {name: value for name, value in response.headers.items() if name != "Date"}
    return (
        *(response.status_code, response.reason, headers, response.content, response.url),
        *([each.status_code for each in response.history], response.cookies.get_dict()),
        *(response.encoding, response.ok, response.elapsed.total_seconds() > 0),
        *(response.request.method, response.request.body if not response.history else None),
        *(response.raw.closed, response.raw.status, isinstance(response.raw, urllib3.HTTPResponse)),
    )


def streamed(url: str, read: Callable[[Any], Any]) -> Any:
    """Return what a function reads from a streamed response."""
    with requests.get(url, stream=True) as response:
        return read(response)


class OwnAdapter(HTTPAdapter):
    """An adapter that changes requests and responses."""

    def send(self, request: Any, *args: Any, **options: Any) -> Any:
        """Send a request with a header, and rename its response."""
        request.headers["X-Own"] = "1"
        response = super().send(request, *args, **options)
        response.reason = "Own"
        return response


def by_adapter(adapter: Any, url: str, **options: Any) -> Any:
    """Send a request by an adapter."""
    with requests.Session() as session:
        session.mount("http://", adapter)
        return shown(session.post(url, **options))


def seen_by_a_hook(url: str) -> Any:
    """Return what a hook of requests gets."""
    seen: list[Any] = []
    requests.get(url, hooks={"response": lambda got, **options: seen.append((got.text, options))})
    return seen


def abandoned(url: str) -> Any:
    """Read a part of a response, and leave it to the garbage collector."""
    response = requests.get(url, stream=True)
    return next(response.iter_content(4))


RETRIES = Retry(2, status_forcelist=[503], backoff_factor=0, allowed_methods=None)
CASES: dict[str, Callable[[str], Any]] = {
    "json": lambda url: shown(requests.post(f"{url}/echo?q=a b", json={"a": 1})),
    "text": lambda url: shown(requests.post(f"{url}/echo", data="grüße")),
    "bytearray": lambda url: shown(requests.post(f"{url}/echo", data=bytearray(b"abc"))),
    "generator": lambda url: requests.post(f"{url}/echo", data=parts()).text,
    "file": lambda url: requests.post(f"{url}/echo", data=io.BytesIO(b"x" * 50_000)).text,
    "text file": lambda url: requests.post(f"{url}/echo", data=io.StringIO("text")).text,
    "form": lambda url: shown(requests.post(f"{url}/echo", data={"a": "1"}, auth=("a", "b"))),
    "redirect": lambda url: shown(requests.post(f"{url}/moved", data=io.BytesIO(b"again"))),
    "redirect to get": lambda url: shown(requests.post(f"{url}/seen", data="x")),
    "redirect of a generator": lambda url: requests.post(f"{url}/moved", data=parts()).text,
    "gzip": lambda url: shown(requests.get(f"{url}/gzip")),
    "gzip raw": lambda url: streamed(f"{url}/gzip", lambda got: got.raw.read()),
    "gzip decoded": lambda url: streamed(f"{url}/gzip", lambda got: got.raw.read(None, True)),
    "raw parts": lambda url: streamed(f"{url}/gzip", lambda got: (got.raw.read(5), got.raw.tell())),
    "raw stream": lambda url: streamed(f"{url}/events", lambda got: list(got.raw.stream(4))),
    "raw lines": lambda url: streamed(f"{url}/events", lambda got: list(got.raw)),
    "lines": lambda url: streamed(f"{url}/events", lambda got: list(got.iter_lines())),
    "one line": lambda url: streamed(f"{url}/events", lambda got: next(got.iter_lines())),
    "bytes": lambda url: streamed(f"{url}/events", lambda got: list(got.iter_content(1))),
    "pieces": lambda url: streamed(f"{url}/events", lambda got: list(got.iter_content(None))),
    "abandoned": lambda url: abandoned(f"{url}/events"),
    "no content": lambda url: shown(requests.get(f"{url}/empty")),
    "cut": lambda url: requests.get(f"{url}/cut"),
    "own adapter": lambda url: by_adapter(OwnAdapter(), f"{url}/echo", data="x"),
    "retries": lambda url: by_adapter(HTTPAdapter(max_retries=RETRIES), f"{url}/busy"),
    "hook": lambda url: seen_by_a_hook(f"{url}/echo"),
    "pickle": lambda url: pickle.loads(pickle.dumps(requests.get(f"{url}/gzip"))).text,
    "proxy": lambda url: shown(requests.get("http://no.invalid/echo", proxies={"http": url})),
    "no proxy": lambda _url: requests.get("http://no.invalid/", proxies={"http": "http://[::1]:1"}),
    "refused": lambda _url: requests.get("http://127.0.0.1:1/"),
    "header": lambda url: shown(requests.get(f"{url}/echo", headers={"X-Name": "grüße"})),
    "bad timeout": lambda url: requests.get(f"{url}/echo", timeout=(1, 2, 3)),  # type: ignore[arg-type]
}


def outcome(work: Callable[[str], Any], url: str) -> str:
    """Return a result or error as text."""
    try:
        found: Any = work(url)
    except Exception as error:
        found = (type(error), str(error).partition(" object at")[0])
    return repr(found)


@pytest.mark.parametrize("name", CASES)
def test_the_agent_gets_the_same_as_without_recording(name: str, web: Web) -> None:
    """Responses, streams, files, redirects, retries, adapters, hooks, proxies and errors."""
    plain = outcome(CASES[name], web.url)
    arrived = len(web.arrived)
    with recording() as recorded:
        assert outcome(CASES[name], web.url) == plain
        gc.collect()
        assert recorded.recorder.failures == 0
        assert (name == "text file") == (not recorded.exchanges())
    assert web.arrived[arrived:] == web.arrived[2 * arrived - len(web.arrived) : arrived]


def test_a_request_is_recorded_whole(web: Web) -> None:
    """Method, URL, headers, bodies, status and times, in the context of the current span."""
    tracer = TracerProvider().get_tracer("agent")
    with recording() as recorded, tracer.start_as_current_span("call model") as span:
        assert requests.post(f"{web.url}/echo?version=1", data=b"ping").text == "ping"
        made = recorded.one()
    assert (made.method, made.url) == ("POST", f"{web.url}/echo?version=1")
    assert (made.request_body, made.response_body, made.status) == (b"ping", b"ping", 200)
    assert made.response_headers["x-request-id"] == "r1"
    assert (made.is_complete, made.error) == (True, "")
    assert 0 < made.chunks[0].offset_ns <= made.end_ns - made.start_ns
    assert int(made.span_id, 16) == span.get_span_context().span_id


@pytest.mark.parametrize(
    ("name", "sent", "received"),
    [
        ("generator", b"one two three", b"one two three"),
        ("file", b"x" * 50_000, b"x" * 50_000),
        ("text", "grüße".encode(), "grüße".encode()),
        ("gzip", b"", b"hello " * 1000),
        ("gzip raw", b"", b"hello " * 1000),
        ("raw lines", b"", b"".join(EVENTS)),
    ],
)
def test_bodies_are_recorded_as_they_are_sent_and_read(
    name: str, sent: bytes, received: bytes, web: Web
) -> None:
    """Generated bodies and files are not read before they are sent; responses are decoded."""
    with recording() as recorded:
        CASES[name](web.url)
        made = recorded.one()
    assert (made.request_body, made.response_body) == (sent, received)
    assert made.is_complete


@pytest.mark.parametrize("name", ["lines", "bytes", "pieces"])
def test_events_are_recorded_as_the_server_sent_them(name: str, web: Web) -> None:
    """One chunk for each of the server's, also if the agent reads byte by byte."""
    with recording() as recorded:
        CASES[name](web.url)
        assert [chunk.data for chunk in recorded.one().chunks] == EVENTS


def test_the_agent_gets_each_chunk_before_the_next_is_sent() -> None:
    """The server sends a piece only after the agent has read the one before."""
    read = [threading.Event() for _ in range(3)]

    def pieces() -> Iterator[bytes]:
        for index in range(3):
            yield b"data: %d\n\n" % index
            assert read[index].wait(60)

    answer = Answer(pieces(), headers={"Content-Type": "text/event-stream"})
    with answering(lambda _request: answer) as slow, recording() as recorded:
        with requests.get(slow.url, stream=True) as response:
            for index, _piece in enumerate(response.iter_content(None)):
                read[index].set()
        made = recorded.one()
    assert [chunk.data for chunk in made.chunks] == [b"data: %d\n\n" % n for n in range(3)]
    assert made.is_complete


def test_telemetry_is_not_intercepted(web: Web) -> None:
    """Exporters of OpenTelemetry send by requests."""
    with recording() as recorded, interception.add(Answering(lambda *_: None)):
        assert requests.post(f"{web.url}/v1/traces?x=1", data=b"spans").text == "spans"
    assert recorded.exchanges() == []


def test_ends_of_responses(web: Web) -> None:
    """A broken connection is an error; a response that is closed early is not complete."""
    with recording() as recorded:
        with pytest.raises(requests.exceptions.ChunkedEncodingError):
            CASES["cut"](web.url)
        CASES["one line"](web.url)
        CASES["abandoned"](web.url)
        gc.collect()
        with pytest.raises(requests.ConnectionError):
            CASES["refused"](web.url)
        cut, closed, left, refused = recorded.exchanges()
    assert cut.error == "RemoteProtocolError: Response ended prematurely"
    assert (cut.response_body, cut.is_complete) == (b"abcdef", False)
    assert (closed.response_body, closed.is_complete, closed.error) == (EVENTS[0], False, "")
    assert (left.response_body, left.is_complete) == (EVENTS[0][:4], False)
    assert refused.error.startswith("ConnectionError: HTTPConnectionPool")


def test_a_retried_upload_is_recorded_once(web: Web) -> None:
    """Urllib3 repeats the request below the adapter: its body is in the recording once."""
    arrived = len(web.arrived)
    retries = Retry(2, status_forcelist=[503], backoff_factor=0, allowed_methods=None)
    retries.raise_on_status = False
    with recording() as recorded:
        by_adapter(HTTPAdapter(max_retries=retries), f"{web.url}/busy", data=io.BytesIO(b"again"))
        made = recorded.one()
    assert [each.body for each in web.arrived[arrived:]] == [b"again"] * 3
    assert (made.request_body, made.status) == (b"again", 503)


def test_no_secret_is_recorded() -> None:
    """In headers, the query, bodies, cookies, and in responses that repeat them."""

    def reflect(request: Arrived) -> Answer:
        said = {"headers": request.headers, "path": request.path, "body": request.body.decode()}
        return Answer([json.dumps(said).encode()], headers={"Set-Cookie": f"session={SECRET}"})

    with answering(reflect) as careless, recording() as recorded, requests.Session() as session:
        url = careless.url
        session.get(url, headers={"Authorization": f"Bearer {SECRET}"})
        session.get(f"{url}/p", params={"api_key": SECRET})
        session.post(url, json={"deep": [{"password": SECRET}]})
        session.post(url, data=iter([b'{"client_secret": ', b'"%s"}' % SECRET.encode()]))
        session.get(url, auth=("ann", SECRET))
        session.get(url.replace("://", f"://ann:{SECRET}@"))
        assert len(recorded.exchanges()) == 6
        assert SECRET not in recorded.text()
    assert sum(SECRET in str(each) for each in careless.arrived) > 3


@pytest.mark.parametrize("broken", ["headers", "current"])
def test_a_broken_recorder_does_not_touch_the_request(
    broken: str, web: Web, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The agent gets its response, and the failure is counted."""

    def fail(*_args: Any) -> Any:
        raise ValueError

    redactor = SecretRedactor(environment={})
    with recording(redactor=redactor) as recorded:
        owner = SecretRedactor if broken == "headers" else type(recorded.recorder)
        monkeypatch.setattr(owner, "headers" if broken == "headers" else "_span_and_context", fail)
        assert requests.post(f"{web.url}/echo", data=parts()).text == "one two three"
        assert recorded.recorder.failures == 1
        assert recorded.exchanges() == []
    assert "are lost" in caplog.text


def test_what_cannot_be_intercepted_is_sent_as_it_is(
    web: Web, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A text file, and a version of urllib3 without the methods that are extended."""
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(FAULTS, "count", 0)
    with recording() as recorded:
        assert CASES["text file"](web.url) == "text"
        assert FAULTS.count == 1
        monkeypatch.setattr(
            "oteval.record.wire.requests_responses._WATCHED_METHODS",
            ("_method_of_another_version",),
        )
        assert requests.get(f"{web.url}/gzip").text == "hello " * 1000
        assert FAULTS.count == 2
        assert "could not be recorded" in recorded.one().error
    assert [record.message for record in caplog.records] == [
        "calls by requests are not recorded (TypeError); more are only counted"
    ]


def test_connections_return_to_their_pool(web: Web) -> None:
    """Recorded responses give their connections back as others do."""
    with recording(), requests.Session() as session:
        adapter: Any = session.get_adapter(web.url)
        for _ in range(3):
            session.get(f"{web.url}/gzip")
            with session.get(f"{web.url}/events", stream=True) as response:
                list(response.iter_lines())
        (pool,) = adapter.poolmanager.pools._container.values()
        assert (pool.num_connections, pool.num_requests) == (1, 6)


def test_responses_are_freed_as_soon_as_they_are_dropped(web: Web) -> None:
    """A response that is neither read nor closed frees its connection without the collector."""
    freed: list[bool] = []
    gc.disable()
    try:
        with recording(), requests.Session() as session:
            for path in ("/gzip", "/events"):
                response = session.get(web.url + path, stream=True)
                kept = weakref.ref(response.raw)
                del response
                freed.append(kept() is None)
    finally:
        gc.enable()
    assert freed == [True, True]


def test_threads_share_a_session(web: Web) -> None:
    """Each thread gets its own response, and each is recorded."""
    found: list[str] = []
    with recording() as recorded, requests.Session() as session:

        def ask(number: int) -> None:
            found.append(session.post(f"{web.url}/echo", data=str(number)).text)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        bodies = [(made.request_body, made.response_body) for made in recorded.exchanges()]
    assert sorted(found) == [str(number) for number in range(8)]
    assert sorted(bodies) == [(b"%d" % number, b"%d" % number) for number in range(8)]


def test_interceptors_come_and_go(web: Web) -> None:
    """Adapters that exist already are intercepted; removal restores the class."""
    original = vars(HTTPAdapter)["send"]
    with requests.Session() as session:
        with recording() as first, recording() as second:
            session.get(f"{web.url}/echo")
            assert pickle.loads(pickle.dumps(HTTPAdapter.send)) is HTTPAdapter.send
        session.get(f"{web.url}/echo")
    assert (len(first.exchanges()), len(second.exchanges())) == (1, 1)
    assert vars(HTTPAdapter)["send"] is original


class Answering:
    """An interceptor that answers without a server."""

    def __init__(self, answer: Callable[[Any, Any], Any]) -> None:
        self.answer = answer

    def handle(self, request: Any, send: Callable[[Any], Any]) -> Any:
        """Return the answer."""
        del send
        return self.answer(interception.library_of(request), request)

    async def handle_async(self, request: Any, send: Any) -> Any:
        """Return the answer."""
        raise NotImplementedError


def test_an_interceptor_may_answer_without_a_server() -> None:
    """The agent gets a response of requests, with cookies, encodings and streams."""

    def answer(library: Any, request: Any) -> Any:
        headers = {"Set-Cookie": "a=b", "Content-Encoding": "gzip", "Content-Type": "text/plain"}
        assert request.read() == b"one two three"
        pieces = iter([gzip.compress(b"first\n"), gzip.compress(b"second\n")])
        return library.Response(200, headers=headers, content=pieces)

    with interception.add(Answering(answer)), requests.Session() as session:
        response = session.post("http://nowhere.invalid/", data=parts(), stream=True)
        assert list(response.iter_lines()) == [b"first", b"second"]
        assert (response.reason, session.cookies.get_dict()) == ("OK", {"a": "b"})
        again = session.post("http://nowhere.invalid/", data=parts(), stream=True)
        assert again.raw.read(3, decode_content=True) == b"fir"
        again.close()
        assert again.raw.closed


class Editing:
    """An interceptor that sends another request, and reads the response before the agent."""

    def handle(self, request: Any, send: Callable[[Any], Any]) -> Any:
        """Send an edited request."""
        library = interception.library_of(request)
        headers = {"X-Edited": "1", "Content-Type": request.headers["Content-Type"]}
        edited = library.Request("POST", str(request.url), headers=headers, content=b"edited")
        response = send(edited)
        assert response.read() == b"edited"
        return response

    async def handle_async(self, request: Any, send: Any) -> Any:
        """Return the answer."""
        raise NotImplementedError


def test_an_interceptor_may_edit_a_request(web: Web) -> None:
    """What-if replays send another prompt; the agent keeps its own request."""
    with interception.add(Editing()):
        response = requests.post(f"{web.url}/echo", json={"a": 1})
    assert (response.text, response.headers["X-Request-Id"]) == ("edited", "r1")
    assert response.request.body == b'{"a": 1}'
    arrived = web.arrived[-1]
    assert (arrived.body, arrived.headers["x-edited"]) == (b"edited", "1")
    assert arrived.headers["content-length"] == "6"
    assert arrived.headers["host"] in web.url


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("ConnectTimeout", "slow", requests.ConnectTimeout),
        ("ReadTimeout", "slow", requests.ReadTimeout),
        ("ProxyError", "no", requests.exceptions.ProxyError),
        ("ConnectError", "refused", requests.ConnectionError),
        ("ConnectError", "SSLError: bad certificate", requests.exceptions.SSLError),
        ("ConnectError", "RetryError: too many", requests.exceptions.RetryError),
    ],
)
def test_errors_of_an_interceptor_are_those_of_requests(
    name: str, text: str, expected: type[Exception]
) -> None:
    """The agent's `except` clauses see the exceptions of their library."""

    def fail(library: Any, request: Any) -> Any:
        raise getattr(library, name)(text, request=request)

    with interception.add(Answering(fail)), pytest.raises(expected) as caught:
        requests.get("http://nowhere.invalid/")
    assert str(caught.value) == text.rpartition(": ")[2]
    assert type(caught.value) is expected


IMPORTS = """
import sys
from oteval.record.wire import interception

class Log:
    def handle(self, request, send):
        return interception.library_of(request).Response(200, text="hooked")

added = interception.add(Log())
assert not {"httpx", "httpx2", "requests", "urllib3"} & set(sys.modules)
%s
from requests.adapters import HTTPAdapter
import requests
assert requests.get("http://nowhere.invalid/").text == "hooked"
assert ("httpx" in sys.modules, "httpx2" in sys.modules) == %s
added.remove()
assert not hasattr(HTTPAdapter.send, "__wrapped__")
"""


@pytest.mark.parametrize(
    ("first", "imported"),
    [
        ("", "(False, True)"),
        ("import httpx", "(True, False)"),
        ("sys.modules['httpx2'] = None", "(True, True)"),
    ],
)
def test_it_is_hooked_when_it_is_imported(first: str, imported: str) -> None:
    """The first request imports httpx2 or httpx, whichever is there."""
    ran = subprocess.run(
        [sys.executable, "-c", IMPORTS % (first, imported)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
