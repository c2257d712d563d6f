"""Spans of requests, database calls and the like, beside those of an application's agents.

A trace of nothing else has no agent, and so no trajectory. Web frameworks may
write their own steps inside the span of a request that they serve; these are of the same kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..model import LogRecord, Span
from ..semconv import first
from .span_reader import dialect_of

__all__ = ["FOREIGN", "foreign_marks", "infrastructure_of", "is_infrastructure"]

# Attribute prefixes by which model spans that no dialect reads are known.
FOREIGN = (
    "agentops.",
    "braintrust.input",
    "braintrust.output",
    "gen_ai.completion",
    "gen_ai.prompt",
    "helicone.",
    "langtrace.",
    "llm.",
    "lmnr.span.",
    "promptflow.",
    "weave.",
)
_HTTP = ("http.request.method", "http.method")
_URL = ("url.full", "http.url", "http.target", "url.path")
# In order: a database call over the network is a database call.
_KINDS = (
    ("a database call", ("db.",)),
    ("messaging", ("messaging.",)),
    ("a remote call", ("rpc.",)),
    ("an HTTP request", ("http.", "asgi.", "url.")),
    ("a network call", ("dns.", "net.", "network.", "server.address", "tls.")),
)
_SERVED_KINDS = (2, 5)  # of servers and of consumers
_PREFIXES = tuple(prefix for _, prefixes in _KINDS for prefix in prefixes)


def infrastructure_of(span: Span) -> str:
    """Return a description of a span that no dialect reads, or "" if its kind is unknown."""
    if _creates_agent(span):
        return "the creation of an agent"
    if any(key in span.attributes for key in _HTTP):
        where = str(first(span.attributes, _URL) or "").partition("?")[0]
        return f"an HTTP request{where and f' to {where}'}, without content"
    if not any(key.startswith(_PREFIXES) for key in span.attributes):
        return ""
    for text, prefixes in _KINDS:
        if any(key.startswith(prefixes) for key in span.attributes):
            return text
    return ""


def _creates_agent(span: Span) -> bool:
    return span.attributes.get("gen_ai.operation.name") == "create_agent"


def foreign_marks(span: Span) -> set[str]:
    """Return the prefixes by which a span looks like a model span that no dialect reads."""
    keys = [key for key in span.attributes if key.startswith(FOREIGN)]
    return {mark for mark in FOREIGN for key in keys if key.startswith(mark)}


def is_infrastructure(spans: Sequence[Span], logs: Mapping[str, Sequence[LogRecord]]) -> bool:
    """Return whether a trace holds nothing but requests, database calls and the like.

    Args:
        spans: The trace's spans.
        logs: The trace's log records by span id.
    """
    servers = {
        span.scope for span in spans if span.kind in _SERVED_KINDS and infrastructure_of(span)
    }
    return all(
        _creates_agent(span)
        or (
            dialect_of(span, logs.get(span.span_id, ())) is None
            and (infrastructure_of(span) or (span.scope and span.scope in servers))
            and not foreign_marks(span)
        )
        for span in spans
    )
