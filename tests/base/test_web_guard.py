"""Every HTTP server of ours gets the same requests: without a token, as another site, from afar."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import pytest

from oteval.base.web_guard import is_local, is_loopback, listening_socket
from oteval.replays.player import Player
from oteval.replays.server import ReplayServer
from oteval.store import Store
from oteval.views.mcp.http import McpHttpServer
from oteval.views.mcp.server import create_server
from oteval.views.mcp.workspace import Workspace
from tests.commands import Run
from tests.model_server import completion
from tests.replays.agents import SYSTEM, chat
from tests.replays.recorded import record

pytestmark = pytest.mark.database

TOKEN = "a-token-of-the-test"
SERVERS = ("view", "serve", "mcp", "replay serve")
WITH_TOKEN = ("serve", "mcp", "replay serve")
JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
QUESTION = {
    "model": "gpt-test",
    "messages": [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "Refund 17"},
    ],
}


@dataclass(frozen=True)
class Server:
    """A server that runs, and the requests to its paths.

    Attributes:
        url: Its base URL.
        requests: The method, path and JSON of requests that it answers.
        cookie: The cookie of a session, where requests need one.
    """

    url: str
    requests: tuple[tuple[str, str, object], ...]
    cookie: Mapping[str, str] = field(default_factory=dict)

    def ask(self, headers: Mapping[str, str]) -> set[int]:
        """Return the statuses of all requests."""
        with httpx.Client(
            base_url=self.url, cookies=dict(self.cookie), timeout=60, verify=False
        ) as client:
            return {
                client.request(
                    method,
                    path,
                    content=None if value is None else json.dumps(value).encode(),
                    headers={**JSON, **headers},
                ).status_code
                for method, path, value in self.requests
            }


@contextlib.contextmanager
def command(folder: Path, *arguments: str, token: str = "") -> Iterator[str]:
    """Run a command of oteval that serves, and yield the first address that it prints."""
    tokens = {"OTEVAL_INGEST_TOKEN": f"senders-{token}", "OTEVAL_READ_TOKEN": token}
    process = subprocess.Popen(
        [sys.executable, "-m", "oteval", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **(tokens if token else {})},
    )
    assert process.stdout is not None
    try:
        said = ""
        while not (found := re.search(r"http://127\.0\.0\.1:\d+[^\s,]*", said)):
            line = process.stdout.readline()
            assert line, said
            said += line
        yield found[0]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()


@contextlib.contextmanager
def running(name: str, folder: Path, token: str = "") -> Iterator[Server]:
    """Run one of `SERVERS`."""
    if name == "view":
        with command(folder, "view", "--no-open", "--db", "view.duckdb") as link:
            url = link.partition("/login")[0]
            with httpx.Client(timeout=60, verify=False) as client:
                client.get(link)
                cookie = dict(client.cookies)
            yield Server(url, (("GET", "/runs", None), ("GET", "/", None)), cookie)
    elif name == "serve":
        options = ("serve", "--db", "serve.duckdb", "--http", "127.0.0.1:0", "--grpc", "")
        with command(folder, *options, token=token) as url:
            yield Server(url, (("POST", "/v1/traces", {}), ("GET", "/api/status", None)))
    elif name == "mcp":
        workspace = Workspace(str(folder / "view.duckdb"), "oteval.yaml", None, ())
        server = create_server(workspace, writes=False)
        served = McpHttpServer(server, "127.0.0.1:0", token=token, variable="OTEVAL_READ_TOKEN")
        with served.running() as url:
            yield Server(url.removesuffix("/mcp"), (("POST", "/mcp", INITIALIZE),))
    else:
        recording = record(chat, lambda _body, _number: completion("Refunded."))
        players = {"one": Player(recording, miss="ordinal")}
        asked = (("POST", "/v1/chat/completions", QUESTION), ("GET", "/result", None))
        more = (("GET", "/v1/models", None), ("POST", "/mcp", INITIALIZE))
        with ReplayServer(players, token=token).running() as replay:
            yield Server(replay.url, (*asked, *more))


def folder_of_databases(factory: pytest.TempPathFactory) -> Path:
    """Return a new folder with the database of `oteval view` and `oteval mcp`.

    Which other servers run at the same time depends on the order of the tests.
    """
    folder = factory.mktemp("servers")
    Store(folder / "view.duckdb").close()
    return folder


@pytest.fixture(scope="module", params=SERVERS)
def local(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Each server on loopback, without a token."""
    with running(request.param, folder_of_databases(tmp_path_factory)) as server:
        yield server


@pytest.fixture(scope="module", params=WITH_TOKEN)
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Each server that has tokens, with one."""
    with running(request.param, folder_of_databases(tmp_path_factory), TOKEN) as server:
        yield server


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_programs_of_this_machine_are_answered(local: Server, host: str):
    """Without a token, any program on loopback is answered, by whatever local name it asks."""
    netloc = f"{host}:{local.url.rpartition(':')[2]}"
    # A recorded model call is answered once.
    local = replace(local, requests=tuple(one for one in local.requests if one[2] is not QUESTION))

    assert local.ask({"host": netloc}) == {200}
    assert local.ask({"host": netloc, "origin": f"http://{netloc.lower()}"}) == {200}


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "localhost.evil.example:80"},
        {"host": "192.168.1.9:80"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:9"},
        {"origin": "http://127.0.0.1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
    ],
    ids=lambda headers: "-".join(next(iter(headers.items()))),
)
def test_pages_of_other_sites_are_refused(local: Server, headers: dict[str, str]):
    """A page whose name resolves to this machine, and one that sends its requests here."""
    assert local.ask(headers) == {403}


@pytest.mark.parametrize("given", ["", "wrong", TOKEN[:-1], TOKEN + "x", f"{TOKEN} {TOKEN}", "é"])
def test_a_missing_or_wrong_token_is_refused(guarded: Server, given: str):
    """No request is answered without the whole token."""
    headers = {"authorization": f"Bearer {given}"} if given else {}
    with httpx.Client(base_url=guarded.url, timeout=60, verify=False) as client:
        for method, path, value in guarded.requests:
            raw = {name: text.encode() for name, text in {**JSON, **headers}.items()}
            answer = client.request(method, path, content=json.dumps(value), headers=raw)
            assert answer.status_code == 401, path
            assert TOKEN not in answer.text


def test_the_token_is_accepted(guarded: Server):
    """All requests with the token are answered; that of senders is another one."""
    readers = Server(guarded.url, tuple(one for one in guarded.requests if one[1] != "/v1/traces"))

    assert readers.ask({"authorization": f"Bearer {TOKEN}"}) == {200}


@pytest.mark.parametrize("name", ["authorization", "x-api-key", "api-key", "x-goog-api-key"])
def test_the_token_of_a_replay_is_the_key_of_its_clients(tmp_path: Path, name: str):
    """Clients of OpenAI, Anthropic, Azure and Google send their key, each in its own header."""
    value = f"Bearer {TOKEN}" if name == "authorization" else TOKEN
    with running("replay serve", tmp_path, TOKEN) as server:
        assert server.ask({name: value}) == {200}
        assert server.ask({name: "replay"}) == {401}


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.0.2.1", "example.org", "127.1"])
@pytest.mark.parametrize("name", WITH_TOKEN)
def test_another_address_needs_a_token(
    oteval: Run, monkeypatch: pytest.MonkeyPatch, name: str, host: str
):
    """Without a token, no server listens on an address that other machines can reach."""
    for variable in ("OTEVAL_INGEST_TOKEN", "OTEVAL_READ_TOKEN", "OTEVAL_REPLAY_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    address = f"[{host}]:0" if ":" in host else f"{host}:0"
    if name == "replay serve":
        with pytest.raises(Exception, match="open to other machines: set OTEVAL_REPLAY_TOKEN"):
            ReplayServer({}, host=host)
        return
    done = oteval(name, "--http", address)

    assert done.status == 2
    assert "is open to other machines" in done.err


def test_names_of_this_machine():
    """Names are compared whole; an empty address stands for all of them."""
    local = ("localhost", "LOCALHOST.:1", "a.localhost:1", "127.9.9.9", "[::1]:1", "127.0.0.1:1")
    foreign = ("evil.example", "localhost.evil", "127.0.0.1.evil", "[::2]:1", "10.0.0.1", "0.0.0.0")
    assert all(map(is_local, local))
    assert not any(map(is_local, foreign))
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.9.9.9", "::1")))
    assert not any(map(is_loopback, ("", "0.0.0.0", "::", "10.0.0.1", "example.org")))


def test_responses_do_not_wait_for_acknowledgements():
    """A connection sends the second part of a response without waiting for the client."""
    with listening_socket("127.0.0.1", 0) as listener:
        address = listener.getsockname()
        with socket.create_connection(address), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
