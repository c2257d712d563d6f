"""Make trajectories of runs: stitch turns across traces, and link sub-agents.

Runs of one conversation share a `Thread`. Conversations are known by service and id. A run
continues the run whose messages its first input begins with, or else the last run of the
conversation; without an id, only the messages decide. Runs that are parts of one turn (`turns`) are
one trajectory, whose messages name their agents if there are several.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..messages import SYSTEM_ROLES
from ..model import (
    FOLLOWS_ANSWER,
    Gap,
    Message,
    Span,
    SpanRef,
    Trajectory,
    Usage,
    identity,
    semconv,
    trajectory_id,
)
from .detached_runs import lone_keys
from .duplicates import answer_key, call_keys
from .entries import Entry, Sent
from .gaps import gap, with_one_missing_parent
from .message_thread import Thread, chain_of, with_dropped_calls
from .plain_runs import plain_builder
from .run_context import prompts_of, retrieved_in
from .runs import TracedRun, children_of, steps_of
from .trajectory_builder import (
    TrajectoryBuilder,
    agent_name,
    choose,
    fill,
    join,
    known_before,
    take_results,
)
from .turns import (
    goes_on_with,
    has_failed,
    is_handed_over,
    is_retry,
    previous_answer,
    request_of,
    takes_calls_of,
)

__all__ = ["TracedTrajectory", "trajectories_of"]


class TracedTrajectory(NamedTuple):
    """A trajectory with the runs that it was made of.

    Attributes:
        trajectory: The trajectory.
        runs: The run, and runs that only bring results back to it.
    """

    trajectory: Trajectory
    runs: Sequence[TracedRun]


def trajectories_of(runs: Sequence[TracedRun]) -> list[TracedTrajectory]:
    """The trajectories of some runs, in order of start.

    Args:
        runs: All runs of the traces that belong together. A conversation is only complete if all of
            its traces are among them.
    """
    stitcher = _ConversationStitcher()
    for run in sorted(runs, key=_order_of_run) if len(runs) > 1 else runs:
        stitcher.take(run)
    children = children_of(runs)
    return [
        TracedTrajectory(_finished(builder, stitcher.by_run, children), builder.runs)
        for builder in stitcher.builders
    ]


def _order_of_run(run: TracedRun) -> tuple[int, int, str, str]:
    span = run.root.span
    return (span.start_ns, span.seq, span.span_id, span.trace_id)


class _ConversationStitcher:
    """Takes runs in order of start and appends each to the run that it continues."""

    def __init__(self) -> None:
        self.builders: list[TrajectoryBuilder] = []
        self.by_run: dict[int, TrajectoryBuilder] = {}
        self.last: dict[tuple[str, str], TrajectoryBuilder] = {}
        self.by_chain: dict[tuple[str, str, str], TrajectoryBuilder] = {}
        self.beside: dict[tuple[str, int], TrajectoryBuilder] = {}
        self.by_answer: dict[tuple[str, str], TrajectoryBuilder] = {}
        self.failed: dict[str, TrajectoryBuilder] = {}

    def take(self, run: TracedRun) -> None:
        beside = self._beside(run)
        handing = [other for other in beside if is_handed_over(other, run)]
        previous = previous_answer(run) if run.parent is None else ""
        answered = self._answered_before(run, previous)
        request = request_of(run, previous)
        failed = self.failed.get(request)
        begins = self._begins(run) and not handing and (answered or failed) is None
        builder = plain_builder(run) if begins else None
        if builder is None:
            builder = self._filled(run, handing, answered, failed)
        else:
            self.builders.append(builder)
        if not (run.conversation_id or builder.follows):
            if previous:
                builder.follows = f"{FOLLOWS_ANSWER}{_int64(answer_key(previous))}"
            elif builder.root is run:
                builder.follows = request
        if request and has_failed(run):
            self.failed[request] = builder
            builder.chain = builder.chain or request
        self.by_run[id(run)] = builder
        self.beside[run.root.span.trace_id, id(run.parent)] = builder
        self._register(builder)

    def _beside(self, run: TracedRun) -> list[TrajectoryBuilder]:
        """The trajectories of the run before it in its trace, and of the run around it."""
        if run.parent_tool is not None:
            return []
        before = self.beside.get((run.root.span.trace_id, id(run.parent)))
        around = self.by_run.get(id(run.parent)) if run.parent is not None else None
        return [other for other in (before, around) if other is not None]

    def _begins(self, run: TracedRun) -> bool:
        """Whether only a run's messages may show that it continues another."""
        conversation = run.conversation_id
        is_first = (run.root.span.service, conversation) not in self.last
        return run.parent is not None or not conversation or is_first

    def _answered_before(self, run: TracedRun, previous: str) -> TrajectoryBuilder | None:
        """The trajectory with the answer that a run names as its previous answer.

        Some frameworks write the id of the last answer as the id of the conversation.
        """
        if run.parent is not None:
            return None
        service, conversation = run.root.span.service, run.conversation_id
        before = self.by_answer.get((service, previous))
        answered = self.by_answer.get((service, conversation))
        if answered is not None and answered.root.conversation_id != conversation:
            run.conversation_id = answered.root.conversation_id
        return before or answered

    def _filled(
        self,
        run: TracedRun,
        handing: Sequence[TrajectoryBuilder],
        answered_before: TrajectoryBuilder | None,
        failed: TrajectoryBuilder | None,
    ) -> TrajectoryBuilder:
        """The builder of a run's trajectory, which may be the builder of an earlier run.

        Args:
            run: The run.
            handing: The trajectories whose agent handed over to it.
            answered_before: The trajectory with the previous answer that the run names, or None.
            failed: The trajectory whose failed request the run begins with, or None.
        """
        # Made one by one: all at once would need as much memory as all inputs together.
        inputs = (
            Sent(call.input, call.asked_by, call.span.start_ns, by_ids=call.calls_by_id)
            for call in run.model_calls
        )
        begun: list[Sent] = []
        for sent in inputs:
            begun.append(sent)
            if sent:
                break
        first: Sequence[Entry] = begun[-1] if begun else []
        chain = chain_of(first) if run.parent is None else ""
        before = self._predecessor(run, chain) if run.parent is None else None
        before = answered_before or before
        candidates = [
            candidate for candidate in (failed, before) if candidate is not None
        ] + self._beside(run)
        builder = _earlier_part(candidates, handing, run, first)
        if builder is not None:
            join(builder, run, first)
        else:
            builder = _begin(run, before, first)
            builder.follows = "" if run.conversation_id else chain
            self.builders.append(builder)
        fill(builder, run, itertools.chain(begun, inputs))
        return builder

    def _predecessor(self, run: TracedRun, chain: str) -> TrajectoryBuilder | None:
        """The run that another may continue, by the beginning of its first input."""
        service, conversation = run.root.span.service, run.conversation_id
        predecessor = self.by_chain.get((service, conversation, chain)) if chain else None
        if predecessor is None and conversation:
            return self.last.get((service, conversation))
        return predecessor

    def _register(self, builder: TrajectoryBuilder) -> None:
        run = builder.root
        for call in builder.runs[-1].model_calls:
            if identity(call.response_id):
                self.by_answer[run.root.span.service, call.response_id] = builder
        if run.parent is not None:
            builder.chain = ""
            return
        service, conversation = run.root.span.service, run.conversation_id
        if conversation:
            self.last[(service, conversation)] = builder
        if builder.chain:
            self.by_chain[(service, conversation, builder.chain)] = builder


def _begin(
    run: TracedRun, before: TrajectoryBuilder | None, first: Sequence[Entry]
) -> TrajectoryBuilder:
    """A new trajectory, on the thread of the run that it continues."""
    gaps: list[Gap] = []
    if before is not None:
        thread = before.thread
        if before.end < len(thread.entries):
            thread = thread.fork(before.end)  # another run continued it already
        else:
            choose(before, first)
        first = thread.with_inner(with_dropped_calls(thread, first))
        overlap = thread.overlap(first)
        goes_on = overlap.kept == len(thread.spoken) or not run.model_calls[0].whole
        if goes_on and (overlap.known or not _is_before(run, thread)):
            if thread is before.thread:
                take_results(before, first[overlap.known :])
            return TrajectoryBuilder([run], thread, len(thread.entries), before)
        if overlap.kept < min(len(first), len(thread.spoken)):
            lost = len(thread.spoken) - overlap.kept
            gaps.append(gap("history_rewritten", first[0].message.span_id, count=lost))
    return TrajectoryBuilder([run], Thread(), known=known_before(run, first), gaps=gaps)


def _is_before(run: TracedRun, thread: Thread) -> bool:
    """Whether a run called its model before the thread's last message was there."""
    first_request_ns = min(
        (call.span.start_ns for call in run.model_calls), default=run.root.span.start_ns
    )
    return first_request_ns < thread.entries[-1].time_ns if thread.entries else False


def _earlier_part(
    candidates: Sequence[TrajectoryBuilder],
    handing: Sequence[TrajectoryBuilder],
    run: TracedRun,
    first: Sequence[Entry],
) -> TrajectoryBuilder | None:
    """The trajectory whose turn a run goes on with, or None."""
    for before in candidates:
        if before.end < len(before.thread.entries):
            continue  # another run continued it already
        if before in handing or goes_on_with(before, run, first) or is_retry(before, run, first):
            return before
        if not first and takes_calls_of(before, run):
            return before
    return None


def _finished(
    builder: TrajectoryBuilder,
    by_run: Mapping[int, TrajectoryBuilder],
    children: Mapping[int, Sequence[TracedRun]],
) -> Trajectory:
    """The trajectory of a builder.

    Args:
        builder: The builder; the builders of earlier runs are finished already.
        by_run: The builder of each run.
        children: The runs that were started in other runs, by the run that started them.
    """
    root, runs = builder.root, builder.runs
    span = root.root.span
    is_one = len(runs) == 1
    spans = root.spans if is_one else [member for run in runs for member in run.spans]
    calls = root.model_calls if is_one else [call for run in runs for call in run.model_calls]
    parent = by_run[id(root.parent)] if root.parent is not None else None
    retrieved = retrieved_in(runs)
    names = root.names if is_one else set().union(*(run.names for run in runs))
    agents = _agents(runs)
    messages = tuple([e.message for e in builder.thread.entries[builder.start : builder.end]])
    builder.trajectory = Trajectory(
        id=_id(root),
        root_span=SpanRef(span.trace_id, span.span_id),
        trace_ids=_trace_ids(runs),
        tail=_named(runs, messages) if agents else messages,
        new_from=builder.new_from,
        history=builder.history.trajectory if builder.history else None,
        conversation_id=root.conversation_id,
        turn=builder.turn,
        user=root.user,
        version=root.version,
        agent=agent_name(root),
        agents=agents,
        service=span.service,
        parent_id=_id(parent.root) if parent else "",
        parent_call_id=_parent_call_id(parent, root) if parent else "",
        steps=steps_of(runs, children),
        tools=_tools(runs),
        models=tuple(dict.fromkeys([call.model for call in calls if call.model])),
        dialects=tuple(dict.fromkeys([name for run in runs for name in run.dialects])),
        usage=Usage.total(call.usage for call in calls),
        finish_reasons=tuple(call.finish_reason for call in calls if call.finish_reason),
        prompts=prompts_of(spans, names),
        documents=retrieved.documents,
        start_ns=min([member.start_ns for member in spans], default=span.start_ns),
        end_ns=max([t for s in spans for t in (s.start_ns, s.end_ns)], default=span.end_ns),
        gaps=(*_gaps(builder, messages), *retrieved.gaps),
        rewrites=tuple(builder.rewrites),
        attributes=_short_attributes(span),
        chain=builder.chain,
        follows=builder.follows,
        call_keys=_call_keys(runs),
    )
    return builder.trajectory


def _agents(runs: Sequence[TracedRun]) -> tuple[str, ...]:
    """The agents of a turn in order, if there are several."""
    if len(runs) == 1:
        return ()
    names = tuple(dict.fromkeys(agent_name(run) for run in runs))
    return names if len(names) > 1 else ()


def _named(runs: Sequence[TracedRun], messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages of a turn of several agents; answers name their agent."""
    by_span = {span.span_id: agent_name(run) for run in runs for span in run.spans}
    return tuple(
        [
            replace(message, name=by_span.get(message.span_id, ""))
            if message.role == "assistant" and not message.name
            else message
            for message in messages
        ]
    )


def _trace_ids(runs: Sequence[TracedRun]) -> tuple[str, ...]:
    trace_ids = [run.root.span.trace_id for run in runs]
    again = sorted(trace_id for run in runs for trace_id in run.duplicate_traces)
    return tuple(dict.fromkeys([*trace_ids, *again]))


def _id(run: TracedRun) -> str:
    return trajectory_id(run.root.span.trace_id, run.root.span.span_id)


def _call_keys(runs: Sequence[TracedRun]) -> tuple[int, ...]:
    keys = [key for run in runs for call in run.model_calls for key in call_keys(call)]
    return tuple([_int64(key) for key in dict.fromkeys([*keys, *lone_keys(runs)])])


def _int64(key: str) -> int:
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def _tools(runs: Sequence[TracedRun]) -> tuple[Mapping[str, Any], ...]:
    offered = [call.tools for run in runs for call in run.model_calls]
    agent_tools = [run.agent.tools for run in runs if run.agent]
    return max([*offered, *agent_tools], key=len, default=())


def _short_attributes(span: Span) -> dict[str, Any]:
    """The short attributes of a span and its resource, for filters."""
    attributes = {**span.resource, **span.attributes}
    return {
        key: value
        for key, value in attributes.items()
        if (len(value) <= 256 if isinstance(value, str) else isinstance(value, (int, float)))
    }


def _parent_call_id(parent: TrajectoryBuilder, run: TracedRun) -> str:
    tool = run.parent_tool
    return "" if tool is None else parent.call_ids.get(tool.span.span_id, tool.call_id)


def _gaps(builder: TrajectoryBuilder, messages: Sequence[Message]) -> tuple[Gap, ...]:
    gaps = [gap for run in builder.runs for gap in run.gaps]
    gaps += [*builder.gaps, *builder.tool_gaps, *_left_out(builder, messages)]
    gaps += _compacted(builder.runs, messages)
    if not gaps:
        return ()
    if len(gaps) > 1 and sum(reported.code == "missing_parent" for reported in gaps) > 1:
        parents = {span.span_id: span.parent_id for run in builder.runs for span in run.spans}
        gaps = with_one_missing_parent(gaps, parents, builder.root.root.span.span_id)
    return tuple(dict.fromkeys(gaps))


def _compacted(runs: Sequence[TracedRun], messages: Sequence[Message]) -> Iterator[Gap]:
    """Yield the gaps of history that the framework compacted, as a span or a part reports."""
    for run in runs:
        for span in run.spans if semconv.COMPACTED in run.names else ():
            if span.attributes.get(semconv.COMPACTED) in (True, "true"):
                yield gap("history_compacted", span.span_id)
    for message in messages:
        if message.parts and any(part.get("type") == "compaction" for part in message.parts):
            yield gap("history_compacted", message.span_id)


def _left_out(builder: TrajectoryBuilder, messages: Sequence[Message]) -> list[Gap]:
    """The gaps of history that the spans lack, or have only the ids of its calls."""
    unknown = [m for m in messages if m.tool_calls for call in m.tool_calls if not call.name]
    without_call = _without_call(messages)
    if without_call and not any(
        reported.code == "content_not_captured" for run in builder.runs for reported in run.gaps
    ):
        unknown += without_call
    gaps = [gap("calls_left_out", m.span_id, count=len(unknown)) for m in unknown[:1]]
    first = next((message for message in messages if message.role not in SYSTEM_ROLES), None)
    if first is not None and first.role == "tool" and builder.history is None:
        gaps.append(gap("history_missing", first.span_id))
    return gaps


def _without_call(messages: Sequence[Message]) -> list[Message]:
    """The results that name no call and follow none."""
    return [
        message
        for before, message in itertools.pairwise(messages)
        if message.role == "tool" and not message.tool_call_id
        if before.role != "tool" and not before.tool_calls
    ]
