"""Runs into trajectories: calls merged, turns stitched across traces, sub-agents linked.

Runs of one conversation share a `Thread`. A conversation is known by its service and id; without
an id, a run follows the run whose messages its own first input begins with. Model calls below no
agent that only bring tool results back belong to the run that asked for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..model import Gap, Message, Rewrite, Span, SpanRef, Trajectory, Usage, trajectory_id
from .gaps import gap
from .merge import SYSTEM_ROLES, Entry, Overlap, Thread, chain_to_last_answer, key_of
from .readings import AgentRun, ModelCall, ToolRun
from .scopes import Run
from .tools import complete
from .tree import order

__all__ = ["trajectories_of"]


def _spoken(messages: Iterable[Message]) -> list[Message]:
    return [message for message in messages if message.role not in SYSTEM_ROLES]


@dataclass(eq=False)
class _Builder:
    """A trajectory in the making: a stretch of a thread."""

    runs: list[Run]
    thread: Thread
    start: int
    history: _Builder | None = None
    end: int = 0
    new_from: int = 0
    turn: int = 1
    conversation_id: str = ""
    follows: str = ""
    parent: _Builder | None = None
    gaps: list[Gap] = field(default_factory=list)
    tool_gaps: list[Gap] = field(default_factory=list)
    rewrites: list[Rewrite] = field(default_factory=list)
    system: list[str | None] = field(default_factory=list)
    chain: str = ""
    trajectory: Trajectory | None = None

    @property
    def root(self) -> Run:
        return self.runs[0]

    @property
    def own(self) -> list[Entry]:
        return self.thread.entries[self.start :]


def trajectories_of(runs: Sequence[Run]) -> list[Trajectory]:
    """Return the trajectories of some runs, in order of start.

    Args:
        runs: All runs of the traces that belong together; traces that share a conversation with
            others are only whole when those are among them.
    """
    stitcher = _Stitcher()
    for run in sorted(runs, key=lambda run: (*order(run.root.span), run.root.span.trace_id)):
        stitcher.take(run)
    return [_finished(builder) for builder in stitcher.builders]


class _Stitcher:
    """Takes runs in order of start and hangs each on what it continues."""

    def __init__(self) -> None:
        self.builders: list[_Builder] = []
        self.by_run: dict[int, _Builder] = {}
        self.by_conversation: dict[tuple[str, str], _Builder] = {}
        self.by_chain: dict[tuple[str, str], _Builder] = {}
        self.on_thread: dict[int, list[_Builder]] = {}

    def take(self, run: Run) -> None:
        first = _first_input(run)
        before, follows = self._predecessor(run, first)
        if before is not None and _continues(before, run, first):
            builder = before
            builder.runs.append(run)
        else:
            builder = self._begin(run, before, first, follows)
            self.builders.append(builder)
        self.by_run[id(run)] = builder
        _add_calls(builder, run)
        _complete(builder, run)
        builder.turn = _turn(builder)
        self._register(builder)

    def _predecessor(self, run: Run, first: Sequence[Message]) -> tuple[_Builder | None, str]:
        if run.parent is not None:
            return None, ""
        conversation = run.conversation_id
        if conversation:
            return self.by_conversation.get((run.root.span.service, conversation)), ""
        follows = chain_to_last_answer(first)
        if not follows:
            return None, ""
        return self.by_chain.get((run.root.span.service, follows)), follows

    def _begin(
        self, run: Run, before: _Builder | None, first: Sequence[Message], follows: str
    ) -> _Builder:
        thread, history, gaps = self._place(run, before, first)
        builder = _Builder([run], thread, len(thread.entries), history, gaps=gaps)
        builder.conversation_id = run.conversation_id
        if not builder.conversation_id and history is not None:
            builder.conversation_id = history.conversation_id
        builder.follows = follows
        builder.new_from = builder.start or _own_from(run, first)
        if run.parent is not None:
            builder.parent = self.by_run.get(id(run.parent))
        return builder

    def _place(
        self, run: Run, before: _Builder | None, first: Sequence[Message]
    ) -> tuple[Thread, _Builder | None, list[Gap]]:
        """Return the thread a run goes on with, the run it follows there, and what is odd."""
        if before is None:
            return Thread(), None, []
        thread, spoken = before.thread, _spoken(first)
        found = thread.overlap(spoken)
        whole = found.kept == len(thread.spoken)
        if whole or not spoken or _is_partial(run):
            return thread, before, []
        length = thread.entries_kept(found)
        for earlier in self.on_thread.get(id(thread), ()):
            if earlier.end == length:
                return thread.fork(length), earlier, []
        lost = len(thread.spoken) - found.kept
        span_id = first[0].span_id
        return Thread(), None, [gap("history_rewritten", span_id, count=lost)]

    def _register(self, builder: _Builder) -> None:
        builder.end = len(builder.thread.entries)
        if builder.root.parent is not None:
            return
        members = self.on_thread.setdefault(id(builder.thread), [])
        if builder not in members:
            members.append(builder)
        builder.chain = builder.thread.chain()
        service, conversation = builder.root.root.span.service, builder.root.conversation_id
        if conversation:
            self.by_conversation[(service, conversation)] = builder
        elif builder.chain:
            self.by_chain[(service, builder.chain)] = builder


def _first_input(run: Run) -> Sequence[Message]:
    return next((call.input for call in run.model_calls if call.input), ())


def _is_partial(run: Run) -> bool:
    return any(not call.whole for call in run.model_calls[:1])


def _continues(before: _Builder, run: Run, first: Sequence[Message]) -> bool:
    """Return whether a run below no agent only brings results back to the run before it."""
    if run.agent is not None or before.root.agent is not None or not run.model_calls:
        return False
    spoken = _spoken(first)
    found = before.thread.overlap(spoken)
    whole = found.known and found.kept == len(before.thread.spoken)
    new = spoken[found.known :]
    return bool(whole and new and all(message.role == "tool" for message in new))


def _own_from(run: Run, first: Sequence[Message]) -> int:
    """Return where a run's own messages begin in its input, when nothing before it is known."""
    agent = run.agent
    if agent is not None and agent.transcript_new_from is not None and agent.transcript:
        prompts = len(agent.transcript) - len(_spoken(agent.transcript))
        return agent.transcript_new_from + prompts if agent.transcript_new_from else 0
    answered = [i for i, m in enumerate(first) if m.role in ("assistant", "tool")]
    return answered[-1] + 1 if answered else 0


def _turn(builder: _Builder) -> int:
    """Return a run's number in its conversation; what only brings results back is no new turn."""
    if builder.history is None:
        before = builder.thread.entries[: builder.new_from]
        return 1 + sum(1 for entry in before if entry.message.role == "user")
    spoken = [entry for entry in builder.own if entry.message.role not in SYSTEM_ROLES]
    goes_on = bool(spoken) and spoken[0].key != "" and spoken[0].message.role != "user"
    return builder.history.turn + (0 if goes_on else 1)


def _add_calls(builder: _Builder, run: Run) -> None:
    for call in run.model_calls:
        _add_input(builder, run, call)
        _add_output(builder, call)


def _add_input(builder: _Builder, run: Run, call: ModelCall) -> None:
    _show_system(builder, run, call)
    spoken, time_ns = _spoken(call.input), call.span.start_ns
    if not spoken:
        return
    thread = builder.thread
    found = Overlap(len(thread.spoken), 0, len(thread.spoken))
    if not call.is_delta:
        found = thread.overlap(spoken)
    if found.kept < len(thread.spoken):
        if not call.whole:
            return
        _rewrite(builder, found, call)
    builder.thread.lay_over(spoken, found, time_ns, builder.start)


def _show_system(builder: _Builder, run: Run, call: ModelCall) -> None:
    """Show a system prompt once: at the beginning, and when another agent takes over."""
    prompts = [message for message in call.input if message.role in SYSTEM_ROLES]
    texts = [message.content for message in prompts]
    if not prompts or texts == builder.system:
        return
    if builder.system:
        if not any(found.code == "system_prompt_changed" for found in builder.gaps):
            builder.gaps.append(gap("system_prompt_changed", call.span.span_id))
        return
    builder.system = texts
    history = builder.history
    if history is not None and (history.system == texts or _agent(history.root) == _agent(run)):
        if history.system and history.system != texts:
            builder.gaps.append(gap("system_prompt_changed", call.span.span_id))
        builder.system = history.system or texts
        return
    own = builder.own
    shown = [Entry(message, key_of(message), call.span.start_ns) for message in prompts]
    builder.thread.put(builder.start, [*shown, *own])


def _agent(run: Run) -> str:
    return run.agent.name if run.agent else ""


def _rewrite(builder: _Builder, found: Overlap, call: ModelCall) -> None:
    """Keep apart what a call's input no longer holds."""
    thread, span_id = builder.thread, call.span.span_id
    length = thread.entries_kept(found)
    lost = len(thread.spoken) - found.kept
    builder.gaps.append(gap("history_rewritten", span_id, count=lost))
    if length >= builder.start:
        builder.rewrites.append(Rewrite(length, tuple(thread.cut(length)), span_id))
        return
    # The new history reaches before the run: it stands on its own from here.
    old = thread.cut(builder.start)
    builder.rewrites.append(Rewrite(0, tuple(old), span_id))
    known = found.known
    builder.thread, builder.start, builder.history = thread.fork(length), 0, None
    builder.new_from = max(_own_from(builder.root, call.input), known)


def _add_output(builder: _Builder, call: ModelCall) -> None:
    time_ns = call.span.end_ns or call.span.start_ns
    for message in call.output:
        builder.thread.add(message, time_ns, is_open=not call.whole)
    if not call.output and not call.whole and not call.span.is_error:
        span = call.span
        unknown = Message("assistant", span_id=span.span_id, trace_id=span.trace_id)
        builder.thread.add_unknown(unknown, time_ns)


def _complete(builder: _Builder, run: Run) -> None:
    """Work in what the agent's and the tools' spans hold."""
    agent = run.agent
    whole = bool(run.model_calls) and all(call.whole for call in run.model_calls)
    if agent is not None and agent.transcript and not whole:
        _use_transcript(builder, agent)
    elif agent is not None:
        _use_spoken(builder, agent)
    if not run.model_calls and not (agent and agent.transcript):
        _make_calls(builder, run.tool_runs)
    tool_runs = [tool for member in builder.runs for tool in member.tool_runs]
    entries, gaps = complete(builder.own, tool_runs)
    builder.thread.put(builder.start, entries)
    builder.tool_gaps = gaps


def _use_transcript(builder: _Builder, agent: AgentRun) -> None:
    """Take the agent's own account in place of calls whose content is missing."""
    thread = builder.thread
    thread.cut(builder.start)
    spoken = _spoken(agent.transcript)
    found = thread.overlap(spoken)
    if found.kept < len(thread.spoken):
        builder.thread, builder.start, builder.history = Thread(), 0, None
        found = Overlap(0, 0, 0)
    if not builder.thread.entries:
        for message in agent.transcript:
            builder.thread.add(message, agent.span.start_ns)
        return
    builder.thread.lay_over(spoken, found, agent.span.start_ns, builder.start)


def _use_spoken(builder: _Builder, agent: AgentRun) -> None:
    """Take what the agent was asked and answered, where no model call shows it."""
    own = builder.own
    span = agent.span
    if not any(entry.message.role == "user" for entry in own):
        asked = [Entry(m, key_of(m), span.start_ns) for m in agent.input]
        if any(entry.message.role in SYSTEM_ROLES for entry in own) or builder.history:
            asked = [entry for entry in asked if entry.message.role not in SYSTEM_ROLES]
        prompts = [entry for entry in own if entry.message.role in SYSTEM_ROLES]
        own = [*prompts, *asked, *(entry for entry in own if entry not in prompts)]
    answers = [message for message in agent.output if message.content]
    last = own[-1] if own else None
    if answers and (last is None or last.message.role != "assistant" or last.key == ""):
        if last is not None and last.key == "":
            own = own[:-1]
        own = [*own, *(Entry(m, key_of(m), span.end_ns) for m in answers[-1:])]
    builder.thread.put(builder.start, own)


def _make_calls(builder: _Builder, runs: Sequence[ToolRun]) -> None:
    """Show the tool runs of a run without model spans; those that overlap were one message."""
    groups: list[list[ToolRun]] = []
    end_ns = 0
    for run in runs:
        if groups and run.span.start_ns < end_ns:
            groups[-1].append(run)
        else:
            groups.append([run])
        end_ns = max(end_ns, run.span.end_ns)
    own = builder.own
    made = []
    for group in groups:
        span = group[0].span
        message = Message("assistant", span_id=span.span_id, trace_id=span.trace_id)
        made.append(Entry(message, "", span.start_ns, is_open=True))
    place = len(own)
    if own and own[-1].message.role == "assistant":
        place -= 1
    builder.thread.put(builder.start, [*own[:place], *made, *own[place:]])


def _finished(builder: _Builder) -> Trajectory:
    """Return the trajectory that a builder came to."""
    root, runs = builder.root, builder.runs
    span = root.root.span
    spans = [found for run in runs for found in run.spans]
    calls = [call for run in runs for call in run.model_calls]
    tail = tuple(e.message for e in builder.thread.entries[builder.start : builder.end])
    builder.trajectory = Trajectory(
        id=trajectory_id(span.trace_id, span.span_id),
        root_span=SpanRef(span.trace_id, span.span_id),
        trace_ids=tuple(dict.fromkeys(run.root.span.trace_id for run in runs)),
        tail=tail,
        new_from=builder.new_from,
        history=builder.history.trajectory if builder.history else None,
        conversation_id=builder.conversation_id,
        turn=builder.turn,
        agent=_agent(root),
        service=span.service,
        parent_id=_parent_id(builder),
        parent_call_id=_parent_call_id(builder),
        tools=_tools(calls),
        models=tuple(dict.fromkeys(call.model for call in calls if call.model)),
        dialects=tuple(dict.fromkeys(name for run in runs for name in run.dialects)),
        usage=sum((call.usage for call in calls), Usage()),
        start_ns=min((found.start_ns for found in spans), default=span.start_ns),
        end_ns=max((max(found.end_ns, found.start_ns) for found in spans), default=span.end_ns),
        gaps=_gaps(builder),
        rewrites=tuple(builder.rewrites),
        attributes=_short_attributes(span),
        chain=builder.chain,
        follows=builder.follows,
    )
    return builder.trajectory


def _tools(calls: Sequence[ModelCall]) -> tuple[Mapping[str, Any], ...]:
    return max((call.tools for call in calls), key=len, default=())


def _short_attributes(span: Span) -> dict[str, Any]:
    """Return what a run can be filtered by; content is too long to be among it."""
    found = {**span.resource, **span.attributes}
    return {
        key: value
        for key, value in found.items()
        if isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= 256)
    }


def _parent_id(builder: _Builder) -> str:
    if builder.parent is None:
        return ""
    span = builder.parent.root.root.span
    return trajectory_id(span.trace_id, span.span_id)


def _parent_call_id(builder: _Builder) -> str:
    tool = builder.root.parent_tool
    if builder.parent is None or tool is None:
        return ""
    for entry in builder.parent.own:
        for call in entry.message.tool_calls:
            if call.span_id == tool.span.span_id:
                return call.id
    return tool.call_id


def _gaps(builder: _Builder) -> tuple[Gap, ...]:
    found = [gap for run in builder.runs for gap in run.gaps]
    return tuple(dict.fromkeys([*found, *builder.gaps, *builder.tool_gaps]))
