"""`oteval score` with a language model as judge: as a process, interrupted, and its last line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oteval.evaluators.judge.client import OUTPUT_MODE_MEMORY
from oteval.model import Message
from oteval.store import Store

from ..make import ROOT, keep, run
from ..model_server import Server, serving, verdict
from .conftest import Run


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Return a running server that gives a passing verdict until its script is changed."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    OUTPUT_MODE_MEMORY.known.clear()
    with serving() as running:
        yield running


def prepare(folder: Path, server: Server, count: int) -> None:
    """Write a database with a number of runs, and a configuration."""
    with Store(folder / "oteval.duckdb") as store:
        keep(store, *(run(n, Message("user", f"question {n}")) for n in range(1, count + 1)))
    rule = {"name": "quality", "type": "judge", "model": "openai:m", "base_url": server.url}
    prices = {"m": {"input": 1.0, "output": 1.0}}
    rules = [{**rule, "max_concurrency": 4, "prices": prices}]
    (folder / "oteval.yaml").write_text(json.dumps({"evaluators": rules}))


def test_what_asking_took_is_said_at_the_end(oteval: Run, tmp_path: Path, server: Server):
    """The line has calls, errors, cache hits and cost; later also the runs judged before."""
    prepare(tmp_path, server, 3)

    first, second, third = oteval("score"), oteval("score"), oteval("score", "--again")

    assert (first.status, second.status, third.status) == (0, 0, 0)
    assert "judges: 3 asked, 0 errors, 0 from the cache, $0.0004" in first.err
    assert "judges: 0 asked, 0 errors, 0 from the cache, 3 judged before, $0.0000" in second.err
    assert "judges: 3 asked, 0 errors, 0 from the cache, $0.0004" in third.err
    assert len(server.requests) == 6


def test_a_judge_that_cannot_be_asked_leaves_errors(oteval: Run, tmp_path: Path, server: Server):
    """Each error is one line; with no run evaluated, the exit status is 3."""
    prepare(tmp_path, server, 2)
    text = (tmp_path / "oteval.yaml").read_text()
    gone = text.replace(server.url, "http://127.0.0.1:9/v1").replace("4", "4", 1)
    (tmp_path / "oteval.yaml").write_text(gone)

    completed = oteval("score", "--json")

    assert completed.status == 3
    assert [row["status"] for row in completed.rows] == ["error", "error"]
    assert all(row["score"] is None for row in completed.rows)
    assert all("cannot reach http://127.0.0.1:9/v1" in row["comment"] for row in completed.rows)


@pytest.mark.slow
def test_ctrl_c_ends_the_command_and_the_next_one_goes_on(tmp_path: Path, server: Server):
    """An interrupted process exits promptly, and its finished answers are cached."""
    prepare(tmp_path, server, 60)
    server.script = lambda _body, _number: verdict(delay=0.1)
    command = [sys.executable, "-m", "oteval", "score", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while len(server.requests) < 20 and process.poll() is None:
            time.sleep(0.02)
        server.script = lambda _body, _number: verdict(delay=20)
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert time.monotonic() - start < 15
    assert process.returncode not in (0, None)
    assert "Traceback" not in err
    first_requests = len(server.requests)
    assert len(out.splitlines()) < 60

    server.script = lambda _body, _number: verdict()
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )

    assert [json.loads(line)["status"] for line in done.stdout.splitlines()] == ["ok"] * 60
    assert len(server.requests) <= 60 + 4 + 4
    assert len(server.requests) - first_requests < 60 - 10
