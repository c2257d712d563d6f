"""`oteval run` records the agents of a program, without a change of its code."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from oteval.cli import main
from oteval.model import Trajectory
from oteval.record.instrumented_command import service_of
from oteval.scoring.trace_folder import TraceFolder
from oteval.store import Store

from ..commands import Done
from ..model_server import completion, serving
from ..otlp_endpoint import listening

ROOT = Path(__file__).parents[2]
AGENT = "from tests.agent import answer\n"

RunCommand = Callable[..., Done]


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> RunCommand:
    """Return a function that runs `oteval run` in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("OTEVAL_DB", "TRACEPARENT", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["oteval", "run", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, out, err)

    return call


def script(code: str, name: str = "clerk.py") -> str:
    """Write a script that may use the agent of the tests, and return its name."""
    Path(name).write_text(AGENT + code)
    return name


def runs(db: str = "oteval.duckdb") -> list[Trajectory]:
    """Return the agent runs in the database."""
    with Store(db, create=False) as store:
        return list(store.trajectories.read())


def test_a_script_is_recorded_and_its_streams_and_status_are_its_own(run: RunCommand) -> None:
    """Standard output has only what the script prints; one line on standard error sums up."""
    name = script("print(answer('hi', 'search')); raise SystemExit(3)")

    done = run("--", sys.executable, name)

    assert (done.status, done.out) == (3, "hi: 1 calls\n")
    assert done.err == (
        "oteval: 1 agent run, 4 spans in oteval.duckdb; oteval trajectories lists them\n"
    )
    [found] = runs()
    assert (found.agent, found.service) == ("clerk", "clerk")
    assert [message.role for message in found.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert not list(Path.cwd().glob("*.traces"))


def test_spans_that_a_full_disk_refused_are_called_lost(run: RunCommand) -> None:
    """The program says it; the summary gives no other reason for their absence."""
    name = script(
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (900, 900))\n"
        "answer('hi', 'search')\n"
    )

    done = run("--", sys.executable, name)

    assert done.status == 0
    assert "spans and logs were lost: " in done.err
    assert done.err.endswith("oteval: no spans in oteval.duckdb: all were lost\n")


@pytest.mark.slow
def test_an_agent_of_a_library_is_recorded(run: RunCommand) -> None:
    """The library's instrumentation is found and turned on in the child."""
    code = (
        "import sys\nfrom openai import OpenAI\n"
        "client = OpenAI(base_url=sys.argv[1], api_key='k')\n"
        "messages = [{'role': 'user', 'content': 'Refund order 17'}]\n"
        "client.chat.completions.create(model='m', messages=messages)\n"
    )
    with serving(lambda _body, _number: completion("Refunded.")) as server:
        done = run("--", sys.executable, script(code), server.url)

    assert "oteval: 1 agent run, " in done.err
    [found] = runs()
    assert [message.content for message in found.messages] == ["Refund order 17", "Refunded."]


def test_a_program_that_is_not_found_or_not_executable(run: RunCommand, tmp_path: Path) -> None:
    """One line, the exit statuses of shells, and no files."""
    missing = run("no-such-program")
    (tmp_path / "agent.py").touch()
    denied = run("./agent.py")

    assert (missing.status, missing.err) == (127, "oteval: no-such-program: command not found\n")
    assert (denied.status, "oteval run -- python ./agent.py" in denied.err) == (126, True)
    assert [path.name for path in tmp_path.iterdir()] == ["agent.py"]


def test_a_program_without_python_says_that_nothing_was_instrumented(run: RunCommand) -> None:
    """Its streams and its status are untouched."""
    done = run("--", "sh", "-c", "echo out; kill -TERM $$")

    assert (done.status, done.out) == (143, "out\n")
    assert "no Python process was instrumented" in done.err


def test_traces_are_kept_while_the_database_is_held(
    run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line on standard error says where they are; the next run loads them."""
    monkeypatch.setattr("oteval.record.instrumented_command._PATIENCE", 0.0)
    name = script("answer('hi')")
    with Store("oteval.duckdb"):
        held = run("--", sys.executable, name)
    again = run("--", "true")

    assert held.status == 0
    assert "the traces are kept in" in held.err
    assert TraceFolder("oteval.duckdb").path.name in held.err
    assert "1 agent run, 2 spans" in again.err


def test_a_closed_standard_output_changes_nothing(run: RunCommand) -> None:
    """The program's status is that of `oteval run`, also if there is no standard output."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        done = run("--", sys.executable, script("answer('hi')"))

    assert done.status == 0
    assert "1 agent run" in done.err


def test_traces_go_to_an_endpoint(run: RunCommand) -> None:
    """With --to there is no database; the name of the service is the given one."""
    with listening() as endpoint:
        done = run(
            "--to", endpoint.url, "--service", "shop", "--", sys.executable, script("answer('hi')")
        )

    assert done.status == 0
    assert {span.name for span in endpoint.spans()} == {"invoke_agent clerk", "chat m"}
    assert b"shop" in endpoint.bodies()[0]
    assert not Path("oteval.duckdb").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--to", "x.duckdb"), "--db FILE is for a database"),
        (("--to", "none/x.jsonl"), "its folder does not exist"),
        (("--db", ":memory:"), "give a file"),
        (("--to", "x.jsonl", "--score"), "leave out --to"),
        (("--score", "-c", "none.yaml"), "none.yaml"),
    ],
)
def test_wrong_options_end_before_the_program_starts(
    run: RunCommand, options: tuple[str, ...], message: str
) -> None:
    """The exit status is 2, and the program has not run."""
    done = run(*options, "--", "touch", "started")

    assert done.status == 2
    assert message in done.err
    assert not Path("started").exists()


@pytest.mark.parametrize(
    ("command", "service"),
    [
        ("python agents/clerk.py --fast", "clerk"),
        ("/usr/bin/python3.12 -X dev -W error -m shop.agent x", "shop.agent"),
        ("python -u shop/__main__.py", "shop"),
        ("python -c pass", "python"),
        ("uvicorn app:app", "uvicorn"),
        ("./clerk.py", "clerk"),
        ("python", "python"),
    ],
)
def test_the_service_is_named_for_the_script_or_module(command: str, service: str) -> None:
    """Options of Python and their values are skipped."""
    assert service_of(command.split()) == service


def test_a_deleted_working_directory_is_named(
    run: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative paths have no meaning there; with an absolute one, the program runs."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    db = str(tmp_path / "kept.duckdb")

    relative = run("--", sys.executable, "-c", "print(1)")
    absolute = run("--db", db, "--", sys.executable, "-c", f"{AGENT}print(answer('hi'))")

    assert (relative.status, relative.out) == (2, "")
    assert relative.err == (
        "oteval: oteval.duckdb: the working directory was deleted; change to another one, or give "
        "an absolute path\n"
    )
    assert absolute.status == 0
    assert len(runs(db)) == 1


def test_a_file_is_loaded_by_the_command_that_the_last_line_names(run: RunCommand) -> None:
    name = script("answer('hi')")

    done = run("--to", "my traces.jsonl", "--", sys.executable, name)

    assert done.err == (
        "oteval: 1 process exported to my traces.jsonl; oteval ingest 'my traces.jsonl' loads it\n"
    )


@pytest.mark.slow
def test_two_commands_at_once_see_their_own_runs(run: RunCommand) -> None:
    """They share a database; each waits for the other one, and counts and scores its own runs."""
    Path("oteval.yaml").write_text(
        "evaluators:\n- {name: calls, type: budget, max_tool_calls: 5}\n"
        "gates:\n- {evaluator: calls, min_pass_rate: 1.0}\n"
    )
    script("answer('hi', 'search')")
    command = [sys.executable, "-m", "oteval", "run", "--score", "--load-every", "0.1"]
    started = [
        subprocess.Popen([*command, "--", sys.executable, "clerk.py"], stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    ended = [(one.communicate(timeout=120)[1].decode(), one.returncode) for one in started]

    for err, status in ended:
        assert "1 agent run, 4 spans in oteval.duckdb" in err, err
        assert status == 0, err
    assert len(runs()) == 2
