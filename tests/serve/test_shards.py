"""Three servers behind a balancer by trace id, one of them killed and started again under load."""

from __future__ import annotations

import bisect
import json
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmarks.served import Served

from ..make import ROOT
from .clients import agent_run

RULES = "evaluators: [{name: tools, type: tool_errors}]\ncompletion: {quiet: 50ms}\n"
RUNS = 300
PATIENCE = 120.0


class Ring:
    """A consistent hash ring with the positions of the Collector's `loadbalancing` exporter.

    Each endpoint has 100 positions of 36,000: the CRC-32 of its name and of a number's byte. A
    trace belongs to the endpoint at or after the position of its id.
    """

    def __init__(self, endpoints: Sequence[str]) -> None:
        places: dict[int, str] = {}
        for endpoint in endpoints:
            for number in range(100):
                place = zlib.crc32(endpoint.encode() + bytes([number])) % 36_000
                places.setdefault(place, endpoint)
        self._places = sorted(places)
        self._endpoints = [places[place] for place in self._places]

    def endpoint(self, trace_id: bytes) -> str:
        """Return the endpoint that a trace belongs to."""
        index = bisect.bisect_left(self._places, zlib.crc32(trace_id) % 36_000)
        return self._endpoints[index % len(self._endpoints)]


def send(server: Served, body: bytes) -> None:
    """Send a request until the server has acknowledged it, as the exporter does."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if server.post("/v1/traces", body)[0] == 200:
                return
        except (OSError, RuntimeError, EOFError):
            pass  # the server is down
        except Exception as error:  # http.client's errors of a connection that ended
            if not type(error).__module__.startswith("http"):
                raise
        time.sleep(0.05)
    raise AssertionError("a request was not acknowledged")


def rows(folder: Path, *arguments: str) -> list[dict[str, object]]:
    """Return the JSON lines of a command on all databases in a folder."""
    command = [sys.executable, "-m", "oteval", *arguments, "--db", str(folder)]
    found = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE, check=False
    )
    assert found.returncode == 0, found.stderr
    return [json.loads(line) for line in found.stdout.splitlines()]


def wait(is_done: Callable[[], bool]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
def test_a_killed_shard_loses_nothing_and_readers_see_all_runs(
    tmp_path: Path, start: Callable[..., Served]
) -> None:
    """All runs of three served databases, each once and scored, after a SIGKILL under load."""
    servers: dict[str, Served] = {}
    shards = tmp_path / "shards"
    shards.mkdir()
    for number in range(3):
        folder = tmp_path / f"server-{number}"
        folder.mkdir()
        (folder / "oteval.yaml").write_text(RULES)
        servers[f"oteval-{number}:4317"] = start(folder)
    for number, server in enumerate(servers.values()):
        (shards / f"{number}.duckdb").symlink_to(server.db)
    ring = Ring(list(servers))
    sent: dict[str, str] = {}
    bodies: dict[str, list[bytes]] = {name: [] for name in servers}
    for _ in range(RUNS):
        trace_id, request = agent_run()
        name = sent[trace_id] = ring.endpoint(bytes.fromhex(trace_id))
        bodies[name].append(request.SerializeToString())
    assert all(len(some) > RUNS / 10 for some in bodies.values())
    half = threading.Event()
    problems: list[BaseException] = []

    def send_all(name: str) -> None:
        try:
            for number, body in enumerate(bodies[name]):
                send(servers[name], body)
                if name == "oteval-1:4317" and number == len(bodies[name]) // 2:
                    half.set()
        except BaseException as error:
            problems.append(error)
            half.set()

    senders = [threading.Thread(target=send_all, args=(name,)) for name in servers]
    for sender in senders:
        sender.start()
    assert half.wait(PATIENCE)
    servers["oteval-1:4317"].kill("listener")
    for sender in senders:
        sender.join()
    assert not problems, problems
    for server in servers.values():
        server.drained(PATIENCE)

    wait(lambda: len(rows(shards, "scores", "--json")) == RUNS)
    runs = rows(shards, "trajectories", "--json")

    assert sorted(run["trace_ids"][0] for run in runs) == sorted(sent)  # type: ignore[index]
    for server in servers.values():
        assert server.stop() == 0
    stopped = rows(shards, "trajectories", "--json")
    assert len(stopped) == RUNS
    assert len(rows(shards, "export", "--jsonl", "-")) == RUNS
