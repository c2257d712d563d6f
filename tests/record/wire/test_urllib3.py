"""urllib3 and botocore: calls are recorded whole and replayed, and the agent notices nothing."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import urllib3
from urllib3.util.retry import Retry

import oteval
from oteval.model import Exchange
from oteval.reconstruct.apis.bedrock_converse import encoded
from oteval.record.wire import interception

from ...replays.recorded import recording_of
from .recordings import recording
from .test_requests import EVENTS, outcome, serve
from .web_server import Answer, Arrived, Web, answering

RETRIES = Retry(2, status_forcelist=[503], backoff_factor=0, allowed_methods=None)


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    with answering(serve) as running:
        yield running


def shown(response: Any) -> tuple[Any, ...]:
    """Return what an agent may look at."""
    headers = {name: value for name, value in response.headers.items() if name != "Date"}
    return response.status, response.reason, headers, response.data, response.geturl()


def pooled(url: str, work: Callable[[Any, str], Any]) -> Any:
    """Return what a function gets from a pool of connections, which it leaves usable."""
    with urllib3.PoolManager() as pool:
        return work(pool, url), pool.request("GET", f"{url}/echo").data


def streamed(url: str, read: Callable[[Any], Any]) -> Any:
    """Return what a function reads from a response that is not read at once."""
    response = urllib3.request("GET", url, preload_content=False)
    try:
        return read(response)
    finally:
        response.close()


CASES: dict[str, Callable[[str], Any]] = {
    "json": lambda url: shown(urllib3.request("POST", f"{url}/echo?q=a", json={"a": 1})),
    "bytes": lambda url: shown(urllib3.request("POST", f"{url}/echo", body=b"abc")),
    "form": lambda url: shown(
        urllib3.PoolManager().request_encode_body(
            "POST", f"{url}/echo", fields={"a": "1"}, encode_multipart=False
        )
    ),
    "redirect": lambda url: shown(urllib3.request("POST", f"{url}/moved", body=b"again")),
    "gzip": lambda url: shown(urllib3.request("GET", f"{url}/gzip")),
    "gzip raw": lambda url: urllib3.request("GET", f"{url}/gzip", decode_content=False).data,
    "stream": lambda url: streamed(f"{url}/events", lambda got: list(got.stream(4))),
    "lines": lambda url: streamed(f"{url}/events", lambda got: list(got)),
    "first": lambda url: streamed(f"{url}/events", lambda got: got.read(4)),
    "no content": lambda url: shown(urllib3.request("GET", f"{url}/empty")),
    "cut": lambda url: urllib3.request("GET", f"{url}/cut", retries=False),
    "cut stream": lambda url: streamed(f"{url}/cut", lambda got: got.read()),
    "retries": lambda url: shown(urllib3.request("POST", f"{url}/busy", retries=RETRIES)),
    "pool": lambda url: pooled(url, lambda pool, at: pool.request("POST", f"{at}/echo").data),
    "connection pool": lambda url: shown(urllib3.connection_from_url(url).request("GET", "/echo")),
    "refused": lambda _url: urllib3.request("GET", "http://127.0.0.1:1/", retries=False),
}


@pytest.mark.parametrize("name", CASES)
def test_the_agent_gets_the_same_as_without_recording(name: str, web: Web) -> None:
    """Responses read at once and in pieces, redirects, retries, pools and errors."""
    plain = outcome(CASES[name], web.url)
    arrived = len(web.arrived)

    with recording() as recorded:
        assert outcome(CASES[name], web.url) == plain
        gc.collect()

        assert recorded.recorder.failures == 0
        assert recorded.exchanges()
    assert web.arrived[arrived:] == web.arrived[2 * arrived - len(web.arrived) : arrived]


@pytest.mark.parametrize(
    ("name", "received"),
    [
        ("json", b'{"a":1}'),
        ("gzip", b"hello " * 1000),
        ("stream", b"".join(EVENTS)),
        ("lines", b"".join(EVENTS)),
    ],
)
def test_a_request_is_recorded_whole(name: str, received: bytes, web: Web) -> None:
    """Its URL is that of the server, though a pool gets the path alone; bodies are decoded."""
    with recording() as recorded:
        CASES[name](web.url)
        made = recorded.one()

    assert made.url.startswith(f"{web.url}/")
    assert (made.response_body, made.status) == (received, 200)
    assert (made.is_complete, made.error) == (True, "")


def test_requests_is_recorded_once(web: Web) -> None:
    """It sends by urllib3."""
    requests = pytest.importorskip("requests")

    with recording() as recorded:
        requests.post(f"{web.url}/echo", data=b"x")

    assert len(recorded.exchanges()) == 1


def test_a_connection_that_breaks_is_recorded(web: Web) -> None:
    """With the name of urllib3's exception, by which a replay raises it again."""
    with recording() as recorded, pytest.raises(urllib3.exceptions.HTTPError):
        CASES["refused"](web.url)

    assert recorded.one().error.startswith("NewConnectionError: ")


@pytest.mark.parametrize("name", [*CASES])
def test_a_replay_gives_the_same(name: str, web: Web) -> None:
    """What was recorded comes back as it was, and nothing reaches the server."""
    with recording() as recorded:
        plain = outcome(CASES[name], web.url)
        gc.collect()
    arrived = len(web.arrived)

    with oteval.replay(recording_of(recorded.exchanges())) as replayed:
        found = outcome(CASES[name], web.url)

    assert replayed.result.passed
    assert len(web.arrived) == arrived
    # Headers of secrets and of lengths are not kept, and a recorded body is decoded.
    if not name.startswith(("gzip raw", "cut", "refused")):
        assert re.sub(r"\{.*?\}", "", found) == re.sub(r"\{.*?\}", "", plain)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("NewConnectionError: refused", urllib3.exceptions.NewConnectionError),
        ("ReadTimeoutError: slow", urllib3.exceptions.ReadTimeoutError),
        ("MaxRetryError: tried", urllib3.exceptions.MaxRetryError),
        ("ProtocolError: cut", urllib3.exceptions.ProtocolError),
        ("SSLError: bad", urllib3.exceptions.SSLError),
        ("no name", urllib3.exceptions.NewConnectionError),
    ],
)
def test_recorded_errors_come_back_as_their_type(error: str, kind: type[Exception]) -> None:
    """By the name in their text."""
    failed = Exchange("GET", "http://model/", error=error, is_complete=False)

    with oteval.replay(recording_of([failed])), pytest.raises(kind):
        urllib3.request("GET", failed.url, retries=False)


CONVERSE = {
    "output": {"message": {"role": "assistant", "content": [{"text": "hello"}]}},
    "stopReason": "end_turn",
    "usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3},
    "metrics": {"latencyMs": 1},
}
STREAM = [
    encoded("messageStart", {"role": "assistant"}),
    encoded("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "hello"}}),
    encoded("contentBlockStop", {"contentBlockIndex": 0}),
    encoded("messageStop", {"stopReason": "end_turn"}),
]


def bedrock(request: Arrived) -> Answer:
    """Answer as Bedrock does."""
    if request.path.endswith("-stream"):
        return Answer(STREAM, headers={"Content-Type": "application/vnd.amazon.eventstream"})
    return Answer([json.dumps(CONVERSE).encode()], headers={"Content-Type": "application/json"})


def ask_bedrock(url: str) -> tuple[Any, Any]:
    """Return the answers of Bedrock's client."""
    boto3 = pytest.importorskip("boto3")
    client = boto3.client(
        "bedrock-runtime",
        endpoint_url=url,
        region_name="eu-central-1",
        aws_access_key_id="none",
        aws_secret_access_key="none",
    )
    question: Any = {
        "modelId": "m",
        "messages": [{"role": "user", "content": [{"text": "hi"}]}],
    }
    answer = client.converse(**question)["output"]
    return answer, list(client.converse_stream(**question)["stream"])


def test_bedrock_is_recorded_and_replayed() -> None:
    """Its answers, also those of its event streams, come back without the server."""
    with answering(bedrock) as running:
        plain = ask_bedrock(running.url)
        with recording() as recorded:
            assert ask_bedrock(running.url) == plain
        url = running.url
    exchanges = recorded.exchanges()
    assert [exchange.response_body for exchange in exchanges][1] == b"".join(STREAM)

    with oteval.replay(recording_of(exchanges)) as replayed:
        assert ask_bedrock(url) == plain

    assert replayed.result.passed


class Editing:
    """An interceptor that sends another body."""

    def handle(self, request: Any, send: Any) -> Any:
        """Send the request with the body of a what-if."""
        return send(self._edited(request))

    async def handle_async(self, request: Any, send: Any) -> Any:
        """Do the same."""
        return await send(self._edited(request))

    def _edited(self, request: Any) -> Any:
        library = interception.library_of(request)
        headers = [
            (name, value)
            for name, value in request.headers.multi_items()
            if name.lower() != "content-length"
        ]
        url = str(request.url).replace("/old", "/echo")
        return library.Request(request.method, url, headers=headers, content=b"edited body")


@pytest.mark.parametrize("is_preloaded", [True, False])
def test_an_interceptor_may_send_another_request(is_preloaded: bool, web: Web) -> None:
    """As a what-if does: another path and another body, with its length."""
    with interception.add(Editing()):
        response = urllib3.request(
            "POST", f"{web.url}/old", body=b"x", preload_content=is_preloaded
        )
        assert response.data == b"edited body"

    assert web.arrived[-1].path == "/echo"
