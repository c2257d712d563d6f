"""The last spans are exported however a process ends, and every fork exports its spans."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.record.programs import exported, run_program, start_program

AGENT = """
import os, signal, sys, threading, time
import oteval
handle = oteval.instrument(sys.argv[1])
from opentelemetry import trace

def span(name):
    with trace.get_tracer("agent").start_as_current_span(name):
        pass

span("first")
"""


def _names(path: Path) -> list[str]:
    return [span["name"] for span in exported(path)]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("sys.exit(3)", 3),
        pytest.param("raise KeyError('unhandled')", 1, marks=pytest.mark.slow),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -signal.SIGTERM),
        pytest.param("signal.raise_signal(signal.SIGINT)", -signal.SIGINT, marks=pytest.mark.slow),
        ("os._exit(4)", 4),
        pytest.param("os.execv('/bin/sh', ['sh', '-c', 'exit 6'])", 6, marks=pytest.mark.slow),
        pytest.param("os.execlp('sh', 'sh', '-c', 'exit 6')", 6, marks=pytest.mark.slow),
        pytest.param(
            "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
            0,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_ends_keep_their_status(tmp_path: Path, code: str, status: int) -> None:
    """The spans are in the file, and the exit status is the same as without oteval."""
    done = run_program(AGENT + code, str(tmp_path / "t.jsonl"))

    assert done.returncode == status
    assert _names(tmp_path / "t.jsonl") == ["first"]


@pytest.mark.slow
def test_sigterm_in_the_middle_of_recording_loses_nothing(tmp_path: Path) -> None:
    """A signal may interrupt the main thread while it holds the queue."""
    code = """
print("ready", flush=True)
number = 0
while True:
    span("busy")
    number += 1
    sys.stdout.write(f"{number}\\n") if number % 100 == 0 else None
    sys.stdout.flush()
"""
    with start_program(AGENT + code, str(tmp_path / "t.jsonl")) as program:
        assert program.stdout is not None
        lines = [program.stdout.readline() for _ in range(20)]
        program.send_signal(signal.SIGTERM)
        rest, err = program.communicate(timeout=60)

    reported = int([*lines, *rest.splitlines()][-1])
    assert program.returncode == -signal.SIGTERM
    assert err == ""
    assert Counter(_names(tmp_path / "t.jsonl"))["busy"] >= reported


def test_a_handler_of_the_agent_is_called(tmp_path: Path) -> None:
    """An earlier signal handler decides how the process ends; the last spans are exported."""
    code = """
import signal, sys
def handler(number, frame):
    span("in the handler")
    sys.exit(7)
signal.signal(signal.SIGTERM, handler)
"""
    done = run_program(
        code + AGENT + "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)",
        str(tmp_path / "t.jsonl"),
    )

    assert done.returncode == 7
    assert _names(tmp_path / "t.jsonl") == ["first", "in the handler"]


UVICORN = """
import asyncio, sys
import uvicorn

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return
    span("request")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})
    os.kill(os.getpid(), signal.SIGTERM)
    while not server.should_exit:
        await asyncio.sleep(0)
    span("while stopping")

def ask(port):
    import urllib.request
    urllib.request.urlopen(f"http://127.0.0.1:{port}/").read()

class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        asyncio.get_running_loop().run_in_executor(None, ask, port)

class Config(uvicorn.Config):
    def load(self):
        super().load()
        LATE

server = Server(Config(app, port=0, log_level="error"))
server.run()
"""


@pytest.mark.parametrize("is_late", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_server_that_kills_itself_when_done(tmp_path: Path, is_late: bool) -> None:
    """Uvicorn handles SIGTERM, then kills itself by it; instrumented before it or in its app."""
    late = "exec(AGENT, globals())" if is_late else "pass"
    early = f"AGENT = {AGENT!r}\n" if is_late else AGENT
    done = run_program(early + UVICORN.replace("LATE", late), str(tmp_path / "t.jsonl"))

    assert done.returncode == -signal.SIGTERM
    assert _names(tmp_path / "t.jsonl") == ["first", "request", "while stopping"]


@pytest.mark.slow
def test_forks_export_their_own_spans(tmp_path: Path) -> None:
    """Children that are forked while the parent exports neither lose nor repeat spans."""
    code = """
running = True
def work():
    while running:
        span("thread")
thread = threading.Thread(target=work)
thread.start()
children = []
for number in range(8):
    span("parent")
    child = os.fork()
    if child == 0:
        running = False
        for _ in range(10):
            span(f"child {number}")
        sys.exit(5)
    children.append(child)
for child in children:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
running = False
thread.join()
"""
    done = run_program(AGENT + code, str(tmp_path / "t.jsonl"))
    counts = Counter(_names(tmp_path / "t.jsonl"))
    del counts["thread"]

    assert (done.returncode, done.stderr) == (0, "")
    assert counts == {"first": 1, "parent": 8, **{f"child {number}": 10 for number in range(8)}}


def test_a_fork_that_ends_abruptly_exports_its_spans(tmp_path: Path) -> None:
    """Servers that fork end their children by os._exit, which runs nothing of Python."""
    code = """
child = os.fork()
if child == 0:
    span("child")
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
    done = run_program(AGENT + code, str(tmp_path / "t.jsonl"))

    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(_names(tmp_path / "t.jsonl")) == ["child", "first"]


@pytest.mark.slow
def test_children_of_multiprocessing_export(tmp_path: Path) -> None:
    """Processes end by os._exit, and processes of a pool by SIGTERM."""
    code = """
import multiprocessing
context = multiprocessing.get_context("fork")
child = context.Process(target=span, args=("child",))
child.start()
child.join()
with context.Pool(2) as pool:
    pool.map(span, ["pool"] * 6)
"""
    done = run_program(AGENT + code, str(tmp_path / "t.jsonl"))

    assert (done.returncode, done.stderr) == (0, "")
    assert Counter(_names(tmp_path / "t.jsonl")) == {"first": 1, "child": 1, "pool": 6}


@pytest.mark.slow
def test_a_fork_cannot_write_the_parents_database(tmp_path: Path) -> None:
    """Its spans are counted as lost, with a warning; the parent's database stays intact."""
    code = """
handle.flush()
child = os.fork()
if child == 0:
    span("child")
    handle.flush()
    os._exit(handle.stats.lost)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
span("last")
handle.flush()
print(handle.stats.exported)
"""
    done = run_program(AGENT + code, str(tmp_path / "t.duckdb"))

    assert (done.returncode, done.stdout) == (0, "2\n")
    assert "1 of 1 spans and logs were lost" in done.stderr
    assert "only one process can write a database" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("thread", ["", "in a thread"])
def test_a_fork_may_be_killed_at_once(tmp_path: Path, thread: str) -> None:
    """SIGTERM is never ignored after a fork, even before the child has started."""
    code = """
def work():
    for number in range(20):
        child = os.fork()
        if child == 0:
            while True:
                span("child")
        until = time.perf_counter() + number / 10_000
        while time.perf_counter() < until:
            pass
        os.kill(child, signal.SIGTERM)
        assert os.waitpid(child, 0)[1] == signal.SIGTERM
    print("done")
thread = threading.Thread(target=work)
if sys.argv[2]:
    thread.start()
    thread.join()
else:
    work()
"""
    done = run_program(AGENT + code, str(tmp_path / "t.jsonl"), thread)

    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
