"""Senders that stall or flood a running server hold up nobody else."""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import grpc
import pytest

from benchmarks.served import Served, memory, until

from .clients import INGEST, TOKENS, TRACES, Neighbour, agent_run, call

pytestmark = pytest.mark.slow

RULES = "evaluators: [{name: tools, type: tool_errors}]\n"
MB = 1 << 20


@pytest.fixture(scope="module", params=["open", "tokens"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """Return a server without tokens, and one with them."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "oteval.yaml").write_text(RULES)
    server = Served(folder, environment=TOKENS if request.param == "tokens" else None)
    yield server
    assert server.stop() == 0


def goes_on(neighbour: Neighbour) -> None:
    """Wait until another client was answered a few times over either protocol."""
    until(lambda: min(neighbour.answers["200"], neighbour.answers["OK"]) >= 3, 60)


class Silent:
    """gRPC calls whose message never comes."""

    def __init__(self, port: int, count: int, headers: dict[str, str]) -> None:
        self._done = threading.Event()
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channels = [
            grpc.insecure_channel(f"127.0.0.1:{port}", options) for _ in range(-(-count // 50))
        ]
        self.calls = [
            self._channels[number // 50]
            .stream_unary(TRACES)
            .future(self._nothing(), metadata=tuple(headers.items()), timeout=60)
            for number in range(count)
        ]

    def _nothing(self) -> Iterator[bytes]:
        self._done.wait()
        yield from ()

    def close(self) -> None:
        """End them."""
        self._done.set()
        for one in self.calls:
            one.cancel()
        for channel in self._channels:
            channel.close()


@pytest.mark.parametrize("headers", [{}, INGEST], ids=["no token", "token"])
def test_grpc_calls_that_send_nothing(served: Served, headers: dict[str, str]) -> None:
    """Two hundred wait for their message; others are answered as quickly as ever."""
    silent = Silent(served.grpc, 200, headers)
    try:
        with Neighbour(served) as neighbour:
            answers = [call(served.grpc, agent_run()[1].SerializeToString()) for _ in range(20)]
            goes_on(neighbour)
    finally:
        silent.close()

    assert set(answers) == {grpc.StatusCode.OK}
    assert neighbour.was_served
    assert neighbour.slowest < 5


def opened(stack: ExitStack, port: int, sent: bytes) -> socket.socket:
    """Return a connection on which something was sent."""
    one = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
    with suppress(OSError):
        one.sendall(sent)
    return one


def head(size: int, headers: dict[str, str] | None = None) -> bytes:
    """Return the head of a request that declares so many bytes."""
    lines = ["POST /v1/traces HTTP/1.1", "host: localhost", "content-type: application/x-protobuf"]
    lines += [f"{name}: {value}" for name, value in (headers or INGEST).items()]
    return "\r\n".join([*lines, f"content-length: {size}", "", ""]).encode()


def test_bodies_that_are_declared_and_not_sent(served: Served) -> None:
    """Forty requests declare 64 MB each and send nothing; others are served."""
    with ExitStack() as stack:
        for _ in range(40):
            opened(stack, served.http, head(64 * MB))
        with Neighbour(served) as neighbour:
            large = agent_run("x" * (8 * MB))[1].SerializeToString()
            answers = {served.post("/v1/traces", large, **INGEST)[0] for _ in range(3)}
            goes_on(neighbour)

    assert answers == {200}
    assert neighbour.was_served


@pytest.mark.slow
def test_bodies_that_stop_before_their_end(served: Served) -> None:
    """Twelve requests send 50 MB of 64 and stop: the slowest give way to others."""
    part = b"\0" * (50 * MB)
    with ExitStack() as stack:
        for _ in range(12):
            one = opened(stack, served.http, head(64 * MB))
            threading.Thread(target=send_quietly, args=(one, part), daemon=True).start()
        with Neighbour(served) as neighbour:
            large = agent_run("x" * (8 * MB))[1].SerializeToString()
            answers = [served.post("/v1/traces", large, **INGEST)[0] for _ in range(10)]
        resident = memory([served.pid("listener")])

    assert answers[-1] == 200
    assert set(answers) <= {200, 503}
    assert neighbour.answers["OK"]
    assert neighbour.answers["200"] > 0.9 * (neighbour.answers["200"] + neighbour.answers["503"])
    assert resident < 1500 * MB


def send_quietly(one: socket.socket, data: bytes) -> None:
    """Send until the other side has enough."""
    with suppress(OSError):
        one.sendall(data)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_idle_connections(served: Served, protocol: str) -> None:
    """Two thousand connections that send nothing; other clients connect and are served."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip("this process may not open so many")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    try:
        with ExitStack() as stack:
            for _ in range(2000):
                opened(stack, getattr(served, protocol), b"")
            with Neighbour(served) as neighbour:
                answer = call(served.grpc, agent_run()[1].SerializeToString())
                posted = served.post("/v1/traces", agent_run()[1].SerializeToString(), **INGEST)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert answer == grpc.StatusCode.OK
    assert posted[0] == 200
    assert neighbour.was_served


FLOODS: dict[str, Callable[[], bytes]] = {
    "one header": lambda: b"x: " + b"a" * (30 * MB),
    "many headers": lambda: b"".join(b"x%d: y\r\n" % number for number in range(2 * MB)),
    "a path": lambda: b"",
    "trailers": lambda: b"transfer-encoding: chunked\r\n\r\n0\r\n" + b"x: " + b"a" * (30 * MB),
    "many trailers": lambda: b"transfer-encoding: chunked\r\n\r\n0\r\n" + b"x: y\r\n" * (5 * MB),
    "a chunk's extension": lambda: b"transfer-encoding: chunked\r\n\r\n1;" + b"a" * (30 * MB),
}


@pytest.mark.parametrize("name", FLOODS)
def test_headers_without_end(served: Served, name: str) -> None:
    """30 MB of headers or framing are cut off early, at the cost of little memory."""
    served.post("/v1/traces", b"", **INGEST)
    before = memory([served.pid("listener")])
    token = "authorization: Bearer in\r\n"
    first = f"POST /v1/traces HTTP/1.1\r\nhost: localhost\r\n{token}".encode()
    kind = b"content-type: application/x-protobuf\r\n"
    flood = first + kind + FLOODS[name]()
    if name == "a path":
        flood = b"GET /" + b"a" * (30 * MB)

    with ExitStack() as stack:
        several = [opened(stack, served.http, flood) for _ in range(3)]
        after = memory([served.pid("listener")])
        heard = [answer(one) for one in several]

    assert after - before < 60 * MB
    assert all(one == b"" or one.startswith(b"HTTP/1.1 4") for one in heard)
    assert served.post("/v1/traces", agent_run()[1].SerializeToString(), **INGEST)[0] == 200


def answer(one: socket.socket) -> bytes:
    """Return what a server says before it closes a connection."""
    try:
        return one.recv(1000)
    except ConnectionResetError:
        return b""


def test_grpc_metadata_without_end(served: Served) -> None:
    """A call with 1 MB of metadata fails, others do not."""
    metadata = [*INGEST.items(), *((f"x{number}", "a" * 1000) for number in range(1000))]

    code = call(served.grpc, agent_run()[1].SerializeToString(), headers=metadata)

    assert code is not grpc.StatusCode.OK
    assert call(served.grpc, agent_run()[1].SerializeToString()) is grpc.StatusCode.OK


def test_a_message_that_is_too_large_is_never_resource_exhausted(served: Served) -> None:
    """Senders would send it again; another call of the same channel succeeds."""
    body = b"\0" * (65 * MB)
    options = [("grpc.max_send_message_length", -1)]
    found = []
    with grpc.insecure_channel(f"127.0.0.1:{served.grpc}", options) as channel:
        for sent in (body, agent_run()[1].SerializeToString()):
            with suppress(grpc.RpcError):
                found.append(
                    channel.unary_unary(TRACES).future(
                        sent, timeout=60, metadata=tuple(INGEST.items())
                    )
                )
                found[-1].result()

    assert [one.code() for one in found] == [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OK]


def test_names_of_other_machines(served: Served) -> None:
    """Without a token no path answers to a page in a browser that has its own name point here."""
    hosts = (
        "evil.example",
        "evil.example:4318",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
    )
    paths = ("/healthz", "/readyz", "/v1/traces", "/nothing", "/metrics", "/api/trajectories")
    names = ("localhost", "LOCALHOST:4318", "127.0.0.1", "[::1]:4318", "localhost.")

    answers = {served.get(path, {"host": host})[0] for path in paths for host in hosts}
    own = {served.get("/healthz", {"host": name})[0] for name in names}

    assert answers <= {403, 401, 405}
    assert 403 in answers
    assert own == {200}
    assert served.get("/healthz", {"host": "evil.example"})[0] == 403
