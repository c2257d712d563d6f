"""Every kind of tool of many frameworks, recorded once and replayed in every way.

`make test-replay-agents` installs an environment for each framework, and names their folder in
``OTEVAL_FRAMEWORKS``. The outcomes are the table in docs/reference/replay.md; ``RENEW_OUTCOMES=1``
writes them anew.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..model_server import Body, Reply, Server, serving
from .framework_agents.model import script

ROOT = Path(__file__).resolve().parents[2]
AGENTS = Path(__file__).parent / "framework_agents"
OUTCOMES = AGENTS / "outcomes.json"
FRAMEWORKS = json.loads((AGENTS / "frameworks.json").read_text("utf-8"))
ENVIRONMENTS = os.environ.get("OTEVAL_FRAMEWORKS", "")
SECONDS = 180

pytestmark = [
    pytest.mark.replay_agents,
    pytest.mark.skipif(not ENVIRONMENTS, reason="run make test-replay-agents"),
]

REPLAYED_TESTS = """
import os

import oteval
from tests.replays.framework_agents.running import ask


def test_with():
    os.environ["EFFECTS"] = "with.txt"
    with oteval.replay({session!r}):
        ask({framework!r}, {kind!r})


def test_fixture(oteval_replay):
    os.environ["EFFECTS"] = "fixture.txt"
    with oteval_replay({session!r}):
        ask({framework!r}, {kind!r})
"""


def kinds() -> Iterator[Any]:
    """Yield each framework with its kinds of tools, from the source of its agents."""
    for framework in FRAMEWORKS:
        source = (AGENTS / f"{framework}_agent.py").read_text("utf-8")
        # The last statement of each module is the table of its kinds.
        table: Any = ast.parse(source).body[-1]
        for key in table.value.keys:
            yield pytest.param(framework, key.value, id=f"{framework}-{key.value}")


class Agent:
    """An agent of a framework in its environment, and what it did."""

    def __init__(self, folder: Path, framework: str, kind: str, server: Server) -> None:
        self.folder, self.framework, self.kind, self.server = folder, framework, kind, server
        self.python = Path(ENVIRONMENTS).resolve() / framework / "bin" / "python"
        self.effects = folder / "effects.txt"
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("OTEL")}
        self.environment = {
            **inherited,
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": "sk-none",
            "EFFECTS": str(self.effects),
            "OTEVAL_DB": "oteval.duckdb",
            "PYTHONPATH": str(ROOT),
        }

    @property
    def command(self) -> list[str]:
        """The command that asks the agent."""
        module = "tests.replays.framework_agents"
        return [str(self.python), "-m", module, self.framework, self.kind]

    def oteval(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of oteval in the agent's environment."""
        return self.run(str(self.python.parent / "oteval"), *arguments)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the agent's environment."""
        return subprocess.run(
            command,
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )

    def outcome(self, *command: str) -> str:
        """Run a command that replays; return ``answered``, ``refused`` or ``runs``."""
        self.effects.unlink(missing_ok=True)
        return outcome(self.effects, is_passed=self.run(*command).returncode == 0)


def outcome(effects: Path, *, is_passed: bool) -> str:
    """Return what a replay did with the tools."""
    if effects.exists():
        return "runs"
    return "answered" if is_passed else "refused"


def refused(_body: Body, _number: int) -> Reply:
    """Refuse a request."""
    return Reply({"error": {"message": "the model is stopped"}}, status=400)


@pytest.fixture
def server() -> Iterator[Server]:
    """The model of the agents."""
    with serving(script) as running:
        yield running


def recorded(agent: Agent) -> str:
    """Record the agent, which acts; return the session, and stop the model."""
    done = agent.oteval("run", "--quiet", "--", *agent.command)
    assert done.returncode == 0, done.stderr
    assert agent.effects.exists()
    rows = agent.oteval("trajectories", "--json").stdout.splitlines()
    agent.server.script = refused
    return str(json.loads(rows[-1])["trajectory_id"])


def replayed(agent: Agent, session: str) -> Iterator[tuple[str, str]]:
    """Replay a session in every way; yield the way, and what became of the tools."""
    oteval = str(agent.python.parent / "oteval")
    yield "verify", agent.outcome(oteval, "replay", "verify", session, "--", *agent.command)
    options = ("--answers", session, "--name", "again")
    yield (
        "whatif",
        agent.outcome(oteval, "replay", "whatif", session, *options, "--", *agent.command),
    )
    names = {"framework": agent.framework, "kind": agent.kind}
    (agent.folder / "test_it.py").write_text(REPLAYED_TESTS.format(session=session, **names))
    options = ("-q", "-rA", "-p", "no:cacheprovider", "test_it.py")
    report = agent.run(str(agent.python), "-m", "pytest", *options).stdout
    for mode in ("with", "fixture"):
        is_passed = f"PASSED test_it.py::test_{mode}" in report
        yield mode, outcome(agent.folder / f"{mode}.txt", is_passed=is_passed)


@pytest.mark.parametrize(("framework", "kind"), list(kinds()))
def test_no_tool_of_a_framework_acts_in_a_replay(
    framework: str, kind: str, server: Server, tmp_path: Path
) -> None:
    """The unchanged agent passes with the model stopped, or the replay says that it cannot."""
    agent = Agent(tmp_path, framework, kind, server)
    if not agent.python.exists():
        pytest.skip(f"{framework} is not installed in {ENVIRONMENTS}")
    session = recorded(agent)
    requests = len(server.requests)

    outcomes = dict(replayed(agent, session))

    if os.environ.get("RENEW_OUTCOMES"):
        renew(framework, kind, outcomes)
    documented = json.loads(OUTCOMES.read_text("utf-8"))
    assert outcomes == documented.get(framework, {}).get(kind), "RENEW_OUTCOMES=1, then make docs"
    assert "runs" not in outcomes.values()
    assert len(server.requests) == requests


def renew(framework: str, kind: str, outcomes: dict[str, str]) -> None:
    """Write the outcomes of one kind of tool."""
    table = json.loads(OUTCOMES.read_text("utf-8")) if OUTCOMES.exists() else {}
    table.setdefault(framework, {})[kind] = outcomes
    OUTCOMES.write_text(json.dumps(table, indent=1) + "\n", "utf-8")
