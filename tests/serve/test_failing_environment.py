"""A running server whose disk, rules, judges, evaluators or memory fail."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from benchmarks.otlp_load import requests, send
from benchmarks.served import Served, Sink, until
from oteval.store import Store

from ..model_server import Server, error, verdict
from .clients import RULES, agent_run, run_agent

MB = 1 << 20
Start = Callable[..., Served]


def mounted(folder: Path, size: str) -> Path:
    """Return a folder that is a file system of its own, or skip the test."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a file system of its own cannot be mounted here")
    return folder


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Return the folder of the database and that of its spool, on a disk each."""
    database = mounted(tmp_path / "disk", "160m")
    spool = mounted(database / "traces.duckdb.spool", "160m")
    yield database, spool
    for folder in (spool, database):
        subprocess.run(["umount", "-l", str(folder)], check=False)


def fill(folder: Path, left: int) -> Path:
    """Leave so many bytes free on a folder's disk; return the file that takes the others."""
    disk = os.statvfs(folder)
    ballast = folder / "ballast"
    ballast.write_bytes(b"\0" * (disk.f_bavail * disk.f_frsize - left))
    return ballast


def figure(server: Served, name: str) -> float:
    """Return a figure of /metrics."""
    lines = server.get("/metrics")[1].decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


def all_scored(server: Served, runs: int) -> None:
    """Wait until so many runs have their score."""
    server.drained()
    until(lambda: len(json.loads(server.get("/api/scores?limit=1000")[1])) == runs, 60)


def kept(server: Served) -> tuple[int, int, int]:
    """Return how many spans, runs and runs with one score a server that stopped has stored."""
    with Store(server.db) as store:
        spans = store.spans.count()[0]
        runs = {t.id for t in store.trajectories.read()}
        judged = Counter(score.trajectory_id for score in store.scores.read())
    return spans, len(runs), sum(judged[run] == 1 for run in runs)


@pytest.mark.slow
def test_the_database_s_disk_is_full_and_the_spool_s_is_not(
    disks: tuple[Path, Path], start: Start
) -> None:
    """Requests are taken, nothing dies, readiness says why; with room again all is stored."""
    database, _ = disks
    (database / "oteval.yaml").write_text(RULES)
    server = start(database)
    sent = [send(server.http, list(requests(20)))]
    all_scored(server, 20)
    ballast = fill(database, MB // 4)

    full = [send(server.http, list(requests(100)), rate=1600) for _ in range(5)]
    state = until(lambda: (s := server.state())["reasons"] and s)
    ready, storing = figure(server, "oteval_ready"), figure(server, "oteval_storing")
    left = figure(server, "oteval_spool_left_bytes")
    shown = server.cli("trajectories", "--json")
    ballast.unlink()
    begun = time.monotonic()
    all_scored(server, 520)
    took = time.monotonic() - begun
    healthy = until(lambda: (s := server.state())["is_ready"] and s)
    status = server.stop()

    print(f"all is stored and scored {took:.1f} s after there is room")
    assert all(set(each.answers) == {"200"} for each in full)
    assert [reason for reason in state["reasons"] if "disk is full" in reason]
    assert (ready, storing) == (0.0, 1.0)
    assert left > MB
    assert len(shown.stdout.splitlines()) == 20
    assert (healthy["restarts"], status) == (0, 0)
    assert any("disk is full" in line for line in server.log)
    assert len([line for line in server.log if "nothing is stored" in line]) == 1
    assert kept(server) == (sum(len(each.acknowledged) for each in sent + full), 520, 520)


@pytest.mark.slow
def test_the_spool_s_disk_is_full_and_the_database_s_is_not(
    disks: tuple[Path, Path], start: Start
) -> None:
    """Senders are told to come again, what was taken is stored and scored; then all goes on."""
    database, spool = disks
    (database / "oteval.yaml").write_text(RULES)
    server = start(database)
    sent = [send(server.http, list(requests(100)))]
    ballast = fill(spool, MB // 4)

    time.sleep(0.3)
    refused = send(server.http, list(requests(20)))
    state = server.drained()
    ready, storing = figure(server, "oteval_ready"), figure(server, "oteval_storing")
    ballast.unlink()
    time.sleep(0.3)
    sent.append(send(server.http, list(requests(20)), retry=10))
    all_scored(server, 120)
    status = server.stop()

    assert set(refused.answers) == {"503"}
    assert state["reasons"] == ["the disk is full"]
    assert (ready, storing) == (0.0, 1.0)
    assert (state["restarts"], status) == (0, 0)
    assert kept(server) == (sum(len(each.acknowledged) for each in sent), 120, 120)


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 36 * MB], ids=["waits", "fails"])
def test_the_disk_of_both_is_full(tmp_path: Path, start: Start, left: int) -> None:
    """Without room nothing is tried; where a commit fails for lack of it, nothing is lost."""
    disk = mounted(tmp_path / "disk", "260m")
    try:
        (disk / "oteval.yaml").write_text(RULES)
        server = start(disk)
        decoder, storage = server.pid("decoder"), server.pid("storage")
        for pid in (decoder, storage):
            os.kill(pid, signal.SIGSTOP)
        sent = [send(server.http, list(requests(100)))]
        _, wide = agent_run(os.urandom(25 * MB).hex())
        taken = server.post("/v1/traces", wide.SerializeToString())[0]
        ballast = fill(disk, left)
        for pid in (decoder, storage):
            os.kill(pid, signal.SIGCONT)
        until(lambda: server.state()["restarts"] if left else server.state()["reasons"][1:])
        time.sleep(6)
        full = server.state()
        ballast.unlink()
        sent.append(send(server.http, list(requests(20)), retry=10))
        all_scored(server, 121)
        healthy = until(lambda: (s := server.state())["is_ready"] and s)
        status = server.stop()

        assert taken == 200
        assert not full["is_ready"]
        assert any("disk is full" in r or "No space left" in r for r in full["reasons"][1:])
        assert full["restarts"] in (range(1, 6) if left else [0])
        assert (healthy["reasons"], status) == ([], 0)
        assert kept(server) == (sum(len(each.acknowledged) for each in sent) + 2, 121, 121)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


@pytest.mark.slow
def test_wide_spans_are_stored_and_scored(tmp_path: Path, start: Start) -> None:
    """Spans of 1 MB each, more than the database's memory holds, take no restart of it."""
    (tmp_path / "oteval.yaml").write_text(RULES)
    server = start(tmp_path)
    answers = set()
    for number in range(420):
        _, request = agent_run(f"{number} " + os.urandom(MB // 2).hex())
        answers.add(server.post("/v1/traces", request.SerializeToString())[0])
        time.sleep(0.02)
    all_scored(server, 420)
    state = server.state()
    server.stop()
    with Store(server.db) as store:
        spans = store.spans.count()[0]
        judged = Counter(score.trajectory_id for score in store.scores.read())
        read = [t.id for t in store.trajectories.read()]

    assert answers == {200}
    assert state["restarts"] == 0
    assert sorted(read) == sorted(judged)
    assert (spans, len(judged), set(judged.values())) == (840, 420, {1})
    assert state["reasons"] == []


def scored(server: Served, trace_id: str) -> dict[str, dict[str, object]]:
    """Return the scores of a run by evaluator."""
    status, body = server.get(f"/api/trajectories/{trace_id}")
    return {s["evaluator"]: s for s in json.loads(body)["scores"]} if status == 200 else {}


def sent_run(server: Served) -> str:
    """Send a run; return its trace id."""
    trace_id, request = agent_run()
    assert server.post("/v1/traces", request.SerializeToString())[0] == 200
    return trace_id


@pytest.mark.slow
def test_sighup_has_the_rules_read_again(tmp_path: Path, start: Start) -> None:
    """New rules score the next run; a broken file keeps the old ones, and is told everywhere."""
    rules = tmp_path / "oteval.yaml"
    rules.write_text(RULES)
    server = start(tmp_path, "-c", "oteval.yaml")
    try:
        first = sent_run(server)
        until(lambda: set(scored(server, first)) == {"tools"})
        stamp = rules.stat().st_mtime_ns
        rules.write_text(RULES.replace("name: tools", "name: other"))
        os.utime(rules, ns=(stamp, stamp))
        os.kill(server.process.pid, signal.SIGHUP)
        until(lambda: server.state()["scoring"]["evaluators"] == ["other"])
        second = sent_run(server)
        until(lambda: "other" in scored(server, second))

        rules.write_text("evaluators: [{name: x, type: no_such_type}]")
        os.kill(server.process.pid, signal.SIGHUP)
        told = until(lambda: server.state()["scoring"]["config_error"])
        metric = until(lambda: figure(server, "oteval_config_ok") == 0.0)
        ready = server.get("/readyz")[0]
        third = sent_run(server)
        until(lambda: "other" in scored(server, third))
        rules.write_text(RULES)
        os.kill(server.process.pid, signal.SIGHUP)
        until(lambda: server.state()["scoring"]["config_error"] is None)
    finally:
        status = server.stop()

    assert "oteval.yaml:1: evaluator 'x': 'type' must be one of" in told
    assert metric
    assert ready == 200
    assert any("the old rules stay in force" in line for line in server.log)
    assert status == 0


FORWARDED = """
evaluators:
  - {name: tools, type: tool_errors}
  - {name: fast, type: latency, max: 60s}
"""


@pytest.mark.slow
def test_from_the_root_s_end_to_its_scores(tmp_path: Path, start: Start) -> None:
    """With default settings a run of the SDK is scored and sent on 2 s after it went quiet."""
    (tmp_path / "oteval.yaml").write_text(FORWARDED)
    sink = Sink()
    server = start(tmp_path, "--forward", sink.url)
    quiet = 5.0
    scores, arrivals = [], []
    try:
        for _ in range(3):
            url = f"http://127.0.0.1:{server.http}/v1/traces"
            trace_id, ended = run_agent(OTLPSpanExporter(url))
            known = until(lambda t=trace_id: len(scored(server, t)) == 2 and scored(server, t))
            scores.append(time.monotonic() - ended - quiet)
            span = (trace_id, str(known["tools"]["span_id"]))
            until(lambda s=span: s in sink.scored)
            arrivals.append(time.monotonic() - ended - quiet)
            until(lambda t=trace_id: sum(name == t for name, _ in sink.spans) == 2)
        listed = server.cli("trajectories", "--json").stdout.splitlines()
        table = server.cli("scores", "--json").stdout.splitlines()
    finally:
        status = server.stop()
        sink.close()

    print(
        f"scored {statistics.median(scores):.2f} s, downstream {statistics.median(arrivals):.2f} s"
    )
    assert len(listed) == 3
    assert len(table) == 6
    assert sorted(sink.spans.values()) == [1] * 6
    assert len(sink.scored) == 3
    assert max(scores) < 10  # 2 s when the machine has nothing else to do
    assert status == 0


EVALUATORS = """
import time
def broken(outputs): raise ValueError("no such thing")
def hangs(outputs): time.sleep(3600)
"""


@pytest.fixture
def judged(tmp_path: Path, model_server: Server, start: Start) -> Iterator[Served]:
    """Return a server with a judge, a broken evaluator, one that hangs, and a good one."""
    (tmp_path / "live_broken.py").write_text(EVALUATORS)
    (tmp_path / "oteval.yaml").write_text(
        "evaluators:\n"
        "  - {name: tools, type: tool_errors}\n"
        "  - {name: broken, type: python, call: 'live_broken:broken'}\n"
        "  - {name: hangs, type: python, call: 'live_broken:hangs', timeout: 2s}\n"
        "  - {name: quality, type: judge, model: 'openai:m', max_retries: 0, "
        f"base_url: '{model_server.url}'}}\n"
        "completion: {quiet: 200ms}\n"
    )
    server = start(tmp_path, environment={"OPENAI_API_KEY": "k"})
    yield server
    assert server.stop() == 0


@pytest.mark.slow
def test_a_judge_that_is_down_and_evaluators_that_are_broken(
    judged: Served, model_server: Server
) -> None:
    """The good one's scores are there, the others' reasons too; later the judge is asked again."""
    model_server.script = lambda *_: error(503, "down for repair")
    first = sent_run(judged)
    down = until(lambda: len(s := scored(judged, first)) == 4 and s, 30)
    table = judged.cli("scores").stdout
    model_server.script = lambda *_: verdict(True)
    back = until(lambda: (s := scored(judged, first))["quality"]["status"] == "ok" and s, 80)
    second = sent_run(judged)
    until(lambda: scored(judged, second).get("quality", {}).get("status") == "ok", 30)

    assert {name: s["status"] for name, s in down.items()} == {
        "tools": "ok", "broken": "error", "hangs": "error", "quality": "error",
    }  # fmt: skip
    assert "down for repair" in str(down["quality"]["comment"])
    assert "no such thing" in str(down["broken"]["comment"])
    assert "VerdictMissing" in table
    assert back["tools"]["status"] == "ok"
    assert judged.state()["reasons"] == []


@pytest.mark.slow
def test_a_judge_that_is_slow(judged: Served, model_server: Server) -> None:
    """While it thinks, many more runs are taken and scored by the others; then it says its own."""
    model_server.script = lambda *_: verdict(True, delay=15.0)
    first = sent_run(judged)
    until(lambda: model_server.requests)
    runs = [sent_run(judged) for _ in range(50)]
    until(lambda: all("tools" in scored(judged, run) for run in runs))
    early = "quality" in scored(judged, first)
    until(lambda: scored(judged, first).get("quality", {}).get("status") == "ok")

    assert not early
    assert judged.state()["left_bytes"] == 0
