"""Build the trajectory of a run of the simplest shape, as most short runs are, in one pass.

Such a run begins a conversation. Each of its model calls sends all earlier messages, or only new
ones, and all messages are known; each tool run has the id of a call. Then no history has to be laid
over another: a message is new, or equal to the message at the same position.
`plain_builder` returns the same as `trajectory_builder.fill`, or None for any other run. A test
compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..base.jsontext import canonical
from ..messages import SYSTEM_ROLES, of_span
from ..model import Message, ToolCall
from .dialect import ModelCall
from .entries import Entry, key_of
from .message_thread import Thread
from .runs import TracedRun
from .tool_results import complete
from .trajectory_builder import TrajectoryBuilder, agent_name

__all__ = ["plain_builder"]

# Runs with more messages are built in the general way, which reads histories in parts.
_MOST_MESSAGES = 32


def plain_builder(run: TracedRun) -> TrajectoryBuilder | None:
    """The finished builder of a run of the simplest shape, or None for any other run.

    Args:
        run: A run that does not continue another.
    """
    calls, agent = run.model_calls, run.agent
    if not calls or run.within or not _is_plain(calls):
        return None
    if agent is not None and agent.transcript_new_from is not None:
        return None
    entries = _entries(calls)
    if entries is None:
        return None
    prompts, spoken = entries
    if spoken[-1].message.tool_calls and agent is not None and agent.transcript:
        return None  # the transcript may contain the results
    done = complete([*prompts, *spoken], run.tool_runs)
    builder = TrajectoryBuilder([run], Thread())
    thread = builder.thread
    thread.extend(done.entries)
    builder.system = [entry.message.content for entry in prompts]
    builder.system_of = agent_name(run)
    builder.settled = thread.changed = done.settled
    builder.settled_gaps = done.gaps
    builder.tool_gaps = [*done.gaps, *done.open_gaps]
    placed = {
        call.span_id for entry in done.entries[: done.settled] for call in entry.message.tool_calls
    }
    builder.waiting = [tool for tool in run.tool_runs if tool.span.span_id not in placed]
    builder.end = len(thread.entries)
    builder.chain = thread.chain()
    return builder


def _is_plain(calls: Sequence[ModelCall]) -> bool:
    """Whether each of some calls sent and received messages that are all known."""
    for call in calls:
        output = call.output
        if not (call.whole and call.input and output) or call.choices or call.is_delta:
            return False
        if call.calls_by_id or len(output) != 1 or output[0].role != "assistant":
            return False
        if len(call.input) > _MOST_MESSAGES:
            return False
    return True


def _entries(calls: Sequence[ModelCall]) -> tuple[list[Entry], list[Entry]] | None:
    """The system prompts and the other messages that some calls sent and received.

    Returns:
        The entries; None unless each input certainly consists of all earlier messages and new ones,
        or of new ones only.
    """
    prompts: list[Entry] = []
    texts: list[str | None] = []
    spoken: list[Entry] = []
    keys: set[str] = set()
    for call in calls:
        span, asked_by, is_first = call.span, call.asked_by, not spoken
        prompt_texts: list[str | None] = []
        index, known_count = 0, len(spoken)
        for message in call.input:
            role = message.role
            if role in SYSTEM_ROLES:
                prompt_texts.append(message.content)
                if is_first:
                    own = of_span(message, asked_by)
                    prompts.append(Entry(own, key_of(own), span.start_ns))
                continue
            if not index and known_count and not _is_same(spoken[0].message, message):
                # An input that begins with a new question contains no earlier message.
                if role != "user" or key_of(message) in keys:
                    return None
                if span.start_ns < spoken[-1].time_ns:
                    return None  # sent before the answer had arrived
                known_count = 0
            elif index < known_count and not _is_same(spoken[index].message, message):
                return None
            if index >= known_count:
                if _is_unusual(message, is_first):
                    return None
                own = of_span(message, asked_by)
                spoken.append(Entry(own, key_of(own), span.start_ns))
                keys.add(spoken[-1].key)
            index += 1
        if is_first:
            texts = prompt_texts
        if index < known_count or prompt_texts != texts or not index:
            return None
        answer = call.output[0]
        if [tool_call for tool_call in answer.tool_calls if not (tool_call.id and tool_call.name)]:
            return None
        spoken.append(Entry(answer, key_of(answer), span.end_ns or span.start_ns))
        keys.add(spoken[-1].key)
    if not any(entry.message.role == "user" for entry in spoken):
        return None
    return prompts, spoken


def _is_unusual(message: Message, is_first: bool) -> bool:
    """Whether a new message of an input needs more than to be appended.

    Args:
        message: The message, not a system prompt.
        is_first: Whether the input is the run's first. An answer in it is of an earlier run.
    """
    if message.role == "tool":
        return is_first or not message.tool_call_id
    return message.role == "assistant" and (is_first or bool(message.tool_calls))


def _is_same(message: Message, other: Message) -> bool:
    """Whether two messages certainly have the same key; False means that they may differ."""
    if (
        message.role != other.role
        or message.content != other.content
        or message.parts
        or other.parts
    ):
        return False
    if other.role == "tool" and not other.tool_call_id:
        return False
    mine, theirs = message.tool_calls, other.tool_calls
    if not (mine or theirs):
        return True
    return len(mine) == len(theirs) and all(map(_asks_the_same, mine, theirs))


def _asks_the_same(call: ToolCall, other: ToolCall) -> bool:
    return call.name == other.name and canonical(call.arguments) == canonical(other.arguments)
