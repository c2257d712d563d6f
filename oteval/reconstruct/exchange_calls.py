"""Model calls in recorded HTTP exchanges, and whether other spans record them.

An instrumentation's span of a model call and the exchange below it are one call, which is read from
the span. Exchanges are read where spans contain less: an agent that talks to its model with a plain
HTTP client has no other record, and a client that calls tools by itself sends several requests
inside one span.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..base.errors import InputError
from ..model import EVENT_NAME, Exchange, LogRecord, Message, RecordedModelCall, RecordedRequest
from .apis import api_of
from .dialect import ModelCall
from .tree import Node

__all__ = [
    "EXCHANGE_DIALECT",
    "ExchangeIndex",
    "ReadExchange",
    "model_exchange",
    "read_exchange",
    "recorded_call",
]

EXCHANGE_DIALECT = "http"
"""The name of the dialect that reads exchanges."""


class ReadExchange(NamedTuple):
    """An exchange with a model as it was read.

    Attributes:
        call: The model call.
        problem: Why it is not whole, or "".
        output: The answer as it was sent, the results of the provider's tools included.
    """

    call: RecordedModelCall
    problem: str = ""
    output: tuple[Message, ...] = ()


def recorded_call(exchange: Exchange) -> tuple[RecordedModelCall, str] | None:
    """The model call in an exchange, and why it is not whole, or "".

    Returns:
        None if the exchange is not an exchange of a known API of models.
    """
    read = read_exchange(exchange)
    return None if read is None else (read.call, read.problem)


def read_exchange(exchange: Exchange) -> ReadExchange | None:
    """The model call in an exchange; None if it is not an exchange of a known API of models."""
    api = api_of(exchange.method, exchange.url)
    if api is None:
        return None
    call = RecordedModelCall(
        request=RecordedRequest(api=api.name),
        exchange=exchange,
        error=exchange.error,
        start_ns=exchange.start_ns,
        end_ns=exchange.end_ns,
        trace_id=exchange.trace_id,
        span_id=exchange.span_id,
    )
    try:
        call = replace(call, request=api.parse_request(exchange.request_body, exchange.url))
    except InputError as error:
        return ReadExchange(call, f"its request cannot be read: {error}")
    if exchange.status == 0:
        return ReadExchange(call)
    try:
        answer = api.parse_response(exchange.response_body)
    except InputError as error:
        if exchange.status >= 400:
            failed = replace(call, error=f"HTTP {exchange.status}", status=exchange.status)
            return ReadExchange(failed)
        return ReadExchange(call, f"its response cannot be read: {error}")
    is_error = exchange.status >= 400 or bool(answer.error)
    call = replace(
        call,
        answer=None if is_error else answer.message,
        error=(answer.error or f"HTTP {exchange.status}") if is_error else exchange.error,
        status=exchange.status if is_error else 0,
        choices=answer.choices,
        finish_reason=answer.finish_reason,
        model=answer.model,
        response_id=answer.response_id,
        usage=answer.usage,
    )
    answer_messages = answer.output or ((answer.message,) if answer.message else ())
    return ReadExchange(call, output=() if is_error else answer_messages)


def model_exchange(logs: Iterable[LogRecord]) -> LogRecord | None:
    """The first record of an exchange with a model, without reading its bodies, or None."""
    return next((record for record in logs if _is_model_exchange(record)), None)


def _is_model_exchange(record: LogRecord) -> bool:
    if record.event_name != EVENT_NAME or not isinstance(record.body, Mapping):
        return False
    method, url = record.body.get("method"), record.body.get("url")
    return isinstance(method, str) and isinstance(url, str) and api_of(method, url) is not None


class ExchangeIndex:
    """The spans of one trace that have exchanges with models.

    Attributes:
        calls: The ids of the objects of the calls that were read from exchanges.

    Args:
        roots: The trace's forest.
        logs: The trace's log records by span id.
    """

    def __init__(self, roots: Sequence[Node], logs: Mapping[str, Sequence[LogRecord]]) -> None:
        self._logs = logs
        self.calls: set[int] = set()
        records = {span_id: model_exchange(of_span) for span_id, of_span in logs.items()}
        self._records = {name: record for name, record in records.items() if record is not None}
        self._below: dict[str, int] = defaultdict(int)
        if self._records:
            for root in roots:
                self._count(root)

    def _count(self, root: Node) -> None:
        """Count the answered exchanges below each span."""
        for node in root.walk():
            record = self._records.get(node.span.span_id)
            if record is not None and _is_answered(record):
                for above in node.ancestors():
                    self._below[above.span.span_id] += 1

    def logs_of(self, span_id: str, around: ModelCall | None) -> Sequence[LogRecord]:
        """The records of a span that it is read from.

        Args:
            span_id: The span.
            around: The outermost model call around it. The exchange is left out if it is
                the only exchange that was answered there, or was not answered.
        """
        logs = self._logs.get(span_id, ())
        record = self._records.get(span_id) if around is not None else None
        if around is None or record is None:
            return logs
        if _is_answered(record) and self._below[around.span.span_id] > 1:
            return logs
        return [log for log in logs if log.event_name != EVENT_NAME]

    def repeated(self, calls: Sequence[ModelCall], exchange_calls: Sequence[ModelCall]) -> set[int]:
        """The ids of the objects of calls in exchanges that another span records.

        If the span of a streamed call is not the current span, the request is not below it, but
        within its time.

        Args:
            calls: The calls that other spans record.
            exchange_calls: The calls in exchanges.
        """
        repeated: set[int] = set()
        for call in calls if exchange_calls else ():
            span = call.span
            if self._below[span.span_id]:
                continue
            inside = [
                other
                for other in exchange_calls
                if id(other) not in repeated and span.start_ns <= other.span.start_ns <= span.end_ns
            ]
            answered = [other for other in inside if other.output]
            if len(answered) == 1 or (len(answered) > 1 and _same_answer(call, answered)):
                same = answered[0] if len(answered) == 1 else _same_answer(call, answered)
                repeated.update(id(other) for other in inside if other is same or not other.output)
            elif not answered:
                repeated.update(map(id, inside))
        return repeated


def _same_answer(call: ModelCall, candidates: Sequence[ModelCall]) -> ModelCall | None:
    """The call with the same answer as another, or None."""
    texts = [(message.content or "").strip() for message in call.output]
    return next(
        (
            other
            for other in candidates
            if (call.response_id and other.response_id == call.response_id)
            or texts == [(message.content or "").strip() for message in other.output]
        ),
        None,
    )


def _is_answered(record: LogRecord) -> bool:
    response = record.body.get("response") if isinstance(record.body, Mapping) else None
    status = response.get("status") if isinstance(response, Mapping) else None
    return isinstance(status, int) and 200 <= status < 300 and "error" not in record.body
