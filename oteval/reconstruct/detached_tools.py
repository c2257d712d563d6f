"""Tool runs in separate traces, and the runs that asked for them.

A loop without a span around it makes every tool span a root. So does a framework that starts its
tools in a new context. Such a tool run belongs to the run whose model asked for it: by the
call's id, else by the tool's name and arguments; or to the only agent without model calls whose
time holds it. Where several runs may have asked, it stays by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..jsontext import canonical
from ..model import ToolCall
from .operations import ToolRun
from .runs import TracedRun
from .tree import order

__all__ = ["lone_keys", "with_lone_tools"]


@dataclass(eq=False, slots=True)
class _RequestedCall:
    """A call that a model asked for, and whether a tool run of another trace is taken for it."""

    call: ToolCall
    run: TracedRun
    start_ns: int
    is_taken: bool = False


def with_lone_tools(runs: list[TracedRun]) -> list[TracedRun]:
    """Return the runs with the tool runs of other traces moved to the runs that asked for them.

    Args:
        runs: The runs of several traces; they are changed.
    """
    lone = [run for run in runs if run.is_lone_tool]
    if not lone or len(lone) == len(runs):
        return runs
    asked = _asked(runs)
    agents = [run for run in runs if run.agent and not run.model_calls and run.parent is None]
    gone: set[int] = set()
    for run in sorted(lone, key=lambda run: order(run.root.span)):
        caller = _caller(run, asked) or _enclosing_agent(run, agents)
        if caller is not None:
            _move(run, caller)
            gone.add(id(run))
    return [run for run in runs if id(run) not in gone]


def lone_keys(runs: Sequence[TracedRun]) -> Iterator[str]:
    """Yield the keys that a tool run in a separate trace shares with the run that asked for it.

    Args:
        runs: The runs of one trajectory.
    """
    has_lone = False
    for run in runs:
        if run.is_lone_tool:
            has_lone = True
            yield from (_key(tool) for tool in run.tool_runs)
        elif run.agent is not None and not run.model_calls:
            yield f"holds {run.root.span.service}"
        is_loose = run.agent is None and not any(_is_in_trace(tool, run) for tool in run.tool_runs)
        asked = [
            tool_call for call in run.model_calls for m in call.output for tool_call in m.tool_calls
        ]
        for one in asked:
            if one.id:
                yield f"ran {one.id}"
            if is_loose:
                yield _signature(one.name, one.arguments)
    if has_lone:
        yield f"holds {runs[0].root.span.service}"


def _is_in_trace(tool: ToolRun, run: TracedRun) -> bool:
    return tool.span.trace_id == run.root.span.trace_id


def _key(tool: ToolRun) -> str:
    return f"ran {tool.call_id}" if tool.call_id else _signature(tool.name, tool.arguments)


def _signature(name: str, arguments: Any) -> str:
    """Return a tool's name and arguments; LangChain writes a sole argument without its name."""
    if isinstance(arguments, Mapping) and len(arguments) == 1:
        arguments = next(iter(arguments.values()))
    shown = arguments if isinstance(arguments, str) else canonical(arguments)
    return f"called {name}\0{shown}"


def _asked(runs: Sequence[TracedRun]) -> dict[str, list[_RequestedCall]]:
    """Return the calls that models asked for, by the keys that a tool run shares with them."""
    found: dict[str, list[_RequestedCall]] = defaultdict(list)
    for run in runs:
        ran = {tool.name for tool in run.tool_runs}
        for model_call in run.model_calls:
            start_ns = model_call.span.start_ns
            for call in (call for message in model_call.output for call in message.tool_calls):
                asked = _RequestedCall(call, run, start_ns)
                if call.id:
                    found[f"ran {call.id}"].append(asked)
                if call.name not in ran:
                    found[_signature(call.name, call.arguments)].append(asked)
    return found


def _caller(lone: TracedRun, asked: Mapping[str, Sequence[_RequestedCall]]) -> TracedRun | None:
    """Return the only run that can have asked for a lone tool run."""
    tool = lone.tool_runs[0]
    found = [
        one
        for one in asked.get(_key(tool), ())
        if not one.is_taken
        and one.start_ns <= tool.span.start_ns
        and one.call.name == tool.name
        and _is_of_one_process(one.run, lone)
    ]
    if len({id(one.run) for one in found}) != 1:
        return None
    found[0].is_taken = True
    return found[0].run


def _enclosing_agent(lone: TracedRun, agents: Sequence[TracedRun]) -> TracedRun | None:
    """Return the only agent without model calls that ran all the time that a tool did."""
    tool = lone.root.span
    found = [
        run
        for run in agents
        if run.root.span.start_ns <= tool.start_ns and tool.end_ns <= run.root.span.end_ns
        if _is_of_one_process(run, lone) and run.root.span.scope == tool.scope
    ]
    return found[0] if len(found) == 1 else None


def _is_of_one_process(one: TracedRun, other: TracedRun) -> bool:
    """Return whether one process may have written two runs, in one conversation."""
    ids = {run.conversation_id for run in (one, other) if run.conversation_id}
    return len(ids) < 2 and one.root.span.resource == other.root.span.resource


def _move(lone: TracedRun, caller: TracedRun) -> None:
    """Make a lone tool run one of its caller's."""
    caller.tool_runs = sorted([*caller.tool_runs, *lone.tool_runs], key=lambda t: order(t.span))
    caller.take_spans(lone)
    caller.dialects.update(lone.dialects)
    caller.gaps.extend(gap for gap in lone.gaps if gap.code != "no_model_spans")
    caller.duplicate_traces.update({span.trace_id: None for span in lone.spans})
