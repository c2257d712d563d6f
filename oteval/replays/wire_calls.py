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
    """The model call that an exchange is, or None if it is not one."""
    recorded = recorded_call(exchange)
    return None if recorded is None else RebuiltCall(*recorded)


def distinct(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """Sort exchanges by their start, each once: two exporters may have sent the same."""
    exchanges_by_content: dict[tuple[object, ...], Exchange] = {}
    for exchange in sorted(exchanges, key=lambda exchange: (exchange.start_ns, exchange.end_ns)):
        key = (
            exchange.trace_id,
            exchange.span_id,
            exchange.method,
            exchange.url,
            exchange.start_ns,
            exchange.request_body,
        )
        exchanges_by_content.setdefault(key, exchange)
    return list(exchanges_by_content.values())


def join_exchanges(
    rebuilt: Sequence[RebuiltCall], exchanges: Sequence[Exchange], parents: Mapping[str, str]
) -> JoinedCalls:
    """Join the model calls of a session with their exchanges, and list the other exchanges.

    Args:
        rebuilt: The model calls as the spans have them.
        exchanges: The recorded exchanges of the session.
        parents: The id of each span's parent.
    """
    if not exchanges:
        return JoinedCalls(tuple(sorted(rebuilt, key=_start)))
    by_span = {call.call.span_id: call for call in rebuilt}
    wired: list[RebuiltCall] = []
    other_exchanges: list[Exchange] = []
    covered: set[int] = set()
    loose: list[RebuiltCall] = []
    for exchange in distinct(exchanges):
        loose_call = wire_call(exchange)
        owner = _owner(exchange.span_id, by_span, parents)
        if owner is not None:
            covered.add(id(owner))
        if loose_call is None:
            other_exchanges.append(exchange)
            continue
        wired.append(loose_call)
        if owner is None:
            loose.append(loose_call)
    left = [call for call in rebuilt if id(call) not in covered]
    for loose_call in loose:
        same = _same_call(loose_call.call, left)
        if same is not None:
            left.remove(same)
    return JoinedCalls(tuple(sorted((*wired, *left), key=_start)), tuple(other_exchanges))


def _start(rebuilt: RebuiltCall) -> tuple[int, int]:
    return rebuilt.call.start_ns, rebuilt.call.end_ns


def _owner(
    span_id: str, by_span: Mapping[str, RebuiltCall], parents: Mapping[str, str]
) -> RebuiltCall | None:
    """The model call in whose span, or below it, an exchange was made."""
    seen_ids: set[str] = set()
    while span_id and span_id not in seen_ids:
        if span_id in by_span:
            return by_span[span_id]
        seen_ids.add(span_id)
        span_id = parents.get(span_id, "")
    return None


def _same_call(wire: RecordedModelCall, calls: Sequence[RebuiltCall]) -> RebuiltCall | None:
    """The call that ran around an exchange: one with the same answer, or the only one."""
    around = [
        call
        for call in calls
        if call.call.start_ns <= wire.start_ns and wire.end_ns <= max(call.call.end_ns, wire.end_ns)
        if wire.start_ns <= (call.call.end_ns or wire.start_ns)
    ]
    answered = [call for call in around if _is_same_answer(call.call.answer, wire.answer)]
    if answered:
        return answered[0]
    unknown = [call for call in around if call.call.answer is None]
    return unknown[0] if len(unknown) == 1 else None


def _is_same_answer(message: Message | None, wire_message: Message | None) -> bool:
    if message is None or wire_message is None:
        return False
    if message.tool_calls or wire_message.tool_calls:
        return [call.id for call in message.tool_calls] == [
            call.id for call in wire_message.tool_calls
        ]
    return (message.content or "").strip() == (wire_message.content or "").strip()
