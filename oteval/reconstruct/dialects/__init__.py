"""The dialects, one file each, in the order in which they are tried: specific before generic.

A span goes through exactly one. To add a dialect, write its file and name it here.
"""

from __future__ import annotations

from ...model import Span
from ..readings import Reading, Wrapper
from .base import Dialect, Logs
from .genai import GENAI
from .genai_events import GENAI_EVENTS
from .openinference import OPENINFERENCE
from .pydantic_ai import PYDANTIC_AI
from .traceloop import TRACELOOP

__all__ = ["DIALECTS", "Dialect", "read_span"]

DIALECTS: tuple[Dialect, ...] = (OPENINFERENCE, PYDANTIC_AI, TRACELOOP, GENAI_EVENTS, GENAI)


def read_span(span: Span, logs: Logs) -> tuple[str, Reading]:
    """Return what a span says, and the name of the dialect that read it ("" for none)."""
    for dialect in DIALECTS:
        if dialect.claims(span, logs):
            return dialect.name, dialect.read(span, logs)
    return "", Wrapper(span)
