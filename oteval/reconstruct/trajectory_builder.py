"""Build one run's trajectory: merge its model calls, then add its tool runs and its agent's span.

A `TrajectoryBuilder` covers the entries of a `Thread` from `start` on. If the runs before it are
among the traces, `start` is where their entries end. Otherwise the thread begins with the history
in the run's first input, and `new_from` is where the run's own messages begin.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import is_

from ..base.jsontext import canonical
from ..messages import SYSTEM_ROLES
from ..model import CONTENT_GAPS, Gap, Message, Rewrite, ToolCall, Trajectory, identity
from .dialect import AgentRun, ModelCall, ToolRun
from .entries import Entry, Sent, key_of
from .gaps import gap
from .message_thread import Overlap, Thread, answered, keys_before, with_dropped_calls
from .runs import TracedRun
from .tool_results import complete
from .tool_spans import result_message

__all__ = [
    "TrajectoryBuilder",
    "agent_name",
    "choose",
    "fill",
    "join",
    "known_before",
    "take_results",
]


@dataclass(eq=False)
class TrajectoryBuilder:
    """A trajectory that is being built.

    Attributes:
        runs: The run, and the runs that go on with its turn.
        thread: The conversation.
        start: The index of the thread's first entry after `history`.
        history: The run before it, or None.
        known: The number of spoken messages from before the run in its first input, without
            `history`.
        follows: The chain of the earlier runs, as the first input shows them, or "".
        part_at: The entry where the last of the runs begins.
        summary: The summary that an agent was handed: the keys of the first messages of its inputs,
            and the number of the thread's messages that they replace.
        end: The thread's entry after this run's last.
        new_from: The entry where the run's own messages begin.
        turn: The run's number in its conversation.
        gaps: The gaps of the conversation.
        tool_gaps: The gaps of the tools' calls.
        settled: The entry before which the tools' calls are final.
        settled_gaps: The part of `tool_gaps` that is about the calls before `settled`.
        waiting: The tool runs without a call before `settled`.
        rewrites: History that later calls replaced, and answers that no later call continued.
        choices: The rewrite with the other choices of the last answer, or None.
        system: The system prompts shown last.
        system_of: The name of the agent with these prompts.
        prompt_changed: Whether a different system prompt was sent later.
        chain: The chain up to the run's last answer.
        trajectory: The finished trajectory, or None.
    """

    runs: list[TracedRun]
    thread: Thread
    start: int = 0
    history: TrajectoryBuilder | None = None
    known: int = 0
    follows: str = ""
    part_at: int = 0
    summary: tuple[tuple[str, ...], int] = ((), 0)
    end: int = 0
    new_from: int = 0
    turn: int = 1
    gaps: list[Gap] = field(default_factory=list)
    tool_gaps: list[Gap] = field(default_factory=list)
    settled: int = 0
    settled_gaps: list[Gap] = field(default_factory=list)
    waiting: list[ToolRun] = field(default_factory=list)
    rewrites: list[Rewrite] = field(default_factory=list)
    choices: Rewrite | None = None
    system: list[str | None] = field(default_factory=list)
    system_of: str = ""
    prompt_changed: bool = False
    chain: str = ""
    trajectory: Trajectory | None = None

    @property
    def root(self) -> TracedRun:
        """The run that the trajectory is named for."""
        return self.runs[0]

    @cached_property
    def call_ids(self) -> dict[str, str]:
        """The ids of the calls by the spans of their tools; only read once the run is complete."""
        ids: dict[str, str] = {}
        for entry in self.thread.entries[self.start : self.end]:
            for call in entry.message.tool_calls:
                ids.setdefault(call.span_id, call.id)
        return ids

    @property
    def tail(self) -> list[Entry]:
        """The thread's entries after `history`, while no later run has added to the thread."""
        return self.thread.entries[self.start :]

    @property
    def own(self) -> list[Entry]:
        """The run's own entries, while no later run has added to the thread."""
        return self.thread.entries[self.new_from :]


def agent_name(run: TracedRun) -> str:
    """The name of a run's agent, or ""."""
    return run.agent.name if run.agent else ""


def known_before(run: TracedRun, sent: Sequence[Entry]) -> int:
    """The number of messages in a run's first input that were sent before the run."""
    if run.agent is not None and run.agent.transcript_new_from is not None:
        return run.agent.transcript_new_from
    prefix_length = answered(sent)
    ran = {tool.call_id for tool in run.tool_runs if tool.call_id}
    if ran and any(
        call.id in ran
        for call in (sent[prefix_length - 1].message.tool_calls if prefix_length else ())
    ):
        # A run that was interrupted: the tools of its last answer run here.
        return prefix_length - 1
    following = sent[prefix_length:] if prefix_length else ()
    is_continued = bool(following) and all(entry.message.role == "tool" for entry in following)
    if is_continued and sent[prefix_length - 1].message.name in ("", agent_name(run)):
        # No trace has the beginning of the turn: its calls count as the run's own.
        return _last_question(sent, prefix_length)
    while (
        prefix_length and prefix_length < len(sent) and sent[prefix_length].message.role == "tool"
    ):
        prefix_length += 1
    return prefix_length


def _last_question(sent: Sequence[Entry], end: int) -> int:
    """The index of the user's last message before `end`, or `end` without one."""
    indices = (index for index in reversed(range(end)) if sent[index].message.role == "user")
    return next(indices, end)


def join(builder: TrajectoryBuilder, run: TracedRun, first: Sequence[Entry]) -> None:
    """Add a run to the trajectory whose turn it continues; `fill` then adds its messages.

    Args:
        builder: The trajectory.
        run: The run.
        first: The first input of its model calls.
    """
    builder.runs.append(run)
    builder.part_at = len(builder.thread.entries)
    builder.summary = ((), 0)
    choose(builder, first)
    thread = builder.thread
    overlap = thread.overlap(first) if first else None
    if overlap is None or run.model_calls[0].is_delta:
        return
    if overlap.known and overlap.kept == len(thread.spoken):
        return
    size = answered(first)
    new_messages = [entry.message for entry in first[size:]]
    # If only the summary shows a call, its result belongs to the summary.
    ids = {"", *(call.id for entry in thread.entries for call in entry.message.tool_calls)}
    if size == 0 or any(m.role == "user" or m.tool_call_id not in ids for m in new_messages):
        size = len(first)
    builder.summary = (keys_before(first, size), len(thread.spoken))
    span_id = run.model_calls[0].span.span_id
    builder.gaps.append(gap("handoff_summarized", span_id, agent=agent_name(run)))


def take_results(builder: TrajectoryBuilder, first: Sequence[Entry]) -> None:
    """Add the results that the next turn brings to a trajectory's last calls.

    An output tool ends a turn; only the input of the next turn has its result.

    Args:
        builder: The trajectory, which no other run continued.
        first: The new messages of the next turn's first input.
    """
    last = builder.thread.entries[-1:]
    call_ids = {call.id for entry in last for call in entry.message.tool_calls if call.id}
    results = list(itertools.takewhile(lambda entry: entry.message.tool_call_id in call_ids, first))
    if not results or len(results) == len(first) or first[len(results)].message.role != "user":
        return
    builder.thread.extend(results)
    _complete(builder)
    builder.end = len(builder.thread.entries)


def fill(builder: TrajectoryBuilder, run: TracedRun, inputs: Iterable[Sent]) -> None:
    """Work a run into its trajectory.

    Args:
        builder: The trajectory.
        run: The run, which is the last run of the trajectory.
        inputs: The input of each of its model calls.
    """
    if len(builder.runs) == 1:
        builder.part_at = builder.start
    for call, sent in zip(run.model_calls, inputs, strict=True):
        prompts = _show_system(builder, run, call, sent)
        _add_input(builder, call, sent)
        builder.thread.extend(prompts)
        _add_inner(builder, run, call)
        _add_output(builder, call)
    _use_agent(builder, run)
    if not run.model_calls and not (run.agent and run.agent.transcript):
        _make_calls(builder, run.tool_runs)
    _place_own(builder)
    _complete(builder)
    _expect_no_results(builder, run.agent)
    _drop_guess(builder)
    builder.end = len(builder.thread.entries)
    builder.chain = builder.thread.chain()
    builder.turn = _turn(builder)


def _turn(builder: TrajectoryBuilder) -> int:
    """A run's number in its conversation; bringing results back does not begin a turn."""
    first = next((entry for entry in builder.own if entry.is_spoken), None)
    if builder.history is None:
        before = builder.thread.entries[: builder.new_from]
        questions = _question_count(entry.message for entry in before)
        is_question = first is not None and first.message.role == "user"
        return questions + 1 if is_question else max(1, questions)
    transcript = first is not None and first.message.role != "user"
    # If the run's first message is unknown, a result before it waits for an answer.
    goes_on = transcript and ((first is not None and first.key != "") or _waits(builder))
    return builder.history.turn + (0 if goes_on else 1)


def _question_count(messages: Iterable[Message]) -> int:
    """How many turns a user began in some messages; several in a row are one question."""
    count, last = 0, ""
    for message in messages:
        if message.role in SYSTEM_ROLES:
            continue
        is_first = message.role == "user" and last != "user"
        count += is_first and not _HANDED_OVER.fullmatch(message.content or "")
        last = message.role
    return count


# AutoGen's message to the next agent after a swarm's hand-over, under the user's role.
_HANDED_OVER = re.compile(r"Transferred to (.+), adopting the role of \1 immediately\.")


def _waits(builder: TrajectoryBuilder) -> bool:
    return builder.start > 0 and builder.thread.entries[builder.start - 1].message.role == "tool"


def _add_input(builder: TrajectoryBuilder, call: ModelCall, sent: Sequence[Entry]) -> None:
    if not sent:
        return
    choose(builder, sent)
    thread = builder.thread
    summary, size = builder.summary
    if summary and summary == keys_before(sent, len(summary)):
        sent = [*(thread.entries[at] for at in thread.spoken[:size]), *sent[len(summary) :]]
    sent = thread.with_inner(with_dropped_calls(thread, sent))
    if call.whole and len(sent) < len(thread.spoken):
        _drop_guess(builder, before_ns=call.span.start_ns)  # the same question again
    overlap = thread.overlap_of_new(sent) if call.is_delta else thread.overlap(sent)
    if overlap.kept < len(thread.spoken):
        if not call.whole:
            return
        _rewrite(builder, overlap, call, sent)
    elif not overlap.known and _was_asked_before(thread, call):
        lost = len(thread.spoken)
        builder.gaps.append(gap("history_rewritten", call.span.span_id, count=lost))
    builder.thread.lay_over(sent, overlap, builder.start)


def _was_asked_before(thread: Thread, call: ModelCall) -> bool:
    """Whether a call began before the thread's last answer had arrived.

    Then the call does not continue this answer: it belongs to another conversation, such as one of
    several parallel calls.
    """
    last = thread.entries[thread.spoken[-1]] if thread.spoken else None
    if last is None or last.message.role != "assistant" or call.is_delta:
        return False
    return call.span.start_ns < last.time_ns


def _drop_guess(builder: TrajectoryBuilder, before_ns: int | None = None) -> None:
    """Remove the last message of the thread if it is only inferred from its call.

    Args:
        builder: The trajectory.
        before_ns: The latest start of tools that the message may have requested; None if they are
            added already.
    """
    entries = builder.thread.entries
    last = entries[-1] if len(entries) > builder.start else None
    if last is None or not last.is_guess or last.key or last.message.tool_calls:
        return
    ran = [] if before_ns is None else builder.runs[-1].tool_runs
    if not any(last.time_ns <= tool.span.start_ns < (before_ns or 0) for tool in ran):
        builder.thread.cut(len(entries) - 1)


def choose(builder: TrajectoryBuilder, sent: Sequence[Entry]) -> None:
    """Show the choice, of several, that an input continued."""
    thread, rewrite = builder.thread, builder.choices
    if rewrite is None or rewrite.at != len(thread.entries) - 1:
        return
    at = len(thread.spoken) - 1
    last_entry = thread.entries[-1]
    chosen_key = sent[at].key if at < len(sent) else last_entry.key
    chosen = next((m for m in rewrite.messages if key_of(m) == chosen_key), None)
    if chosen_key == last_entry.key or chosen is None:
        return
    thread.put(rewrite.at, [Entry(chosen, chosen_key, last_entry.time_ns)])
    unchosen = tuple(m for m in rewrite.messages if m is not chosen)
    changed = replace(rewrite, messages=(last_entry.message, *unchosen))
    choice_index = next(
        i for i in reversed(range(len(builder.rewrites))) if builder.rewrites[i] is rewrite
    )
    builder.rewrites[choice_index] = builder.choices = changed


def _show_system(
    builder: TrajectoryBuilder, run: TracedRun, call: ModelCall, sent: Sent
) -> Sequence[Entry]:
    """Show a system prompt once: at the beginning, and when another agent takes over.

    Returns:
        The prompts to show after the input, of an agent that continues the turn.
    """
    prompts = sent.prompts
    texts = [message.content for message in prompts]
    if not prompts or texts == builder.system:
        return ()
    if builder.system:
        if agent_name(run) != builder.system_of:
            builder.system, builder.system_of = texts, agent_name(run)
            return sent.shown_prompts()
        _note_changed_prompt(builder, call)
        return ()
    if _is_aside(builder, sent):
        _note_changed_prompt(builder, call)
        return ()
    history = builder.history
    same_agent = history is not None and agent_name(history.runs[-1]) == agent_name(run)
    if history is not None and (history.system == texts or same_agent):
        if history.system and history.system != texts:
            _note_changed_prompt(builder, call)
        builder.system, builder.system_of = history.system or texts, agent_name(run)
        return ()
    builder.system, builder.system_of = texts, agent_name(run)
    builder.thread.put(builder.start, [*sent.shown_prompts(), *builder.tail])
    return ()


def _is_aside(builder: TrajectoryBuilder, sent: Sent) -> bool:
    """Whether an input with a prompt shares nothing with a run that began without a prompt."""
    spoken = [entry for entry in builder.own if entry.is_spoken]
    is_begun = any(entry.message.role == "assistant" for entry in spoken)
    return is_begun and len(sent) > 0 and not builder.thread.overlap(sent).known


def _note_changed_prompt(builder: TrajectoryBuilder, call: ModelCall) -> None:
    if not builder.prompt_changed:
        builder.prompt_changed = True
        builder.gaps.append(gap("system_prompt_changed", call.span.span_id))


def _rewrite(
    builder: TrajectoryBuilder, overlap: Overlap, call: ModelCall, sent: Sequence[Entry]
) -> None:
    """Move the messages that a call's input no longer contains into a rewrite."""
    thread, span_id = builder.thread, call.span.span_id
    length = thread.place_of(overlap.kept)
    lost = len(thread.spoken) - overlap.kept
    builder.gaps.append(gap("history_rewritten", span_id, count=lost))
    if length >= builder.start:
        builder.rewrites.append(Rewrite(length, tuple(thread.cut(length)), span_id))
        return
    # The new history replaces messages from before the run, so the run no longer shares them.
    own = {entry.key for entry in builder.tail if entry.is_spoken}
    old = thread.cut(builder.start)
    builder.rewrites.append(Rewrite(0, tuple(old), span_id))
    builder.known = next((i for i, e in enumerate(sent) if e.key in own), answered(sent))
    builder.thread, builder.start, builder.history = thread.fork(length), 0, None


def _add_inner(builder: TrajectoryBuilder, run: TracedRun, call: ModelCall) -> None:
    """Add the calls of tools that ran inside of a model call, whose span has only the last answer.

    A model client that calls tools by itself writes one span around it all.
    """
    ran = run.within.get(call.span.span_id)
    if not ran or not call.output or not call.whole:
        return
    shown_calls = _shown_calls(call)
    answers = (*call.output, *call.choices)
    requested = {requested.name for message in answers for requested in message.tool_calls}
    ran = [
        tool
        for tool in ran
        if tool.span.start_ns < call.span.end_ns
        and tool.name not in requested
        and _identity(tool) not in shown_calls
    ]
    for group in _at_once(ran):
        builder.thread.extend(_exchange(group))
        builder.thread.has_inner = True


def _shown_calls(call: ModelCall) -> set[str]:
    return {
        identity
        for message in (*call.input, *call.output)
        for requested in message.tool_calls
        for identity in (requested.id, f"{requested.name}\0{canonical(requested.arguments)}")
    }


def _identity(tool: ToolRun) -> str:
    return tool.call_id or f"{tool.name}\0{canonical(tool.arguments)}"


def _exchange(group: Sequence[ToolRun]) -> list[Entry]:
    """A message that requests some tool runs, and their results."""
    span = group[0].span
    calls = tuple(
        ToolCall(tool.name, tool.arguments, tool.call_id, tool.span.span_id) for tool in group
    )
    request = Message("assistant", tool_calls=calls, span_id=span.span_id, trace_id=span.trace_id)
    results = [(result_message(tool), tool.span.end_ns) for tool in group]
    return [
        Entry(message, key_of(message), time_ns, is_inner=True)
        for message, time_ns in ((request, span.start_ns), *results)
    ]


def _add_output(builder: TrajectoryBuilder, call: ModelCall) -> None:
    span = call.span
    is_open = not call.whole
    # Tools may start while an answer is streamed, and the span ends when the stream does.
    time_ns = span.start_ns if is_open else span.end_ns or span.start_ns
    for message in call.output:
        is_inner = _is_providers(message)
        builder.thread.has_inner |= is_inner
        key = key_of(message, by_ids=call.calls_by_id)
        builder.thread.extend([Entry(message, key, time_ns, is_open, is_inner=is_inner)])
    if call.choices:
        count = 1 + len(call.choices)
        builder.gaps.append(gap("several_choices", span.span_id, count=count))
        at = len(builder.thread.entries) - 1
        builder.choices = Rewrite(at, call.choices, span.span_id)
        builder.rewrites.append(builder.choices)
    if not call.output and is_open and not span.is_error:
        unknown = Message("assistant", span_id=span.span_id, trace_id=span.trace_id)
        is_guess = call.is_unanswered and bool(call.input)
        builder.thread.extend([Entry(unknown, "", time_ns, is_open=True, is_guess=is_guess)])


def _is_providers(message: Message) -> bool:
    """Whether a message of an answer is only a step of the provider's own tools.

    Many clients leave these out of the history.
    """
    if message.role == "tool":
        return True
    return bool(message.tool_calls) and not message.content and not message.client_calls


def _use_agent(builder: TrajectoryBuilder, run: TracedRun) -> None:
    """Add the content of the agent's span."""
    agent, calls = run.agent, run.model_calls
    if agent is None:
        return
    if agent.transcript and not (calls and all(call.whole and call.input for call in calls)):
        _use_transcript(builder, agent)
    else:
        _use_input_and_output(builder, agent)
        _use_results(builder, agent)


def _use_transcript(builder: TrajectoryBuilder, agent: AgentRun) -> None:
    """Use the agent's own transcript in place of calls whose content is missing."""
    thread, time_ns = builder.thread, agent.span.start_ns
    thread.cut(builder.part_at)
    transcript = Sent(agent.transcript, agent.span, time_ns)
    size = len(thread.spoken)
    overlap = Overlap(size, 0, size) if agent.transcript_is_turn else thread.overlap(transcript)
    if overlap.kept < size:
        thread = builder.thread = Thread()
        builder.start, builder.history = 0, None
        overlap = Overlap(0, 0, 0)
    if builder.history is None:
        builder.known = agent.transcript_new_from or 0
        prompts = (m for m in agent.transcript if m.role in SYSTEM_ROLES)
        thread.extend(Entry(m, key_of(m), time_ns) for m in prompts)
    thread.lay_over(transcript, overlap, builder.start)


def _use_input_and_output(builder: TrajectoryBuilder, agent: AgentRun) -> None:
    """Add the agent's question and answer if no model call shows them."""
    tail, span = builder.tail, agent.span
    if not any(entry.message.role == "user" for entry in tail):
        sent = [Entry(m, key_of(m), span.start_ns) for m in agent.input]
        prompts = [entry for entry in tail if not entry.is_spoken]
        if prompts or builder.history:
            sent = [entry for entry in sent if entry.is_spoken]
        if builder.history:
            # The input of a workflow's next agent contains the messages and calls of the agent
            # before.
            before = builder.thread.fork(builder.start)
            sent = sent[before.overlap(sent).known :]
        tail = [*prompts, *sent, *(entry for entry in tail if entry.is_spoken)]
    answers = [message for message in agent.output if message.content]
    last = tail[-1] if tail else None
    if answers and (last is None or last.message.role != "assistant" or last.key == ""):
        if last is not None and last.key == "":
            tail = tail[:-1]
        tail = [*tail, *(Entry(m, key_of(m), span.end_ns) for m in answers[-1:])]
    _put_changed(builder.thread, builder.start, tail)


def _use_results(builder: TrajectoryBuilder, agent: AgentRun) -> None:
    """Add the results of the last calls, which no later model call sends."""
    entries = builder.thread.entries
    if not agent.transcript or not entries or not entries[-1].message.tool_calls:
        return
    call_ids = {call.id for call in entries[-1].message.tool_calls if call.id}
    last = itertools.takewhile(lambda message: message.role == "tool", reversed(agent.transcript))
    results = [message for message in last if message.tool_call_id in call_ids]
    builder.thread.extend(Entry(m, key_of(m), agent.span.end_ns) for m in reversed(results))


def _expect_no_results(builder: TrajectoryBuilder, agent: AgentRun | None) -> None:
    """Take back the gaps of the calls of output tools."""
    ids = agent.output_calls if agent else ()
    for entry in builder.own if ids else ():
        for call in entry.message.tool_calls:
            lost = gap("missing_tool_result", entry.message.span_id, tool=call.name)
            if call.id in ids and lost in builder.tool_gaps:
                builder.tool_gaps.remove(lost)


def _make_calls(builder: TrajectoryBuilder, runs: Sequence[ToolRun]) -> None:
    """Show the tool runs of a run without model spans; tool runs that overlap were one message."""
    tail = builder.tail
    call_ids = {call.id for entry in tail for call in entry.message.tool_calls if call.id}
    messages = []
    for group in _at_once([run for run in runs if run.call_id not in call_ids]):
        span = group[0].span
        message = Message("assistant", span_id=span.span_id, trace_id=span.trace_id)
        messages.append(Entry(message, "", span.start_ns, is_open=True))
    position = len(tail)
    if tail and tail[-1].message.role == "assistant" and not tail[-1].message.tool_calls:
        position -= 1
    builder.thread.put(builder.start, [*tail[:position], *messages, *tail[position:]])


def _at_once(runs: Sequence[ToolRun]) -> list[list[ToolRun]]:
    """Return tool runs in order of start, grouped if they overlap."""
    groups: list[list[ToolRun]] = []
    end_ns = 0
    for run in runs:
        if groups and run.span.start_ns < end_ns:
            groups[-1].append(run)
        else:
            groups.append([run])
        end_ns = max(end_ns, run.span.end_ns)
    return groups


def _place_own(builder: TrajectoryBuilder) -> None:
    """Note where the run's own messages begin."""
    builder.new_from = builder.start
    if builder.history is None and builder.known:
        builder.new_from = builder.thread.place_of(builder.known)


def _complete(builder: TrajectoryBuilder) -> None:
    """Add the content of the tools' spans, and note calls without a result.

    If results were brought back to the run before, only the last calls and the messages after them
    are examined again, so that many such runs stay linear.
    """
    thread, tool_runs = builder.thread, [*builder.waiting, *builder.runs[-1].tool_runs]
    start = builder.settled
    if not builder.new_from <= start <= thread.changed or len(builder.runs) == 1:
        start, builder.settled_gaps = builder.new_from, []
        tool_runs = [tool for run in builder.runs for tool in run.tool_runs]
        if start > builder.start:
            before = complete(thread.entries[builder.start : start], ())
            thread.put(builder.start, [*before.entries, *builder.own])
            gaps_before = (*before.gaps, *before.open_gaps)
            builder.settled_gaps = [lost for lost in gaps_before if lost.code in CONTENT_GAPS]
    entries = thread.entries[start:]
    ids = {call.id for entry in entries for call in entry.message.tool_calls}
    earlier_ids: set[str] = set()
    if any(tool.call_id and tool.call_id not in ids for tool in tool_runs):
        earlier = itertools.islice(thread.entries, start)
        earlier_ids = {
            c.id for entry in earlier for c in entry.message.tool_calls if identity(c.id)
        }
    done = complete(entries, tool_runs, earlier_ids=earlier_ids)
    _put_changed(thread, start, done.entries)
    builder.settled = thread.changed = start + done.settled
    builder.settled_gaps += done.gaps
    builder.tool_gaps = [*builder.settled_gaps, *done.open_gaps]
    settled = done.entries[: done.settled]
    placed = {call.span_id for entry in settled for call in entry.message.tool_calls}
    builder.waiting = [tool for tool in tool_runs if tool.span.span_id not in placed]
    if builder.history is not None:
        _fill_gaps_of(builder.history, builder.own)


def _put_changed(thread: Thread, start: int, entries: Sequence[Entry]) -> None:
    """Replace the entries of a thread from a place on, unless they are the same objects."""
    stored_entries = thread.entries[start:]
    if len(stored_entries) != len(entries) or not all(map(is_, stored_entries, entries)):
        thread.put(start, entries)


def _fill_gaps_of(history: TrajectoryBuilder, own: Sequence[Entry]) -> None:
    """Take back the gaps of results that the next run begins with, as after a hand-off."""
    if not history.tool_gaps:
        return
    waiting = {
        call.id: gap("missing_tool_result", entry.message.span_id, tool=call.name)
        for entry in history.thread.entries[history.start : history.end]
        for call in entry.message.tool_calls
    }
    for entry in own:
        if entry.is_spoken and entry.message.role != "tool":
            return
        filled_gap = waiting.pop(entry.message.tool_call_id, None)
        if filled_gap in history.tool_gaps:
            history.tool_gaps.remove(filled_gap)
