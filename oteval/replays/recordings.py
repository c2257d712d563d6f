"""Read the recordings of sessions from the store.

A session is a trajectory with its sub-agents, a trace, or a conversation with all its turns. Tools
that ran in its traces, but outside of any agent, belong to it unless another session shares these
traces. Its model calls are the recorded HTTP exchanges, if there are any. Other calls are rebuilt
from the spans of any dialect. The answers of its agents come from the spans of `@oteval.agent`, or
else from the spans of a framework's agents. `Recording.reasons` names each call whose answer or
request is not known.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ..base.text import counted
from ..model import (
    Exchange,
    LogRecord,
    Message,
    RecordedToolCall,
    Recording,
    Span,
    UnreadableExchange,
    from_log,
)
from ..reconstruct import TracedTrajectory, reconstruct_with_runs
from .http_answers import has_whole_answer
from .model_calls import RebuiltCall, ancestors, call_name, join_exchanges, rebuilt_call
from .recorded_executions import executions_of
from .recording_files import load, save

if TYPE_CHECKING:  # A replay from a file needs no database.
    from ..store import Store, StoredSession
from typing import Any

from ..base.jsontext import dumps
from ..model import RecordedAnswer, Trajectory
from ..reconstruct import AgentRun
from ..record import AGENT_RETURNED
from .typed_answers import reported_text

__all__ = [
    "load",
    "read_recording",
    "read_recordings",
    "recording_of",
    "recordings_in",
    "save",
]

_Row = TypeVar("_Row", Span, LogRecord)
# The number of sessions that are read together; a long session may have 100 MB.
_PAGE = 10


def read_recording(store: Store, session: str) -> Recording:
    """Read the recording of a session.

    Args:
        store: The store. Its trajectories are up to date.
        session: The id of a trajectory, a trace or a conversation, or the beginning of one.

    Raises:
        NotFound: The session does not exist, or the name stands for several.
    """
    return next(read_recordings(store, [session]))


def read_recordings(store: Store, sessions: Sequence[str]) -> Iterator[Recording]:
    """Yield the recordings of sessions, in their order.

    Args:
        store: The store. Its trajectories are up to date.
        sessions: The ids of trajectories, traces or conversations, or beginnings of them.

    Raises:
        NotFound: The session does not exist, or the name stands for several.
    """
    yield from recordings_in(store, store.sessions.find(sessions))


def recordings_in(store: Store, sessions: Sequence[StoredSession]) -> Iterator[Recording]:
    """Yield the recordings of stored sessions, in their order.

    Args:
        store: The store. Its trajectories are up to date.
        sessions: The sessions.
    """
    for start in range(0, len(sessions), _PAGE):
        page = store.sessions.with_loose_traces(sessions[start : start + _PAGE])
        traces = sorted({trace for session in page for trace in _traces(session)})
        spans, logs = store.spans.of_traces(traces)
        spans_of, logs_of = _by_trace(spans), _by_trace(logs)
        for session in page:
            yield recording_of(
                session,
                [span for trace in _traces(session) for span in spans_of[trace]],
                [record for trace in _traces(session) for record in logs_of[trace]],
            )


def _traces(session: StoredSession) -> tuple[str, ...]:
    return (*session.trace_ids, *session.loose_trace_ids)


def _by_trace(rows: Iterable[_Row]) -> Mapping[str, list[_Row]]:
    rows_by_trace: dict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        rows_by_trace[row.trace_id].append(row)
    return rows_by_trace


def recording_of(
    session: StoredSession, spans: Sequence[Span], logs: Sequence[LogRecord]
) -> Recording:
    """Read the recording of a session.

    Args:
        session: The session.
        spans: The spans of its traces.
        logs: The log records of its traces, including the records of HTTP exchanges.
    """
    traced = reconstruct_with_runs(spans, logs)
    is_whole = session.kind == "invocation"
    members = (
        {member.trajectory.id for member in traced} if is_whole else set(session.trajectory_ids)
    )
    family = [member for member in traced if member.trajectory.id in members]
    around = _around(family, [member for member in traced if member.trajectory.id not in members])
    exchanges, damaged = _exchanges(logs)
    parents = {span.span_id: span.parent_id for span in spans}
    with_tools = [*family, *around]
    is_own = _ownership(parents, with_tools, traced)
    own = list(_own_exchanges(exchanges, is_own, with_tools, traced))
    joined, other_exchanges = join_exchanges(_rebuilt(family), own, parents)
    calls = [rebuilt.call for rebuilt in joined]
    is_wire = bool(calls) and all(call.exchange is not None for call in calls)
    tops = [member for member in family if member.trajectory.parent_id not in members]
    return Recording(
        session=session.name,
        fidelity="wire" if is_wire else "semconv",
        reasons=(
            *_reasons(joined, family, [span_id for span_id, _ in damaged], parents),
            *dict.fromkeys(problem for _, problem in damaged),
            *([f"{counted(len(tops), 'run')} of one oteval run, verified together"] * is_whole),
        ),
        inputs=tuple(text for text in map(_input, tops) if text),
        model_calls=tuple(calls),
        tool_calls=tuple(_tools(family, around)),
        exchanges=tuple(_placed(other_exchanges, family, parents)),
        trajectory_ids=session.trajectory_ids,
        answers=_answers(spans, tops, _ownership(parents, family, traced)),
    )


def _input(member: TracedTrajectory) -> str:
    """The text that an agent was called with.

    The agent's span has it. The message that the agent makes from it may contain more.
    """
    questions = [
        m for run in member.runs[:1] if run.agent for m in run.agent.input if m.role == "user"
    ]
    text = (questions[-1].content or "") if questions else ""
    if text.strip():
        return text
    question = member.trajectory.question
    return (question.content or "") if question else ""


def _around(
    family: Sequence[TracedTrajectory], foreign: Sequence[TracedTrajectory]
) -> list[TracedTrajectory]:
    """The tools that the code around the agents of a session ran.

    Args:
        family: The trajectories of the session.
        foreign: The other trajectories of its traces. A trajectory with model calls is another
            session, and the tools may belong to that session as well.
    """
    traces = {name for member in family for name in member.trajectory.trace_ids}
    foreign = [member for member in foreign if traces & set(member.trajectory.trace_ids)]
    if any(run.model_calls for member in foreign for run in member.runs):
        return []
    return list(foreign)


def _exchanges(logs: Sequence[LogRecord]) -> tuple[list[Exchange], list[tuple[str, str]]]:
    """The HTTP exchanges in log records; for unreadable records, the span and the problem."""
    exchanges: list[Exchange] = []
    damaged: list[tuple[str, str]] = []
    for record in logs:
        try:
            exchange = from_log(record)
        except UnreadableExchange as error:
            damaged.append((record.span_id, str(error)))
            continue
        if exchange is not None:
            exchanges.append(exchange)
    return exchanges, damaged


def _rebuilt(family: Sequence[TracedTrajectory]) -> list[RebuiltCall]:
    return [
        rebuilt_call(call, run, member.trajectory)
        for member in family
        for run in member.runs
        for call in run.model_calls
    ]


def _ownership(
    parents: Mapping[str, str],
    family: Sequence[TracedTrajectory],
    traced: Sequence[TracedTrajectory],
) -> Callable[[str, str], bool]:
    """Make the function that tests whether a span, by its trace and id, belongs to a session.

    Args:
        parents: The id of each span's parent.
        family: The trajectories of the session.
        traced: All trajectories of the traces.
    """
    members = {member.trajectory.id for member in family}
    traces = {name for member in family for name in member.trajectory.trace_ids}
    foreign = [member for member in traced if member.trajectory.id not in members]
    shared = {name for member in foreign for name in member.trajectory.trace_ids}
    own = _span_ids(family)

    def is_own(trace_id: str, span_id: str) -> bool:
        is_shared = trace_id in shared
        return trace_id in traces and (not is_shared or _is_below(span_id, own, parents))

    return is_own


def _span_ids(family: Sequence[TracedTrajectory]) -> set[str]:
    return {span.span_id for member in family for run in member.runs for span in run.spans}


def _own_exchanges(
    exchanges: Sequence[Exchange],
    is_own: Callable[[str, str], bool],
    family: Sequence[TracedTrajectory],
    traced: Sequence[TracedTrajectory],
) -> Iterator[Exchange]:
    """Yield the exchanges of a session.

    Args:
        exchanges: The exchanges of its traces.
        is_own: Whether a span belongs to the session.
        family: The trajectories of the session.
        traced: All trajectories of the traces.
    """
    with_run = {name for member in traced for name in member.trajectory.trace_ids}
    first_ns = min((member.trajectory.start_ns for member in traced), default=0)
    start_ns = min((member.trajectory.start_ns for member in family), default=0)
    end_ns = max((member.trajectory.end_ns for member in family), default=0)
    for exchange in exchanges:
        if exchange.trace_id in with_run:
            if is_own(exchange.trace_id, exchange.span_id):
                yield exchange
        # Made outside of any run: at import, or while this session ran.
        elif exchange.start_ns < first_ns or start_ns <= exchange.start_ns <= end_ns:
            yield exchange


def _placed(
    exchanges: Sequence[Exchange],
    family: Sequence[TracedTrajectory],
    parents: Mapping[str, str],
) -> Iterator[Exchange]:
    """Yield exchanges, marked if an agent of the session made them."""
    own = _span_ids(family)
    for exchange in exchanges:
        yield replace(exchange, is_in_agent=_is_below(exchange.span_id, own, parents))


def _tools(
    family: Sequence[TracedTrajectory], around: Sequence[TracedTrajectory]
) -> Iterator[RecordedToolCall]:
    """Yield the executions of a session; a replay need not repeat executions around its agents."""
    outside = {
        tool.span.span_id for member in around for run in member.runs for tool in run.tool_runs
    }
    for tool in executions_of([*family, *around]):
        yield replace(tool, is_decorated=tool.is_decorated and tool.span_id not in outside)


def _is_below(span_id: str, above: Collection[str], parents: Mapping[str, str]) -> bool:
    return any(ancestor in above for ancestor in ancestors(span_id, parents))


def _reasons(
    calls: Sequence[RebuiltCall],
    family: Sequence[TracedTrajectory],
    damaged: Sequence[str],
    parents: Mapping[str, str],
) -> Iterator[str]:
    """Yield why a recording is not complete, one line each.

    Args:
        calls: The model calls.
        family: The trajectories of the session.
        damaged: The spans of recorded exchanges that cannot be read.
        parents: The id of each span's parent.
    """
    if not calls:
        yield "the trace has no model calls"
    rebuilt = [call.call.span_id for call in calls if call.call.exchange is None]
    dialects = ", ".join(
        dict.fromkeys(name for member in family for name in member.trajectory.dialects)
    )
    # If a span is above no model call, its exchange may belong to any model call.
    unread = [
        name
        for name in rebuilt
        if any(
            _is_below(span, {name}, parents) or not _is_below(span, set(rebuilt), parents)
            for span in damaged
        )
    ]
    for count, why in (
        (len(rebuilt) - len(unread), "no HTTP exchange was recorded"),
        (len(unread), "the recorded HTTP exchange cannot be read"),
    ):
        share = "all" if count == len(calls) else f"{count} of {len(calls)}"
        if count:
            yield f"{share} model calls are rebuilt from spans ({dialects}): {why}"
    for number, call in enumerate(calls, 1):
        name = call_name(number, call.call)
        if call.problem:
            yield f"{name}: {call.problem}"
        exchange = call.call.exchange
        if exchange is None or exchange.is_complete or exchange.error:
            continue
        if not has_whole_answer(exchange):
            yield f"{name}: the agent did not read the response to its end"
    # Calls that failed or cannot be read have no answer to compare.
    are_read = bool(calls) and not any(call.problem or call.call.error for call in calls)
    unrecorded = _answers_of_no_call(calls, family) if are_read else 0
    if unrecorded:
        yield (
            f"{counted(unrecorded, 'answer')} of the model in the trajectory came from no recorded "
            "model call: only the history of a later call has it"
        )


def _answers_of_no_call(calls: Sequence[RebuiltCall], family: Sequence[TracedTrajectory]) -> int:
    """The number of answers in the trajectories that no recorded model call returned.

    Either the client ran tools between two answers, or the trace begins within a turn.
    """

    def counts(messages: Iterable[Message]) -> Counter[tuple[str, tuple[str, ...]]]:
        return Counter(
            (message.content or "", tuple(call.name for call in message.tool_calls))
            for message in messages
            if message.role == "assistant"
        )

    answers = counts(rebuilt.call.answer for rebuilt in calls if rebuilt.call.answer)
    own = counts(message for member in family for message in member.trajectory.own_messages)
    return (own - answers).total()


_DECORATOR_SCOPE = "oteval"  # of the spans of `@oteval.agent`
# Spans of agents that were left before their end.
_UNFINISHED = ("GeneratorExit", "ReplayDiverged")


def _answers(
    spans: Iterable[Span],
    tops: Sequence[TracedTrajectory],
    is_own: Callable[[str, str], bool],
) -> tuple[RecordedAnswer, ...]:
    """The ends of the runs of a session's agents, by their start.

    Args:
        spans: The spans of its traces.
        tops: The trajectories of the session that no trajectory of the session started.
        is_own: Whether a span belongs to the session.
    """
    decorated = [
        _decorated(span)
        for span in spans
        if _is_agent(span) and is_own(span.trace_id, span.span_id)
    ]
    answers = decorated or list(_of_frameworks(tops))
    return tuple(sorted(answers, key=lambda answer: answer.start_ns))


def _is_agent(span: Span) -> bool:
    is_agent = span.attributes.get("gen_ai.operation.name") == "invoke_agent"
    return is_agent and span.scope == _DECORATOR_SCOPE and _error(span) not in _UNFINISHED


def _error(span: Span) -> str:
    return str(span.attributes.get("error.type", "")).rpartition(".")[2]


def _decorated(span: Span) -> RecordedAnswer:
    attributes: Mapping[str, Any] = span.attributes
    answer = attributes.get("gen_ai.output.messages")
    return RecordedAnswer(
        agent=str(attributes.get("gen_ai.agent.name", "")),
        question=str(attributes.get("gen_ai.input.messages", "")),
        answer=None if answer is None else str(answer),
        type=str(attributes.get(AGENT_RETURNED, "")),
        error=span.status_message if span.is_error else "",
        is_decorated=True,
        start_ns=span.start_ns,
    )


def _answer_of(agent: AgentRun, trajectory: Trajectory) -> str | None:
    """The answer in an agent's span; without one, the last answer of its model."""
    final = agent.span.attributes.get("final_result")  # of Pydantic AI
    if final is not None:
        return str(final)
    last = trajectory.messages[-1:]
    answers = agent.output or (() if not last or last[0].client_calls else last)
    return next((m.content for m in reversed(answers) if m.role == "assistant"), None)


def _of_frameworks(tops: Sequence[TracedTrajectory]) -> Iterator[RecordedAnswer]:
    for top in tops:
        agent = top.runs[0].agent if top.runs else None
        if agent is None:
            continue
        text = _answer_of(agent, top.trajectory)
        message = {"role": "assistant", "parts": [{"type": "text", "content": text}]}
        yield RecordedAnswer(
            agent=agent.name,
            answer=dumps([message]) if text else None,
            error=reported_text(agent.span),
            start_ns=agent.span.start_ns,
        )
