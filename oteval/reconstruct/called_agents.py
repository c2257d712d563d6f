"""Agents that a tool calls, if the positions of their spans do not show it.

Some instrumentations lose the tool as the parent: the OpenAI Agents SDK's ``as_tool`` starts
another run. It belongs to the tool run that covers it in time, has the agent's question among its
arguments, and returned the agent's answer. Others (MLflow) end the span around the agent
without anything in it, so that the agent's spans are its siblings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from .operations import ToolRun
from .runs import TracedRun
from .tree import order

__all__ = ["link_called_agents", "without_empty_agents"]


def link_called_agents(runs: Sequence[TracedRun]) -> None:
    """Make the runs of agents that tools called sub-agents of the runs of the tools.

    Args:
        runs: The runs of one trace; they are changed.
    """
    called = [run for run in runs if run.parent_tool is None and run.agent and run.model_calls]
    if len(called) < 2:
        return
    tools_by_text: dict[str, list[tuple[TracedRun, ToolRun]]] = defaultdict(list)
    for run in runs:
        for tool in run.tool_runs:
            for text in filter(None, map(str.strip, _texts(tool.arguments))):
                tools_by_text[text].append((run, tool))
    for run in sorted(called, key=lambda run: order(run.root.span)):
        tools = tools_by_text.get(_question(run), [])
        caller = next((pair for pair in tools if _is_caller(*pair, run)), None)
        if caller is not None:
            # If equal calls run at once, each has an agent.
            run.parent, run.parent_tool = caller
            run.parent.has_children = True
            tools.remove(caller)


def without_empty_agents(runs: Sequence[TracedRun]) -> list[TracedRun]:
    """The runs, without runs that only repeat a sibling agent below the same tool.

    Args:
        runs: The runs of one trace; they are changed.
    """
    below: dict[int, list[TracedRun]] = defaultdict(list)
    for run in runs:
        if run.parent_tool is not None and run.model_calls:
            below[id(run.parent_tool)].append(run)
    remaining: list[TracedRun] = []
    for run in runs:
        inside = below.get(id(run.parent_tool), ()) if _is_empty(run) else ()
        same = next((other for other in inside if _repeats(run, other)), None)
        if same is None:
            remaining.append(run)
        else:
            same.take_spans(run)
            same.gaps.extend(run.gaps)
    return remaining


def _is_empty(run: TracedRun) -> bool:
    """Whether a run has an agent span, but nothing of the agent's work."""
    is_idle = not (run.model_calls or run.tool_runs or run.visits or run.has_children)
    return is_idle and run.agent is not None


def _repeats(run: TracedRun, other: TracedRun) -> bool:
    """Whether a run has the same answer as another run inside of it."""
    outer, inner = run.root.span, other.root.span
    if not (outer.start_ns <= inner.start_ns and inner.end_ns <= outer.end_ns):
        return False
    answers = [message.content or "" for message in run.agent.output] if run.agent else []
    return not answers or answers[-1].strip() == _answer(other)


def _is_within(run: TracedRun, outer: TracedRun) -> bool:
    """Whether a run was started inside another, at any depth."""
    around = run.parent
    while around is not None and around is not outer:
        around = around.parent
    return around is not None


def _is_caller(caller: TracedRun, tool: ToolRun, run: TracedRun) -> bool:
    """Whether a tool run covers the run of an agent, and returned its answer."""
    span, root = tool.span, run.root.span
    if not (span.start_ns <= root.start_ns and root.end_ns <= span.end_ns):
        return False
    if caller is run or caller.root.span.resource != root.resource or _is_within(caller, run):
        return False
    answer = _answer(run)
    return answer != "" and answer in (tool.result or "")


def _texts(arguments: Any) -> list[str]:
    values = arguments.values() if isinstance(arguments, Mapping) else [arguments]
    return [value for value in values if isinstance(value, str)]


def _question(run: TracedRun) -> str:
    """The last text from a user to an agent before its first answer."""
    contents = [m.content for m in run.model_calls[0].input if m.role == "user" and m.content]
    return contents[-1].strip() if contents else ""


def _answer(run: TracedRun) -> str:
    contents = [
        m.content for m in run.model_calls[-1].output if m.role == "assistant" and m.content
    ]
    return contents[-1].strip() if contents else ""
