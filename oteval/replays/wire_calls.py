"""Recorded HTTP exchanges, joined with the model calls of the trace that they belong to.

An exchange belongs to the model call in whose span it was made, or else to the call that ran at
that time with the same answer. One call may have several exchanges: attempts that failed, and the
last one. All of them are kept, since an agent makes them again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..model import Exchange, Message, RecordedModelCall
from ..reconstruct import recorded_call
from .rebuilt_calls import RebuiltCall

__all__ = ["JoinedCalls", "distinct", "join_exchanges", "wire_call"]


@dataclass(frozen=True, slots=True)
class JoinedCalls:
    """The model calls of a session.

    Attributes:
        calls: The calls, by their start.
        exchanges: The exchanges that are not calls of a known API, by their start.
    """

    calls: tuple[RebuiltCall, ...]
    exchanges: tuple[Exchange, ...] = ()


def wire_call(exchange: Exchange) -> RebuiltCall | None:
    """Return the model call that an exchange is, or None if it is not one."""
    recorded = recorded_call(exchange)
    return None if recorded is None else RebuiltCall(*recorded)


def distinct(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """Return exchanges by their start, each once: two exporters may have sent the same."""
    found: dict[tuple[object, ...], Exchange] = {}
    for one in sorted(exchanges, key=lambda one: (one.start_ns, one.end_ns)):
        key = (one.trace_id, one.span_id, one.method, one.url, one.start_ns, one.request_body)
        found.setdefault(key, one)
    return list(found.values())


def join_exchanges(
    rebuilt: Sequence[RebuiltCall], exchanges: Sequence[Exchange], parents: Mapping[str, str]
) -> JoinedCalls:
    """Return the model calls of a session with their exchanges, and the other exchanges.

    Args:
        rebuilt: The model calls as the spans have them.
        exchanges: The recorded exchanges of the session.
        parents: The id of each span's parent.
    """
    if not exchanges:
        return JoinedCalls(tuple(sorted(rebuilt, key=_start)))
    by_span = {one.call.span_id: one for one in rebuilt}
    wired: list[RebuiltCall] = []
    others: list[Exchange] = []
    covered: set[int] = set()
    loose: list[RebuiltCall] = []
    for exchange in distinct(exchanges):
        found = wire_call(exchange)
        owner = _owner(exchange.span_id, by_span, parents)
        if owner is not None:
            covered.add(id(owner))
        if found is None:
            others.append(exchange)
            continue
        wired.append(found)
        if owner is None:
            loose.append(found)
    left = [one for one in rebuilt if id(one) not in covered]
    for found in loose:
        same = _same_call(found.call, left)
        if same is not None:
            left.remove(same)
    return JoinedCalls(tuple(sorted((*wired, *left), key=_start)), tuple(others))


def _start(one: RebuiltCall) -> tuple[int, int]:
    return one.call.start_ns, one.call.end_ns


def _owner(
    span_id: str, by_span: Mapping[str, RebuiltCall], parents: Mapping[str, str]
) -> RebuiltCall | None:
    """Return the model call in whose span, or below it, an exchange was made."""
    seen: set[str] = set()
    while span_id and span_id not in seen:
        if span_id in by_span:
            return by_span[span_id]
        seen.add(span_id)
        span_id = parents.get(span_id, "")
    return None


def _same_call(wire: RecordedModelCall, calls: Sequence[RebuiltCall]) -> RebuiltCall | None:
    """Return the call that ran around an exchange: one with the same answer, or the only one."""
    around = [
        one
        for one in calls
        if one.call.start_ns <= wire.start_ns and wire.end_ns <= max(one.call.end_ns, wire.end_ns)
        if wire.start_ns <= (one.call.end_ns or wire.start_ns)
    ]
    answered = [one for one in around if _is_same_answer(one.call.answer, wire.answer)]
    if answered:
        return answered[0]
    unknown = [one for one in around if one.call.answer is None]
    return unknown[0] if len(unknown) == 1 else None


def _is_same_answer(one: Message | None, other: Message | None) -> bool:
    if one is None or other is None:
        return False
    if one.tool_calls or other.tool_calls:
        return [call.id for call in one.tool_calls] == [call.id for call in other.tool_calls]
    return (one.content or "").strip() == (other.content or "").strip()
