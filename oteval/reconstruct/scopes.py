"""Which spans belong to which agent run.

A run is an agent span with the model calls and tool runs whose nearest agent it is. Agent spans
that only hold other agents are wrappers. Model calls below no agent form a run of their tree's
root; those inside a tool without an agent of its own form a run of that tool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .. import semconv
from ..model import Gap, LogRecord, Span
from .dialects import read_span
from .gaps import gap
from .readings import AgentRun, ModelCall, Reading, ToolRun
from .tree import Node, build, order

__all__ = ["Run", "runs_of"]

# Attribute prefixes by which spans of dialects that are not read are known.
FOREIGN = (
    "ai.operationId",
    "ai.telemetry.",
    "claude_code.",
    "gcp.vertex.agent.",
    "haystack.",
    "langfuse.",
    "langsmith.",
    "mlflow.",
    "gen_ai.prompt",
    "gen_ai.completion",
    "llm.",
)


@dataclass(eq=False)
class Run:
    """The spans of one agent run, read.

    Attributes:
        root: The span that the run hangs on.
        agent: The agent's reading, or None for a run without an agent span.
        parent: The run that started this one, or None.
        parent_tool: The tool run inside which it was started, or None.
        model_calls: The run's model calls, in order of start.
        tool_runs: The run's tool runs, in order of start, those inside others left out.
        gaps: What is missing.
        dialects: The dialects its spans were read with, in order of first use.
        spans: All spans that are the run's own.
    """

    root: Node
    agent: AgentRun | None = None
    parent: Run | None = None
    parent_tool: ToolRun | None = None
    model_calls: list[ModelCall] = field(default_factory=list)
    tool_runs: list[ToolRun] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    dialects: dict[str, None] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    children: list[Run] = field(default_factory=list)

    @property
    def conversation_id(self) -> str:
        """The conversation's id: of the root, else of the run's spans, else of those above."""
        above = [node.span for node in self.root.ancestors()]
        for span in (self.root.span, *self.spans, *above):
            found = semconv.first(span.attributes, semconv.CONVERSATION_ID)
            if found is not None:
                return str(found)
        return ""

    @property
    def is_wrapper(self) -> bool:
        """Whether the run only holds other runs."""
        return bool(self.children) and not (self.model_calls or self.tool_runs)


class _Place:
    """Where the walk through a tree is: the run, and the tool run it is inside of."""

    __slots__ = ("run", "tool")

    def __init__(self, run: Run, tool: ToolRun | None) -> None:
        self.run = run
        self.tool = tool


def runs_of(spans: Sequence[Span], logs: Mapping[str, Sequence[LogRecord]]) -> list[Run]:
    """Return the agent runs of one trace, parents before children, in order of start.

    Args:
        spans: The trace's spans.
        logs: The trace's log records by span id.
    """
    runs: list[Run] = []
    for root in build(spans):
        runs.extend(_runs_of_tree(root, logs))
    runs.sort(key=lambda run: order(run.root.span))
    return runs


def _runs_of_tree(root: Node, logs: Mapping[str, Sequence[LogRecord]]) -> list[Run]:
    top = Run(root)
    found = [top]
    places = {id(root): _Place(top, None)}
    for node in root.walk():
        above = places[id(node.parent)] if node is not root else places[id(root)]
        dialect, reading = read_span(node.span, logs.get(node.span.span_id, ()))
        place = _place(node, reading, above, found)
        places[id(node)] = place
        place.run.spans.append(node.span)
        place.run.gaps.extend(node.gaps)
        if dialect:
            place.run.dialects[dialect] = None
    return _without_wrappers(found)


def _place(node: Node, reading: Reading, above: _Place, found: list[Run]) -> _Place:
    """File a reading with its run, and return the place of what is below it."""
    if isinstance(reading, AgentRun):
        run = above.run
        if node is not run.root:
            run = _start(node, above, found)
        run.agent = reading
        return _Place(run, None)
    if isinstance(reading, ToolRun):
        if above.tool is None:
            above.run.tool_runs.append(reading)
            return _Place(above.run, reading)
        return above
    if isinstance(reading, ModelCall):
        if above.tool is not None:
            above = _inside_tool(node, above, found)
        above.run.model_calls.append(reading)
        above.run.gaps.extend(reading.gaps)
    return above


def _start(node: Node, above: _Place, found: list[Run]) -> Run:
    run = Run(node, parent=above.run, parent_tool=above.tool)
    above.run.children.append(run)
    found.append(run)
    return run


def _inside_tool(node: Node, above: _Place, found: list[Run]) -> _Place:
    """Return the run of a tool that calls models itself."""
    assert above.tool is not None
    for run in above.run.children:
        if run.root.span is above.tool.span:
            return _Place(run, above.tool)
    holder = next(n for n in node.ancestors() if n.span is above.tool.span)
    run = _start(holder, above, found)
    run.agent = AgentRun(holder.span, name=above.tool.name)
    return _Place(run, above.tool)


def _without_wrappers(found: list[Run]) -> list[Run]:
    """Return the runs with those that only hold others replaced by what they hold."""
    kept = []
    for run in found:
        while run.parent is not None and run.parent.is_wrapper:
            run.parent_tool = run.parent_tool or run.parent.parent_tool
            run.parent = run.parent.parent
        if not run.is_wrapper:
            kept.append(run)
    for run in kept:
        _note_missing_models(run)
    return kept


def _note_missing_models(run: Run) -> None:
    if run.model_calls:
        return
    span_id = run.root.span.span_id
    marks = sorted({mark for span in run.spans for mark in _foreign_marks(span)})
    if marks and run.agent is None:
        count = sum(1 for span in run.spans if _foreign_marks(span))
        what = ", ".join(f"{mark}*" if mark.endswith(".") else mark for mark in marks)
        run.gaps.append(gap("unknown_dialect", span_id, count=count, what=what))
    else:
        run.gaps.append(gap("no_model_spans", span_id))


def _foreign_marks(span: Span) -> set[str]:
    return {mark for mark in FOREIGN for key in span.attributes if key.startswith(mark)}
