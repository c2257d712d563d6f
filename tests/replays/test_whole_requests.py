"""Whole requests are compared: method, address, headers and every field, except a short list."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import httpx
import httpx2
import openai
import pytest
import requests

import oteval
from oteval.base.errors import ReplayDiverged
from oteval.base.redaction.secrets import SecretRedactor
from oteval.model import Chunk, Exchange, RecordedToolCall, Recording
from oteval.reconstruct.apis import api_of
from oteval.record.wire.request_headers import recorded_headers
from oteval.replays.http_answers import HttpRequest
from oteval.replays.model_calls import wire_call
from oteval.replays.player import Player
from oteval.replays.redacted_recordings import redacted_recording

from ..model_server import Body, Reply, completion, serving
from ..record.wire.recordings import recording as wire_recording
from ..record.wire.web_server import Answer, answering
from .recorded import recording_of

URL = "https://models.example/v1/chat/completions?api-version=1"
HEADERS = {"content-type": "application/json", "x-team": "red", "authorization": "Bearer k"}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("look", "pay")
]
CALLS = [
    {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": '{"n": 1}'}}
    for name in ("look", "pay")
]
BODY: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Pay order 17"}]},
        {"role": "assistant", "content": None, "tool_calls": CALLS},
        {"role": "tool", "tool_call_id": "call_look", "content": '{"open": true}'},
        {"role": "tool", "tool_call_id": "call_pay", "content": "paid"},
    ],
    "tools": TOOLS,
    "temperature": 0.5,
    "metadata": {"run": "r-1"},
}
ANSWER = json.dumps(
    {"choices": [{"message": {"role": "assistant", "content": "Done"}, "finish_reason": "stop"}]}
)


def recorded(
    body: Mapping[str, Any] = BODY,
    *,
    url: str = URL,
    headers: Mapping[str, str] = HEADERS,
    method: str = "POST",
) -> Recording:
    """Return the recording of one request to a model, or of another one, as oteval records it."""
    exchange = Exchange(
        method=method,
        url=SecretRedactor().url(url),
        request_headers=recorded_headers(headers.items(), SecretRedactor()),
        request_body=json.dumps(body).encode(),
        status=200,
        chunks=(Chunk(ANSWER.encode()),),
        has_all_headers=True,
    )
    if api_of(method, url) is None:
        return Recording("s", "wire", exchanges=(exchange,))
    model_call = wire_call(exchange)
    assert model_call is not None
    assert not model_call.problem
    return Recording("s", "wire", model_calls=(model_call.call,))


def answered(
    recording: Recording,
    body: Mapping[str, Any] = BODY,
    *,
    url: str = URL,
    headers: Mapping[str, str] = HEADERS,
    method: str = "POST",
    normalize: tuple[str, ...] = (),
) -> list[str]:
    """Return the differences of a request, one line each, if it is sent in a replay."""
    player = Player(recording, miss="error", normalize=normalize)
    http_request = HttpRequest(method, url, dict(headers), json.dumps(body).encode())
    player.answer(http_request)
    return [
        f"{divergence.kind}: {divergence.summary}" for divergence in player.finish().divergences
    ]


def changed(edit: Callable[[Any], None]) -> dict[str, Any]:
    """Return the body with an edit."""
    body = copy.deepcopy(BODY)
    edit(body)
    return body


def sets(path: str, value: Any) -> dict[str, Any]:
    """Return the body with another value at a path such as ``messages.0.role``."""

    def edit(body: Any) -> None:
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        for part in parents:
            body = body[part]
        body[last] = value

    return changed(edit)


@pytest.mark.parametrize(
    ("body", "line"),
    [
        *(
            pytest.param(sets(name, value), f"settings: model call 1: {name} is ", id=name)
            for name, value in {
                "stream": True,
                "service_tier": "flex",
                "store": True,
                "user": "ann",
                "prompt_cache_key": "shop",
                "safety_identifier": "x",
                "stream_options": {"include_usage": True},
                "an_option_of_next_year": 1,
                "metadata": {"run": "r-2"},
            }.items()
        ),
        (sets("messages.0.role", "developer"), 'prompt: model call 1: messages[0].role is "dev'),
        (
            sets("messages.0.content", [{"type": "text", "text": "Be brief."}]),
            "prompt: model call 1: messages[0].content is ",
        ),
        (
            sets("messages.1.content.0.cache_control", {"type": "ephemeral"}),
            "prompt: model call 1: messages[1].content[0].cache_control is ",
        ),
        (
            sets("messages.1.name", "ann"),
            "prompt: model call 1: message 1 (user): the name differs",
        ),
        (sets("messages.2.refusal", "no"), "prompt: model call 1: "),
        (sets("messages.3.weight", 1), "prompt: model call 1: messages[3].weight is 1"),
        (sets("tools", TOOLS[::-1]), "tool_schema: model call 1: the order of the tool def"),
        (sets("tools.0.strict", True), "settings: model call 1: tools[0].strict is true"),
    ],
)
def test_every_field_of_a_body_is_compared(body: dict[str, Any], line: str) -> None:
    """Also an option, and a field of a message, that no list of this code names."""
    (summary,) = answered(recorded(), body)
    assert summary.startswith(line)

    (reverse,) = answered(recorded(body))
    assert reverse.partition(" is ")[0] == summary.partition(" is ")[0] or "model call 1" in reverse


@pytest.mark.parametrize(
    ("url", "line"),
    [
        (URL.replace("models.example", "other.example"), 'host is "other.example" instead of'),
        (URL.replace("https", "http"), 'scheme is "http" instead of "https"'),
        (URL.replace(".example/", ".example:8443/"), 'host is "models.example:8443"'),
        (URL.replace("/v1/", "/v2/"), 'path is "/v2/chat/completions" instead of'),
        (URL.replace("=1", "=2"), 'query parameter api-version is "2" instead of "1"'),
        (URL.partition("?")[0], 'query parameter api-version is not set instead of "1"'),
        (f"{URL}&debug=1", 'query parameter debug is "1" instead of not set'),
    ],
)
def test_the_address_is_compared(url: str, line: str) -> None:
    """Scheme, host, port, path and query."""
    (summary,) = answered(recorded(), url=url)

    assert summary.startswith(f"address: model call 1: {line}")


@pytest.mark.parametrize("body", [BODY, {"order": 17}])
@pytest.mark.parametrize(
    ("headers", "line"),
    [
        ({**HEADERS, "x-team": "blue"}, 'header x-team is "blue" instead of "[sha256:'),
        ({**HEADERS, "openai-beta": "x"}, 'header openai-beta is "x" instead of not set'),
        ({**HEADERS, "a-new-header": "1"}, 'header a-new-header is "1" instead of not set'),
        ({"content-type": "application/json"}, "header x-team is not set instead of"),
        ({**HEADERS, "content-type": "text/plain"}, 'header content-type is "text/plain"'),
    ],
)
def test_headers_are_compared(body: dict[str, Any], headers: dict[str, str], line: str) -> None:
    """Of requests to models and of others, whatever the name of the header."""
    url = URL if body is BODY else "https://bank.example/refunds"
    summaries = answered(recorded(body, url=url), body, url=url, headers=headers)

    assert line in summaries[0]
    assert summaries[0].startswith("header: ")


VARYING = {
    "accept-encoding": "gzip",
    "authorization": "Bearer other",
    "baggage": "a=b",
    "connection": "close",
    "content-length": "1",
    "cookie": "session=1",
    "host": "elsewhere",
    "idempotency-key": "stainless-python-retry-1",
    "mcp-session-id": "1",
    "traceparent": "00-1-2-01",
    "tracestate": "a=b",
    "user-agent": "python/4",
    "x-amz-date": "20261126T000000Z",
    "x-amz-security-token": "t",
    "x-api-key": "k",
    "x-client-request-id": "1",
    "x-datadog-trace-id": "1",
    "x-goog-api-client": "gl-python/4",
    "x-goog-api-key": "k",
    "x-stainless-package-version": "99",
    "x-stainless-retry-count": "1",
}


def test_headers_that_vary_are_not_compared() -> None:
    """Those of the transport, of traces and of credentials may change, come, and go."""
    with_all = {**HEADERS, **VARYING}
    assert not answered(recorded(), headers=with_all)
    assert not answered(recorded(headers=with_all))
    assert not answered(
        recorded(headers=with_all), headers={**with_all, **dict.fromkeys(VARYING, "another")}
    )


def test_an_old_recording_compares_the_headers_that_it_has() -> None:
    """Before, only harmless headers were recorded: others are not additional."""
    (call,) = recorded().model_calls
    assert call.exchange is not None
    object.__setattr__(call.exchange, "has_all_headers", False)
    object.__setattr__(call.exchange, "request_headers", {"content-type": "application/json"})
    recording = Recording("s", "wire", model_calls=(call,))

    assert not answered(recording)
    assert answered(recording, headers={"content-type": "text/plain"})


def renamed(body: Any) -> None:
    """Give the calls other ids."""
    body["messages"] = json.loads(json.dumps(body["messages"]).replace('"call_', '"chatcmpl-tool-'))


def reordered(body: Any) -> None:
    """Give the calls other ids, and their results the other order."""
    renamed(body)
    body["messages"][3:] = body["messages"][:2:-1]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(changed(renamed), id="ids"),
        pytest.param(sets("messages.3.content", '{"open":true}'), id="a result as JSON"),
        pytest.param(
            sets("messages.2.tool_calls.0.function.arguments", '{"n":1}'), id="arguments as JSON"
        ),
        pytest.param(sets("service_tier", None), id="null"),
        pytest.param(sets("messages.0.name", None), id="null in a message"),
        pytest.param(dict(reversed(BODY.items())), id="the order of keys"),
    ],
)
def test_what_may_differ_in_a_body(body: dict[str, Any]) -> None:
    """Ids, the form of JSON and null: they mean the same to the model."""
    assert not answered(recorded(), body)
    assert not answered(recorded(body))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "http://127.0.0.1:40001/v1/chat/completions",
            "http://127.0.0.1:50002/v1/chat/completions",
        ),
        ("http://[::1]:40001/v1/chat/completions", "http://[::1]:50002/v1/chat/completions"),
        (URL.replace(".example", ".example:443"), URL),
        (f"{URL}&key=AIzaSy-one", f"{URL}&key=AIzaSy-two"),
        (f"{URL}&key=AIzaSy-one", URL),
        (URL.replace("//", "//ann:secret@"), URL),
        (f"{URL}&a=1&b=2", URL.replace("?", "?b=2&a=1&")),
    ],
)
def test_what_may_differ_in_an_address(before: str, after: str) -> None:
    """A port that the system chose, the default port, credentials, the order of parameters."""
    assert not answered(recorded(url=before), url=after)
    if "key=" in before and "key=" not in after:
        return  # It is compared in requests that are not to a model.
    before, after = (url.replace("/chat/completions", "/orders") for url in (before, after))
    assert not answered(recorded(url=before), url=after)


def test_results_of_tools_at_the_same_time_may_come_in_any_order() -> None:
    """What is not a difference of the messages is none of the whole bodies either."""
    times = {"start_ns": 10, "end_ns": 20}
    tools = tuple(
        RecordedToolCall(name, {"n": 1}, "x", call_id=f"call_{name}", **times)
        for name in ("look", "pay")
    )
    recording = replace(recorded(), tool_calls=tools)

    assert not answered(recording, changed(reordered))
    assert answered(recorded(), changed(reordered))


def test_a_port_that_somebody_chose_is_compared() -> None:
    """Two servers of this machine differ by their ports."""
    url = "http://127.0.0.1:{}/v1/chat/completions"

    (summary,) = answered(recorded(url=url.format(11434)), url=url.format(8000))

    assert 'host is "127.0.0.1:8000" instead of "127.0.0.1:11434"' in summary


def test_a_random_cache_key_of_a_library_is_no_difference() -> None:
    """OpenAI's Agents SDK sends the id of the run; a key of the agent's own is compared."""
    keys = [sets("prompt_cache_key", f"agents-sdk:run:{digit * 32}") for digit in "ab"]
    assert not answered(recorded(keys[0]), keys[1])
    assert answered(recorded(keys[0]), sets("prompt_cache_key", "agents-sdk:group:x"))


@pytest.mark.parametrize(
    ("before", "after", "pattern"),
    [
        ({}, {"body": sets("metadata", {"run": "r-2"})}, r"r-\d"),
        (
            {"body": sets("messages.1.content.0.x", "r-1")},
            {"body": sets("messages.1.content.0.x", "r-2")},
            r"r-\d",
        ),
        ({}, {"headers": {**HEADERS, "x-team": "blue"}}, "x-team: .*"),
        ({}, {"headers": {**HEADERS, "x-run": "7"}}, "x-run: .*"),
        ({}, {"url": URL.replace("=1", "=2")}, r"^[12]$"),
        ({}, {"url": URL.replace("models", "other")}, "models|other"),
    ],
)
def test_everything_can_be_normalized(
    before: dict[str, Any], after: dict[str, Any], pattern: str
) -> None:
    """Texts of the body, headers as ``name: value``, and the parts of the address."""
    assert answered(recorded(**before), **after)
    assert not answered(recorded(**before), **after, normalize=(pattern,))


def test_redacted_parts_equal_any_text() -> None:
    """A value that the recording does not have cannot differ."""
    body = sets("metadata", {"run": "[redacted]"})
    headers = {**HEADERS, "x-team": "[redacted]"}

    assert not answered(recorded(body, headers=headers), headers={**HEADERS, "x-team": "blue"})


def test_a_rebuilt_call_compares_what_it_has() -> None:
    """Without an exchange, there is no address, no header and no whole body to compare."""
    (call,) = recorded().model_calls
    request = call.request
    object.__setattr__(call, "exchange", None)
    object.__setattr__(request, "api", "")
    recording = Recording("s", "semconv", model_calls=(call,))

    body = {**sets("messages.0.role", "developer"), "user": "ann", "tools": TOOLS[::-1]}
    assert not answered(recording, body, url="https://other.example/chat/completions", headers={})


def test_random_boundaries_of_multipart_bodies_are_no_difference() -> None:
    """A client divides the parts of an upload by a text that it draws anew."""

    def upload(url: str, content: bytes = b"invoice") -> None:
        httpx.post(f"{url}/files", files={"file": ("a.txt", content)}, headers={"x-team": "red"})

    with answering(lambda _request: Answer()) as web, wire_recording() as recorder:
        upload(web.url)
        recording = recording_of(recorder.exchanges())
        with oteval.replay(recording) as replay:
            upload(web.url)
        assert replay.result.passed
        with pytest.raises(ReplayDiverged, match="the body of POST"), oteval.replay(recording):
            upload(web.url, b"another")


def ask_openai(url: str, library: Any) -> None:
    http = library.Client(verify=False)
    with openai.OpenAI(base_url=url, api_key="k", http_client=http) as client:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])


CLIENTS: dict[str, Callable[[str], Any]] = {
    "openai": lambda url: ask_openai(url, httpx2),
    "requests": lambda url: requests.post(
        f"{url}/chat/completions", json=BODY, headers={"Authorization": "Bearer k"}, timeout=30
    ),
    "httpx": lambda url: httpx.post(f"{url}/chat/completions", json=BODY),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_default_headers_of_clients_pass_twice(client: str) -> None:
    """A recording has the names of all headers, and the same client passes with new ones."""

    def answer(body: Body, _number: int) -> Reply:
        return completion(f"{body['model']}")

    with serving(answer) as server, wire_recording() as recorder:
        CLIENTS[client](server.url)
        (exchange,) = recorder.exchanges()
    assert exchange.has_all_headers
    assert exchange.thread
    assert not {"host", "authorization"} & exchange.request_headers.keys()

    with oteval.replay(recording_of([exchange])) as replay:
        CLIENTS[client]("http://127.0.0.1:65535/v1")

    assert replay.result.passed


def test_a_saved_recording_keeps_checksums_and_no_values() -> None:
    """Values of headers that may be secret never leave the process, also if redacted again."""
    recording = recorded(headers={**HEADERS, "x-note": "a-secret-of-unknown-form"})
    again = redacted_recording(recording, SecretRedactor())

    assert "a-secret-of-unknown-form" not in str(recording)
    assert again == recording
