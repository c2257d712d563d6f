"""The network is blocked during a replay, whichever client tries it."""

from __future__ import annotations

import _socket
import asyncio
import contextlib
import http.client
import io
import re
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from socket import gethostbyaddr, gethostbyname, getnameinfo
from typing import Any

import aiohttp
import grpc
import httpx
import pytest
import requests
import urllib3

import oteval
from oteval.base.errors import ConfigError, ReplayDiverged
from oteval.model import Exchange, Recording

from ..model_server import serving
from .recorded import host_of

EMPTY = Recording("session-1", "wire")


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    """Return an address of this machine that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()


def blocked(work: Callable[[], object], **options: Any) -> Any:
    """Run a function in a replay, which must diverge; return the divergence."""
    with pytest.raises(ReplayDiverged) as caught, oteval.replay(EMPTY, **options) as replay:
        work()
    (divergence,) = replay.result.divergences
    assert caught.value.divergence is divergence
    assert divergence.kind == "network"
    return divergence


def post_by_urllib(url: str) -> None:
    """Send a request by Python's own client."""
    urllib.request.urlopen(url, data=b"x")


async def post_by_aiohttp(url: str) -> None:
    """Send a request on the event loop."""
    async with aiohttp.ClientSession() as session:
        await session.post(url, data=b"x")


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda url: httpx.post(url, verify=False), id="httpx"),
        pytest.param(lambda url: httpx.put(url, verify=False), id="PUT"),
        pytest.param(lambda url: httpx.request("Delete", url, verify=False), id="DELETE"),
        pytest.param(lambda url: requests.patch(url, data=b"x"), id="requests"),
        pytest.param(lambda url: urllib3.request("POST", url, body=b"x"), id="urllib3"),
        pytest.param(lambda url: asyncio.run(post_by_aiohttp(url)), id="aiohttp"),
        pytest.param(post_by_urllib, id="urllib"),
    ],
)
def test_no_hint_lets_a_request_with_effects_through(
    address: tuple[str, int], work: Callable[[str], object]
) -> None:
    """Whichever client sends it: only what reads may be let through."""
    url = f"http://{address[0]}:{address[1]}/refunds"

    with pytest.raises(ReplayDiverged) as caught, oteval.replay(EMPTY):
        work(url)

    assert not re.search(r"\ballow|through", str(caught.value))


def test_a_request_that_reads_may_be_let_through(address: tuple[str, int]) -> None:
    """The hint names the option."""
    with pytest.raises(ReplayDiverged, match="to let it through: allow"), oteval.replay(EMPTY):
        httpx.get(f"http://{address[0]}:{address[1]}/rates", verify=False)


async def connect_on_the_loop(host: str, port: int) -> None:
    """Connect by the event loop's own methods."""
    await asyncio.open_connection(host, port)


async def look_up(name: str) -> None:
    """Resolve a name on the event loop."""
    await asyncio.get_running_loop().getaddrinfo(name, 443)


def with_http_client(host: str, port: int) -> None:
    """Connect by Python's HTTP client."""
    http.client.HTTPConnection(host, port).request("GET", "/")


def with_a_text_file(host: str, port: int) -> None:
    """Send a body whose encoding is not known, so that the request is not intercepted."""
    requests.post(f"http://{host}:{port}/", data=io.StringIO("text"))


def with_datagram(host: str, port: int) -> None:
    """Send a datagram."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", (host, port))


def with_connect_ex(host: str, port: int) -> None:
    """Connect without exceptions."""
    with socket.socket() as sock:
        sock.connect_ex((host, port))


@pytest.mark.parametrize(
    ("work", "client"),
    [
        (with_http_client, "http.client"),
        (lambda host, port: urllib.request.urlopen(f"http://{host}:{port}/"), "urllib.request"),
        (with_a_text_file, "requests"),
        (lambda host, port: socket.create_connection((host, port)), ""),
        (lambda host, port: asyncio.run(connect_on_the_loop(host, port)), ""),
        (lambda host, port: grpc.insecure_channel(f"{host}:{port}"), "grpc"),
        (with_datagram, ""),
        (with_connect_ex, ""),
    ],
)
def test_no_client_reaches_the_network(
    address: tuple[str, int], work: Callable[[str, int], object], client: str
) -> None:
    """The divergence names the address, the client and the line of the agent's code."""
    divergence = blocked(lambda: work(*address))

    assert divergence.actual == f"{address[0]}:{address[1]}"
    assert divergence.summary.startswith(client or "the agent tried")
    assert "test_network_guard.py:" in divergence.line


@pytest.mark.parametrize(
    "work",
    [
        lambda name: http.client.HTTPSConnection(name).request("GET", "/"),
        lambda name: socket.getaddrinfo(name, 443),
        lambda name: socket.gethostbyname(name),
        lambda name: asyncio.run(look_up(name)),
    ],
)
def test_no_name_is_resolved(work: Callable[[str], object]) -> None:
    """Names are blocked before a server of names is asked, on event loops as well."""
    divergence = blocked(lambda: work("api.example.com"))

    assert "api.example.com" in divergence.summary
    assert "test_network_guard.py:" in divergence.line


def test_a_swallowed_attempt_still_diverges(address: tuple[str, int]) -> None:
    """An agent that hides the error of a tool's request fails at the end."""

    def work() -> None:
        with contextlib.suppress(BaseException):
            socket.create_connection(address)

    blocked(work)


def test_a_connection_from_before_is_blocked(address: tuple[str, int]) -> None:
    """Connections that a pool opened before the replay send nothing."""
    with socket.create_connection(address) as sock:
        divergence = blocked(lambda: sock.sendall(b"GET / HTTP/1.1\r\n\r\n"))

    assert divergence.actual == f"{address[0]}:{address[1]}"


def test_a_channel_from_before_is_blocked(address: tuple[str, int]) -> None:
    """Channels of gRPC that were opened before the replay make no calls."""
    with grpc.insecure_channel(f"{address[0]}:{address[1]}") as channel:
        call = channel.unary_unary("/service/method")
        divergence = blocked(lambda: call(b""))

    assert divergence.summary.startswith("grpc tried to connect")


def test_httpx_is_not_sent_either(address: tuple[str, int]) -> None:
    """A request of httpx that is not recorded is an extra call."""
    with (
        pytest.raises(ReplayDiverged, match="not recorded"),
        oteval.replay(EMPTY),
        httpx.Client(verify=False) as client,
    ):
        client.get(f"http://{address[0]}:{address[1]}/")


def test_misses_that_are_errors_are_refused_connections(address: tuple[str, int]) -> None:
    """With ``miss="error"`` the client raises its usual exception, and the divergence is kept."""
    with oteval.replay(EMPTY, miss="error") as replay:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        with pytest.raises(socket.gaierror):
            http.client.HTTPSConnection("api.example.com").request("GET", "/")
        with pytest.raises(grpc.RpcError):
            grpc.insecure_channel(f"{address[0]}:{address[1]}")

    # The same address counts once.
    assert [divergence.kind for divergence in replay.result.divergences] == ["network", "network"]


@pytest.mark.parametrize("entry", ["127.0.0.1:{port}", "localhost:{port}", "127.0.0.1"])
def test_allowed_addresses_are_reached(address: tuple[str, int], entry: str) -> None:
    """Allowed addresses can be connected to."""
    with oteval.replay(EMPTY, allow=[entry.format(port=address[1])]) as replay:
        socket.create_connection(address).close()

    assert replay.result.passed


def test_requests_to_allowed_addresses_are_sent() -> None:
    """Requests of httpx that are not recorded are sent to allowed addresses."""
    with (
        serving() as server,
        oteval.replay(EMPTY, allow=[host_of(server)]) as replay,
        httpx.Client(verify=False) as client,
    ):
        response = client.post(server.url, json={"messages": []})

    assert response.status_code == 200

    assert replay.result.passed


def test_other_ports_of_an_allowed_host_are_blocked(address: tuple[str, int]) -> None:
    """An entry with a port allows that port only."""
    host, port = address
    blocked(lambda: socket.create_connection((host, port)), allow=[f"{host}:{port + 1}"])


def test_invalid_addresses_are_refused() -> None:
    """An entry that is not an address is a configuration error."""
    with pytest.raises(ConfigError, match="not an address"):
        oteval.replay(EMPTY, allow=["localhost:http"])


def test_servers_of_the_agent_work() -> None:
    """An agent may serve clients inside its process, at an address that it allows."""

    async def main() -> bytes:
        async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"hello")
            await writer.drain()
            writer.close()
            await writer.wait_closed()

        async with await asyncio.start_server(greet, "localhost", 0) as server:
            host, port = server.sockets[0].getsockname()[:2]
            reader, writer = await asyncio.open_connection(host, port)
            data = await reader.read()
            writer.close()
            await writer.wait_closed()
            return data

    with oteval.replay(EMPTY, allow=["localhost"]):
        assert asyncio.run(main()) == b"hello"


def test_event_loops_and_socket_pairs_work() -> None:
    """Event loops and socket pairs need no network."""
    with oteval.replay(EMPTY) as replay:
        left, right = socket.socketpair()
        left.sendall(b"x")
        assert right.recv(1) == b"x"
        left.close()
        right.close()
        asyncio.run(asyncio.sleep(0))

    assert replay.result.passed


def test_telemetry_is_blocked_without_a_divergence() -> None:
    """An exporter of spans gets a refused connection; the result says so."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    exporter = OTLPSpanExporter(endpoint="http://127.0.0.1:9/v1/traces", timeout=0.01)
    with oteval.replay(EMPTY) as replay:
        exporter.export([])
    exporter.shutdown()

    assert replay.result.passed
    assert replay.result.reasons == ("telemetry to 127.0.0.1:9 was blocked",)


def test_traces_of_the_openai_agents_sdk_are_telemetry() -> None:
    """Their exporter uses the same client as models; it gets an error that it does not retry."""
    from agents import trace
    from agents.tracing.processors import BackendSpanExporter

    exporter = BackendSpanExporter(api_key="k")
    with oteval.replay(EMPTY) as replay:
        exporter.export([trace("work")])
    exporter.close()

    assert replay.result.passed
    assert replay.result.reasons == ("telemetry to api.openai.com:443 was blocked",)


def test_recorded_telemetry_is_not_compared() -> None:
    """Recordings of older versions have the traces of the OpenAI Agents SDK."""
    from agents import trace
    from agents.tracing.processors import BackendSpanExporter

    url = "https://api.openai.com/v1/traces/ingest"
    recorded = Exchange(method="POST", url=url, request_body=b"{}", status=200)
    exporter = BackendSpanExporter(api_key="k")
    with oteval.replay(replace(EMPTY, exchanges=(recorded,))) as replay:
        exporter.export([trace("work")])
    exporter.close()

    assert replay.result.passed


def test_threads_from_before_keep_their_connections(address: tuple[str, int]) -> None:
    """A thread that was running before the replay goes on with its own connection."""
    begin, done = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def work() -> None:
        with socket.create_connection(address) as sock:
            ready.set()
            begin.wait(30)
            try:
                sock.sendall(b"POST / HTTP/1.1\r\n\r\n")
            except BaseException as error:
                errors.append(error)
            done.set()

    ready = threading.Event()
    thread = threading.Thread(target=work)
    thread.start()
    ready.wait(30)
    with oteval.replay(EMPTY):
        begin.set()
        done.wait(30)
    thread.join()

    assert not errors


@pytest.mark.parametrize(
    "call",
    [
        lambda: gethostbyname("models.example"),
        lambda: gethostbyaddr("192.0.2.1"),
        lambda: getnameinfo(("192.0.2.1", 80), 0),
        lambda: _socket.socket().connect(("192.0.2.1", 80)),
    ],
    ids=["gethostbyname", "gethostbyaddr", "getnameinfo", "_socket"],
)
def test_functions_that_were_imported_before_are_guarded(call: Callable[[], object]) -> None:
    """Names and addresses are refused although nothing looks them up in a patched module."""
    assert blocked(call).kind == "network"
