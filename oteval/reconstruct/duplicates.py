"""Calls that two instrumentations recorded are counted once.

A framework's instrumentation and its model client's may both write a span for the same call. One
span is inside the other; if the framework's span is not the current span, the client's span is in
a separate trace. One instrumentation may write a streamed call as two spans, its request and its
answer. Two spans are the same call when one's time lies within the other's and they share the
answer's id, a tool call's id, or the words. Two spans of one instrumentation are two calls. Calls
of agents in different traces are separate calls too.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..base.jsontext import canonical, dumps
from ..model import Gap, Message, Span, identity
from .dialect import ModelCall, ToolRun
from .entries import key_of, keys_of
from .runs import TracedRun
from .tree import order

__all__ = ["answer_key", "call_keys", "fold_nested", "join_streams", "without_duplicates"]

# Keys for the ids of a model's answer and of its calls.
_ID_KEYS = ("response ", "asked ")
# The replacement of each call, by the id of its object; None removes it.
_Changes = dict[int, ModelCall | None]


def call_keys(call: ModelCall) -> Iterator[str]:
    """Yield the keys that two recordings of one model call share while their times overlap."""
    if call.input and (_waits_for_stream(call) or _is_instant(call)):
        yield f"streamed {call.span.scope}\0{_digest(call.input[-1])}"
    if identity(call.response_id):
        yield answer_key(call.response_id)
    call_id = next(iter([m.tool_calls[0].id for m in call.output if m.tool_calls]), "")
    if identity(call_id):
        yield f"asked {call_id}"
    elif call.output and call.input and call.output[-1].content:
        yield f"said {_digest(call.input[-1])}{_digest(call.output[-1])}"


def answer_key(response_id: str) -> str:
    """The key of the model call that has this id of a provider."""
    return f"response {response_id}"


def _digest(message: Message) -> str:
    text = (message.content or "").strip()
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _tool_keys(run: ToolRun) -> Iterator[str]:
    if identity(run.call_id):
        yield f"ran {run.call_id}"
    if run.arguments is not None:
        yield f"said {run.name} {canonical(run.arguments)}"


def fold_nested(run: TracedRun) -> None:
    """Count model calls inside another model call of a run once.

    They are attempts at it, or another instrumentation's recordings of it. If a nested call has an
    answer that the outer call lacks, the outer call only groups them.

    Args:
        run: The run; its calls and gaps are changed.
    """
    if not run.nested:
        return
    inside: dict[int, list[ModelCall]] = defaultdict(list)
    outers = {id(outer): outer for outer, _ in run.nested}
    for outer, inner in run.nested:
        if _is_within(outer, inner):
            inside[id(outer)].append(inner)
    changes: _Changes = {}
    for key, inner_calls in inside.items():
        outer = outers[key]
        if _only_groups(outer, inner_calls):
            changes[key] = None
            continue
        for call in inner_calls:
            changes[id(call)] = None
        changes[key] = _completed(outer, inner_calls)
    run.nested = []
    _change(run, changes)


def _is_within(outer: ModelCall, inner: ModelCall) -> bool:
    """Whether a nested call lies within the outer; an empty one may end with the stream."""
    if outer.span.start_ns > inner.span.start_ns:
        return False
    return inner.span.end_ns <= outer.span.end_ns or not (inner.input or inner.output)


def _only_groups(outer: ModelCall, inner_calls: Sequence[ModelCall]) -> bool:
    outer_keys = [key_of(message) for message in outer.output]
    if not outer_keys:  # a span around several calls, without their content
        return sum(1 for call in inner_calls if call.output) > 1
    return any(
        call.whole and call.output and outer_keys != [key_of(message) for message in call.output]
        for call in inner_calls
    )


def _completed(call: ModelCall, duplicates: Iterable[ModelCall]) -> ModelCall:
    """A call, its missing content and details taken from another recording of it."""
    for other in duplicates:
        call = _with_details(call, other)
        if call.is_complete:
            continue
        if other.is_complete:
            call = replace(
                other,
                span=call.span,
                input_span=other.asked_by,
                tools=call.tools or other.tools,
            )
        elif other.output and not call.output:
            call = _answered_by(call, other)
        elif other.input and not call.input:
            gaps = _without_lost_side(call)
            call = replace(call, input=other.input, input_span=other.asked_by, gaps=gaps)
    return call


def _with_details(call: ModelCall, other: ModelCall) -> ModelCall:
    """A call with the model, finish reason and tokens that only the other recording has."""
    if not other.output or other.span.is_error:
        return call  # an attempt that failed
    missing: dict[str, Any] = {
        key: getattr(other, key)
        for key in ("finish_reason", "model", "response_id")
        if not getattr(call, key) and getattr(other, key)
    }
    if not _has_tokens(call) and _has_tokens(other):
        missing["usage"] = other.usage
    return replace(call, **missing) if missing else call


def _has_tokens(call: ModelCall) -> bool:
    return bool(call.usage.input_tokens or call.usage.output_tokens)


def _answered_by(request: ModelCall, answer: ModelCall) -> ModelCall:
    """A request together with the answer in another span."""
    used = request.usage if request.usage.output_tokens else answer.usage
    return replace(
        request,
        input=request.input or answer.input,
        input_span=(request if request.input else answer).asked_by,
        output=answer.output,
        choices=answer.choices,
        tools=request.tools or answer.tools,
        model=answer.model or request.model,
        response_id=answer.response_id or request.response_id,
        finish_reason=answer.finish_reason or request.finish_reason,
        usage=used,
        whole=answer.whole,
        gaps=_without_lost_side(request) if request.input else request.gaps,
    )


def _without_lost_side(call: ModelCall) -> tuple[Gap, ...]:
    return tuple(gap for gap in call.gaps if gap.code != "content_not_captured")


def join_streams(run: TracedRun) -> None:
    """Make one call of each request without an answer and the instant span with the answer.

    Some emitters end a streamed call's span when the stream begins, and write the answer on a span
    without a duration when the stream ends.

    Args:
        run: The run; its calls and gaps are changed.
    """
    waiting: list[tuple[ModelCall, list[str]]] = []
    changes: _Changes = {}
    for call in run.model_calls:
        if _waits_for_stream(call):
            waiting.append((call, keys_of(call.input)))
            continue
        if not _is_instant(call) or not waiting:
            continue
        sent = keys_of(call.input)
        index = next((i for i, (w, keys) in enumerate(waiting) if _asks(w, keys, call, sent)), -1)
        if index >= 0:
            request = waiting.pop(index)[0]
            changes[id(request)] = _answered_by(request, call)
            changes[id(call)] = None
    if changes:
        _change(run, changes)


def _waits_for_stream(call: ModelCall) -> bool:
    """Whether a span contains a request, and the answer may be in another span."""
    return bool(call.input) and not call.output and not call.span.is_error


def _is_instant(call: ModelCall) -> bool:
    """Whether a span has no duration, like a span that is written when a stream has ended."""
    return call.span.end_ns <= call.span.start_ns


def _with_detached_answers(runs: list[TracedRun]) -> list[TracedRun]:
    """The runs with streamed answers in separate traces moved to their requests.

    Without a span of the application around them, both spans are roots.

    Args:
        runs: The runs of several traces; they are changed.
    """
    loose = [run for run in runs if _is_instant_answer(run)]
    if not loose:
        return runs
    waiting: dict[tuple[str, ...], deque[tuple[TracedRun, ModelCall]]] = defaultdict(deque)
    requested = [(run, c) for run in runs for c in run.model_calls if _waits_for_stream(c)]
    for run, call in sorted(requested, key=lambda request: order(request[1].span)):
        waiting[_sent_by(call)].append((run, call))
    gone: set[int] = set()
    for run in sorted(loose, key=lambda run: order(run.root.span)):
        answer = run.model_calls[0]
        requests = waiting.get(_sent_by(answer))
        if requests and requests[0][1].span.start_ns <= answer.span.start_ns:
            holder, request = requests.popleft()
            _change(holder, {id(request): _answered_by(request, answer)})
            holder.take_spans(run)
            _keep_trace(holder, answer)
            gone.add(id(run))
    return [run for run in runs if id(run) not in gone]


def _is_instant_answer(run: TracedRun) -> bool:
    """Whether a run is nothing but an instant span with a request and its answer."""
    calls = run.model_calls
    if run.agent or run.parent or run.tool_runs or len(calls) != 1:
        return False
    call = calls[0]
    return call.span is run.root.span and _is_instant(call) and bool(call.input and call.output)


def _sent_by(call: ModelCall) -> tuple[str, ...]:
    """The messages of a request, with the process and the instrumentation that sent it."""
    span = call.span
    return (span.scope, dumps(span.resource), call.model, *keys_of(call.input))


def _asks(request: ModelCall, keys: list[str], answer: ModelCall, sent: list[str]) -> bool:
    """Whether an instant span may contain the answer to a request."""
    request_span, answer_span = request.span, answer.span
    is_near = request_span.scope == answer_span.scope and answer_span.parent_id in (
        request_span.parent_id,
        request_span.span_id,
    )
    return is_near and (not sent or sent == keys)


def _change(run: TracedRun, changes: _Changes) -> None:
    """Replace calls by others, or remove them, and their gaps with them."""
    lost: set[Gap] = set()
    remaining: list[ModelCall] = []
    for call in run.model_calls:
        new = changes.get(id(call), call)
        if new is not call:
            lost.update(call.gaps)
        if new is not None:
            remaining.append(new)
    run.model_calls = remaining
    if lost:
        still = {gap for call in remaining for gap in call.gaps}
        run.gaps = [gap for gap in run.gaps if gap not in lost or gap in still]


@dataclass(eq=False, slots=True)
class _Recording:
    """A call with its run, and a link to the recording that is kept instead, if any."""

    run: TracedRun
    call: ModelCall | ToolRun
    same: _Recording | None = None

    @property
    def kept(self) -> _Recording:
        member = self
        while member.same is not None:
            member = member.same
        return member

    def preference(self) -> tuple[bool, int, tuple[int, int, str]]:
        """The sort key: an agent's recording comes first, then the longer recording."""
        span = self.call.span
        return (self.run.agent is None, span.start_ns - span.end_ns, order(span))


def without_duplicates(runs: list[TracedRun]) -> list[TracedRun]:
    """The runs with each call in only one of them, without runs that become empty.

    Args:
        runs: The runs of several traces; they are changed.
    """
    runs = _with_detached_answers(runs)
    calls = [_Recording(run, call) for run in runs for call in run.model_calls]
    tools = [_Recording(run, tool) for run in runs for tool in run.tool_runs]
    scopes = {member.call.span.scope for member in (*calls, *tools)}
    if len(scopes) < 2 and "" not in scopes:
        return runs  # one instrumentation does not record a call twice
    _find(calls, lambda call: call_keys(call) if isinstance(call, ModelCall) else ())
    _find_silent(calls)
    _find(tools, lambda tool: _tool_keys(tool) if isinstance(tool, ToolRun) else ())
    _take_out_tools([member for member in tools if member.same is not None], runs)
    holders = _take_out_calls([member for member in calls if member.same is not None])
    return _without_emptied(runs, holders)


def _find(
    members: Sequence[_Recording], keys_of: Callable[[ModelCall | ToolRun], Iterable[str]]
) -> None:
    """Link the recordings of the same call to the recording that is kept."""
    by_key: dict[str, list[_Recording]] = defaultdict(list)
    for member in members:
        for key in keys_of(member.call):
            by_key[f"{key} {member.call.span.service}"].append(member)
    for key, group in by_key.items():
        if len(group) > 1:
            _link(group, is_id=key.startswith(_ID_KEYS))


def _find_silent(members: Sequence[_Recording]) -> None:
    """Link each call that contains only its model to the only call that it can be.

    Model clients write such spans in separate traces. A framework's span of the
    same call may lack the provider's id.
    """
    groups: dict[str, list[_Recording]] = defaultdict(list)
    for member in members:
        span, call = member.call.span, member.call
        if isinstance(call, ModelCall) and call.model:
            groups[f"{span.service}\0{call.model}"].append(member)
    for group in groups.values():
        if any(map(_is_silent, group)) and not all(map(_is_silent, group)):
            _link_silent(group)


def _is_silent(member: _Recording) -> bool:
    call = member.call
    return isinstance(call, ModelCall) and not call.input and not call.output


def _link_silent(group: list[_Recording]) -> None:
    group.sort(key=lambda m: (m.call.span.start_ns, _is_silent(m), order(m.call.span)))
    running: list[_Recording] = []
    for member in group:
        span = member.call.span
        running = [other for other in running if other.call.span.end_ns >= span.start_ns]
        if not _is_silent(member):
            running.append(member)
        elif member.same is None:
            around = [o for o in running if _is_around(o.call.span, span) and _may_hold(o, member)]
            if len(around) == 1 and _may_be_same(around[0].kept, member):
                member.same = around[0].kept


def _may_hold(outer: _Recording, silent: _Recording) -> bool:
    """Whether a call may be the same as a silent one: in an agent's run, only a sibling.

    If a framework's span of a streamed call is not the current span, its client's span is a
    sibling.
    """
    if silent.run.agent is None:
        return True
    outer_span, silent_span = outer.call.span, silent.call.span
    return outer.run is silent.run and outer_span.parent_id == silent_span.parent_id


def _is_around(outer: Span, inner: Span) -> bool:
    return outer.end_ns >= inner.end_ns and outer.scope != inner.scope


def _link(group: list[_Recording], *, is_id: bool) -> None:
    """Link recordings with equal keys if one lies within the time of the other.

    Args:
        group: The recordings.
        is_id: Whether the key is an id from the provider. Two calls never share one, so it suffices
            if a backend has not stored the instrumentation that wrote a span.
    """
    group.sort(key=lambda m: (m.call.span.start_ns, -m.call.span.end_ns, order(m.call.span)))
    outer = group[0]
    for member in group[1:]:
        span, around = member.call.span, outer.call.span
        if span.end_ns > around.end_ns:
            outer = member
        elif span.scope != around.scope or (is_id and not span.scope):
            preferred, double = sorted((member.kept, outer.kept), key=_Recording.preference)
            if preferred is not double and _may_be_same(preferred, double):
                double.same = preferred


def _may_be_same(preferred: _Recording, double: _Recording) -> bool:
    """Whether one process may have recorded both; an agent's run is in one trace."""
    preferred_span, double_span = preferred.call.span, double.call.span
    if preferred_span.trace_id == double_span.trace_id:
        return True
    return double.run.agent is None and preferred_span.resource == double_span.resource


def _take_out_calls(doubles: Sequence[_Recording]) -> dict[int, TracedRun]:
    """Remove calls recorded twice; return the run that now has the calls, by the former run."""
    runs: dict[int, TracedRun] = {}
    holders: dict[int, TracedRun] = {}
    changes: dict[int, _Changes] = defaultdict(dict)
    recordings: dict[int, tuple[_Recording, list[ModelCall]]] = {}
    for member in doubles:
        preferred, call = member.kept, member.call
        assert isinstance(call, ModelCall)
        runs.update({id(member.run): member.run, id(preferred.run): preferred.run})
        holders[id(member.run)] = preferred.run
        changes[id(member.run)][id(call)] = None
        recordings.setdefault(id(preferred), (preferred, []))[1].append(call)
        _keep_trace(preferred.run, call)
    for preferred, calls in recordings.values():
        assert isinstance(preferred.call, ModelCall)
        changes[id(preferred.run)][id(preferred.call)] = _completed(preferred.call, calls)
    for key, run_changes in changes.items():
        _change(runs[key], run_changes)
    return holders


def _keep_trace(run: TracedRun, call: ModelCall) -> None:
    trace_id = call.span.trace_id
    if trace_id != run.root.span.trace_id:
        run.duplicate_traces[trace_id] = None


def _take_out_tools(doubles: Sequence[_Recording], runs: Sequence[TracedRun]) -> None:
    if not doubles:
        return
    kept_for = {id(member.call): member.kept.call for member in doubles}
    for run in runs:
        run.tool_runs = [tool for tool in run.tool_runs if id(tool) not in kept_for]
        parent_tool = kept_for.get(id(run.parent_tool))
        if isinstance(parent_tool, ToolRun):
            run.parent_tool = parent_tool


def _without_emptied(runs: list[TracedRun], holders: dict[int, TracedRun]) -> list[TracedRun]:
    gone = {
        id(run): holders[id(run)]
        for run in runs
        if id(run) in holders and not run.model_calls and not run.tool_runs
    }
    left = [run for run in runs if id(run) not in gone]
    for run in left:
        while run.parent is not None and id(run.parent) in gone:
            above = gone[id(run.parent)]
            run.parent = above if above is not run else run.parent.parent
    return left
