"""Spans that no dialect reads: HTTP requests, database calls and the like, and unknown models."""

from __future__ import annotations

from ..messages import EVENT_ROLES
from ..model import Span, first
from .readers.attribute_shapes import token_attributes
from .span_reader import is_pending

__all__ = ["FOREIGN", "foreign_marks", "holds_messages", "infrastructure_of", "is_transport"]

# Attribute prefixes of model spans that no dialect reads.
FOREIGN = (
    "agentops.",
    "braintrust.input",
    "braintrust.output",
    "gen_ai.completion",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
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
_CLIENT = 3
_SERVED_KINDS = (2, 5)  # of servers and of consumers
_PREFIXES = tuple(prefix for _, prefixes in _KINDS for prefix in prefixes)


def infrastructure_of(span: Span) -> str:
    """A description of a span that no dialect reads, or "" if its kind is unknown."""
    if is_pending(span):
        return "the beginning of a span, which comes when it has ended"
    if any(key in span.attributes for key in _HTTP):
        where = str(first(span.attributes, _URL) or "").partition("?")[0]
        return f"an HTTP request{where and f' to {where}'}, without content"
    if not any(key.startswith(_PREFIXES) for key in span.attributes):
        return ""
    for text, prefixes in _KINDS:
        if any(key.startswith(prefixes) for key in span.attributes):
            return text
    return ""


def foreign_marks(span: Span) -> set[str]:
    """The attributes that make a span look like a model span, though no dialect reads it.

    Attributes with a known prefix are named by it; otherwise, attributes with token counts.
    """
    if is_pending(span):
        return set()
    keys = [key for key in span.attributes if key.startswith(FOREIGN)]
    marks = {mark for mark in FOREIGN for key in keys if key.startswith(mark)}
    marks |= {event.name for event in span.events if event.name in EVENT_ROLES}
    return marks or set(token_attributes(span))


def holds_messages(span: Span, dialect: str) -> bool:
    """Whether a span of the conventions contains messages, whatever its operation is.

    Args:
        span: The span, which its dialect takes for a wrapper.
        dialect: The name of the dialect.
    """
    if dialect not in _CONVENTIONS:
        return False
    is_told = any(event.name in EVENT_ROLES for event in span.events)
    return is_told or not span.attributes.keys().isdisjoint(_MESSAGES)


_CONVENTIONS = ("genai", "genai-events")
_MESSAGES = ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.completion")


def is_transport(span: Span) -> bool:
    """Whether a tool's span only records the transport of its call, or the server's side.

    The MCP SDK's own request spans name no tool. If a backend stores no kind, it is unknown which
    side an MCP span is of; then it does not count as an agent's.
    """
    if span.kind in _SERVED_KINDS:
        return True
    if "mcp.method.name" not in span.attributes:
        return False
    return span.kind != _CLIENT or "gen_ai.tool.name" not in span.attributes
