"""The pages of `oteval serve`: behind its HTTP port, with its tokens, while runs arrive."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from benchmarks.served import Served, until
from oteval import evaluate
from oteval.store import Store

from .clients import INGEST, RULES, TOKENS, agent_run

__all__ = ["RULES"]

HTML = {"accept": "text/html"}
FORM = "application/x-www-form-urlencoded"
Start = Callable[..., Served]


def pages_pid(served: Served) -> int:
    """Return the process that shows the pages."""
    listed = subprocess.run(
        ["ps", "-wweo", "pid,ppid,args"], capture_output=True, text=True, check=True
    ).stdout
    found = re.findall(rf"^\s*(\d+)\s+{served.process.pid}\s.*pages\.server", listed, re.M)
    assert len(found) == 1
    return int(found[0])


def send_run(served: Served, **headers: str) -> str:
    """Send an agent's run, and return its trace id."""
    trace_id, request = agent_run()
    status, _, _ = served.post("/v1/traces", request.SerializeToString(), **headers)
    assert status == 200
    return trace_id


def test_the_port_of_the_receiver_shows_pages(served: Served) -> None:
    """A browser gets the overview from /, a program the address; other paths are as before."""
    status, body = served.get("/", HTML)
    assert status == 200
    assert b"<h1>Overview</h1>" in body
    assert served.get("/")[1].startswith(b"oteval receives OpenTelemetry traces")
    assert served.get("/nowhere", HTML)[0] == 404
    assert served.get("/v1/traces")[0] == 405
    assert served.get("/healthz") == (200, b"ok\n")
    assert served.get("/runs", {"host": "evil.example"})[0] == 403
    answer = httpx.get(f"http://127.0.0.1:{served.http}/runs", timeout=120)
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "transfer-encoding" not in answer.headers


def test_a_run_arrives_on_the_page_with_its_score(served: Served) -> None:
    """An event says that there is something new, and the list then has the run and its verdict."""
    served.get("/runs")
    connection = http.client.HTTPConnection("127.0.0.1", served.http, timeout=120)
    connection.request("GET", "/events?state=none")
    events = connection.getresponse()
    assert events.headers["content-type"].startswith("text/event-stream")
    assert events.readline() == b"retry: 3000\n"
    trace_id = send_run(served)

    def is_told() -> bool:
        return events.readline().startswith(b"data: ")

    until(is_told)

    def listed() -> bytes:
        name = httpx.get(f"http://127.0.0.1:{served.http}/runs?q={trace_id}", timeout=120)
        if name.status_code != 303:
            return b""
        body = served.get(name.headers["location"])[1]
        return body if b"tools</span>" in body else b""

    assert b"refund" in until(listed) or b"Done." in listed()
    connection.close()


def test_experiments_are_shown_by_a_server(start: Start, tmp_path: Path) -> None:
    """The list, the matrix and the comparison come from a database that the server has open."""
    with Store(tmp_path / "traces.duckdb") as store:
        for name, outputs in (("before", [1, 1]), ("after", [1, 0])):
            _experiment(store, name, outputs)
    served = start(tmp_path)
    status, listed = served.get("/experiments")
    assert status == 200
    assert b"before" in listed
    assert b"after" in listed
    status, matrix = served.get("/experiments/after")
    assert status == 200
    assert b"answer 0" in matrix
    status, compared = served.get("/experiments/after?baseline=before")
    assert status == 200
    assert b"answer 0" in compared


def _experiment(store: Store, name: str, outputs: list[int]) -> None:
    """Store an experiment with these answers, of which 1 is right."""

    def target(inputs: int) -> int:
        return outputs[inputs]

    def right(outputs: int) -> dict[str, object]:
        return {"key": "right", "score": outputs == 1, "comment": f"answer {outputs}"}

    data = [{"id": f"e{number}", "inputs": number} for number in range(len(outputs))]
    evaluate(target, name=name, data=data, evaluators=[right], store=store)


def test_the_pages_are_started_again_when_they_end(served: Served) -> None:
    """A process that is killed is replaced at the next request, and the server stays ready."""
    served.get("/runs")
    first = pages_pid(served)
    os.kill(first, signal.SIGKILL)
    assert until(lambda: served.get("/runs")[0] == 200)
    assert pages_pid(served) != first
    assert served.state()["is_ready"]


def test_the_pages_wait_for_the_storage_process(served: Served) -> None:
    """While it is away, pages say so or wait; afterwards they work, and do not hold the file."""
    served.get("/runs")
    served.kill("storage")
    assert served.get("/runs")[0] in (200, 503)
    until(lambda: served.state()["is_storing"])
    assert until(lambda: served.get("/runs")[0] == 200)


@pytest.mark.slow
def test_a_database_that_is_replaced_is_not_written_to_any_more(
    start: Start, tmp_path: Path
) -> None:
    """The server notices, says so, and stores the next traces in the file at its path."""
    (tmp_path / "oteval.yaml").write_text(RULES)
    served = start(tmp_path)
    first = send_run(served)
    until(lambda: served.get(f"/api/trajectories/{first}")[0] == 200)
    (tmp_path / "traces.duckdb").rename(tmp_path / "old.duckdb")
    until(lambda: any("was deleted, moved or replaced" in line for line in served.log))
    until(lambda: served.state()["is_storing"])
    second = send_run(served)
    until(lambda: served.get(f"/api/trajectories/{second}")[0] == 200)
    assert served.stop() == 0
    with Store(tmp_path / "traces.duckdb") as store:
        assert store.trajectories.count()


def test_a_long_form_and_a_wrong_header_are_refused(served: Served) -> None:
    """A body above half a megabyte is not forwarded."""
    status, _, _ = served.post("/login", b"a" * (600 << 10), FORM)
    assert status == 413


def test_readers_log_in_with_a_token(start: Start, tmp_path: Path) -> None:
    """Without a session a page leads to the login; the cookie is strict and for HTTP only."""
    (tmp_path / "oteval.yaml").write_text(RULES)
    served = start(tmp_path, environment=TOKENS)
    base = f"http://127.0.0.1:{served.http}"
    send_run(served, **INGEST)
    with httpx.Client(base_url=base, headers=HTML, timeout=120) as client:
        # While the process of the pages starts, the server may answer 503.
        led = until(lambda: (a := client.get("/runs?q=agent%3Dshop")).status_code == 303 and a)
        assert led.headers["location"].startswith("/login?next=")
        refused = client.post(
            led.headers["location"], data={"token": "x"}, headers={"origin": base}
        )
        assert refused.status_code == 403
        said = "127.0.0.1: token unknown on the login page"
        assert until(lambda: any(said in line for line in served.log))
        foreign = {"origin": "http://evil.example"}
        assert client.post("/login", data={"token": "out"}, headers=foreign).status_code == 403
        entered = client.post(
            led.headers["location"], data={"token": "out"}, headers={"origin": base}
        )
        cookie = entered.headers["set-cookie"].lower()
        assert "samesite=strict" in cookie
        assert "httponly" in cookie
        assert entered.headers["location"] == "/runs?q=agent%3Dshop"
        assert client.get("/runs").status_code == 200
    assert served.get("/runs")[0] == 401
    assert served.get("/static/x/pages.css")[0] == 404
    assert served.stop() == 0


@pytest.mark.slow
def test_a_server_whose_pages_nobody_opened_has_no_process_for_them(
    start: Start, tmp_path: Path
) -> None:
    """It is started by the first request for a page."""
    (tmp_path / "oteval.yaml").write_text(RULES)
    served = start(tmp_path)
    with pytest.raises(AssertionError):
        pages_pid(served)
    served.get("/runs")
    assert pages_pid(served)
    assert served.stop() == 0
