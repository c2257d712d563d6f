"""Fixtures of the tests of `oteval mcp`: a database, and clients of a server on it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from oteval.model import Message, Trajectory
from oteval.store import Store
from oteval.views.mcp.server import create_server
from oteval.views.mcp.workspace import Workspace

from ...make import asks, call, gap, keep, run, score

BLOCK = re.compile(
    r"^\[\[data (?P<name>\w+) (?P<nonce>[0-9a-f]{16})\]\]\n(?P<rows>.*)\n"
    r"\[\[end (?P=name) (?P=nonce)\]\]$",
    re.DOTALL | re.MULTILINE,
)
RULES = """
evaluators:
  - {name: refunds, type: trajectory_match, mode: strict, tool_args: exact, reference: {name: good}}
  - {name: no-errors, type: tool_errors}
gates:
  - {evaluator: refunds, min_pass_rate: 0.9}
monitors:
  - {evaluator: refunds, group_by: [agent]}
"""


@dataclass(frozen=True)
class Result:
    """The result of a tool.

    Attributes:
        text: Its whole text.
        is_error: Whether it is an error.
    """

    text: str
    is_error: bool

    @property
    def rows(self) -> list[Any]:
        """The rows of its block; none without a block."""
        found = BLOCK.search(self.text)
        return [json.loads(line) for line in found["rows"].split("\n")] if found else []

    @property
    def outside(self) -> str:
        """The text without the block."""
        return BLOCK.sub("", self.text)


Ask = Callable[..., Awaitable[Result]]


async def ask_with(client: Client, name: str, arguments: dict[str, Any]) -> Result:
    """Call a tool, and return its result."""
    found = await client.call_tool(name, arguments)
    assert found.structured_content is None
    [content] = found.content
    assert content.type == "text"
    return Result(content.text, found.is_error)


def refund(number: int, amount: float, **fields: Any) -> Trajectory:
    """Return a run that refunds an amount."""
    return run(
        number,
        Message("user", f"Please refund order {number}."),
        asks(call("get_order", {"order": 1}, "c1")),
        Message("tool", "{}", (), "c1", "get_order"),
        asks(call("refund", {"amount": amount}, "c2")),
        Message("tool", "refunded", (), "c2", "refund"),
        asks(text=f"I refunded {amount}."),
        **fields,
    )


GOOD, BAD, LATER, BLIND = refund(1, 42.0), refund(2, 420.0), refund(3, 42.0), run(4, gaps=(gap(),))


@pytest.fixture(scope="session")
def prepared_db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database of four runs: two pass, one fails, and one cannot be evaluated."""
    path = tmp_path_factory.mktemp("mcp") / "runs.duckdb"
    with Store(path) as store:
        keep(store, GOOD, BAD, LATER, BLIND)
        store.references.add("good", GOOD.own_messages, GOOD.id, 1)
        store.scores.write(
            [
                score(1, evaluator="refunds"),
                score(
                    2,
                    evaluator="refunds",
                    score=0.0,
                    passed=False,
                    label="fail",
                    comment="argument 'amount' is 420.0",
                ),
                score(3, evaluator="refunds"),
                score(4, evaluator="refunds", status="not_evaluated", comment="no content"),
            ]
        )
    return path


@pytest.fixture
def db(prepared_db: Path, tmp_path: Path) -> Path:
    """Return a copy of the database, beside a configuration."""
    (tmp_path / "oteval.yaml").write_text(RULES)
    return Path(shutil.copy(prepared_db, tmp_path))


@pytest.fixture
def workspace(db: Path) -> Workspace:
    """Return the workspace of the database."""
    return Workspace(str(db), str(db.parent / "oteval.yaml"))


@asynccontextmanager
async def connected(
    workspace: Workspace, *, writes: bool = False, mode: str = "auto"
) -> AsyncIterator[Ask]:
    """Connect a client to a server in this process, and yield a function that calls a tool."""
    async with Client(create_server(workspace, writes=writes), mode=mode) as client:

        async def ask(name: str, /, **arguments: Any) -> Result:
            return await ask_with(client, name, arguments)

        yield ask


def asking(workspace: Workspace, *, writes: bool = False) -> Ask:
    """Return a function that calls a tool, each time with a new client."""

    async def ask(name: str, /, **arguments: Any) -> Result:
        async with connected(workspace, writes=writes) as once:
            return await once(name, **arguments)

    return ask


@pytest.fixture
def ask(workspace: Workspace) -> Ask:
    """Return a function that calls a tool of a server that may only read."""
    return asking(workspace)


@pytest.fixture
def write(workspace: Workspace) -> Ask:
    """Return a function that calls a tool of a server that may write."""
    return asking(workspace, writes=True)
