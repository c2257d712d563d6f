"""Explain each span of a trace: the dialect that read it, its messages, or why it has none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from ..model import Gap, LogRecord, Span, Trajectory, trajectory_id
from .conversation import trajectories_of
from .detached_runs import with_lone_tools
from .dialect import AgentRun, ModelCall, Operation, ToolRun
from .dialects.by_shape import BY_SHAPE
from .duplicates import without_duplicates
from .gaps import gap
from .runs import TracedRun
from .span_reader import infrastructure_of, read_span
from .tree import Node, build

__all__ = ["Explanation", "SpanAccount", "account_for", "accounts_of_some", "in_order"]

NO_RUN = "no run: neither an agent's span nor a model call is around it or below it"
_KINDS = {AgentRun: "agent", ModelCall: "model call", ToolRun: "tool"}


@dataclass(frozen=True)
class SpanAccount:
    """How one span was used.

    Attributes:
        span: The span.
        depth: How many spans of its trace it is inside of.
        dialect: The dialect that read it, or "".
        kind: ``agent``, ``model call``, ``tool``, or "" for a span that only surrounds these.
        holds: Its content, in words.
        trajectory_id: The trajectory that it belongs to, or "".
        messages: The indices in that trajectory of the messages that come from it.
        note: Why nothing comes from it, or "".
        gaps: Its gaps.
    """

    span: Span
    depth: int
    dialect: str
    kind: str
    holds: str
    trajectory_id: str
    messages: tuple[int, ...]
    note: str
    gaps: tuple[Gap, ...]

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "span_id": self.span.span_id,
            "parent_id": self.span.parent_id or None,
            "name": self.span.name,
            "scope": self.span.scope,
            "depth": self.depth,
            "dialect": self.dialect or None,
            "kind": self.kind or None,
            "holds": self.holds,
            "trajectory_id": self.trajectory_id or None,
            "messages": list(self.messages),
            "note": self.note,
            "gaps": [gap_of_span.as_dict() for gap_of_span in self.gaps],
        }


@dataclass(frozen=True)
class Explanation:
    """How the spans of a trace were used.

    Attributes:
        trace_id: The trace.
        accounts: Its spans, parents before children.
        log_records: How many log records it has.
        trajectories: The trajectories that its spans are in.
        hints: The gaps of a trace without a trajectory.
    """

    trace_id: str
    accounts: tuple[SpanAccount, ...]
    log_records: int
    trajectories: tuple[Trajectory, ...]
    hints: tuple[Gap, ...] = ()

    @property
    def gaps(self) -> dict[tuple[str, str], list[str]]:
        """The spans of each gap, by its code and detail."""
        spans_by_gap: dict[tuple[str, str], list[str]] = defaultdict(list)
        words = [*(gap_or_hint for t in self.trajectories for gap_or_hint in t.gaps), *self.hints]
        for gap_or_hint in dict.fromkeys(words):
            spans_by_gap[(gap_or_hint.code, gap_or_hint.detail)].append(gap_or_hint.span_id)
        return dict(spans_by_gap)

    def as_dict(self) -> dict[str, Any]:
        """The object that ``oteval explain --json`` prints."""
        return {
            "trace_id": self.trace_id,
            "spans": [account.as_dict() for account in self.accounts],
            "log_records": self.log_records,
            "trajectories": [t.id for t in self.trajectories],
            "gaps": [
                {"code": code, "detail": detail, "span_ids": spans}
                for (code, detail), spans in self.gaps.items()
            ],
        }


def account_for(
    trace_id: str,
    spans: Sequence[Span],
    logs: Mapping[str, Sequence[LogRecord]],
    runs: list[TracedRun],
) -> Explanation:
    """How each span of a trace was used.

    Args:
        trace_id: The trace.
        spans: Its spans.
        logs: Its log records by span id.
        runs: The runs of all traces that belong together with it.
    """
    of_runs = {span.span_id for run in runs for span in run.spans}
    cleaned_runs = with_lone_tools(without_duplicates(runs))
    reconstructed = [trajectory.trajectory for trajectory in trajectories_of(cleaned_runs)]
    trajectories = [trajectory for trajectory in reconstructed if trace_id in trajectory.trace_ids]
    book = _SpanIndex(trace_id, cleaned_runs, trajectories, of_runs)
    accounts = []
    by_shape = any(BY_SHAPE in run.dialects for run in runs if run.root.span.trace_id == trace_id)
    for node, depth in _nodes(spans):
        read_result = read_span(node.span, logs.get(node.span.span_id, ()), by_shape=by_shape)
        accounts.append(book.account(node, depth, *read_result))
    count = sum(len(records) for records in logs.values())
    hints = () if trajectories or not spans else (gap("no_model_spans", accounts[0].span.span_id),)
    return Explanation(trace_id, tuple(accounts), count, tuple(trajectories), hints)


def in_order(spans: Sequence[Span]) -> Iterator[tuple[Span, int]]:
    """Yield the spans of a trace, parents before children, each with its depth.

    Args:
        spans: The spans of one trace.
    """
    return ((node.span, depth) for node, depth in _nodes(spans))


def _nodes(spans: Sequence[Span]) -> Iterator[tuple[Node, int]]:
    """Yield the nodes of a trace without stand-ins, parents first, each with its depth."""
    for root in build(spans):
        depths = {id(root): 0}
        for node in root.walk():
            if node.parent is not None and node is not root:
                depths[id(node)] = depths[id(node.parent)] + 1
            if not node.is_stand_in:
                yield node, depths[id(node)]


def accounts_of_some(spans: Sequence[tuple[Span, int]], run: Trajectory) -> list[SpanAccount]:
    """How some spans of a trace were read, without the other spans of the trace.

    Only the messages and the gaps of one run are known, so the account of a span without content is
    less precise. They are read once, however many there are.

    Args:
        spans: The spans, each with the number of spans of its trace that it is inside of.
        run: The run.
    """
    shown_spans = {(span.trace_id, span.span_id) for span, _ in spans}
    messages: dict[tuple[str, str], list[int]] = {}
    for index, message in enumerate(run.own_messages, run.new_from):
        if (key := (message.trace_id, message.span_id)) in shown_spans:
            messages.setdefault(key, []).append(index)
    gaps: dict[str, dict[Gap, None]] = {span_id: {} for _, span_id in shown_spans}
    for gap_of_run in run.gaps:
        if gap_of_run.span_id in gaps:
            gaps[gap_of_run.span_id][gap_of_run] = None
    root = (run.root_span.trace_id, run.root_span.span_id)
    return [
        _account_of_one(
            span,
            depth,
            run.id,
            tuple(messages.get((span.trace_id, span.span_id), ())),
            is_root=(span.trace_id, span.span_id) == root,
            by_shape=BY_SHAPE in run.dialects,
            gaps=tuple(gaps[span.span_id]),
        )
        for span, depth in spans
    ]


def _account_of_one(
    span: Span,
    depth: int,
    run: str,
    messages: tuple[int, ...],
    *,
    is_root: bool,
    by_shape: bool,
    gaps: tuple[Gap, ...],
) -> SpanAccount:
    dialect, operation = read_span(span, (), by_shape=by_shape)
    return SpanAccount(
        span,
        depth,
        dialect,
        _KINDS.get(type(operation), ""),
        _holds(operation),
        run if messages or is_root else "",
        messages,
        "" if dialect else _other(span),
        gaps,
    )


class _SpanIndex:
    """The messages, gaps and trajectory of each span of a trace.

    Args:
        trace_id: The trace.
        runs: The runs that are left.
        found: Their trajectories.
        of_runs: The spans of all runs, before calls that were recorded twice were taken out.
    """

    def __init__(
        self,
        trace_id: str,
        runs: Sequence[TracedRun],
        trajectories: Sequence[Trajectory],
        of_runs: Set[str],
    ) -> None:
        self.trace_id = trace_id
        self.of_runs = of_runs
        self.used: set[str] = set()
        for run in runs:
            self.used.update(call.span.span_id for call in run.model_calls)
            self.used.update(tool.span.span_id for tool in run.tool_runs)
        self.gaps: dict[str, list[Gap]] = defaultdict(list)
        self.messages: dict[str, tuple[str, list[int]]] = {}
        self.roots: dict[str, str] = {}
        trajectory_ids = {trajectory.id for trajectory in trajectories}
        for run in runs:
            name = trajectory_id(run.root.span.trace_id, run.root.span.span_id)
            if name in trajectory_ids:
                self.roots.update((span.span_id, name) for span in run.spans)
        for trajectory in trajectories:
            self._take(trajectory)

    def _take(self, trajectory: Trajectory) -> None:
        for index, message in enumerate(trajectory.own_messages, trajectory.new_from):
            if message.trace_id == self.trace_id:
                span_messages = self.messages.setdefault(message.span_id, (trajectory.id, []))
                span_messages[1].append(index)
        for gap_of_run in trajectory.gaps:
            self.gaps[gap_of_run.span_id].append(gap_of_run)

    def account(self, node: Node, depth: int, dialect: str, operation: Operation) -> SpanAccount:
        """How one span was used."""
        span = node.span
        name, messages = self.messages.get(span.span_id, (self.roots.get(span.span_id, ""), []))
        return SpanAccount(
            span,
            depth,
            dialect,
            _KINDS.get(type(operation), ""),
            _holds(operation),
            name,
            tuple(messages),
            "" if messages else self._note(node, dialect, operation),
            tuple(dict.fromkeys(self.gaps.get(span.span_id, ()))),
        )

    def _note(self, node: Node, dialect: str, operation: Operation) -> str:
        span = node.span
        if not dialect:
            return _other(span)
        if span.span_id not in self.of_runs:
            return NO_RUN
        if isinstance(operation, AgentRun):
            return "" if span.span_id in self.roots else "it only surrounds other agents"
        if isinstance(operation, (ModelCall, ToolRun)):
            if self.gaps.get(span.span_id):
                return ""
            if span.span_id in self.used:
                return "it adds no message beyond those of other spans"
            return "another span records the same call; it is counted once"
        return "a node of the graph" if operation.node else "it only surrounds other spans"


def _other(span: Span) -> str:
    return f"ignored: {infrastructure_of(span) or 'no dialect reads it'}"


def _holds(operation: Operation) -> str:
    if isinstance(operation, ModelCall):
        return _holds_of_call(operation)
    if isinstance(operation, ToolRun):
        return _holds_of_tool(operation)
    if isinstance(operation, AgentRun):
        words = [
            *(["its input"] if operation.input else []),
            *(["its output"] if operation.output else []),
            *([f"a transcript of {len(operation.transcript)}"] if operation.transcript else []),
        ]
        return ", ".join([*([operation.name] if operation.name else []), *words])
    return operation.node


def _holds_of_call(call: ModelCall) -> str:
    if not call.input and not call.output:
        return "no messages"
    call_count = sum(len(message.tool_calls) for message in call.output)
    sent, received = len(call.input), len(call.output)
    words = [f"{sent} {'message' if sent == 1 else 'messages'} sent", f"{received} received"]
    calls = "call" if call_count == 1 else "calls"
    return ", ".join([*words, *([f"{call_count} {calls} asked for"] if call_count else [])])


def _holds_of_tool(run: ToolRun) -> str:
    words = [
        *(["arguments"] if run.arguments is not None else []),
        *(["result"] if run.result is not None else []),
        *(["call id"] if run.call_id else []),
        *(["failed"] if run.is_error else []),
    ]
    return f"{run.name}: {', '.join(words) or 'only its name'}"
