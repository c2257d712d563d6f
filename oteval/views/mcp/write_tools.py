"""The tools that change something: score_runs, add_reference and make_test.

The user chooses everything that could run code: the evaluators of oteval.yaml, and the agent that
tests call. A client, which may follow instructions that it read in a trace, only chooses runs.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from ...base.child_process import module_command, module_environment
from ...base.errors import ConfigError, InputError, NotFound
from ...base.files import caller_umask
from ...base.text import counted
from ...model import Score
from ...scoring import (
    Config,
    ScoreCounts,
    Tally,
    check_gates,
    require_evaluators,
    score as score_all,
)
from ...store import Store
from .arguments import McpTool, RunFilters, RunName, Texts, ToolArguments, as_list
from .results import DataBlock, given, score_row
from .workspace import AgentUnderTest, Workspace

__all__ = ["MAKE_TEST", "WRITE_TOOLS"]

# The characters of a row.
_SCORE, _TALLY, _LINE = 1000, 500, 1000
_MAX_FAILURES = 200
# Seconds for the agent that a new test replays once, and lines of its output that are shown.
_TEST_TIMEOUT, _MAX_LINES = 300, 40
_NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,80}$"


class _ScoreRuns(RunFilters):
    runs: Annotated[list[RunName], BeforeValidator(as_list)] = Field(
        [], max_length=200, description="Ids of runs or their beginnings."
    )
    evaluator: Texts = Field(
        [], max_length=50, description="Only these evaluators of oteval.yaml; all by default."
    )
    count: int = Field(50, ge=1, le=10_000, description="Only the latest so many runs.")
    again: bool = Field(False, description="Ask language models again, ignoring cached verdicts.")


def _score_runs(workspace: Workspace, arguments: _ScoreRuns) -> str:
    config = _with_evaluators(workspace.config(), arguments.evaluator, workspace.config_path)
    selection = replace(arguments.selection(), ids=tuple(arguments.runs), limit=arguments.count)
    run = ScoreCounts()
    with (
        workspace.store() as store,
        closing(
            score_all(
                *(store, config, workspace.folder, selection, run),
                again=arguments.again,
                yields_passes=False,
            )
        ) as scores,
    ):
        bad = [score for score in scores if score.is_complaint]
    if not run.trajectories:
        raise NotFound("no run matches, so nothing was scored; list_runs lists runs")
    block = DataBlock("scores")
    for tally in run.tallies.values():
        block.add(_tally_row(tally), _TALLY)
    for gate in check_gates(config.gates, run.tallies):
        row = {"gate": gate.evaluator, "passed": gate.passed, "reason": gate.comment}
        block.add(row, _TALLY)
    listed_failures = _failures(block, bad)
    lines = [f"{counted(run.trajectories, 'run')} scored; the scores are stored."]
    if listed_failures < len(bad):
        lines.append(
            f"{len(bad) - listed_failures} more did not pass; list_runs with outcome lists them."
        )
    return block.text(*lines)


def _with_evaluators(config: Config, names: Sequence[str], path: str) -> Config:
    """A configuration with some of its evaluators, and their gates."""
    config = require_evaluators(config, path)
    evaluator_names = [evaluator.name for evaluator in config.evaluators]
    unknown = [name for name in names if name not in evaluator_names]
    if unknown:
        raise ConfigError(
            f"evaluator: {unknown[0]!r} is not in {path}; it has {', '.join(evaluator_names)}"
        )
    if not names:
        return config
    chosen = [evaluator for evaluator in config.evaluators if evaluator.name in names]
    gates = [gate for gate in config.gates if gate.evaluator in names]
    return config.model_copy(update={"evaluators": chosen, "gates": gates})


def _tally_row(tally: Tally) -> dict[str, object]:
    return given(
        {
            "evaluator": tally.evaluator,
            "passed": tally.passed,
            "failed": tally.failed,
            "without_verdict": tally.unjudged or None,
            "errors": tally.errors or None,
            "not_evaluated": tally.not_evaluated or None,
            "mean_score": tally.mean,
        }
    )


def _failures(block: DataBlock, bad: Sequence[Score]) -> int:
    """Add scores that did not pass to a block, and return how many there was room for."""
    for score_index, score in enumerate(bad[:_MAX_FAILURES]):
        if not block.add({"run": score.trajectory_id, **score_row(score)}, _SCORE):
            return score_index
    return min(len(bad), _MAX_FAILURES)


class _AddReference(ToolArguments):
    run: RunName
    name: str = Field(
        min_length=1,
        max_length=100,
        pattern=r"^[\w.\- ]+$",
        description="The name of the reference; a reference of this name is replaced.",
    )


def _add_reference(workspace: Workspace, arguments: _AddReference) -> str:
    with workspace.store() as store:
        run = store.trajectories.get(arguments.run)
        replaced = _has_reference(store, arguments.name)
        store.references.add(arguments.name, run.own_messages, run.id, time.time_ns())
    calls = sum(len(message.tool_calls) for message in run.own_messages)
    messages = counted(len(run.own_messages), "message")
    return (
        f"Reference {arguments.name!r}: {messages} and {counted(calls, 'tool call')} "
        f"of run {run.id}"
        f"{', in place of an earlier reference' if replaced else ''}.\n"
        f"An evaluator in oteval.yaml uses it with  reference: {{name: {arguments.name}}}"
    )


def _has_reference(store: Store, name: str) -> bool:
    try:
        store.references.get(name)
    except NotFound:
        return False
    return True


class _MakeTest(ToolArguments):
    run: str = Field(
        min_length=4,
        max_length=128,
        pattern=r"^[A-Za-z0-9][\w:-]*$",
        description="Id of the run, its trace or its conversation.",
    )
    name: str | None = Field(
        None, pattern=_NAME, description="Name of the test; by default from the user's message."
    )


def _make_test(workspace: Workspace, arguments: _MakeTest) -> str:
    assert workspace.agent is not None
    command = _command(workspace, workspace.agent, arguments)
    try:
        # The command opens the database itself.
        with workspace.alone():
            done = subprocess.run(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TEST_TIMEOUT,
                env={**module_environment(), "COLUMNS": "120"},
                umask=caller_umask(),
                check=False,
            )
    except subprocess.TimeoutExpired:
        raise InputError(f"the agent did not end within {_TEST_TIMEOUT} s; no test") from None
    except OSError as error:
        raise InputError(f"oteval replay make-test cannot be started: {error}") from error
    output = b"\n".join((done.stdout, done.stderr)).decode("utf-8", "replace")
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    if done.returncode not in (0, 1):
        raise InputError(lines[-1].removeprefix("oteval: ") if lines else "make-test failed")
    block = DataBlock("output")
    for line in lines[:_MAX_LINES]:
        block.add(line, _LINE)
    verdict = {
        0: "The test is written, and the agent behaves as recorded: it passes.",
        1: "The test is written, but the agent now differs from the recording: it fails.",
    }
    return block.text(verdict[done.returncode])


def _command(workspace: Workspace, agent: AgentUnderTest, arguments: _MakeTest) -> list[str]:
    called = ["--target", agent.target] if agent.target else ["--command", agent.command]
    command = module_command("oteval", "replay", "make-test", arguments.run, *called)
    command += ["--dir", agent.folder, "--db", workspace.db]
    if Path(workspace.config_path).is_file():
        command += ["--config", workspace.config_path]
    return command + (["--name", arguments.name] if arguments.name else [])


WRITE_TOOLS = (
    McpTool(
        "score_runs",
        "Run the evaluators of oteval.yaml on stored runs, store the scores, and return counts, "
        "gates and the reasons of failures. Language models as judges cost money.",
        _ScoreRuns,
        _score_runs,
        writes=True,
    ),
    McpTool(
        "add_reference",
        "Make the messages of a run a reference that evaluators and diff_runs compare with.",
        _AddReference,
        _add_reference,
        writes=True,
    ),
)
MAKE_TEST = McpTool(
    "make_test",
    "Write a recorded run as a regression test for pytest, which replays the agent without a "
    "model, and replay it once.",
    _MakeTest,
    _make_test,
    writes=True,
)
