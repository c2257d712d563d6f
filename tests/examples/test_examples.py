"""The agents of `examples/`: instrumented, recorded and replayed, each in a process of its own.

A scripted model server on a real socket logs every exchange. A trajectory must equal the messages
that the agent truly exchanged with it, and a replay must pass while the server is stopped.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
OTEVAL = Path(sys.executable).with_name("oteval")
SECONDS = 120

sys.path.insert(0, str(EXAMPLES))
from model_server import running  # noqa: E402

pytestmark = pytest.mark.examples


@dataclass(frozen=True)
class Example:
    """An example agent with its options.

    Attributes:
        file: Its file.
        options: Options of its command line.
    """

    file: str
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The command line."""
        return " ".join((self.file, *self.options))


AGENTS = [
    *(
        Example(file, options)
        for file in ("openai_chat.py", "openai_responses.py")
        for options in ((), ("--stream",), ("--async",), ("--async", "--stream"))
    ),
    *map(Example, ("langgraph_agent.py", "pydantic_ai_agent.py", "openai_agents_agent.py")),
    Example("mcp_agent.py"),
]
# One of each kind: what an edit changes does not depend on streams and coroutines.
EDITED = [one for one in AGENTS if not one.options]


@dataclass
class Desk:
    """A copy of the examples in a folder of its own, and a database.

    Attributes:
        folder: The copy, whose files a test may edit.
        db: The database.
    """

    folder: Path
    db: Path

    def environment(self, url: str) -> dict[str, str]:
        """The environment of an agent whose model is at an address."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "OPENAI_"))}
        return {**kept, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "sk-test-0123456789abcdef"}

    def call(self, *command: str | Path, url: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the folder."""
        environment = {**self.environment(url), **more}
        if "openai_agents_agent.py" in " ".join(map(str, command)):
            # Its own exporter would send traces to OpenAI with this key.
            del environment["OPENAI_API_KEY"]
        return subprocess.run(
            [str(word) for word in command],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def agent(self, example: Example) -> list[str | Path]:
        """The command that runs an example."""
        return [sys.executable, self.folder / example.file, *example.options]

    def record(self, example: Example, url: str) -> str:
        """Run an example under `oteval run`; return its answer."""
        done = self.call(OTEVAL, "run", "--db", self.db, "--", *self.agent(example), url=url)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def trajectory(self) -> dict[str, Any]:
        """The only agent run in the database; tools that ran outside of it have no model."""
        done = self.call(OTEVAL, "trajectories", "--db", self.db, "--json", url="")
        assert done.returncode == 0, done.stderr
        (found,) = [
            run for run in map(json.loads, done.stdout.splitlines()) if run["usage"]["model_calls"]
        ]
        return found

    def verify(self, example: Example, *options: str) -> tuple[int, dict[str, Any], str]:
        """Replay the only session with an example, with no server at its address."""
        session = self.trajectory()["trajectory_id"]
        done = self.call(
            *(OTEVAL, "replay", "verify", session, "--db", self.db, "--json"),
            *(*options, "--", *self.agent(example)),
            url="http://127.0.0.1:49009/v1",  # a port that the system could have chosen
        )
        lines = done.stdout.splitlines()
        return done.returncode, json.loads(lines[-1]) if lines else {}, done.stderr

    def edit(self, file: str, before: str, after: str) -> None:
        """Replace a text that occurs once in a file."""
        path = self.folder / file
        source = path.read_text("utf-8")
        assert source.count(before) == 1, (file, before)
        path.write_text(source.replace(before, after), "utf-8")


@dataclass(frozen=True)
class Recorded:
    """An example that was recorded once, and is replayed by several tests.

    Attributes:
        desk: Where it ran.
        answer: The agent's answer.
        exchanges: The exchanges that the server saw.
        run: The agent run in the database.
    """

    desk: Desk
    answer: str
    exchanges: list[dict[str, Any]]
    run: dict[str, Any]

    def edited(self, folder: Path) -> Desk:
        """Return a fresh copy of the examples beside the recording."""
        return replace(new_desk(folder), db=self.desk.db)


def new_desk(folder: Path) -> Desk:
    """Return a desk with a copy of the examples."""
    ignored = shutil.ignore_patterns("node*", "__pycache__")
    shutil.copytree(EXAMPLES, folder / "examples", ignore=ignored)
    return Desk(folder / "examples", folder / "runs.duckdb")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Example], Recorded]:
    """Return a function that records an example under `oteval run`, once for all tests."""

    @functools.cache
    def record(example: Example) -> Recorded:
        desk = new_desk(tmp_path_factory.mktemp("desk"))
        with running() as server:
            answer = desk.record(example, server.url)
            return Recorded(desk, answer, list(server.exchanges), desk.trajectory())

    return record


def exchanged(exchanges: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the conversation that the server saw, ending in its last answer."""
    last = exchanges[-1]
    return [plain(message) for message in (*last["messages"], last["answer"])]


def plain(message: dict[str, Any]) -> dict[str, Any]:
    """Return role, text, and calls with parsed arguments; ids are the provider's business."""
    calls = [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message.get("tool_calls") or ()
    ]
    role = "system" if message["role"] == "developer" else message["role"]
    return {"role": role, "content": message.get("content") or "", "calls": calls}


def of_the_model(trajectory: dict[str, Any]) -> list[dict[str, Any]]:
    return [plain(message) for message in trajectory["messages"]]


Record = Callable[[Example], Recorded]


@pytest.mark.parametrize("example", AGENTS, ids=lambda one: one.name)
def test_a_trajectory_is_what_was_exchanged(example: Example, recorded: Record):
    """`oteval run` records the messages that the agent and the model exchanged."""
    found = recorded(example)

    assert found.answer.endswith("refunded, because the carrier lost it.")
    assert of_the_model(found.run) == exchanged(found.exchanges)


@pytest.mark.parametrize("example", AGENTS, ids=lambda one: one.name)
def test_a_replay_passes_without_the_server(example: Example, recorded: Record):
    """Each recorded model call is answered from its HTTP exchange."""
    found = recorded(example)

    status, result, errors = found.desk.verify(example)

    assert (status, result.get("divergences")) == (0, []), errors
    assert result["fidelity"] == "wire"
    calls = len(found.exchanges)
    assert result["model_calls"] == {"recorded": calls, "served": calls}


@pytest.mark.parametrize("example", AGENTS, ids=lambda one: one.name)
def test_the_two_lines_record_the_same(example: Example, tmp_path: Path):
    """`oteval.instrument()` in the program gives the trajectory that `oteval run` gives."""
    desk = new_desk(tmp_path)
    with running() as server:
        command = [*desk.agent(example), "--instrument"]
        done = desk.call(*command, url=server.url, TRACES=str(desk.db))

    assert done.returncode == 0, done.stderr
    assert of_the_model(desk.trajectory()) == exchanged(server.exchanges)


EDITS = {
    "prompt": ("Use the tools, and answer", "Use tools, and answer", ()),
    "tool_result": ("in transit, arrives on Friday", "in transit, arrives on Monday", ("run",)),
    "tool_order": (
        "    customer = find_customer(email)\n    orders = recent_orders(email)\n",
        "    orders = recent_orders(email)\n    customer = find_customer(email)\n",
        (),
    ),
}


@pytest.mark.parametrize("kind", EDITS)
@pytest.mark.parametrize("example", EDITED, ids=lambda one: one.name)
def test_one_edit_is_exactly_one_divergence(
    example: Example, kind: str, recorded: Record, tmp_path: Path
):
    """An edited prompt, a changed tool and swapped tools are each named, with the agent's line."""
    desk = recorded(example).edited(tmp_path)
    before, after, tools = EDITS[kind]
    desk.edit(example.file if kind == "prompt" else "shop.py", before, after)

    status, result, errors = desk.verify(example, *(("--tools", *tools) if tools else ()))

    assert status == 1, errors
    (divergence,) = result["divergences"]
    assert divergence["kind"] == kind
    assert Path(divergence["line"].partition(":")[0]).name in (example.file, "shop.py")
