"""Tool runs in separate traces, and the runs that requested them.

A loop without a span around it makes every tool span a root. So does a framework that starts its
tools in a new context. Such a tool run belongs to the run whose model requested it: by the
call's id, else by the tool's name and arguments. Without such a run, it belongs to the only agent
without model calls that ran all the time that the tool did. If several runs may have requested it,
it stays a separate run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.jsontext import canonical
from ..model import ToolCall
from .operations import ToolRun
from .runs import TracedRun
from .tree import order

__all__ = ["lone_keys", "with_lone_tools"]


@dataclass(eq=False, slots=True)
class _RequestedCall:
    """A call that a model requested, and whether a tool run of another trace is matched with it."""

    call: ToolCall
    run: TracedRun
    start_ns: int
    is_taken: bool = False


def with_lone_tools(runs: list[TracedRun]) -> list[TracedRun]:
    """The runs, with the tool runs of other traces moved to the runs that requested them.

    Args:
        runs: The runs of several traces; they are changed.
    """
    lone = [run for run in runs if run.is_lone_tool]
    if not lone or len(lone) == len(runs):
        return runs
    requested_calls = _asked(runs)
    agents = [run for run in runs if run.agent and not run.model_calls and run.parent is None]
    gone: set[int] = set()
    for run in sorted(lone, key=lambda run: order(run.root.span)):
        caller = _caller(run, requested_calls) or _enclosing_agent(run, agents)
        if caller is not None:
            _move(run, caller)
            gone.add(id(run))
    return [run for run in runs if id(run) not in gone]


def lone_keys(runs: Sequence[TracedRun]) -> Iterator[str]:
    """Yield the keys that a tool run in a separate trace shares with the run that requested it.

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
        requested_calls = [
            tool_call for call in run.model_calls for m in call.output for tool_call in m.tool_calls
        ]
        for requested in requested_calls:
            if requested.id:
                yield f"ran {requested.id}"
            if is_loose:
                yield _signature(requested.name, requested.arguments)
    if has_lone:
        yield f"holds {runs[0].root.span.service}"


def _is_in_trace(tool: ToolRun, run: TracedRun) -> bool:
    return tool.span.trace_id == run.root.span.trace_id


def _key(tool: ToolRun) -> str:
    return f"ran {tool.call_id}" if tool.call_id else _signature(tool.name, tool.arguments)


def _signature(name: str, arguments: Any) -> str:
    """A tool's name and arguments; LangChain writes a sole argument without its name."""
    if isinstance(arguments, Mapping) and len(arguments) == 1:
        arguments = next(iter(arguments.values()))
    text = arguments if isinstance(arguments, str) else canonical(arguments)
    return f"called {name}\0{text}"


def _asked(runs: Sequence[TracedRun]) -> dict[str, list[_RequestedCall]]:
    """The calls that models requested, by the keys that a tool run shares with them."""
    calls_by_key: dict[str, list[_RequestedCall]] = defaultdict(list)
    for run in runs:
        ran = {tool.name for tool in run.tool_runs}
        for model_call in run.model_calls:
            start_ns = model_call.span.start_ns
            for call in (call for message in model_call.output for call in message.tool_calls):
                requested = _RequestedCall(call, run, start_ns)
                if call.id:
                    calls_by_key[f"ran {call.id}"].append(requested)
                if call.name not in ran:
                    calls_by_key[_signature(call.name, call.arguments)].append(requested)
    return calls_by_key


def _caller(
    lone: TracedRun, requested_calls: Mapping[str, Sequence[_RequestedCall]]
) -> TracedRun | None:
    """The only run that can have requested a lone tool run."""
    tool = lone.tool_runs[0]
    candidates = [
        requested
        for requested in requested_calls.get(_key(tool), ())
        if not requested.is_taken
        and requested.start_ns <= tool.span.start_ns
        and requested.call.name == tool.name
        and _is_of_one_process(requested.run, lone)
    ]
    if len({id(requested.run) for requested in candidates}) != 1:
        return None
    candidates[0].is_taken = True
    return candidates[0].run


def _enclosing_agent(lone: TracedRun, agents: Sequence[TracedRun]) -> TracedRun | None:
    """The only agent without model calls that ran all the time that a tool did."""
    tool = lone.root.span
    enclosing = [
        run
        for run in agents
        if run.root.span.start_ns <= tool.start_ns and tool.end_ns <= run.root.span.end_ns
        if _is_of_one_process(run, lone) and run.root.span.scope == tool.scope
    ]
    return enclosing[0] if len(enclosing) == 1 else None


def _is_of_one_process(caller: TracedRun, lone: TracedRun) -> bool:
    """Whether one process may have written both runs, in one conversation."""
    ids = {run.conversation_id for run in (caller, lone) if run.conversation_id}
    return len(ids) < 2 and caller.root.span.resource == lone.root.span.resource


def _move(lone: TracedRun, caller: TracedRun) -> None:
    """Move a lone tool run to its caller."""
    caller.tool_runs = sorted([*caller.tool_runs, *lone.tool_runs], key=lambda t: order(t.span))
    caller.take_spans(lone)
    caller.dialects.update(lone.dialects)
    caller.gaps.extend(gap for gap in lone.gaps if gap.code != "no_model_spans")
    caller.duplicate_traces.update({span.trace_id: None for span in lone.spans})
