"""Which runs continue the turn of another run, so that both are one trajectory.

A turn lasts from the user's question to the answer. Four kinds of runs continue it:

- a run that resumes it after an interrupt, such as a person's approval, perhaps in a later trace;
- a run that another agent handed it to;
- model calls below no agent that bring results back;
- the retry of a request that failed.

A sub-agent that is called as a tool begins a turn with its own question.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from ..base.jsontext import dumps
from ..model import FAILED_REQUEST, PROCESS, RETRY_WAIT_NS, Message, ToolCall, identity
from .dialect import ModelCall
from .entries import Entry, keys_of
from .message_thread import answered
from .runs import TracedRun
from .trajectory_builder import TrajectoryBuilder, agent_name

__all__ = [
    "goes_on_with",
    "has_failed",
    "is_handed_over",
    "is_retry",
    "previous_answer",
    "request_of",
    "takes_calls_of",
]

_MARK = "previous_response"
_SHORTEST = len('previous_response_id":"a')
_PREVIOUS = re.compile(r'previous_response_id\\*"\s*:\s*\\*"([\w.-]+)')
_PREVIOUS_KEYS = ("previous_response.id", "previous_response_id")

# Attributes with messages or tools alone, which contain no parameters and are long to search.
_MESSAGES = (
    *("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions"),
    *("gen_ai.tool.definitions", "llm.input_messages.", "llm.output_messages.", "llm.tools."),
)
_BETWEEN_WORDS = re.compile(r"[\W_]+")


def goes_on_with(before: TrajectoryBuilder, run: TracedRun, first: Sequence[Entry]) -> bool:
    """Whether a run's first input is the turn of another run so far, and results of tools.

    Args:
        before: The trajectory that the run may continue.
        run: The run.
        first: The first input that its model calls contain, without system prompts.
    """
    if not _may_share_turn(before, run) or not run.model_calls:
        return False
    last = answered(first)
    results = [entry.message for entry in first[last:]]
    if not results or any(message.role != "tool" for message in results):
        return False
    if not last:  # the provider keeps the history
        waiting = {call.id for call in _waiting_calls(before)}
        return all(message.tool_call_id in waiting for message in results)
    overlap = before.thread.overlap(first)
    return overlap.kept == len(before.thread.spoken) and overlap.known >= last


def takes_calls_of(before: TrajectoryBuilder, run: TracedRun) -> bool:
    """Whether a run begins with the tools that another run requested and did not run.

    Args:
        before: The trajectory that the run may continue.
        run: A run whose model calls do not show the messages before it.
    """
    if not _may_share_turn(before, run) or not run.tool_runs:
        return False
    first_asked = min((call.span.start_ns for call in run.model_calls), default=None)
    begun = [t for t in run.tool_runs if first_asked is None or t.span.start_ns < first_asked]
    waiting = {call.id for call in _waiting_calls(before)}
    return bool(begun) and all(tool.call_id in waiting for tool in begun)


def is_handed_over(before: TrajectoryBuilder, run: TracedRun) -> bool:
    """Whether a call of another agent names the agent of a run that begins after it.

    Some agents still send a message after the hand-over. If the arguments of the last calls were
    not captured, it suffices that the agent ended with them and the next agent began as its
    sibling.
    """
    agent, last = agent_name(run), before.runs[-1]
    if not agent or agent_name(last) == agent or not _is_sibling(before, run):
        return False
    if run.parent is last and not last.model_calls:
        return False  # its messages come only from the agents inside
    if run.parent is last.parent and any(c.arguments is None for c in _last_calls(before)):
        return True
    name = _plain(agent)
    part = [entry.message for entry in before.thread.entries[before.part_at :]]
    return any(_names(c, name) for m in [*part, *_shown_last(run)] for c in m.tool_calls)


def _shown_last(run: TracedRun) -> Sequence[Message]:
    """The last answer in a run's first input, if only results follow it.

    Some frameworks add a call that hands back to the agent.
    """
    sent = run.model_calls[0].input if run.model_calls else ()
    last = next((message for message in reversed(sent) if message.role != "tool"), None)
    return [last] if last is not None and last.role == "assistant" else []


def request_of(run: TracedRun, previous: str) -> str:
    """The key of the request that a run begins with, or "".

    Runs of one process share a key if they send the same messages. A run has no key if its resource
    names no process, or if a span encloses its model calls: then a retry looks like a new question.

    Args:
        run: The run.
        previous: The id of the answer that it continues from, or "".
    """
    process = _process(run) if _is_loose(run) else ""
    if not process:
        return ""
    first = run.model_calls[0]
    if not first.input or any(message.role == "assistant" for message in first.input):
        return ""  # found by the chain of messages
    parts = (process, run.conversation_id, previous, *keys_of(first.input))
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    return f"{FAILED_REQUEST}{hashlib.blake2b(text, digest_size=8).hexdigest()}"


def has_failed(run: TracedRun) -> bool:
    """Whether a run consists only of failed requests to a model."""
    return _is_loose(run) and not run.tool_runs and all(map(_is_failure, run.model_calls))


def is_retry(before: TrajectoryBuilder, run: TracedRun, first: Sequence[Entry]) -> bool:
    """Whether a run begins with the failed request of another run.

    Args:
        before: The trajectory that the run may continue.
        run: The run.
        first: The first input that its model calls contain, without system prompts.
    """
    last = before.runs[-1]
    if not (first and _is_loose(run) and has_failed(last)):
        return False
    waited = run.root.span.start_ns - last.root.span.end_ns
    if not (0 <= waited <= RETRY_WAIT_NS and _process(last) == _process(run) != ""):
        return False
    overlap = before.thread.overlap(first)
    return overlap.kept == len(before.thread.spoken) and overlap.known == len(first)


def _process(run: TracedRun) -> str:
    """The resource of a run if it names the process, or ""."""
    resource = run.root.span.resource
    return dumps(resource) if any(resource.get(name) for name in PROCESS) else ""


def _is_loose(run: TracedRun) -> bool:
    """Whether no span is around a run's model calls."""
    return (
        run.agent is None
        and run.parent is None
        and any(call.span is run.root.span for call in run.model_calls)
    )


def _is_failure(call: ModelCall) -> bool:
    return not call.output and any(gap.code == "model_call_failed" for gap in call.gaps)


def previous_answer(run: TracedRun) -> str:
    """The provider's id of the answer that a run's first model call continues from, or "".

    The conventions have an attribute for it that few emitters write. Most write it among the
    parameters of the call, or in the whole request, in one attribute or another.
    """
    if not run.model_calls:
        return ""
    for key, value in run.model_calls[0].span.attributes.items():
        if isinstance(value, str):
            if (len(value) < _SHORTEST and _MARK not in key) or key.startswith(_MESSAGES):
                continue
            if key.endswith(_PREVIOUS_KEYS):
                return identity(value)
            if _MARK in value and (match := _PREVIOUS.search(value)):
                return identity(match[1])
        elif isinstance(value, dict):  # as a backend returns JSON
            response_id = value.get("previous_response_id")
            if isinstance(response_id, str) and identity(response_id):
                return identity(response_id)
    return ""


def _may_share_turn(before: TrajectoryBuilder, run: TracedRun) -> bool:
    """Whether two runs may be parts of one turn: of one agent, or one after the other."""
    is_same_agent = any(agent_name(part) == agent_name(run) for part in before.runs)
    return (is_same_agent and run.parent is None) or _is_sibling(before, run)


def _is_sibling(before: TrajectoryBuilder, run: TracedRun) -> bool:
    """Whether a run was started as a sibling of another run, or in it, but not by a tool."""
    last = before.runs[-1]
    if run.parent_tool is not None or last.root.span.trace_id != run.root.span.trace_id:
        return False
    return run.parent in (last.parent, last) and not _overlap(last, run)


def _overlap(last: TracedRun, run: TracedRun) -> bool:
    """Whether a run's model calls began while another run's were still in progress.

    The span of a call may last as long as the agent that it hands over to.
    """
    begins = min((c.span.start_ns for c in run.model_calls), default=run.root.span.start_ns)
    unended = {call.span.span_id for call in last.model_calls if call.span.end_ns > begins}
    if not unended:
        return False
    return not unended <= {node.span.span_id for node in run.root.ancestors()}


def _last_calls(before: TrajectoryBuilder) -> tuple[ToolCall, ...]:
    """The calls of a trajectory's last answer, unless the agent went on after them."""
    for entry in reversed(before.thread.entries[before.start :]):
        if entry.message.role == "assistant":
            return entry.message.tool_calls
        if entry.message.role != "tool":
            break
    return ()


def _waiting_calls(before: TrajectoryBuilder) -> list[ToolCall]:
    """The calls of a trajectory's last answer that have an id and no result."""
    answered_ids = {message.tool_call_id for message in _last_results(before)}
    return [c for c in _last_calls(before) if identity(c.id) and c.id not in answered_ids]


def _last_results(before: TrajectoryBuilder) -> list[Message]:
    results = []
    for entry in reversed(before.thread.entries[before.start :]):
        if entry.message.role != "tool":
            break
        results.append(entry.message)
    return results


def _names(call: ToolCall, agent: str) -> bool:
    """Whether a call names an agent: in the tool's name, or as one of the arguments."""
    arguments = call.arguments
    values = arguments.values() if isinstance(arguments, dict) else [arguments]
    plain_names = {_plain(value) for value in values if isinstance(value, str)}
    return agent in plain_names or f"_{agent}_" in f"_{_plain(call.name)}_"


def _plain(name: str) -> str:
    return _BETWEEN_WORDS.sub("_", name.lower()).strip("_")
