"""The tools that write: they are offered on request only, and clients cannot choose code."""

from __future__ import annotations

from pathlib import Path

import pytest
from mcp import Client

from oteval.store import Store
from oteval.views.mcp.server import create_server
from oteval.views.mcp.workspace import AgentUnderTest, Workspace

from ...commands import Run, oteval
from ...replays.test_make_test_traces import written
from .conftest import BAD, GOOD, Ask, asking

__all__ = ["oteval", "written"]

READING = {
    "list_runs",
    "show_run",
    "explain_run",
    "diff_runs",
    "list_variants",
    "list_alerts",
    "list_experiments",
    "compare_experiments",
}
WRITING = {"score_runs", "add_reference"}


async def offered(workspace: Workspace, *, writes: bool) -> dict[str, bool]:
    """Return the tools of a server, and whether each says that it only reads."""
    async with Client(create_server(workspace, writes=writes)) as client:
        tools = (await client.list_tools()).tools
    assert all(tool.annotations is not None for tool in tools)
    return {tool.name: bool(tool.annotations and tool.annotations.read_only_hint) for tool in tools}


async def test_tools_that_write_are_offered_on_request(workspace: Workspace) -> None:
    """Each tool says whether it only reads; tests need an agent that the user named."""
    with_agent = Workspace(workspace.db, workspace.config_path, AgentUnderTest("desk:ask"))

    assert await offered(workspace, writes=False) == dict.fromkeys(READING, True)
    assert await offered(with_agent, writes=False) == dict.fromkeys(READING, True)
    assert {
        name for name, reads in (await offered(workspace, writes=True)).items() if not reads
    } == WRITING
    assert set(await offered(with_agent, writes=True)) == READING | WRITING | {"make_test"}


@pytest.mark.parametrize("tool", ["score_runs", "add_reference", "make_test"])
async def test_a_tool_that_is_not_offered_cannot_be_called(ask: Ask, tool: str) -> None:
    """A client that calls it anyway gets an error, and nothing is written."""
    answer = await ask(tool, run=GOOD.id, name="x")

    assert answer.is_error
    assert f"no tool '{tool}'" in answer.text


async def test_runs_are_scored_and_the_scores_stored(workspace: Workspace, write: Ask) -> None:
    """The result has counts, gates and the reasons of failures; the scores are in the database."""
    scored = await write("score_runs", evaluator="refunds", runs=[GOOD.id, BAD.id[:8]])

    tally, gate, failure = scored.rows
    assert scored.text.startswith("2 runs scored")
    assert (tally["passed"], tally["failed"]) == (1, 1)
    assert (gate["gate"], gate["passed"]) == ("refunds", False)
    assert failure["run"] == BAD.id
    assert "argument 'amount' is 420.0 in the output, 42.0 in the reference" in failure["reason"]
    with Store(workspace.db) as store:
        [stored] = store.scores.of([BAD.id])[BAD.id]
    assert stored.comment == failure["reason"]


async def test_scoring_has_filters_and_a_limit(write: Ask) -> None:
    """Only the latest runs of a selection are scored, and an empty selection is an error."""
    latest = await write("score_runs", evaluator=["no-errors"], where=["tool=refund"], count=1)
    nothing = await write("score_runs", agent="nobody")
    every = await write("score_runs", runs=[""])
    unknown = await write("score_runs", evaluator="speling")

    assert latest.text.startswith("1 run scored")
    assert nothing.is_error
    assert "nothing was scored" in nothing.text
    assert every.is_error
    assert "at least 4 characters" in every.text
    assert unknown.is_error
    assert "it has refunds, no-errors" in unknown.text


async def test_a_run_becomes_a_reference(workspace: Workspace, write: Ask) -> None:
    """Runs are compared with the new reference, and a second one of the same name replaces it."""
    added = await write("add_reference", run=BAD.id, name="bad one")
    again = await write("add_reference", run=GOOD.id, name="bad one")
    compared = await write("diff_runs", run=GOOD.id, reference="bad one")

    assert "{name: bad one}" in added.text
    assert "in place of" not in added.text
    assert "in place of" in again.text
    assert "no difference in" in compared.outside
    with Store(workspace.db) as store:
        assert store.references.get("bad one").source == GOOD.id


async def test_a_reference_cannot_have_any_name(write: Ask) -> None:
    """A name with characters that YAML would read differently is refused."""
    answer = await write("add_reference", run=GOOD.id, name="x}\nevaluators: []")

    assert answer.is_error
    assert "name: String should match pattern" in answer.text


@pytest.mark.slow
async def test_a_session_becomes_a_test(written: str, oteval: Run) -> None:
    """The test is written to the user's folder and passes; a second one does not overwrite it."""
    del written
    workspace = Workspace("oteval.duckdb", "oteval.yaml", AgentUnderTest("support:ask", "", "more"))
    write = asking(workspace, writes=True)

    created = await write("make_test", run="conv-001", name="weather")
    again = await write("make_test", run="conv-001", name="weather")

    assert created.text.startswith("The test is written, and the agent behaves as recorded"), (
        created.text
    )
    assert Path("more/test_weather.py").is_file()
    assert any("test_weather.py" in line for line in created.rows)
    assert again.is_error
    assert "exists" in again.text


async def test_the_client_cannot_name_a_file_or_an_option(workspace: Workspace) -> None:
    """The run of a test must be an id, not a path or an option of the command."""
    agent = AgentUnderTest("desk:ask")
    write = asking(Workspace(workspace.db, workspace.config_path, agent), writes=True)

    for name in ("session.jsonl", "../session", "--force", "a/b/c/d"):
        answer = await write("make_test", run=name)
        assert answer.is_error, name
        assert "run: String should match pattern" in answer.text
    named = await write("make_test", run="0123456789", name="../escape")
    assert "name: String should match pattern" in named.text


async def test_an_unknown_session_is_an_error(workspace: Workspace) -> None:
    """The tool returns the command's error."""
    agent = AgentUnderTest("desk:ask")
    write = asking(Workspace(workspace.db, workspace.config_path, agent), writes=True)

    answer = await write("make_test", run="0123456789")

    assert answer.is_error
    assert "0123456789" in answer.text
    assert "\n" not in answer.text
