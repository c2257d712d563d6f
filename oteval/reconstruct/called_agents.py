"""Agents that a tool calls, whose spans are siblings of the tool's and not below it.

Some instrumentations lose the tool as the parent: the OpenAI Agents SDK's ``as_tool`` starts a
separate run. Such a run belongs to the tool run that covers it in time, was given the question that
the agent was asked, and returned the agent's answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .operations import ToolRun
from .runs import TracedRun
from .tree import order

__all__ = ["link_called_agents"]


def link_called_agents(runs: Sequence[TracedRun]) -> None:
    """Make the runs of agents that tools called sub-agents of the runs of the tools.

    Args:
        runs: The runs of one trace; they are changed.
    """
    called = [run for run in runs if run.parent_tool is None and run.agent and run.model_calls]
    if len(called) < 2:
        return
    taken: set[int] = set()
    for run in sorted(called, key=lambda run: order(run.root.span)):
        callers = [
            (caller, tool)
            for caller in runs
            if caller is not run and caller.root.span.resource == run.root.span.resource
            for tool in caller.tool_runs
            if id(tool) not in taken and not _is_within(caller, run) and _called(tool, run)
        ]
        if callers:
            # Of equal calls at once, each agent is one's.
            run.parent, run.parent_tool = callers[0]
            run.parent.has_children = True
            taken.add(id(run.parent_tool))


def _is_within(run: TracedRun, outer: TracedRun) -> bool:
    """Return whether a run was started in another, or in one that was."""
    around = run.parent
    while around is not None and around is not outer:
        around = around.parent
    return around is not None


def _called(tool: ToolRun, run: TracedRun) -> bool:
    """Return whether a tool run covers an agent's run, with its question and its answer."""
    span, root = tool.span, run.root.span
    if not (span.start_ns <= root.start_ns and root.end_ns <= span.end_ns):
        return False
    question, answer = _question(run), _answer(run)
    if not question or not answer or answer not in (tool.result or ""):
        return False
    return any(question == text.strip() for text in _texts(tool.arguments))


def _texts(arguments: Any) -> list[str]:
    values = arguments.values() if isinstance(arguments, Mapping) else [arguments]
    return [value for value in values if isinstance(value, str)]


def _question(run: TracedRun) -> str:
    """Return the last text that a user said to an agent before its first answer."""
    said = [m.content for m in run.model_calls[0].input if m.role == "user" and m.content]
    return said[-1].strip() if said else ""


def _answer(run: TracedRun) -> str:
    said = [m.content for m in run.model_calls[-1].output if m.role == "assistant" and m.content]
    return said[-1].strip() if said else ""
