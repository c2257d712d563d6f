"""`oteval mcp` as clients start it: a process with pipes, and HTTP on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from benchmarks.served import ROOT, Served, until
from oteval.base.errors import ConfigError
from oteval.store import Store
from oteval.views.mcp.http import McpHttpServer
from oteval.views.mcp.server import create_server
from oteval.views.mcp.workspace import Workspace

from ...commands import Run, oteval
from ...serve.clients import RULES, run_agent
from .conftest import BAD, GOOD, ask_with

__all__ = ["oteval"]

TOKEN = "0123456789abcdef"
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
ACCEPT = {"accept": "application/json, text/event-stream"}


def process(workspace: Workspace, *options: str) -> StdioServerParameters:
    """Return the command that a client uses to start the server."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "oteval", "mcp", "--db", workspace.db, "-c", workspace.config_path, *options],
        env={"PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.slow
async def test_an_agent_finds_the_failure_in_at_most_four_calls(
    workspace: Workspace, mode: str
) -> None:
    """Over pipes: the failing run and its reason, its first divergence, and its messages."""
    async with Client(process(workspace), mode=mode) as client:
        listed = await ask_with(client, "list_runs", {"outcome": "fail"})
        name = listed.rows[0]["run"]
        compared = await ask_with(client, "diff_runs", {"run": name})
        run_answer = await ask_with(client, "show_run", {"run": name})
        instructions = client.instructions

    assert name == BAD.id
    assert listed.rows[0]["scores"][0]["reason"] == "argument 'amount' is 420.0"
    assert compared.rows[0]["expected"]["arguments"] == {"amount": 42.0}
    assert compared.rows[0]["run"]["arguments"] == {"amount": 420.0}
    assert run_answer.rows[4]["calls"] == [{"tool": "refund", "arguments": {"amount": 420.0}}]
    assert "list_runs with outcome=fail" in (instructions or "")


@pytest.mark.slow
async def test_evaluators_that_print_do_not_disturb_the_protocol(workspace: Workspace) -> None:
    """Standard output belongs to the client, so that output of Python functions goes elsewhere."""
    folder = Path(workspace.db).parent
    (folder / "noisy.py").write_text(
        "import os\n\n\ndef check(outputs):\n    print('noise')\n    os.system('echo more')\n"
        "    return {'score': True}\n"
    )
    Path(workspace.config_path).write_text(
        'evaluators: [{name: noisy, type: python, call: "noisy:check"}]'
    )
    async with Client(process(workspace, "--write")) as client:
        scored = await ask_with(client, "score_runs", {"runs": [GOOD.id]})
        listed = await ask_with(client, "list_runs", {})

    assert not scored.is_error, scored.text
    assert scored.rows[0]["evaluator"] == "noisy"
    assert len(listed.rows) == 4


@pytest.mark.slow
async def test_other_commands_use_the_database_between_calls(workspace: Workspace) -> None:
    """The server does not keep the database open."""
    async with Client(process(workspace)) as client:
        await ask_with(client, "list_runs", {})
        with Store(workspace.db) as store:
            assert store.trajectories.count() == 4
        during = await ask_with(client, "list_runs", {})

    assert not during.is_error


@pytest.mark.slow
async def test_a_database_in_use_is_an_error_that_names_the_process(workspace: Workspace) -> None:
    """While another process writes, calls return an error, and the server continues."""
    async with Client(process(workspace)) as client:
        with Store(workspace.db):
            locked = await ask_with(client, "list_runs", {})
        free = await ask_with(client, "list_runs", {})

    assert locked.is_error
    assert str(os.getpid()) in locked.text
    assert not free.is_error


@pytest.mark.slow
async def test_a_database_that_a_server_holds_is_read_through_it(tmp_path: Path) -> None:
    """While `oteval serve` has the database open, calls read and write by asking it."""
    (tmp_path / "oteval.yaml").write_text(RULES)
    server = Served(tmp_path)
    try:
        trace, _ = run_agent(OTLPSpanExporter(f"http://127.0.0.1:{server.http}/v1/traces"))
        until(lambda: server.get(f"/api/trajectories/{trace}")[0] == 200)
        workspace = Workspace(str(server.db), str(tmp_path / "oteval.yaml"))
        async with Client(process(workspace, "--write")) as client:
            listed = await ask_with(client, "list_runs", {})
            run_answer = await ask_with(client, "show_run", {"run": trace})
            explained = await ask_with(client, "explain_run", {"run": trace})
            scored = await ask_with(client, "score_runs", {"runs": [listed.rows[0]["run"]]})
            added = await ask_with(client, "add_reference", {"run": trace, "name": "r"})
            compared = await ask_with(client, "diff_runs", {"run": trace, "reference": "r"})
            counted = await ask_with(client, "list_variants", {})
    finally:
        assert server.stop() == 0

    for answer in (listed, run_answer, explained, scored, added, compared, counted):
        assert not answer.is_error, answer.text
    assert [row.get("text") for row in run_answer.rows[1:]] == ["refund 7", "Done."]
    assert scored.rows[0]["passed"] == 1


@pytest.mark.slow
async def test_calls_at_the_same_time_wait_for_each_other(workspace: Workspace) -> None:
    """No call fails because another one has the database open."""
    async with Client(process(workspace)) as client:
        answers = await asyncio.gather(
            *(ask_with(client, "show_run", {"run": GOOD.id}) for _ in range(8))
        )

    assert [answer.rows[0]["run"] for answer in answers] == [GOOD.id] * 8


@pytest.mark.slow
def test_the_server_ends_with_its_input(workspace: Workspace) -> None:
    """A client that closes the pipe ends the process; invalid lines do not."""
    parameters = process(workspace)
    done = subprocess.run(
        [parameters.command, *parameters.args],
        input=b"not a message\n{}\n\xff\xfe\n",
        env={**os.environ, **(parameters.env or {})},
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.slow
def test_a_client_that_was_killed_ends_the_server(workspace: Workspace) -> None:
    """The server exits silently when both pipes are closed before it answers."""
    parameters = process(workspace)
    environment = {**os.environ, **(parameters.env or {})}
    with subprocess.Popen(
        [parameters.command, *parameters.args],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        assert started.stderr is not None
        started.stdout.close()
        started.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        started.stdin.close()
        stderr = started.stderr.read()
        status = started.wait(60)

    assert (status, stderr) == (0, b"")


def http_server(workspace: Workspace, token: str = "", address: str = "127.0.0.1:0") -> Any:
    """Return a server over HTTP, on a free port."""
    server = create_server(workspace, writes=False)
    return McpHttpServer(server, address, token=token, variable="OTEVAL_READ_TOKEN")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_clients_use_it_over_http(workspace: Workspace, mode: str) -> None:
    """A client with the token gets the same results as over pipes."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    with http_server(workspace, TOKEN).running() as url:
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode) as client,
        ):
            tools = (await client.list_tools()).tools
            listed = await ask_with(client, "list_runs", {"outcome": "fail"})

    assert "score_runs" not in {tool.name for tool in tools}
    assert [row["run"] for row in listed.rows] == [BAD.id]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({"authorization": TOKEN}, 401),
        ({"authorization": f"Bearer {TOKEN}", "host": "evil.example"}, 403),
        ({"authorization": f"Bearer {TOKEN}", "origin": "https://evil.example"}, 403),
        ({"authorization": f"Bearer {TOKEN}"}, 200),
        ({"authorization": f"bearer  {TOKEN}"}, 200),
    ],
)
def test_requests_of_others_are_refused(
    workspace: Workspace, headers: dict[str, str], status: int
) -> None:
    """A request needs the token, and neither a page in a browser nor another host name passes."""
    with http_server(workspace, TOKEN).running() as url:
        answer = httpx.post(url, json=INITIALIZE, headers={**ACCEPT, **headers}, timeout=60)

    assert answer.status_code == status, answer.text
    if status == 401:
        assert "OTEVAL_READ_TOKEN" in answer.text
        assert TOKEN not in answer.text


def test_large_requests_are_refused(workspace: Workspace) -> None:
    """A body of more than a few megabytes is not read."""
    with http_server(workspace).running() as url:
        answer = httpx.post(url, content=b" " * (5 << 20), headers={**ACCEPT}, timeout=60)
        after = httpx.post(url, json=INITIALIZE, headers=ACCEPT, timeout=60)

    assert answer.status_code == 413
    assert after.status_code == 200


@pytest.mark.parametrize("address", ["0.0.0.0:0", "192.0.2.1:80", ":80", "example.org:80"])
def test_only_this_machine_is_served(workspace: Workspace, address: str) -> None:
    """Another address is refused with the remedy."""
    with pytest.raises(ConfigError, match="open to other machines"):
        http_server(workspace, TOKEN, address)


@pytest.mark.slow
def test_the_command_serves_http_until_a_signal(workspace: Workspace) -> None:
    """It says where it listens, answers with the token of its environment, and ends with 0."""
    parameters = process(workspace, "--http", "127.0.0.1:0")
    environment = {**os.environ, **(parameters.env or {}), "OTEVAL_READ_TOKEN": TOKEN}
    with subprocess.Popen(
        [parameters.command, *parameters.args], env=environment, stderr=subprocess.PIPE, text=True
    ) as started:
        assert started.stderr is not None
        url = started.stderr.readline().split()[-1]
        refused = httpx.post(url, json=INITIALIZE, headers=ACCEPT, timeout=60)
        headers = {**ACCEPT, "authorization": f"Bearer {TOKEN}"}
        answer = httpx.post(url, json=INITIALIZE, headers=headers, timeout=60)
        started.send_signal(signal.SIGTERM)
        status = started.wait(60)

    assert refused.status_code == 401
    assert answer.json()["result"]["serverInfo"]["name"] == "oteval"
    assert status == 0


def test_an_address_in_use_is_an_error(workspace: Workspace) -> None:
    """The error names the option and the reason."""
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ConfigError, match=r"--http .* cannot listen there"),
    ):
        http_server(workspace, "", f"127.0.0.1:{taken.getsockname()[1]}")


def test_wrong_options_are_errors_of_one_line(oteval: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The errors are raised before the server starts."""
    monkeypatch.delenv("OTEVAL_WRITE_TOKEN", raising=False)
    for options, expected in (
        (("--http", "127.0.0.1"), "write HOST:PORT"),
        (("--http", "127.0.0.1:0", "--write"), "set OTEVAL_WRITE_TOKEN"),
        (("--target", "a:b"), "need --write"),
        (("--write", "--target", "a:b", "--command", "c"), "not both"),
    ):
        done = oteval("mcp", *options)
        assert done.status == 2
        assert expected in done.err
        assert done.err.count("\n") == 1
        assert done.out == ""


def test_a_missing_package_is_named(oteval: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package, the error has the command that installs it."""
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)

    done = oteval("mcp")

    assert done.status == 2
    assert 'pip install "oteval[mcp-server]"' in done.err


@pytest.mark.parametrize("depth", [200, 5000])
@pytest.mark.slow
def test_a_request_that_is_nested_too_deeply_gets_an_error(
    workspace: Workspace, depth: int
) -> None:
    """The answer has the id of the request, and the server continues."""
    parameters = process(workspace)
    arguments = "[" * depth + "]" * depth
    nested = (
        '{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": '
        f'{{"name": "list_runs", "arguments": {{"where": {arguments}}}}}}}'
    )
    lines = [json.dumps(INITIALIZE), nested, '{"jsonrpc": "2.0", "id": 8, "method": "ping"}']
    with subprocess.Popen(
        [parameters.command, *parameters.args],
        env={**os.environ, **(parameters.env or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        started.stdin.write("\n".join(lines) + "\n")
        started.stdin.flush()
        answers = [json.loads(started.stdout.readline()) for _ in lines]
        started.stdin.close()
        status = started.wait(60)

    assert status == 0
    by_id = {answer["id"]: answer for answer in answers}
    assert by_id[7]["error"]["message"].startswith("cannot read the message: ")
    assert "result" in by_id[8]
