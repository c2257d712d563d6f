"""A run, the spans of one agent run as read, and its graph form.

If the framework shows the nodes of its graph, the nodes are the steps, after ``__start__`` as in
LangGraph's own extraction; otherwise the agents are. A step inside a node or an agent is named
``parent:child``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..model import Gap, Span
from .dialect import AgentRun, ModelCall, ToolRun
from .span_reader import is_transport
from .tree import Node, order

__all__ = ["TracedRun", "Visit", "children_of", "steps_of"]


class Visit(NamedTuple):
    """One run of a node of a graph.

    Attributes:
        span: Its span.
        node: The node's name; ``outer:inner`` inside another node.
    """

    span: Span
    node: str


@dataclass(eq=False, slots=True)
class TracedRun:
    """The spans of one agent run, read.

    Attributes:
        root: The node of its root span.
        agent: The agent's operation, or None for a run without an agent span.
        parent: The run that started this one, or None.
        parent_tool: The tool run inside which it was started, or None.
        conversation_id: The conversation's id: from the root, else from the run's spans, else from
            the run above.
        user: The user's id, found like the conversation's.
        version: The agent's version, found like the conversation's id.
        model_calls: The run's model calls, in order of start.
        tool_runs: The run's tool runs, in order of start, without tool runs inside others.
        gaps: The gaps found in it.
        dialects: The dialects its spans were read with, in order of first use.
        spans: All spans that are the run's own.
        names: The names of attributes that readers of whole runs look for, as far as `spans` or
            their resources have them. A quick check: most runs have few of them.
        unread: The spans that no dialect reads.
        has_children: Whether other runs were started in it.
        nested: Model calls inside others, with the outermost first.
        within: Tool runs inside the span of a model call, by that span's id.
        visits: The nodes of a graph that ran in it, in order of start.
        node: The node of the parent's graph that it was started in, or "".
        duplicate_traces: Traces that only repeat spans of the run, or contain a tool run that it
            requested.
    """

    root: Node
    agent: AgentRun | None = None
    parent: TracedRun | None = None
    parent_tool: ToolRun | None = None
    conversation_id: str = ""
    user: str = ""
    version: str = ""
    model_calls: list[ModelCall] = field(default_factory=list)
    tool_runs: list[ToolRun] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    dialects: dict[str, None] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    unread: list[Span] = field(default_factory=list)
    has_children: bool = False
    nested: list[tuple[ModelCall, ModelCall]] = field(default_factory=list)
    within: dict[str, list[ToolRun]] = field(default_factory=dict)
    visits: list[Visit] = field(default_factory=list)
    node: str = ""
    duplicate_traces: dict[str, None] = field(default_factory=dict)

    def take_spans(self, other: TracedRun) -> None:
        """Count the spans of another run as this one's own."""
        self.spans.extend(other.spans)
        self.names.update(other.names)

    @property
    def is_wrapper(self) -> bool:
        """Whether the run only contains other runs."""
        return self.has_children and not (self.model_calls or self.tool_runs or self.visits)

    @property
    def is_turn(self) -> bool:
        """Whether it shows an agent: its span, a model call, or a tool run that waits for its run.

        Tools alone do not make a turn, because no model was called. Only a tool run without
        anything around it may belong to a run in another trace (see `detached_tools`).
        """
        return bool(self.agent or self.model_calls or self.has_children) or self.is_lone_tool

    @property
    def is_lone_tool(self) -> bool:
        """Whether it is nothing but a single tool run on the agent's side."""
        nothing = not (self.agent or self.parent or self.model_calls or self.has_children)
        if not nothing or self.visits or len(self.tool_runs) != 1:
            return False
        span = self.tool_runs[0].span
        return span is self.root.span and not is_transport(span)


START = "__start__"


def children_of(runs: Sequence[TracedRun]) -> dict[int, list[TracedRun]]:
    """The runs that were started in other runs, by the `id` of the run that started them."""
    children: dict[int, list[TracedRun]] = {}
    for run in runs:
        if run.parent is not None:
            children.setdefault(id(run.parent), []).append(run)
    return children


def steps_of(
    runs: Sequence[TracedRun], children: Mapping[int, Sequence[TracedRun]]
) -> tuple[tuple[str, ...], ...]:
    """The steps of a turn: the nodes that ran, or the agents; nothing without any name.

    Args:
        runs: The runs of the turn, in order.
        children: The runs that were started in others, as `children_of` returns them.
    """
    steps: list[str] = []
    for run in runs:
        below = [child for child in children.get(id(run), ()) if child not in runs]
        own = _steps_of_run(run, below)
        steps += own[1:] if steps and own[:1] == (START,) else own
    return (tuple(steps),) if steps else ()


def _steps_of_run(run: TracedRun, below: Sequence[TracedRun]) -> tuple[str, ...]:
    """The steps of one run, including its sub-agents' steps."""
    own = [(order(visit.span), visit.node) for visit in run.visits]
    name = run.agent.name if run.agent else ""
    if not own and not name:
        return ()
    begin = order(run.root.span)
    steps = own or [(begin, name)]
    for child in below:
        steps += _inside(child, child.node or name)
    steps.sort(key=lambda step: step[0])
    nodes = [node for _, node in steps]
    return (START, *nodes) if own else tuple(nodes)


def _inside(child: TracedRun, parent: str) -> list[tuple[tuple[int, int, str], str]]:
    """The steps of a run as its parent shows them."""
    begin = order(child.root.span)
    if not child.visits:
        name = child.agent.name if child.agent else ""
        return [(begin, f"{parent}:{name}" if parent else name)] if name else []
    nodes = [(begin, START), *((order(v.span), v.node.rpartition(":")[2]) for v in child.visits)]
    return [(at, f"{parent}:{node}" if parent else node) for at, node in nodes]
