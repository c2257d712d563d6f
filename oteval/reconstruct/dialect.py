"""The declaration of a dialect: which spans it reads, and how.

A dialect is one way of writing agents, model calls and tool calls in spans. Each is one module of
`oteval.reconstruct.dialects` with a `Dialect` named ``DIALECT``. No list names the modules; a
dialect may use functions of another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..model import LogRecord, Span
from .operations import Operation

__all__ = ["Dialect", "Logs"]

Logs = Sequence[LogRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One way of writing agents, model calls and tool calls in spans.

    A span with any of the marks (`scopes`, `keys`, `span_names`, `events`) is offered to the
    dialect. If the dialect has `claims`, that function decides. A span with marks of several
    dialects goes to the dialect with the lowest `precedence` that claims it.

    In `scopes`, `keys` and `span_names`, a trailing ``*`` matches any ending.

    Attributes:
        name: The name in trajectories, in ``oteval explain`` and in the documentation. It is stored
            and filtered by: never change it.
        title: The framework or instrumentation that writes the spans.
        precedence: The order of trying dialects, lowest first. Frameworks
            with their own marks come before conventions that many frameworks share: OpenInference
            has 120, the current GenAI conventions 300.
        read: Returns the operation that a span records.
        scopes: Instrumentation scopes whose spans it reads.
        keys: Attributes that only its spans have.
        span_names: Names of its spans.
        events: Names of span events or log records with its content.
        operations: Values of ``gen_ai.operation.name`` that only its spans have.
        claims: Returns whether it reads a span that has one of the marks; None if it reads every
            such span.
        is_added: Returns whether a backend may have added the marks to a span as it stored it; None
            if only the emitter writes them. Then any other dialect that claims the span reads it:
            attributes of the framework contain more than their translation by a backend.
        attach_logs: Returns the log records, each with the span that it belongs to; None if the
            emitter writes them with the right span. Called once for all spans of the traces.
        switch: The remedy in the gap ``content_not_captured``: the setting that makes the emitter
            write messages. "" if one side of a model call is expected elsewhere; then no gap is
            reported for it.
    """

    name: str
    title: str
    precedence: int
    read: Callable[[Span, Logs], Operation]
    scopes: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    span_names: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    claims: Callable[[Span, Logs], bool] | None = None
    is_added: Callable[[Span], bool] | None = None
    attach_logs: Callable[[Sequence[Span], Logs], Logs] | None = None
    switch: str = ""
