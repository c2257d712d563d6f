"""Tool runs complete the story: the result, error and timing of each call, and calls not captured.

A tool run belongs to the call with its id; without ids, to the first call of that name with equal
arguments, in order of start. Ids may repeat within a session, so each is used once, in order; where
calls share one, their arguments tell them apart.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple

from ..call_outcome import decided
from ..jsontext import canonical
from ..model import Gap, Message, ToolCall
from .entries import Entry, key_of
from .gaps import gap
from .operations import ToolRun
from .tool_spans import result_message

__all__ = ["Completed", "complete"]


@dataclass(slots=True)
class _CallState:
    """An assistant's call with its result and its tool run, as far as they are known."""

    call: ToolCall
    result: Entry | None = None
    run: ToolRun | None = None


@dataclass(slots=True)
class _Exchange:
    """A message, and for an assistant's with calls, the results that follow it."""

    entry: Entry
    answers: list[_CallState] = field(default_factory=list)
    results: list[Entry] = field(default_factory=list)


class Completed(NamedTuple):
    """A run's messages with the content of its tool runs.

    Attributes:
        entries: The messages.
        gaps: The gaps of those before `settled`.
        open_gaps: The gaps of the others, and of tool runs that no call asked for.
        settled: Where the last message with calls is, whose results may still come.
    """

    entries: list[Entry]
    gaps: list[Gap]
    open_gaps: list[Gap]
    settled: int


def complete(entries: Sequence[Entry], runs: Sequence[ToolRun]) -> Completed:
    """Return a run's messages with the content of its tool runs.

    Args:
        entries: The run's own messages.
        runs: Its tool runs, in order of start.
    """
    paired = _paired_by_ids(entries, runs)
    done = _paired(entries, runs) if paired is None else paired
    return done._replace(entries=[_decided(entry) for entry in done.entries])


def _decided(entry: Entry) -> Entry:
    """Return an entry with whether the call failed, where it is a result."""
    if entry.message.role != "tool":
        return entry
    message = decided(entry.message)
    return entry if message is entry.message else replace(entry, message=message)


def _paired(entries: Sequence[Entry], runs: Sequence[ToolRun]) -> Completed:
    """Return the result of `complete` for any messages, still without the outcomes of calls."""
    if not any(entry.message.tool_calls or entry.is_open for entry in entries):
        return Completed([*entries], [], [found for run in runs for found in _unasked(run)], 0)
    exchanges = _exchanges(entries)
    for exchange in exchanges:
        _pair_results(exchange)
    left = _match_runs([a for exchange in exchanges for a in exchange.answers], runs)
    unmatched = _place_left(exchanges, left)
    done: list[Entry] = []
    gaps: list[Gap] = []
    settled, count = 0, 0
    for exchange in exchanges:
        if exchange.answers:
            settled, count = len(done), len(gaps)
        done.extend(_render(exchange, gaps))
        for answer in exchange.answers:
            gaps.extend(_unfilled(answer))
    return Completed(done, gaps[:count], [*unmatched, *gaps[count:]], settled)


def _paired_by_ids(entries: Sequence[Entry], runs: Sequence[ToolRun]) -> Completed | None:
    """Return messages with their tool runs where each call has one result and one run by its id.

    Returns:
        The result of `complete`; None where anything is missing, repeated or in another order.
    """
    left = {run.call_id: run for run in runs}
    if len(left) < len(runs) or "" in left:
        return None
    done: list[Entry] = []
    settled, place = 0, 0
    while place < len(entries):
        entry = entries[place]
        asked = entry.message.tool_calls
        place += 1
        if not asked:
            done.append(entry)
            continue
        settled, results = len(done), entries[place : place + len(asked)]
        place += len(asked)
        is_cut = len(results) < len(asked)
        if is_cut or (place < len(entries) and entries[place].message.role == "tool"):
            return None
        calls, answers = [], []
        for call, result in zip(asked, results, strict=True):
            run = left.pop(call.id, None)
            if run is None or not _answers(call, result.message) or not _is_whole(call, run):
                return None
            calls.append(_call(_CallState(call, run=run)))
            answers.append(_result(result, _CallState(call, result, run)))
        done.append(_with_calls(entry, tuple(calls), entry.key))
        done += answers
    return None if left else Completed(done, [], [], settled)


def _answers(call: ToolCall, message: Message) -> bool:
    """Return whether a message is the known result of a call that was not seen with its run."""
    is_result = message.role == "tool" and message.tool_call_id == call.id
    return is_result and message.content is not None and not call.span_id


def _is_whole(call: ToolCall, run: ToolRun) -> bool:
    """Return whether the span of a call's tool adds nothing to its arguments."""
    return call.arguments is not None and _is_known(call.arguments, run)


def _with_calls(entry: Entry, calls: tuple[ToolCall, ...], key: str) -> Entry:
    """Return an entry with other calls and another key."""
    old = entry.message
    message = Message(
        *(old.role, old.content, calls, old.tool_call_id, old.name, old.is_error, old.parts),
        span_id=old.span_id,
        trace_id=old.trace_id,
        is_outcome_recorded=old.is_outcome_recorded,
    )
    return Entry(message, key, entry.time_ns, entry.is_open, entry.is_guess, entry.is_inner)


def _unfilled(answer: _CallState) -> Sequence[Gap]:
    """Return the gaps of a tool's span that the messages do not fill."""
    if answer.run is None:
        return ()
    result = answer.result.message.content if answer.result else None
    known = answer.call.arguments is not None and result is not None
    return () if known else answer.run.gaps


def _exchanges(entries: Sequence[Entry]) -> list[_Exchange]:
    found: list[_Exchange] = []
    for entry in entries:
        message = entry.message
        if message.role == "tool" and found and found[-1].answers:
            found[-1].results.append(entry)
            continue
        answers = [_CallState(call) for call in message.tool_calls]
        found.append(_Exchange(entry, answers))
    return found


def _pair_results(exchange: _Exchange) -> None:
    """Pair the results after a message with its calls: by id, and the rest by order."""
    by_id: dict[str, deque[_CallState]] = defaultdict(deque)
    for answer in exchange.answers:
        if answer.call.id:
            by_id[answer.call.id].append(answer)
    unpaired = []
    for entry in exchange.results:
        waiting = by_id.get(entry.message.tool_call_id)
        if waiting:
            waiting.popleft().result = entry
        else:
            unpaired.append(entry)
    # Of the tools that the provider runs, many have no result; so the others come first.
    free = [answer for answer in exchange.answers if answer.result is None]
    free.sort(key=lambda answer: bool(answer.call.executed_by))
    for entry, answer in zip(unpaired, free, strict=False):
        answer.result = entry


def _match_runs(answers: Sequence[_CallState], runs: Sequence[ToolRun]) -> list[ToolRun]:
    """Give each call its run, and return the runs that no call asked for."""
    left = list(runs)
    for run_key, call_key in (
        # Found once already, when a later model call brings results back to the same run.
        (_run_span, _call_span),
        *(((_run_id_and_signature, _call_id_and_signature),) if _share_ids(answers) else ()),
        (_run_id, _call_id),
        (_run_signature, _call_signature),
        # Frameworks fill in defaults and rename fields: then the name and the order are left.
        (_run_name, _call_name),
    ):
        left = _take(left, answers, run_key, call_key)
    return left


def _run_span(run: ToolRun) -> str:
    return run.span.span_id


def _call_span(call: ToolCall) -> str:
    return call.span_id


def _share_ids(answers: Sequence[_CallState]) -> bool:
    """Return whether calls have the same id, such as parallel ones of some model servers."""
    ids = [answer.call.id for answer in answers if answer.call.id]
    return len(set(ids)) < len(ids)


def _run_id_and_signature(run: ToolRun) -> str:
    signature = _run_signature(run)
    return f"{run.call_id}\0{signature}" if run.call_id and signature else ""


def _call_id_and_signature(call: ToolCall) -> str:
    signature = _call_signature(call)
    return f"{call.id}\0{signature}" if call.id and signature else ""


def _run_id(run: ToolRun) -> str:
    return run.call_id


def _call_id(call: ToolCall) -> str:
    return call.id


def _run_signature(run: ToolRun) -> str:
    return "" if run.arguments is None else f"{run.name}\0{canonical(run.arguments)}"


def _call_signature(call: ToolCall) -> str:
    return "" if call.arguments is None else f"{call.name}\0{canonical(call.arguments)}"


def _run_name(run: ToolRun) -> str:
    return run.name


def _call_name(call: ToolCall) -> str:
    return call.name


def _take(
    runs: Sequence[ToolRun],
    answers: Sequence[_CallState],
    run_key: Callable[[ToolRun], str],
    call_key: Callable[[ToolCall], str],
) -> list[ToolRun]:
    """Give each run to the first free call with the same key, and return the runs left over."""
    waiting: dict[str, deque[_CallState]] = defaultdict(deque)
    for answer in answers:
        if answer.run is None:
            waiting[call_key(answer.call)].append(answer)
    if not waiting:
        return list(runs)
    left = []
    for run in runs:
        key = run_key(run)
        if key and waiting.get(key):
            waiting[key].popleft().run = run
        else:
            left.append(run)
    return left


def _place_left(exchanges: list[_Exchange], left: Sequence[ToolRun]) -> list[Gap]:
    """Add the calls that no message shows, where an answer was not wholly captured."""
    gaps = []
    opened = sorted((e.entry.time_ns, i) for i, e in enumerate(exchanges) if e.entry.is_open)
    latest = list(accumulate((i for _, i in opened), max))
    for run in left:
        place = bisect_right(opened, run.span.start_ns, key=itemgetter(0))
        exchange = exchanges[latest[place - 1]] if place else None
        if exchange is None:
            gaps.extend(_unasked(run))
        else:
            call = ToolCall(run.name, run.arguments, run.call_id)
            exchange.answers.append(_CallState(call, run=run))
    return gaps


def _unasked(run: ToolRun) -> list[Gap]:
    """Return the gaps of a tool run that no message asks for."""
    return [gap("unmatched_tool_span", run.span.span_id, tool=run.name), *run.gaps]


def _render(exchange: _Exchange, gaps: list[Gap]) -> list[Entry]:
    """Return a message with its calls and results, from messages or tool spans."""
    if not exchange.answers:
        return [exchange.entry, *exchange.results]
    entry = exchange.entry
    calls = tuple(_call(answer) for answer in exchange.answers)
    message, key = entry.message, entry.key
    if calls != message.tool_calls:
        is_by_words = key == key_of(message)
        message = replace(message, tool_calls=calls)
        # A message of which only the role was known can still be completed by a later input; one
        # that is known by its calls' ids keeps them.
        key = key_of(message) if is_by_words else key
        entry = replace(entry, message=message, key=key)
    rendered = [entry]
    paired = {id(answer.result): answer for answer in exchange.answers if answer.result}
    for result in exchange.results:
        answer = paired.get(id(result))
        rendered.append(_result(result, answer) if answer else result)
    for answer, call in zip(exchange.answers, calls, strict=True):
        if answer.result is None and answer.run is not None:
            made = result_message(answer.run, call_id=call.id)
            rendered.append(Entry(made, "", answer.run.span.end_ns))
        elif answer.run is None:
            gaps.extend(_missing_result(answer, message.span_id))
    return rendered


def _missing_result(answer: _CallState, span_id: str) -> Sequence[Gap]:
    """Return the gap of a call without a tool's span whose result is not there.

    Some providers keep the results of the tools that they run themselves.
    """
    result, tool = answer.result, answer.call.name
    if result is None:
        is_expected = not answer.call.executed_by
        return [gap("missing_tool_result", span_id, tool=tool)] if is_expected else ()
    if result.message.content is not None or result.message.parts or result.message.is_error:
        return ()
    missing, switch = f"content of the result of {tool}", "instrument the tool"
    return [gap("content_not_captured", span_id, missing=missing, switch=switch)]


def _call(answer: _CallState) -> ToolCall:
    call, run = answer.call, answer.run
    if run is None:
        return call
    return ToolCall(
        call.name,
        arguments=call.arguments if _is_known(call.arguments, run) else run.arguments,
        id=call.id or run.call_id,
        span_id=run.span.span_id,
        start_ns=run.span.start_ns,
        end_ns=run.span.end_ns,
        executed_by=call.executed_by,
    )


def _is_known(arguments: Any, run: ToolRun) -> bool:
    """Return whether a call's arguments are those it ran with; streams may leave them empty."""
    return run.arguments is None or (arguments is not None and arguments != {})


def _result(entry: Entry, answer: _CallState) -> Entry:
    message, run = entry.message, answer.run
    call_id = answer.call.id or message.tool_call_id
    if run is not None:
        done = result_message(run, message, call_id=call_id)
    elif call_id == message.tool_call_id:
        return entry
    else:
        done = replace(message, tool_call_id=call_id)
    return Entry(done, entry.key, entry.time_ns, entry.is_open, entry.is_guess, entry.is_inner)
