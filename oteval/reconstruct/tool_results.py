"""Complete messages from tool runs: the result, error and timing of each call, and missing calls.

A result or a tool run with an id belongs to the call with the same id, wherever it is, and never to
another call. Ids may repeat within a session, even among parallel calls: then the arguments decide,
then the order. Without an id, a tool run belongs to the first call of that name with equal
arguments, in order of start. An id that no call has may be the emitter's own. Such a result is
paired like a result without an id, unless the call's id is of the same kind.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple

from ..base.jsontext import canonical
from ..messages import decided
from ..model import Gap, Message, ToolCall
from .dialect import ToolRun
from .entries import Entry, key_of
from .gaps import gap
from .tool_spans import result_message

__all__ = ["Completed", "complete"]

# How many calls are considered for one tool run whose id none of them has.
_MAX_CANDIDATES = 64
# The prefix of an id (``call_1``, ``toolu-2``, ``c3``); random letters and digits have none.
_ID_KIND = re.compile(r"([A-Za-z]+)(?:[_\-:.]|\d+$)")


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
    answers: list[_CallState]
    results: list[Entry]


class Completed(NamedTuple):
    """A run's messages with the content of its tool runs.

    Attributes:
        entries: The messages.
        gaps: The gaps of the messages before `settled`.
        open_gaps: The gaps of the other messages, and of tool runs that no call requested.
        settled: The index of the first message with calls whose results may still arrive.
    """

    entries: list[Entry]
    gaps: list[Gap]
    open_gaps: list[Gap]
    settled: int


def complete(
    entries: Sequence[Entry],
    runs: Sequence[ToolRun],
    *,
    earlier_ids: Collection[str] = (),
) -> Completed:
    """A run's messages with the content of its tool runs.

    Args:
        entries: The run's messages.
        runs: Its tool runs, in order of start.
        earlier_ids: The ids of the calls in earlier messages. A tool run with such an id belongs to
            the earlier call, unless the run's messages contain a call with that id as well.
    """
    paired = _paired_by_ids(entries, runs)
    done = _paired(entries, runs, earlier_ids) if paired is None else paired
    entries = [_decided(e) if e.message.role == "tool" else e for e in done.entries]
    return Completed(entries, done.gaps, done.open_gaps, done.settled)


def _decided(entry: Entry) -> Entry:
    """The entry of a result with whether the call failed."""
    message = decided(entry.message)
    return entry if message is entry.message else replace(entry, message=message)


def _paired(
    entries: Sequence[Entry], runs: Sequence[ToolRun], earlier_ids: Collection[str]
) -> Completed:
    """The result of `complete` for any messages, still without the outcomes of calls."""
    if not any(entry.message.tool_calls or entry.is_open for entry in entries):
        unasked = [run for run in runs if run.call_id not in earlier_ids]
        return Completed(
            [*entries], [], [unasked_gap for run in unasked for unasked_gap in _unasked(run)], 0
        )
    exchanges = _exchanges(entries)
    answers = [answer for exchange in exchanges for answer in exchange.answers]
    _pair_results(exchanges)
    own_ids = {"", *(answer.call.id for answer in answers)}
    asked_earlier = {run.call_id for run in runs if run.call_id in earlier_ids} - own_ids
    left = _match_runs(answers, [run for run in runs if run.call_id not in asked_earlier])
    unmatched = _place_left(exchanges, left)
    done: list[Entry] = []
    gaps: list[Gap] = []
    settled, count = 0, 0
    answered = {
        id(answer.result): answer
        for exchange in exchanges
        for answer in exchange.answers
        if answer.result
    }
    is_waiting = False
    for exchange in exchanges:
        if not exchange.answers:
            answer = answered.get(id(exchange.entry))
            done.append(_result(exchange.entry, answer) if answer else exchange.entry)
            continue
        if not is_waiting:
            settled, count = len(done), len(gaps)
            is_waiting = any(a.result is None and a.run is None for a in exchange.answers)
        done.extend(_render(exchange, answered, gaps))
        for answer in exchange.answers:
            gaps.extend(_unfilled(answer))
    return Completed(done, gaps[:count], [*unmatched, *gaps[count:]], settled)


def _paired_by_ids(entries: Sequence[Entry], runs: Sequence[ToolRun]) -> Completed | None:
    """Return messages with their tool runs if each call has one result and one run by its id.

    Returns:
        The result of `complete`; None if anything is missing, repeated or in another order.
    """
    left = {run.call_id: run for run in runs}
    if len(left) < len(runs) or "" in left:
        return None
    done: list[Entry] = []
    settled, index = 0, 0
    while index < len(entries):
        entry = entries[index]
        tool_calls = entry.message.tool_calls
        index += 1
        if not tool_calls:
            done.append(entry)
            continue
        settled, results = len(done), entries[index : index + len(tool_calls)]
        index += len(tool_calls)
        is_cut = len(results) < len(tool_calls)
        if is_cut or (index < len(entries) and entries[index].message.role == "tool"):
            return None
        calls, answers = [], []
        for call, result in zip(tool_calls, results, strict=True):
            run = left.pop(call.id, None)
            if run is None or not _answers(call, result.message) or not _is_whole(call, run):
                return None
            calls.append(_call(_CallState(call, run=run)))
            answers.append(_result(result, _CallState(call, result, run)))
        done.append(_with_calls(entry, tuple(calls), entry.key))
        done += answers
    return None if left else Completed(done, [], [], settled)


def _answers(call: ToolCall, message: Message) -> bool:
    """Whether a message is the known result of a call that was not seen with its run."""
    is_result = message.role == "tool" and message.tool_call_id == call.id
    return is_result and message.content is not None and not call.span_id


def _is_whole(call: ToolCall, run: ToolRun) -> bool:
    """Whether the span of a call's tool adds nothing to its arguments."""
    return call.arguments is not None and _is_known(call.arguments, run)


def _with_calls(entry: Entry, calls: tuple[ToolCall, ...], key: str) -> Entry:
    """An entry with other calls and another key."""
    old = entry.message
    message = Message(
        *(old.role, old.content, calls, old.tool_call_id, old.name, old.is_error, old.parts),
        span_id=old.span_id,
        trace_id=old.trace_id,
        is_outcome_recorded=old.is_outcome_recorded,
    )
    return Entry(message, key, entry.time_ns, entry.is_open, entry.is_guess, entry.is_inner)


def _unfilled(answer: _CallState) -> Sequence[Gap]:
    """The gaps of a tool's span that the messages do not fill."""
    if answer.run is None:
        return ()
    result = answer.result.message.content if answer.result else None
    is_filled = answer.call.arguments is not None and result is not None
    return () if is_filled else answer.run.gaps


def _exchanges(entries: Sequence[Entry]) -> list[_Exchange]:
    exchanges: list[_Exchange] = []
    for entry in entries:
        message = entry.message
        if message.role == "tool" and exchanges and exchanges[-1].answers:
            exchanges[-1].results.append(entry)
            continue
        answers = [_CallState(call) for call in message.tool_calls]
        exchanges.append(_Exchange(entry, answers, []))
    return exchanges


def _pair_results(exchanges: Sequence[_Exchange]) -> None:
    """Pair results with calls: by id, and results without an id by their order after the message.

    A person's approval or another agent's messages may come between a call and its result.
    """
    waiting: dict[str, deque[_CallState]] = defaultdict(deque)
    for exchange in exchanges:
        is_result = exchange.entry.message.role == "tool"
        if not (exchange.answers or is_result):
            continue
        for answer in exchange.answers:
            if answer.call.id:
                waiting[answer.call.id].append(answer)
        unpaired = []
        for entry in [exchange.entry] if is_result else exchange.results:
            same_id = waiting.get(entry.message.tool_call_id)
            if same_id:
                same_id.popleft().result = entry
            elif not exchange.answers or entry.message.tool_call_id not in waiting:
                unpaired.append(entry)
        if not unpaired:
            continue
        # Many tools that the provider runs have no result, so the others come first.
        free = [answer for answer in exchange.answers if answer.result is None]
        free.sort(key=lambda answer: bool(answer.call.executed_by))
        for entry in unpaired:
            mine = (a for a in free if _may_belong(entry.message.tool_call_id, a.call.id))
            if answer_of := next(mine, None):
                answer_of.result = entry
                free.remove(answer_of)


def _may_belong(result_id: str, call_id: str) -> bool:
    """Whether a result may be a call's though their ids differ.

    OpenAI's Responses API has two ids for a call, and some frameworks number executions on their
    own; such ids are of different kinds (``fc_1``, ``call_1``). Two ids of one kind are two calls.
    """
    return not result_id or not call_id or _kind_of(result_id) != _kind_of(call_id)


def _kind_of(identifier: str) -> str:
    """The prefix that ids of one origin share, or ""."""
    match = _ID_KIND.match(identifier)
    return match[1] if match else ""


def _match_runs(answers: Sequence[_CallState], runs: Sequence[ToolRun]) -> list[ToolRun]:
    """Assign its run to each call, and return the runs that no call requested."""
    left = list(runs)
    if any(answer.call.span_id for answer in answers):
        # Matched before: a later model call brings results back to the same run.
        left = _take(left, answers, _run_span, _call_span)
    left = _take_by_id(left, answers)
    # Frameworks fill in defaults and rename fields: then only the name and the order match.
    for run_key, call_key in ((_run_signature, _call_signature), (_run_name, _call_name)):
        left = _take(left, answers, run_key, call_key)
    return left


def _take_by_id(runs: Sequence[ToolRun], answers: Sequence[_CallState]) -> list[ToolRun]:
    """Assign each run to the call with its id, and return the runs whose id no call has."""
    by_id: dict[str, list[_CallState]] = defaultdict(list)
    for answer in answers:
        if answer.call.id:
            by_id[answer.call.id].append(answer)
    same_id: dict[str, list[ToolRun]] = defaultdict(list)
    for run in runs:
        if run.call_id in by_id:
            same_id[run.call_id].append(run)
    for call_id, group in same_id.items():
        calls = by_id[call_id]
        if len(calls) == len(group) == 1 and calls[0].run is None:
            calls[0].run = group[0]
            continue
        for run_key, call_key in _WITHIN_ONE_ID:
            group = _take(group, calls, run_key, call_key)
        for run in group:
            _take_again(run, calls)
    return [run for run in runs if run.call_id not in by_id]


def _take_again(run: ToolRun, calls: Sequence[_CallState]) -> None:
    """Replace a call's run by a later run: a retried tool counts with its last run."""
    same_call = (a for a in calls if a.run is not None and a.run.name == run.name)
    answer = next(same_call, None)
    before = answer.run if answer is not None else None
    if answer is not None and before is not None and before.span.start_ns <= run.span.start_ns:
        answer.run = run


def _run_span(run: ToolRun) -> str:
    return run.span.span_id


def _call_span(call: ToolCall) -> str:
    return call.span_id


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


# Ids may repeat: then the arguments decide which call a run belongs to, then the order.
_WITHIN_ONE_ID = (
    (_run_signature, _call_signature),
    (_run_name, _call_name),
    (_run_id, _call_id),
)


def _take(
    runs: Sequence[ToolRun],
    answers: Sequence[_CallState],
    run_key: Callable[[ToolRun], str],
    call_key: Callable[[ToolCall], str],
) -> list[ToolRun]:
    """Assign each run to the first free call with the same key, and return the runs left over."""
    waiting: dict[str, list[_CallState]] = defaultdict(list)
    for answer in reversed(answers) if runs else ():
        if answer.run is None:
            waiting[call_key(answer.call)].append(answer)
    left = []
    for run in runs if waiting else ():
        key = run_key(run)
        same_key = waiting.get(key) if key else None
        at = _last_that_may_belong(run, same_key) if same_key else -1
        if same_key and at >= 0:
            same_key.pop(at).run = run
        else:
            left.append(run)
    return left if waiting else list(runs)


def _last_that_may_belong(run: ToolRun, answers: Sequence[_CallState]) -> int:
    """The place of the last call that a run may belong to, or -1."""
    for at in reversed(range(max(0, len(answers) - _MAX_CANDIDATES), len(answers))):
        call_id = answers[at].call.id
        if call_id == run.call_id or _may_belong(run.call_id, call_id):
            return at
    return -1


def _place_left(exchanges: list[_Exchange], left: Sequence[ToolRun]) -> list[Gap]:
    """Add the calls that no message shows, where an answer was not wholly captured.

    Of parallel calls, some emitters write only one into the message. So a tool run that begins
    after a message with calls, and before the next message, is one of these calls.
    """
    if not left:
        return []
    gaps: list[Gap] = []
    opened = sorted((e.entry.time_ns, i) for i, e in enumerate(exchanges) if e.entry.is_open)
    latest = list(accumulate((i for _, i in opened), max))
    answers = _AnswersByTime(exchanges)
    for run in left:
        opened_count = bisect_right(opened, run.span.start_ns, key=itemgetter(0))
        exchange = exchanges[latest[opened_count - 1]] if opened_count else answers.asking(run)
        if exchange is None:
            gaps.extend(_unasked(run))
        elif not _is_repeated(run, exchange):
            call = ToolCall(run.name, run.arguments, run.call_id)
            exchange.answers.append(_CallState(call, _loose_result(exchange, run), run))
    return gaps


def _is_repeated(run: ToolRun, exchange: _Exchange) -> bool:
    """Whether a call's tool ran twice and failed first; the call then gets the later run."""
    signature = _run_signature(run)
    for answer in reversed(exchange.answers if signature else ()):
        other = answer.run
        if other is None or _run_signature(other) != signature or (run.call_id and other.call_id):
            continue
        first, last = sorted((other, run), key=lambda tool_run: tool_run.span.start_ns)
        if first.is_error and first.span.end_ns <= last.span.start_ns:
            answer.run = last
            return True
    return False


class _AnswersByTime:
    """The assistant's messages of a run, by time and by the ids of results without a call."""

    def __init__(self, exchanges: Sequence[_Exchange]) -> None:
        self._answers = [e for e in exchanges if e.entry.message.role == "assistant"]
        self._answers.sort(key=lambda exchange: exchange.entry.time_ns)
        self._by_result = {
            entry.message.tool_call_id: exchange
            for exchange in self._answers
            if len(exchange.results) > len(exchange.answers) > 0
            for entry in exchange.results
            if entry.message.tool_call_id
        }

    def asking(self, run: ToolRun) -> _Exchange | None:
        """The message with calls that must have requested a tool run, or None.

        Two instrumentations may write the same call; then their scopes differ.
        """
        if run.call_id in self._by_result:
            return self._by_result[run.call_id]
        at = bisect_right(self._answers, run.span.start_ns, key=lambda e: e.entry.time_ns)
        last = self._answers[at - 1] if at else None
        first = next((answer.run for answer in last.answers if answer.run), None) if last else None
        return last if first and first.span.scope == run.span.scope else None


def _loose_result(exchange: _Exchange, run: ToolRun) -> Entry | None:
    """The result of a tool run after a message, if none of the message's calls has it."""
    if len(exchange.results) <= len(exchange.answers):
        return None
    paired = {id(answer.result) for answer in exchange.answers}
    results = (entry for entry in exchange.results if id(entry) not in paired)
    return next((entry for entry in results if entry.message.tool_call_id == run.call_id), None)


def _unasked(run: ToolRun) -> list[Gap]:
    """The gaps of a tool run that no message requests."""
    return [gap("unmatched_tool_span", run.span.span_id, tool=run.name), *run.gaps]


def _render(
    exchange: _Exchange, answered: Mapping[int, _CallState], gaps: list[Gap]
) -> list[Entry]:
    """A message with its calls and results, from messages or tool spans.

    Args:
        exchange: The message and the results after it.
        answered: The calls that results belong to, by the id of the result's object.
        gaps: Gains a gap for each call without a result.
    """
    rendered = [_asking(exchange), *exchange.results]
    for at, entry in enumerate(rendered):
        answer = answered.get(id(entry))
        if answer is not None:
            rendered[at] = _result(entry, answer)
    message = rendered[0].message
    calls = message.tool_calls if exchange.answers else ()
    for answer, call in zip(exchange.answers, calls, strict=True):
        if answer.result is None and answer.run is not None:
            span_result = result_message(answer.run, call_id=call.id)
            rendered.append(Entry(span_result, "", answer.run.span.end_ns))
        gaps.extend(_missing_result(answer, message.span_id))
    return rendered


def _missing_result(answer: _CallState, span_id: str) -> Sequence[Gap]:
    """The gap of a call without a result.

    Some providers keep the results of the tools that they run themselves. A tool's span may report
    itself that it has none, or that it waits for a person.
    """
    result, run, tool = answer.result, answer.run, answer.call.name
    if run is not None:
        if run.result is not None or run.gaps or run.span.is_error or run.span.events:
            return ()
        span_id = run.span.span_id
    elif result is None:
        is_expected = not answer.call.executed_by
        return [gap("missing_tool_result", span_id, tool=tool)] if is_expected else ()
    if result is not None and _is_known_result(result.message):
        return ()
    missing, switch = f"content of the result of {tool}", "instrument the tool"
    return [gap("content_not_captured", span_id, missing=missing, switch=switch)]


def _is_known_result(message: Message) -> bool:
    return message.content is not None or bool(message.parts) or message.is_error


def _asking(exchange: _Exchange) -> Entry:
    """A message with its calls as they were run."""
    entry = exchange.entry
    calls = tuple(_call(answer) for answer in exchange.answers)
    message = entry.message
    if calls == message.tool_calls:
        return entry
    done = _with_calls(entry, calls, entry.key)
    if [c.arguments for c in calls] == [c.arguments for c in message.tool_calls]:
        return done
    # A later input can still complete a message with nothing but its role. If the key of a message
    # consists of its calls' ids, it stays the same.
    if done.key == key_of(message):
        done.key = key_of(done.message)
    return done


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
    """Whether a call keeps its own arguments; streams may leave them empty."""
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
