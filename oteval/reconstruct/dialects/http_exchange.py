"""Recorded HTTP exchanges: the requests of an agent that talks to its model with an HTTP client.

Emitter: oteval's recorder, which writes each exchange as a log record of the span of the HTTP
request. It is the last dialect: whatever else records the call shows more of the agent's intention.
"""

from __future__ import annotations

from dataclasses import replace

from ...model import (
    EVENT_NAME,
    LogRecord,
    Span,
    UnreadableExchange,
    Usage,
    from_log,
    normal_finish_reason,
)
from ..dialect import Dialect, Logs, ModelCall, Operation, Wrapper
from ..exchange_calls import EXCHANGE_DIALECT, model_exchange, read_exchange
from ..gaps import gap

__all__ = ["DIALECT"]


def read(span: Span, logs: Logs) -> Operation:
    """The model call in an exchange."""
    record = model_exchange(logs)
    return Wrapper(span) if record is None else _call(span, record)


def _call(span: Span, record: LogRecord) -> Operation:
    try:
        exchange = from_log(record)
    except UnreadableExchange as error:
        return _unreadable(span, str(error))
    read_call = read_exchange(exchange) if exchange is not None else None
    if read_call is None:
        return Wrapper(span)
    call, problem, output = read_call
    if problem:
        return _unreadable(span, problem)
    failures = (gap("model_call_failed", span.span_id, reason=call.error),) if call.error else ()
    is_answered = call.answer is not None and (not call.error or bool(call.finish_reason))
    return ModelCall(
        span,
        input=call.request.messages,
        output=output if is_answered else (),
        choices=call.choices if is_answered else (),
        tools=call.request.tools,
        model=call.model or call.request.model,
        response_id=call.response_id,
        finish_reason=normal_finish_reason(call.finish_reason),
        usage=replace(call.usage, model_calls=1),
        gaps=() if is_answered else failures,
    )


def _unreadable(span: Span, reason: str) -> ModelCall:
    problem = gap("content_unreadable", span.span_id, key="the HTTP exchange", reason=reason)
    return ModelCall(span, whole=False, usage=Usage(0, 0, 0, 1), gaps=(problem,))


DIALECT = Dialect(
    name=EXCHANGE_DIALECT,
    title="Recorded HTTP exchanges",
    precedence=900,
    read=read,
    events=(EVENT_NAME,),
    claims=lambda _span, logs: model_exchange(logs) is not None,
)
