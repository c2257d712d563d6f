"""`oteval run` with the programs that people start: modules, tests, servers, many processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from oteval.model import Trajectory
from oteval.store import Store

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
OTEVAL = [sys.executable, "-m", "oteval"]
# The one provider of the tests' agent is the global one.
AGENT = "from tests.agent import answer\n"
PROCESSES = """
import multiprocessing as mp, sys
from opentelemetry import trace
from tests.agent import answer

def work(question):
    answer(question, name="worker")

if __name__ == "__main__":
    context = mp.get_context(sys.argv[1])
    with trace.get_tracer("t").start_as_current_span("both"):
        workers = [context.Process(target=work, args=(f"q{n}",)) for n in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, in which Python finds the tests' agent."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("OTEVAL_DB", "TRACEPARENT", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(*command: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run a command under `oteval run`."""
    return subprocess.run(
        [*OTEVAL, "run", *options, "--", *command], capture_output=True, text=True, check=False
    )


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python under `oteval run`, and expect that it ends well."""
    done = run(sys.executable, *arguments)
    assert done.returncode == 0, done.stderr
    return done


def runs() -> list[Trajectory]:
    """Return the agent runs in the database."""
    with Store("oteval.duckdb", create=False) as store:
        return list(store.trajectories.read())


def questions() -> list[str]:
    """Return the sorted first messages of the runs."""
    return sorted(run.messages[0].content for run in runs())


def test_a_module_of_a_package(folder: Path) -> None:
    """Its service is the module's name."""
    (folder / "shop").mkdir()
    (folder / "shop" / "__main__.py").write_text(AGENT + "print(answer('hi'))")

    done = python("-m", "shop")

    assert done.stdout == "hi: 0 calls\n"
    assert [run.service for run in runs()] == ["shop"]


def test_pytest_and_its_workers(folder: Path) -> None:
    """Tests run in one process or in several; each agent run is recorded once."""
    (folder / "test_agent.py").write_text(
        AGENT + "import pytest\n"
        "@pytest.mark.parametrize('n', range(4))\n"
        "def test_agent(n): assert answer(f'q{n}')"
    )

    done = run(str(Path(sys.executable).with_name("pytest")), "-q", "-n", "2")

    assert done.returncode == 0, done.stdout
    assert questions() == ["q0", "q1", "q2", "q3"]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_the_processes_of_multiprocessing_are_in_one_trace(folder: Path, method: str) -> None:
    """Both workers continue the span in which they were started."""
    (folder / "workers.py").write_text(PROCESSES)

    python("workers.py", method)

    assert questions() == ["q0", "q1"]
    assert len({run.root_span.trace_id for run in runs()}) == 1


def test_a_process_that_is_forked_without_any_library(folder: Path) -> None:
    """Both record an agent; the child ends without the clean-up of Python."""
    (folder / "forks.py").write_text(
        AGENT + "import os, sys\n"
        "answer('before')\n"
        "pid = os.fork()\n"
        "answer('parent' if pid else 'child')\n"
        "if pid: os.waitpid(pid, 0)\n"
        "else: sys.exit(0)\n"
    )

    python("forks.py")

    assert questions() == ["before", "child", "parent"]


def test_subprocesses_continue_the_trace_in_which_they_are_started(folder: Path) -> None:
    """A child that is started outside of a span has a separate trace."""
    (folder / "child.py").write_text(AGENT + "import sys; answer(sys.argv[1], name='child')")
    (folder / "main.py").write_text(
        "import asyncio, subprocess, sys\n"
        "from opentelemetry import trace\n"
        "child = [sys.executable, 'child.py']\n"
        "async def start(): \n"
        "    process = await asyncio.create_subprocess_exec(*child, 'async')\n"
        "    await process.wait()\n"
        "subprocess.run([*child, 'outside'], check=True)\n"
        "with trace.get_tracer('t').start_as_current_span('main'):\n"
        "    subprocess.run([*child, 'inside'], check=True)\n"
        "    asyncio.run(start())\n"
    )

    python("main.py")

    traces = {run.messages[0].content: run.root_span.trace_id for run in runs()}
    assert traces["inside"] == traces["async"] != traces["outside"]


def test_a_program_that_replaces_itself(folder: Path) -> None:
    """A wrapper ends in exec; both programs are recorded."""
    (folder / "wrapper.py").write_text(
        AGENT + "import os, sys\n"
        "answer('wrapper')\n"
        "os.execv(sys.executable, [sys.executable, 'agent.py'])"
    )
    (folder / "agent.py").write_text(AGENT + "answer('agent')")

    python("wrapper.py")

    assert "agent" in questions()


def test_a_script_that_is_terminated_keeps_its_spans(folder: Path) -> None:
    """SIGTERM to oteval reaches it; its status is 128+15, and everything before is recorded."""
    (folder / "agent.py").write_text(
        AGENT + "import sys, time\nanswer('hi'); print('ready', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen(
        [*OTEVAL, "run", "--", sys.executable, "agent.py"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 143
    process.stdout.close()

    assert questions() == ["hi"]


def test_a_server_with_workers_is_loaded_while_it_runs(folder: Path) -> None:
    """The workers' runs are in the database before SIGTERM ends the server as usual."""
    (folder / "app.py").write_text(
        AGENT + "async def app(scope, receive, send):\n"
        "    if scope['type'] != 'http': return\n"
        "    answer(scope['path'])\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n"
        "    await send({'type': 'http.response.body', 'body': b'ok'})\n"
    )
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    uvicorn = str(Path(sys.executable).with_name("uvicorn"))
    server = [uvicorn, "app:app", "--workers", "2", "--fd", str(listener.fileno())]
    process = subprocess.Popen(
        [*OTEVAL, "run", "--load-every", "0.2", "--", *server],
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=[listener.fileno()],
    )
    listener.close()
    assert process.stderr is not None
    for number in range(4):
        with urlopen(f"{url}/{number}") as response:
            assert response.read() == b"ok"
    for _ in until_loaded(folder, 4):
        pass
    with urlopen(f"{url}/last") as response:
        assert response.read() == b"ok"
    process.send_signal(signal.SIGTERM)
    rest = process.stderr.read()
    process.stderr.close()

    assert process.wait() in (0, 143), rest
    assert questions() == ["/0", "/1", "/2", "/3", "/last"]
    assert "5 agent runs" in rest


def until_loaded(folder: Path, number: int) -> Iterator[None]:
    """Yield until the database has a number of runs."""
    while not (folder / "oteval.duckdb").exists():
        yield
    while True:
        done = subprocess.run(
            [*OTEVAL, "trajectories", "--json"], capture_output=True, text=True, check=False
        )
        if len(done.stdout.splitlines()) >= number:
            return
        yield


def test_the_next_run_loads_the_traces_that_a_killed_one_left(folder: Path) -> None:
    """SIGKILL ends oteval but not the program; both parts of its traces are loaded later."""
    (folder / "agent.py").write_text(
        AGENT + "import sys\n"
        "answer('first'); print('ready', flush=True); sys.stdin.readline(); answer('second')\n"
        "print('done', flush=True)"
    )
    process = subprocess.Popen(
        [*OTEVAL, "run", "--", sys.executable, "agent.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.wait()
    process.stdin.write("go on\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"
    # The pipe is closed when the program has ended.
    assert process.stdout.read() == ""
    process.stdin.close()
    process.stdout.close()

    assert "2 agent runs" in run("true").stderr
    assert questions() == ["first", "second"]


def test_the_trace_of_the_caller_does_not_join_all_agents(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build server's TRACEPARENT is passed on, but the agents have traces of their own."""
    outer = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    monkeypatch.setenv("TRACEPARENT", outer)
    (folder / "agent.py").write_text(
        AGENT + "import os; answer('hi'); print(os.environ['TRACEPARENT'])"
    )

    assert python("agent.py").stdout.strip() == outer
    assert [run.root_span.trace_id != "a" * 32 for run in runs()] == [True]
    assert os.environ["TRACEPARENT"] == outer


def test_options_reach_every_process(folder: Path) -> None:
    """A redacted value is replaced before it is written; without content there is a gap."""
    (folder / "agent.py").write_text(AGENT + "answer('my secret')")
    (folder / "main.py").write_text(
        "import subprocess, sys; subprocess.run([sys.executable, 'agent.py'], check=True)"
    )

    hidden = run(
        sys.executable, "main.py", options=("--redact", "*.messages", "--to", "traces.jsonl")
    )

    assert hidden.returncode == 0, hidden.stderr
    assert "exported to traces.jsonl" in hidden.stderr
    written = (folder / "traces.jsonl").read_text()
    assert "secret" not in written
    assert "[redacted]" in written


@pytest.mark.parametrize(("maximum", "status"), [(5, 0), (0, 1)])
def test_the_runs_are_scored(folder: Path, maximum: int, status: int) -> None:
    """The exit status is that of the gates; standard output is the program's."""
    (folder / "agent.py").write_text(AGENT + "print(answer('hi', 'search'))")
    (folder / "oteval.yaml").write_text(
        "evaluators:\n"
        f"  - {{name: calls, type: budget, max_tool_calls: {maximum}}}\n"
        "gates:\n"
        "  - {evaluator: calls, min_pass_rate: 1.0}\n"
    )

    done = run(sys.executable, "agent.py", options=("--score",))

    assert (done.returncode, done.stdout) == (status, "hi: 1 calls\n"), done.stderr
    assert "calls" in done.stderr
