"""Find the agent runs of one trace.

A run is an agent span with the model calls and tool runs whose nearest agent it is. Model calls
below no agent form a run of their tree's root; model calls inside a tool without an agent form a
run of that tool. Nothing else makes a run (`TracedRun.is_turn`): requests, builds of workflows,
an MCP server's side of a call.

Two repairs come with it. A sampled or lost span leaves its children without a parent: if the time
of exactly one agent covers them, they are attached below that agent. An agent span that only
contains other agents is a wrapper, unless it returns an answer that none of them returned; its
name, input and output go to the one run that it contains.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..base.jsontext import dumps
from ..model import (
    IDENTITY_KEYS,
    Gap,
    LogRecord,
    Span,
    conversation_id,
    own_attribute,
    own_attributes,
    semconv,
    user_of,
    version_of,
)
from .detached_runs import link_called_agents, without_empty_agents
from .dialect import AgentRun, ModelCall, Operation, ToolRun, Wrapper
from .dialects.by_shape import BY_SHAPE
from .duplicates import fold_nested, join_streams
from .exchange_calls import EXCHANGE_DIALECT, ExchangeIndex
from .gaps import gap
from .run_context import PROMPT_KEYS, RETRIEVER_KEYS
from .runs import TracedRun, Visit
from .span_reader import foreign_marks, holds_messages, read_span
from .tree import Node, build, order

__all__ = ["adopted", "runs_of", "without_wrappers"]

_CONVERSATION_KEYS = frozenset(semconv.CONVERSATION_ID)
_NAMES = IDENTITY_KEYS | PROMPT_KEYS | RETRIEVER_KEYS | {semconv.COMPACTED}


@dataclass(slots=True, eq=False)
class _Tool:
    """A tool run around a position in the walk through a tree.

    Attributes:
        node: Its node.
        operation: The operation of its span.
        inner: The run of the tool's model calls, or None before the first one.
        runs: The tool runs inside it. They belong to `inner`, and are ignored without it.
    """

    node: Node
    operation: ToolRun
    inner: TracedRun | None = None
    runs: list[ToolRun] = field(default_factory=list)


class _Place(NamedTuple):
    """A position in the walk through a tree: the run, and the tool, call and node around it.

    Attributes:
        run: The run.
        tool: Its tool, or None.
        call: Its outermost model call, or None.
        node: The outermost node of its graph, or "".
    """

    run: TracedRun
    tool: _Tool | None = None
    call: ModelCall | None = None
    node: str = ""


def runs_of(spans: Sequence[Span], logs: Mapping[str, Sequence[LogRecord]]) -> list[TracedRun]:
    """The agent runs of one trace, in order of start.

    Args:
        spans: The trace's spans.
        logs: The trace's log records by span id, in order of time.
    """
    detected = _runs_of_trace(spans, logs)
    if not any(run.model_calls for run in detected) and any(map(_has_shape, detected)):
        by_shape = _runs_of_trace(spans, logs, by_shape=True)
        if any(BY_SHAPE in run.dialects and run.is_turn for run in by_shape):
            detected = by_shape
    runs = without_empty_agents(_only_turns(detected))
    link_called_agents(runs)
    for run in runs:
        join_streams(run)
        fold_nested(run)
        _note_missing_models(run)
    return runs


def _runs_of_trace(
    spans: Sequence[Span], logs: Mapping[str, Sequence[LogRecord]], *, by_shape: bool = False
) -> list[TracedRun]:
    """The runs of all trees of a trace.

    Args:
        spans: The trace's spans.
        logs: The trace's log records by span id.
        by_shape: Whether spans that no dialect knows are read by their shape. A trace with other
            model calls does not need it: the application's own spans would repeat the content.
    """
    roots = adopted(build(spans), logs)
    exchanges = ExchangeIndex(roots, logs)
    runs = [run for root in roots for run in _runs_of_tree(root, exchanges, by_shape=by_shape)]
    runs.sort(key=_order_of_run)
    _drop_repeated(runs, exchanges)
    return runs


def _order_of_run(run: TracedRun) -> tuple[int, int, str]:
    return order(run.root.span)


def _only_turns(runs: Sequence[TracedRun]) -> list[TracedRun]:
    """The runs that are turns of an agent, or may be; the gaps of the others go to one of them.

    If no run is a turn, runs with spans that look like model spans are kept.
    """
    turns = [run for run in runs if run.is_turn or _marks(run)]
    first = next((run for run in turns if run.is_turn), None)
    if first is None:
        return _in_one(turns)
    if len(turns) < len(runs):
        first.gaps.extend(lost for run in runs if run not in turns for lost in run.gaps)
    return turns


def _in_one(unread: Sequence[TracedRun]) -> list[TracedRun]:
    """The first of some runs whose spans no dialect reads, with the spans of all."""
    for run in unread[1:]:
        unread[0].gaps.extend(run.gaps)
        unread[0].take_spans(run)
        unread[0].unread.extend(run.unread)
    return list(unread[:1])


def _drop_repeated(runs: Sequence[TracedRun], exchanges: ExchangeIndex) -> None:
    """Remove calls of HTTP exchanges that spans elsewhere in the trace record as well."""
    if not exchanges.calls:
        return
    calls = [call for run in runs for call in run.model_calls]
    of_exchanges = [call for call in calls if id(call) in exchanges.calls]
    direct_calls = [call for call in calls if id(call) not in exchanges.calls]
    repeated = exchanges.repeated(direct_calls, of_exchanges)
    for run in runs:
        unique_calls = [call for call in run.model_calls if id(call) not in repeated]
        if len(unique_calls) < len(run.model_calls):
            lost = {call_gap for call in run.model_calls for call_gap in call.gaps}
            lost -= {call_gap for call in unique_calls for call_gap in call.gaps}
            run.model_calls = unique_calls
            run.gaps = [call_gap for call_gap in run.gaps if call_gap not in lost]


def _runs_of_tree(
    root: Node, exchanges: ExchangeIndex, *, by_shape: bool = False
) -> list[TracedRun]:
    top = TracedRun(root)
    runs = [top]
    places = {id(root.parent): _Place(top)}
    graph_nodes: dict[int, str] = {}
    nodes, names = list(root.walk()), _names()
    for node in nodes:
        span, above = node.span, places[id(node.parent)]
        logs = exchanges.logs_of(span.span_id, above.call)
        dialect, operation = read_span(span, logs, by_shape=by_shape)
        if isinstance(operation, ModelCall):
            if dialect == BY_SHAPE and _is_around(node):
                dialect, operation = "", Wrapper(span)
            elif dialect == EXCHANGE_DIALECT:
                exchanges.calls.add(id(operation))
        if isinstance(operation, Wrapper) and operation.node and node is not root:
            above = _within_graph(node, operation.node, above, runs, graph_nodes)
            places[id(node.parent)] = above
            graph_nodes[id(node)] = operation.node
        node_place = places[id(node)] = _place(node, operation, above, runs)
        run = node_place.run
        run.spans.append(span)
        run.names |= names & span.attributes.keys()
        run.gaps.extend(node.gaps)
        if dialect:
            run.dialects[dialect] = None
        if not dialect or (isinstance(operation, Wrapper) and holds_messages(span, dialect)):
            run.unread.append(span)
    # Parents and children refer to each other; without this cycle, nodes are freed at once.
    for node in nodes:
        node.children.clear()
    for run in runs:
        _identify(run)
        if len(run.model_calls) > 1:
            run.model_calls.sort(key=_order_of_call)
        if len(run.tool_runs) > 1:
            run.tool_runs.sort(key=_order_of_tool)
    return without_wrappers(runs) if len(runs) > 1 else runs


def _has_shape(run: TracedRun) -> bool:
    """Whether any span that no dialect reads can be read by its shape."""
    return any(read_span(span, (), by_shape=True)[0] for span in run.unread)


def _is_around(node: Node) -> bool:
    """Whether a node surrounds operations read by shape, as an agent's span does."""
    below = (inner for child in node.children for inner in child.walk())
    return any(
        not isinstance(read_span(inner.span, (), by_shape=True)[1], Wrapper) for inner in below
    )


def _within_graph(
    node: Node, name: str, above: _Place, runs: list[TracedRun], graph_nodes: Mapping[int, str]
) -> _Place:
    """The place above a graph's node, which is inside of a new run if a sub-graph begins.

    A graph that runs inside of a node has a span between the two nodes. Only the place of that span
    distinguishes it from the other steps of the node. Graphs that a node fans out to run at once:
    each is a sub-agent, and not a part of the run around them.

    Args:
        node: The node.
        name: The node's name in the graph.
        above: The place of its parent.
        runs: The runs so far.
        graph_nodes: The names of the graph nodes so far, by the ids of their objects.
    """
    graph = node.parent
    if graph is None or graph is above.run.root or not above.node:
        return above
    around = graph_nodes.get(id(graph))
    is_same_name = graph.parent is not None and graph_nodes.get(id(graph.parent)) == around
    if (around is not None and not is_same_name) or around == name:
        return above
    spans = above.run.spans
    run = _start(graph, above, runs)
    operation = graph.span.attributes.get("gen_ai.operation.name")
    run.agent = AgentRun(graph.span, name=graph.span.name.removeprefix(f"{operation} "))
    # It was appended recently, so it is near the end.
    at = next(i for i in reversed(range(len(spans))) if spans[i] is graph.span)
    run.spans.append(spans.pop(at))
    run.names |= _names() & graph.span.attributes.keys()
    return _Place(run)


def _order_of_tool(tool: ToolRun) -> tuple[int, int, str]:
    return order(tool.span)


def _order_of_call(call: ModelCall) -> tuple[int, int, int, int, str]:
    """The sort key of a model call.

    Clocks of milliseconds show one start for several calls; the later call ends later, or has more.
    """
    span = call.span
    return (span.start_ns, span.end_ns, len(call.input), span.seq, span.span_id)


def _identify(run: TracedRun) -> None:
    """Note the conversation, user and version of a run; runs above it have their values."""
    root, spans, names = run.root.span, run.spans, run.names
    if not spans or spans[0] is not root:  # a tool that calls models itself
        spans = [root, *spans]
        names |= _names() & root.attributes.keys()
    for resource in {id(span.resource): span.resource for span in spans}.values():
        names |= _names() & resource.keys()
    run.conversation_id = _conversation_of(run, spans)
    run.user = user_of(spans, names) or (run.parent.user if run.parent else "")
    run.version = version_of(spans, names) or (run.parent.version if run.parent else "")


def _names() -> frozenset[str]:
    """The names of attributes that are noted in `TracedRun.names`."""
    own_names = own_attributes()
    return _NAMES.union(own_names) if own_names else _NAMES


def _conversation_of(run: TracedRun, spans: Sequence[Span]) -> str:
    """The conversation's id; some emitters put the id of a span's answer there.

    An id that other spans have as well is a conversation's, even if it is the id of an answer: some
    agents name a conversation by its first answer.
    """
    is_named = own_attribute("conversation") in run.names
    is_named = is_named or not _CONVERSATION_KEYS.isdisjoint(run.names)
    for span in spans if is_named else ():
        conversation = conversation_id(span.attributes)
        if conversation and conversation != str(span.attributes.get("gen_ai.response.id")):
            return conversation
    return run.parent.conversation_id if run.parent else ""


def _place(node: Node, operation: Operation, above: _Place, runs: list[TracedRun]) -> _Place:
    """Add an operation to its run, and return the position of the nodes below it."""
    if isinstance(operation, ToolRun):
        return _place_tool(node, operation, above)
    if isinstance(operation, ModelCall):
        return _place_call(operation, above, runs)
    # A function in a node may be called an agent, and have the node's agent inside.
    is_in_node = isinstance(operation, AgentRun) and operation.node == above.run.node
    if operation.node and not is_in_node:
        above = _visit(operation, above)
    if isinstance(operation, AgentRun):
        run = above.run
        if node is not run.root:
            run = _start(node, above, runs)
        run.agent = operation
        run.gaps.extend(operation.gaps)
        return _Place(run)
    return above


def _place_tool(node: Node, operation: ToolRun, above: _Place) -> _Place:
    if above.tool is not None:
        above.tool.runs.append(operation)
        # Once the tool's own agent has called a model, the tools it runs may start agents as well.
        inner = above.tool.inner
        return above if inner is None else _Place(inner, _Tool(node, operation), node=above.node)
    above.run.tool_runs.append(operation)
    if above.call is not None:
        above.run.within.setdefault(above.call.span.span_id, []).append(operation)
    return _Place(above.run, _Tool(node, operation), node=above.node)


def _place_call(operation: ModelCall, above: _Place, runs: list[TracedRun]) -> _Place:
    run = above.run if above.tool is None else _inside_tool(above, above.tool, runs)
    run.model_calls.append(operation)
    run.gaps.extend(operation.gaps)
    if above.call is None:
        return _Place(run, above.tool, operation, above.node)
    run.nested.append((above.call, operation))
    return above


def _visit(operation: AgentRun | Wrapper, above: _Place) -> _Place:
    """Note that a node of a graph ran, and return the place inside of it."""
    inside = f"{above.node}:{operation.node}" if above.node else operation.node
    above.run.visits.append(Visit(operation.span, inside))
    return above if above.node else _Place(above.run, above.tool, above.call, operation.node)


def _start(node: Node, above: _Place, runs: list[TracedRun]) -> TracedRun:
    tool = above.tool.operation if above.tool else None
    run = TracedRun(node, parent=above.run, parent_tool=tool, node=above.node)
    above.run.has_children = True
    runs.append(run)
    return run


def _inside_tool(above: _Place, tool: _Tool, runs: list[TracedRun]) -> TracedRun:
    """The run of a tool that calls models itself."""
    if tool.inner is None:
        if tool.node is above.run.root:
            # The run has nothing but the tool: the server's side of a call.
            tool.inner = above.run
            above.run.tool_runs.remove(tool.operation)
        else:
            tool.inner = _start(tool.node, above, runs)
        name = tool.operation.name
        tool.inner.agent = tool.operation.agent or AgentRun(tool.node.span, name=name)
        tool.inner.tool_runs = tool.runs
    return tool.inner


def _note_missing_models(run: TracedRun) -> None:
    if run.model_calls or (run.has_children and (run.visits or not run.tool_runs)):
        return
    span_id = run.root.span.span_id
    marks = _marks(run)
    if marks and run.agent is None:
        count = sum(1 for span in run.unread if foreign_marks(span))
        listed_marks = ", ".join(f"{mark}*" if mark.endswith(".") else mark for mark in marks)
        run.gaps.append(gap("unknown_dialect", span_id, count=count, marks=listed_marks))
    else:
        run.gaps.append(gap("no_model_spans", span_id))


def _marks(run: TracedRun) -> list[str]:
    return sorted({mark for span in run.unread for mark in foreign_marks(span)})


def adopted(roots: Sequence[Node], logs: Mapping[str, Sequence[LogRecord]]) -> list[Node]:
    """A trace's roots, with orphans attached below the only agent whose time covers them.

    Args:
        roots: The roots, in order of start; their nodes are changed.
        logs: The trace's log records by span id.
    """
    orphans = [root for root in roots if root.is_stand_in or root.span.parent_id]
    if not orphans or len(roots) < 2:
        return list(roots)
    agents = [agent for root in roots for agent in _topmost_agents(root, logs)]
    adopted_ids: set[int] = set()
    for orphan in orphans:
        holders = [agent for agent in agents if _holds(agent, orphan)]
        if len(holders) == 1:
            _attach_orphan(orphan, holders[0])
            adopted_ids.add(id(orphan))
    return [root for root in roots if id(root) not in adopted_ids]


def _topmost_agents(root: Node, logs: Mapping[str, Sequence[LogRecord]]) -> Iterator[Node]:
    """Yield the agents of a tree that are below no other agent."""
    stack = [root]
    while stack:
        node = stack.pop()
        _, operation = read_span(node.span, logs.get(node.span.span_id, ()))
        if isinstance(operation, AgentRun) and not node.is_stand_in:
            yield node
        else:
            stack.extend(node.children)


def _holds(agent: Node, orphan: Node) -> bool:
    """Whether an agent of another tree ran all the time that an orphan did."""
    top = next((node for node in (agent, *agent.ancestors()) if node.parent is None), agent)
    agent_span, other = agent.span, orphan.span
    return (
        top is not orphan
        and agent_span.start_ns <= other.start_ns
        and other.end_ns <= agent_span.end_ns
    )


def _attach_orphan(orphan: Node, agent: Node) -> None:
    """Attach an orphan below an agent; for a stand-in of a missing span, attach its children."""
    children = orphan.children if orphan.is_stand_in else [orphan]
    if orphan.is_stand_in:
        children[0].gaps.extend(orphan.gaps)
    for child in children:
        child.parent = agent
    agent.children.extend(children)
    agent.children.sort(key=lambda node: order(node.span))


def without_wrappers(runs: Sequence[TracedRun]) -> list[TracedRun]:
    """The runs, with each wrapper replaced by the runs that it contains.

    Args:
        runs: The runs of one tree, parents before children; they are changed.
    """
    children: dict[int, list[TracedRun]] = defaultdict(list)
    for run in runs:
        if run.parent is not None:
            children[id(run.parent)].append(run)
    gone: set[int] = set()
    unwrapped: list[TracedRun] = []
    gaps: list[Gap] = []
    for run in runs:
        while run.parent is not None and id(run.parent) in gone:
            run.parent_tool = run.parent_tool or run.parent.parent_tool
            run.parent = run.parent.parent
        if not run.is_wrapper or _adds_answer(run, children):
            unwrapped.append(run)
            continue
        _hand_down(run, children[id(run)])
        gone.add(id(run))
        gaps.extend(run.gaps)
    unwrapped[0].gaps.extend(gaps)
    return unwrapped


def _hand_down(run: TracedRun, inner_runs: Sequence[TracedRun]) -> None:
    """Add to the one agent in a wrapper the details that only the wrapper has."""
    if run.agent is None or len(inner_runs) != 1 or inner_runs[0].agent is None:
        return
    outer, inner = run.agent, inner_runs[0].agent
    inner_runs[0].agent = replace(
        inner,
        name=inner.name or outer.name,
        input=inner.input or outer.input,
        output=inner.output or outer.output,
        tools=inner.tools or outer.tools,
    )


def _adds_answer(run: TracedRun, children: dict[int, list[TracedRun]]) -> bool:
    """Whether an agent returns an answer that is in none of the runs below it.

    If one of these lacks its answer, the agent's answer may be the missing one.
    """
    answer = _plain(_answer(run.agent))
    if not answer:
        return False
    stack = list(children[id(run)])
    while stack:
        below = stack.pop()
        stack.extend(children[id(below)])
        if not below.is_wrapper and not _has_answer(below):
            return False
        if any(text in answer or answer in text for text in map(_plain, _texts_of(below)) if text):
            return False
    return True


def _answer(agent: AgentRun | None) -> str:
    texts = [message.content for message in agent.output if message.content] if agent else []
    return texts[-1] if texts else ""


def _has_answer(run: TracedRun) -> bool:
    last = run.model_calls[-1] if run.model_calls else None
    return bool(_answer(run.agent)) or (last is not None and last.whole and bool(last.output))


def _texts_of(run: TracedRun) -> Iterator[str]:
    """Yield the texts of a run: answers, arguments of calls, results."""
    yield _answer(run.agent)
    for call in run.model_calls:
        for message in call.output:
            yield message.content or ""
            for requested in message.tool_calls:
                yield dumps(requested.arguments) if requested.arguments else ""
    for tool in run.tool_runs:
        yield tool.result or ""


def _plain(text: str) -> str:
    return "".join(character for character in text if not character.isspace() and character != "\\")
