"""The instrumentation that is chosen for each library, and the resulting trajectories."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from oteval.base.errors import ConfigError
from oteval.ingest import read
from oteval.model import Trajectory
from oteval.reconstruct import reconstruct
from oteval.record.discovery import check_libraries
from oteval.record.libraries import HTTP_CLIENTS, LIBRARIES
from tests.model_server import Server, serving
from tests.record import fake_packages
from tests.record.programs import ROOT, run_program
from tests.record.travel_agents import ANSWER, converse


class Ran(NamedTuple):
    """A run of a travel agent: its trajectories, spans, library states and the model server."""

    trajectories: list[Trajectory]
    spans: list[Any]
    states: dict[str, Any]
    server: Server


def run_agent(name: str, folder: Path, *libraries: str, **variables: str) -> Ran:
    """Run a travel agent in a separate process, and read its exported spans."""
    path = folder / "traces.jsonl"
    with serving(converse) as server:
        code = "from tests.record.travel_agents import main; main()"
        done = run_program(code, name, server.url, str(path), *libraries, **variables)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    batches = list(read(path))
    spans = [span for batch in batches for span in batch.spans]
    logs = [record for batch in batches for record in batch.logs]
    states = {state["library"]: state for state in json.loads(done.stdout)}
    return Ran(reconstruct(spans, logs), spans, states, server)


def messages_of(run: Ran) -> list[tuple[Any, ...]]:
    """Return the messages of the only run that has any, system messages left out."""
    [trajectory] = [trajectory for trajectory in run.trajectories if trajectory.messages]
    return [
        (message.role, message.content, [(c.id, c.name, c.arguments) for c in message.tool_calls])
        for message in trajectory.messages
        if message.role != "system"
    ]


def exchanged(server: Server) -> list[tuple[Any, ...]]:
    """Return the messages of the last request to the model server, and its answer."""
    messages = [
        message for message in server.requests[-1]["messages"] if message["role"] != "system"
    ]
    calls = [
        [
            (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in message.get("tool_calls") or ()
        ]
        for message in messages
    ]
    sent = [
        (message["role"], message.get("content"), message_calls)
        for message, message_calls in zip(messages, calls, strict=True)
    ]
    return [*sent, ("assistant", ANSWER, [])]


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Return a run of a loop around OpenAI's client."""
    return run_agent("plain", tmp_path_factory.mktemp("plain"))


@pytest.mark.slow
def test_a_plain_loop_tells_what_was_exchanged(plain_run: Ran) -> None:
    """The trajectory of a loop around the client equals the messages of the model server."""
    assert messages_of(plain_run) == exchanged(plain_run.server)
    assert [trajectory.gaps for trajectory in plain_run.trajectories if trajectory.messages] == [()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "agent"),
    [
        ("pydantic_ai", "travel"),
        ("langgraph", "travel"),
        ("graph", ""),
        ("openai_agents", "travel"),
        ("mcp", "travel"),
    ],
)
def test_a_run_tells_what_was_exchanged(name: str, agent: str, tmp_path: Path) -> None:
    """Each framework's trajectory equals the messages of the model server, each call once."""
    run = run_agent(name, tmp_path)

    assert messages_of(run) == exchanged(run.server)
    [trajectory] = [trajectory for trajectory in run.trajectories if trajectory.messages]
    assert trajectory.agent == agent
    assert trajectory.usage.model_calls == len(run.server.requests) == 3
    assert trajectory.gaps == ()


def test_trace_context_reaches_the_model_server(plain_run: Ran) -> None:
    """Requests through httpx2 carry the trace and span of a span that was exported."""
    run = plain_run

    sent = [headers["traceparent"].split("-")[1:3] for headers in run.server.headers]
    exported = {(span.trace_id, span.span_id): span for span in run.spans}
    assert all(tuple(ids) in exported for ids in sent)
    assert {exported[tuple(ids)].scope for ids in sent} == {"opentelemetry.instrumentation.httpx"}
    assert run.states["httpx2"]["status"] == "on"


def test_only_imported_libraries_are_instrumented(plain_run: Ran) -> None:
    """Libraries that are installed but unused are not imported, and are reported as waiting."""
    states = plain_run.states

    assert states["openai"]["by"].startswith("opentelemetry-instrumentation-genai-openai ")
    assert {name for name, state in states.items() if state["status"] == "on"} == {
        "openai",
        "httpx",
        "httpx2",
    }
    assert states["langchain"]["status"] == states["pydantic-ai"]["status"] == "waiting"


@pytest.mark.slow
def test_a_preferred_instrumentation_is_used(tmp_path: Path) -> None:
    """NAME=DISTRIBUTION chooses among the installed ones, and a list leaves other libraries out."""
    run = run_agent("plain", tmp_path, "openai=openinference-instrumentation-openai")

    assert messages_of(run) == exchanged(run.server)
    # The plain functions of the loop have spans of oteval's.
    scopes = {span.scope for span in run.spans} - {"oteval"}
    assert scopes == {"openinference.instrumentation.openai"}
    assert list(run.states) == ["openai"]


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_agents_own_instrumentation_wins(when: str, tmp_path: Path) -> None:
    """Instrumentations that the agent's code turns on, earlier or later, are not doubled."""
    own = "from openinference.instrumentation.openai import OpenAIInstrumentor as Own\n"
    turn_on = "Own().instrument()\n"
    start = f"import oteval; oteval.instrument({str(tmp_path / 'traces.jsonl')!r})\n"
    later = "import openai\n" + turn_on
    program = (own + turn_on + start if when == "before" else start + own + later) + (
        "import sys\nfrom tests.record.travel_agents import plain\nplain(sys.argv[1])\n"
        "from oteval.record.discovery import library_states\n"
        "print([s.by + ': ' + s.reason for s in library_states() if s.library == 'openai'][0])"
    )
    with serving(converse) as server:
        done = run_program(program, server.url)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "openinference.instrumentation.openai.OpenAIInstrumentor: turned on by the agent's code\n"
    )
    scopes = [s.scope for batch in read(tmp_path / "traces.jsonl") for s in batch.spans]
    assert scopes.count("openinference.instrumentation.openai") == 3
    assert "opentelemetry.instrumentation.genai.openai" not in scopes


OPENINFERENCE = "openinference-instrumentation-cohere"
OPENLLMETRY = "opentelemetry-instrumentation-cohere"
START = """
from opentelemetry.sdk.trace import TracerProvider
from oteval.record.discovery import instrument_libraries, library_states
instrument_libraries(capture_content=True, tracer_provider=TracerProvider(), logger_provider=None)
def state():
    return [(s.status, s.by, s.reason) for s in library_states() if s.library == "cohere"]
"""


def run_with(folder: Path, program: str) -> list[str]:
    """Run a program after `instrument_libraries`, with a folder of packages; return its output."""
    done = run_program(START + program, PYTHONPATH=f"{folder}:{ROOT}")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_never_two_for_one_library(tmp_path: Path) -> None:
    """Of several installed instrumentations one is turned on, once, at the import."""
    fake_packages.library(tmp_path, "cohere", "5.0")
    fake_packages.instrumentation(tmp_path, OPENLLMETRY, "cohere")
    fake_packages.instrumentation(tmp_path, OPENINFERENCE, "cohere")

    lines = run_with(tmp_path, "print(state())\nimport cohere\nprint(state())\n" + START)

    assert lines == [
        f"[('waiting', '{OPENINFERENCE} 1.0', '')]",
        "cohere imported",
        f"{OPENINFERENCE} on",
        f"[('on', '{OPENINFERENCE} 1.0', '')]",
    ]


def test_the_next_one_is_taken_when_the_first_fails(tmp_path: Path) -> None:
    """An instrumentation that raises is undone, and the agent's import continues."""
    fake_packages.library(tmp_path, "cohere", "5.0")
    fake_packages.instrumentation(tmp_path, OPENINFERENCE, "cohere", code="raise KeyError('x')")
    fake_packages.instrumentation(tmp_path, OPENLLMETRY, "cohere")

    lines = run_with(tmp_path, "import cohere\nprint(state())")

    assert lines == [
        "cohere imported",
        f"{OPENINFERENCE} off",
        f"{OPENLLMETRY} on",
        f"[('on', '{OPENLLMETRY} 1.0', '')]",
    ]


def test_a_version_out_of_range_is_named(tmp_path: Path) -> None:
    """An unsupported library version has no spans, and the report has both versions."""
    fake_packages.library(tmp_path, "cohere", "9.1")
    fake_packages.instrumentation(tmp_path, OPENINFERENCE, "cohere<6,>=5")

    [line, _] = run_with(tmp_path, "print(state())\nimport cohere")

    assert f"'off', '', '{OPENINFERENCE} 1.0 needs cohere<6,>=5, 9.1 is installed'" in line


@pytest.mark.parametrize("refuses", [False, True])
def test_ours_makes_way_for_the_agents_own(tmp_path: Path, refuses: bool) -> None:
    """The agent's instrumentor replaces ours; if it refuses the library, ours comes back."""
    fake_packages.library(tmp_path, "cohere", "5.0")
    fake_packages.instrumentation(tmp_path, OPENINFERENCE, "cohere")
    fake_packages.instrumentation(tmp_path, "acme-cohere", "cohere>=6" if refuses else "cohere")

    lines = run_with(
        tmp_path,
        "import cohere\nfrom acme_cohere import Instrumentor\nInstrumentor().instrument()\n"
        "print(state())",
    )

    assert lines[:3] == ["cohere imported", f"{OPENINFERENCE} on", f"{OPENINFERENCE} off"]
    if refuses:
        assert lines[3:] == [f"{OPENINFERENCE} on", f"[('on', '{OPENINFERENCE} 1.0', '')]"]
    else:
        own = "acme_cohere.Instrumentor"
        assert lines[3:] == [
            "acme-cohere on",
            f"[('on', '{own}', \"turned on by the agent's code\")]",
        ]


def test_threads_that_import_at_once(tmp_path: Path) -> None:
    """Imports in several threads, one inside an instrumentation, end without a deadlock."""
    for name in ("cohere", "groq", "ollama"):
        fake_packages.library(tmp_path, name, "5.0")
    fake_packages.instrumentation(tmp_path, OPENINFERENCE, "cohere", code="import groq, ollama")
    for name in ("groq", "ollama"):
        other = "ollama" if name == "groq" else "groq"
        distribution = f"openinference-instrumentation-{name}"
        fake_packages.instrumentation(tmp_path, distribution, name, code=f"import {other}, cohere")

    lines = run_with(
        tmp_path,
        """
import importlib, threading
names = ["cohere", "groq", "ollama"]
threads = [threading.Thread(target=importlib.import_module, args=[name]) for name in names]
for thread in threads: thread.start()
for thread in threads: thread.join(60)
print(sorted(s.library for s in library_states() if s.status == "on"))
""",
    )

    assert lines[-1] == "['cohere', 'groq', 'ollama']"


def test_every_extra_exists() -> None:
    """The commands that the doctor prints name extras of this package and known distributions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    for library in (*LIBRARIES, *HTTP_CLIENTS):
        assert library.extra in {"", *extras}
        assert library.own or library.install_command


def test_the_page_lists_every_library() -> None:
    """The table of docs/reference/libraries.md has each library with its instrumentations."""
    page = (ROOT / "docs" / "reference" / "libraries.md").read_text()
    rows = {line.split(" | ")[0].strip("| "): line for line in page.splitlines() if "|" in line}

    for library in LIBRARIES:
        for instrumentation in library.instrumentations:
            assert f"`{instrumentation.distribution}`" in rows[library.name]


def test_an_unknown_library_is_an_error() -> None:
    """The error for a misspelt name suggests the right one."""
    with pytest.raises(ConfigError, match="'opnai' is not known; did you mean openai"):
        check_libraries(["opnai"])
    with pytest.raises(ConfigError, match="openai is instrumented by"):
        check_libraries(["openai=acme"])
