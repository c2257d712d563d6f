"""Which spans belong to which agent run.

A run is an agent span with the model calls and tool runs whose nearest agent it is. Agent spans
that only hold other agents are wrappers. Model calls below no agent form a run of their tree's
root; those inside a tool without an agent of its own form a run of that tool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .. import semconv
from ..model import LogRecord, Span
from .dialects import read_span
from .duplicates import fold_nested, join_streams
from .gaps import gap
from .infrastructure import foreign_marks
from .orphans import adopted
from .outer_agents import without_wrappers
from .readings import AgentRun, ModelCall, Reading, ToolRun, Wrapper
from .runs import Run, Visit
from .tree import Node, build, order

__all__ = ["runs_of"]


@dataclass(slots=True, eq=False)
class _Tool:
    """A tool run that the walk through a tree is inside of.

    Attributes:
        node: Its node.
        reading: What its span says.
        inner: The run of the models it calls itself, once there is one.
        runs: The tool runs inside it: those of `inner`, and of no account without it.
    """

    node: Node
    reading: ToolRun
    inner: Run | None = None
    runs: list[ToolRun] = field(default_factory=list)


class _Place(NamedTuple):
    """Where the walk through a tree is: the run, and what of it that it is inside of.

    Attributes:
        run: The run.
        tool: Its tool, or None.
        call: Its outermost model call, or None.
        node: The outermost node of its graph, or "".
    """

    run: Run
    tool: _Tool | None = None
    call: ModelCall | None = None
    node: str = ""


def runs_of(spans: Sequence[Span], logs: Mapping[str, Sequence[LogRecord]]) -> list[Run]:
    """Return the agent runs of one trace, in order of start; there is at least one.

    Args:
        spans: The trace's spans.
        logs: The trace's log records by span id, in order of time.
    """
    roots = adopted(build(spans), logs)
    found = [run for root in roots for run in _runs_of_tree(root, logs)]
    found.sort(key=lambda run: order(run.root.span))
    runs = _without_empty(found)
    for run in runs:
        join_streams(run)
        fold_nested(run)
        _note_missing_models(run)
    return runs


def _without_empty(found: list[Run]) -> list[Run]:
    """Return the runs without the trees that tell nothing; of only such, one stands for all."""
    first = next((run for run in found if not run.is_empty), found[0])
    kept = []
    for run in found:
        if run is first or not run.is_empty or (not first.is_empty and _marks(run)):
            kept.append(run)
            continue
        first.gaps.extend(run.gaps)
        if first.is_empty:
            first.spans.extend(run.spans)
            first.unread.extend(run.unread)
    return kept


def _runs_of_tree(root: Node, logs: Mapping[str, Sequence[LogRecord]]) -> list[Run]:
    top = Run(root)
    found = [top]
    places: dict[int, _Place] = {}
    for node in root.walk():
        above = places[id(node.parent)] if node is not root else _Place(top)
        dialect, reading = read_span(node.span, logs.get(node.span.span_id, ()))
        place = places[id(node)] = _place(node, reading, above, found)
        run = place.run
        run.spans.append(node.span)
        run.gaps.extend(node.gaps)
        if dialect:
            run.dialects[dialect] = None
        else:
            run.unread.append(node.span)
    # Parents and children refer to each other; without the latter all is freed when it is done.
    for node in list(root.walk()):
        node.children.clear()
    for run in found:
        run.conversation_id = _conversation_of(run)
        run.model_calls.sort(key=lambda call: order(call.span))
        run.tool_runs.sort(key=lambda tool: order(tool.span))
    return without_wrappers(found)


def _conversation_of(run: Run) -> str:
    """Return the conversation's id; some emitters put the id of an answer there."""
    answers = {str(span.attributes.get("gen_ai.response.id")) for span in run.spans}
    for span in (run.root.span, *run.spans):
        found = semconv.first(span.attributes, semconv.CONVERSATION_ID)
        if found is not None and str(found) not in answers:
            return str(found)
    return run.parent.conversation_id if run.parent else ""


def _place(node: Node, reading: Reading, above: _Place, found: list[Run]) -> _Place:
    """File a reading with its run, and return the place of what is below it."""
    if isinstance(reading, ToolRun):
        return _place_tool(node, reading, above)
    if isinstance(reading, ModelCall):
        return _place_call(reading, above, found)
    if reading.node:
        above = _visit(reading, above)
    if isinstance(reading, AgentRun):
        run = above.run
        if node is not run.root:
            run = _start(node, above, found)
        run.agent = reading
        run.gaps.extend(reading.gaps)
        return _Place(run)
    return above


def _place_tool(node: Node, reading: ToolRun, above: _Place) -> _Place:
    if above.tool is not None:
        above.tool.runs.append(reading)
        # Once the tool's own agent has asked a model, what it runs may start agents as well.
        inner = above.tool.inner
        return above if inner is None else _Place(inner, _Tool(node, reading), node=above.node)
    above.run.tool_runs.append(reading)
    if above.call is not None:
        above.run.within.setdefault(above.call.span.span_id, []).append(reading)
    return _Place(above.run, _Tool(node, reading), node=above.node)


def _place_call(reading: ModelCall, above: _Place, found: list[Run]) -> _Place:
    run = above.run if above.tool is None else _inside_tool(above, above.tool, found)
    run.model_calls.append(reading)
    run.gaps.extend(reading.gaps)
    if above.call is None:
        return above._replace(run=run, call=reading)
    run.nested.append((above.call, reading))
    return above


def _visit(reading: AgentRun | Wrapper, above: _Place) -> _Place:
    """Note that a node of a graph ran, and return the place inside of it."""
    inside = f"{above.node}:{reading.node}" if above.node else reading.node
    above.run.visits.append(Visit(reading.span, inside))
    return above if above.node else above._replace(node=reading.node)


def _start(node: Node, above: _Place, found: list[Run]) -> Run:
    tool = above.tool.reading if above.tool else None
    run = Run(node, parent=above.run, parent_tool=tool, node=above.node)
    above.run.has_children = True
    found.append(run)
    return run


def _inside_tool(above: _Place, tool: _Tool, found: list[Run]) -> Run:
    """Return the run of a tool that calls models itself."""
    if tool.inner is None:
        if tool.node is above.run.root:
            # The tool is all there is: a server's side of a call.
            tool.inner = above.run
            above.run.tool_runs.remove(tool.reading)
        else:
            tool.inner = _start(tool.node, above, found)
        name = tool.reading.name
        tool.inner.agent = tool.reading.agent or AgentRun(tool.node.span, name=name)
        tool.inner.tool_runs = tool.runs
    return tool.inner


def _note_missing_models(run: Run) -> None:
    if run.model_calls or (run.has_children and (run.visits or not run.tool_runs)):
        return
    span_id = run.root.span.span_id
    marks = _marks(run)
    if marks and run.agent is None:
        count = sum(1 for span in run.unread if foreign_marks(span))
        what = ", ".join(f"{mark}*" if mark.endswith(".") else mark for mark in marks)
        run.gaps.append(gap("unknown_dialect", span_id, count=count, what=what))
    else:
        run.gaps.append(gap("no_model_spans", span_id))


def _marks(run: Run) -> list[str]:
    return sorted({mark for span in run.unread for mark in foreign_marks(span)})
