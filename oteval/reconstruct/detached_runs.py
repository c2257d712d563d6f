"""Runs that belong together although the places of their spans do not show it.

A loop without a span around it makes every tool span a root. So does a framework that starts its
tools in a new context. Such a tool run belongs to the run whose model requested it: by the
call's id, else by the tool's name and arguments. Without such a run, it belongs to the only agent
without model calls that ran all the time that the tool did. If several runs may have requested it,
it stays a separate run.

Some instrumentations lose the tool as the parent of the agent that it calls: the OpenAI Agents
SDK's ``as_tool`` starts another run. It belongs to the tool run that covers it in time, has the
agent's question among its arguments, and returned the agent's answer. Others (MLflow) end the span
around the agent without anything in it, so that the agent's spans are its siblings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.jsontext import canonical
from ..model import ToolCall
from .dialect import ToolRun
from .runs import TracedRun
from .tree import order

__all__ = ["link_called_agents", "lone_keys", "with_lone_tools", "without_empty_agents"]


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
