"""Faults of a running server: nothing acknowledged is lost silently, `/readyz` tells the truth."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import serve_faults
from benchmarks.otlp_load import Load, requests
from benchmarks.serve_faults import FAULTS, SHIFTED, inflict
from benchmarks.served import ROOT, Served, Sink, until
from oteval.base.durable_log import segment_path, segment_sizes
from oteval.store import Store

pytestmark = pytest.mark.slow

Start = Callable[..., Served]
RULES = serve_faults.RULES.replace("1s", "100ms")


@pytest.fixture
def start(start: Start) -> Start:
    """Return a function that starts a server with `RULES`."""

    def begin(folder: Path, *arguments: str, **more: Any) -> Served:
        (folder / "oteval.yaml").write_text(RULES)
        return start(folder, *arguments, **more)

    return begin


def spool_of(server: Served) -> Path:
    return Path(f"{server.db}.spool")


def sent(server: Served, load: Load) -> int:
    """Send a request, and return the status of the answer."""
    return server.post("/v1/traces", load.body)[0]


def ready(server: Served) -> int:
    """Return the status of `/readyz`."""
    return server.get("/readyz")[0]


def stored(server: Served) -> int:
    """Return how many spans the server has stored since its storage process began."""
    return int(server.state().get("stored", {}).get("spans", 0))


def test_a_spool_that_was_moved_is_refused_and_waited_for(served: Served) -> None:
    """503 with the reason while it is away; after it, all that was acknowledged is stored."""
    until(lambda: ready(served) == 200)
    before = stored(served)
    first, second, third = requests(3, 8, batch=8)
    folder = spool_of(served)
    assert sent(served, first) == 200

    folder.rename(folder.with_name("away"))
    refused = sent(served, second)
    away = until(lambda: (s := served.state())["reasons"] and s)
    folder.with_name("away").rename(folder)
    until(lambda: sent(served, third) == 200)
    until(lambda: stored(served) == before + 16)
    until(lambda: ready(served) == 200)

    assert refused == 503
    assert "put it back" in " ".join(away["reasons"])
    assert not away["is_ready"]
    assert not served.state()["warnings"]


@pytest.mark.parametrize("what", ["folder", "segments"])
def test_a_spool_that_was_deleted_loses_nothing(served: Served, what: str) -> None:
    """Acknowledged while nothing was stored, then deleted: everything is stored all the same."""
    before = served.drained()["stored"]["spans"]
    held = [served.pid(part) for part in ("decoder", "storage")]
    loads = list(requests(20, 8, batch=8))
    for pid in held:
        os.kill(pid, signal.SIGSTOP)

    try:
        assert {sent(served, load) for load in loads[:10]} == {200}
        if what == "folder":
            shutil.rmtree(spool_of(served))
        else:
            for number in segment_sizes(spool_of(served)):
                segment_path(spool_of(served), number).unlink()
        for load in loads[10:]:
            until(lambda load=load: sent(served, load) == 200)
    finally:
        for pid in reversed(held):
            os.kill(pid, signal.SIGCONT)
    until(lambda: stored(served) == before + 160)
    until(lambda: ready(served) == 200)

    assert served.state()["restarts"] == 0


def test_a_deleted_socket_is_made_again(served: Served) -> None:
    """So is the file that names it: the API answers, and other commands find the database."""
    socket = Path(f"{served.db}.sock")
    notice = Path(f"{served.db}.server.json")

    socket.unlink()
    until(lambda: served.get("/api/status")[0] == 200)
    notice.unlink()
    until(notice.exists)
    listed = served.cli("trajectories", "--json")

    assert socket.is_socket()
    assert socket.stat().st_mode & 0o777 == 0o600
    assert listed.returncode == 0, listed.stderr


def test_a_clock_that_is_set_back_stops_nothing(tmp_path: Path, start: Start) -> None:
    """By an hour, while it runs: what comes is stored, scored and sent on with its scores."""
    sink = Sink()
    shift = tmp_path / "shift"
    (tmp_path / "sitecustomize.py").write_text(SHIFTED)
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    server = start(
        tmp_path, "--forward", sink.url, environment={"PYTHONPATH": path, "SHIFT": str(shift)}
    )
    first, second = requests(2, 8, batch=8)
    assert sent(server, first) == 200
    until(lambda: stored(server) == 8)

    shift.write_text("-3600")
    before = server.state()["position"]
    assert sent(server, second) == 200
    until(lambda: stored(server) == 16)
    scores = until(lambda: len(found := json.loads(server.get("/api/scores")[1])) == 2 and found)
    until(lambda: len(sink.scored) == 2)
    state = server.state()
    sink.close()

    assert state["position"] > before
    assert {score["status"] for score in scores} == {"ok"}
    assert (state["reasons"], state["restarts"]) == ([], 0)


@pytest.mark.parametrize("is_more_there", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_segment_missing_at_the_stored_position_is_said(
    tmp_path: Path, start: Start, *, is_more_there: bool
) -> None:
    """The loss is in the log, in `/readyz` and on `/metrics`; what is there and comes is stored."""
    server = start(tmp_path)
    first, second, third = requests(3, 8, batch=8)
    assert sent(server, first) == 200
    server.drained()
    assert server.stop() == 0
    if is_more_there:
        server.start()
        assert sent(server, second) == 200
        server.drained()
        assert server.stop() == 0
    gone = max(segment_sizes(spool_of(server)))
    with Store(server.db) as store:
        # As a database whose log was cut: it goes back to a segment that was removed.
        segment = gone - 1 if is_more_there else gone
        store._connection.execute("UPDATE spool_position SET segment = ?", [segment])
    path = segment_path(spool_of(server), segment)
    path.unlink(missing_ok=True)

    server.start()
    state = server.state()
    assert sent(server, third) == 200
    until(lambda: stored(server) == 8)
    metrics = server.get("/metrics")[1].decode()

    assert [w for w in state["warnings"] if "lost" in w and path.name in w]
    assert any("lost" in line and path.name in line for line in server.log)
    assert "oteval_spool_losses 1.0" in metrics
    until(lambda: ready(server) == 200)


@pytest.mark.parametrize("scheme", [pytest.param("http", marks=pytest.mark.slow), "grpc"])
def test_the_password_of_a_forward_url_is_sent_and_never_shown(
    tmp_path: Path, start: Start, scheme: str
) -> None:
    """Not in the log, `/readyz`, `/metrics`, nor among the arguments of the storage process."""
    url = f"{scheme}://someone:hunter2@127.0.0.1:1"
    server = start(tmp_path, "--forward", url)
    (load,) = requests(1, 8)

    assert sent(server, load) == 200
    warned = until(lambda: server.state()["warnings"])
    arguments = Path(f"/proc/{server.pid('storage')}/cmdline").read_bytes().decode()
    shown = [*warned, arguments, server.get("/metrics")[1].decode(), *server.log]
    shown.append(server.get("/api/status")[1].decode())
    server.stop()

    assert "forward" in " ".join(warned)
    assert "hunter2" not in " ".join([*shown, *server.log])


@pytest.mark.slow
@pytest.mark.parametrize("part", ["storage", "decoder"])
def test_a_stopped_process_is_told(tmp_path: Path, start: Start, part: str) -> None:
    """`/readyz` is 503 while a process that stores stands still, and 200 again after it."""
    server = start(tmp_path)
    first, second = requests(2, 8, batch=8)
    until(lambda: ready(server) == 200)
    assert sent(server, first) == 200
    server.drained()
    pid = server.pid(part)

    os.kill(pid, signal.SIGSTOP)
    try:
        assert sent(server, second) == 200
        until(lambda: ready(server) == 503, 30)
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: ready(server) == 200, 30)

    until(lambda: server.state()["left_bytes"] == 0, 30)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "disk full"])
def test_faults_under_load(tmp_path: Path, fault: str) -> None:
    """Nothing is doubled, nothing is missing unless that is said, and readiness is right."""
    found = inflict(tmp_path, fault, rate=800)

    assert found.acknowledged > 100
    assert found.is_sound, found
    assert not found.missing or fault == "WAL cut", found
