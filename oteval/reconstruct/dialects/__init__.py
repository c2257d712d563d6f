"""The dialects, one file each, in the order in which they are tried: specific before generic.

A span goes through exactly one. To add a dialect, write its file and name it here.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...model import Span
from ..readings import Reading, Wrapper
from .adk import ADK
from .adk_openinference import ADK_OPENINFERENCE
from .adot import ADOT
from .agent_framework import AGENT_FRAMEWORK
from .any_agent import ANY_AGENT
from .base import Dialect, Logs
from .checking import checked
from .claude_code import CLAUDE_CODE
from .crewai import CREWAI
from .dspy import DSPY
from .gemini_cli import GEMINI_CLI
from .genai import GENAI
from .genai_events import GENAI_EVENTS
from .genkit import GENKIT
from .haystack import HAYSTACK
from .haystack_openinference import HAYSTACK_OPENINFERENCE
from .langfuse import LANGFUSE
from .langsmith import LANGSMITH
from .litellm import LITELLM
from .llamaindex import LLAMAINDEX
from .logfire import LOGFIRE
from .mastra import MASTRA
from .mcp import MCP
from .mlflow import MLFLOW
from .openinference import OPENINFERENCE
from .openlit import OPENLIT
from .pydantic_ai import PYDANTIC_AI
from .semantic_kernel import SEMANTIC_KERNEL
from .smolagents import SMOLAGENTS
from .strands import STRANDS
from .traceloop import TRACELOOP
from .vercel import VERCEL

__all__ = ["DIALECTS", "Dialect", "gathered", "read_span"]

DIALECTS: tuple[Dialect, ...] = (
    ADOT,
    STRANDS,
    CLAUDE_CODE,
    LANGFUSE,
    MLFLOW,
    LANGSMITH,
    CREWAI,
    SMOLAGENTS,
    DSPY,
    ADK_OPENINFERENCE,
    HAYSTACK_OPENINFERENCE,
    OPENINFERENCE,
    ADK,
    PYDANTIC_AI,
    AGENT_FRAMEWORK,
    SEMANTIC_KERNEL,
    GENKIT,
    MASTRA,
    GEMINI_CLI,
    OPENLIT,
    LOGFIRE,
    ANY_AGENT,
    VERCEL,
    HAYSTACK,
    LITELLM,
    LLAMAINDEX,
    TRACELOOP,
    MCP,
    GENAI_EVENTS,
    GENAI,
)


def gathered(spans: Sequence[Span], logs: Logs) -> Logs:
    """Return log records hung on the spans that they tell of, whatever span they came with."""
    for dialect in DIALECTS:
        if dialect.gather is not None:
            logs = dialect.gather(spans, logs)
    return logs


def read_span(span: Span, logs: Logs) -> tuple[str, Reading]:
    """Return what a span says, and the name of the dialect that read it ("" for none)."""
    for dialect in DIALECTS:
        if dialect.claims(span, logs):
            return dialect.name, checked(dialect.read(span, logs), dialect.switch)
    return "", Wrapper(span)
