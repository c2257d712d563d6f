"""Semantic Kernel, Python (scopes ``semantic_kernel.*``) and .NET (``Microsoft.SemanticKernel*``).

Source: ``utils/telemetry/model_diagnostics`` and ``InternalUtilities/src/Diagnostics`` of
https://github.com/microsoft/semantic-kernel. Each message of a model call is an event with a JSON
body: log records in Python, ordered by ``CHAT_MESSAGE_INDEX``; span events with
``gen_ai.event.content`` in .NET. Older versions write two span events, ``gen_ai.content.prompt``
and ``gen_ai.content.completion``. The agent's span has OpenAI's messages and only its answer.
"""

from __future__ import annotations

from ...model import Span
from ..dialect import Dialect, Logs, ModelCall, Operation, Wrapper
from ..gaps import gap
from ..tool_spans import tool_run
from . import genai, genai_events

__all__ = ["DIALECT"]

SWITCH = (
    "set SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE=true (in .NET, the "
    "switch Microsoft.SemanticKernel.Experimental.GenAI.EnableOTelDiagnosticsSensitive); in "
    "Python, load the log records beside the spans"
)
FUNCTION_SCOPE = "semantic_kernel.functions."
MODEL_OPERATIONS = genai.MODEL_OPERATIONS | {"chat.completions", "text.completions"}


def read(span: Span, logs: Logs) -> Operation:
    """The span's operation; a function's span may have none."""
    operation = str(span.attributes.get("gen_ai.operation.name") or "")
    if operation in MODEL_OPERATIONS or operation.removesuffix(".streaming") in MODEL_OPERATIONS:
        return _model_call(span, logs)
    if operation == "execute_tool":
        return genai.read_tool(span, SWITCH)
    if operation == "invoke_agent":
        return genai.read_agent(span, logs)
    if not operation and genai_events.has_messages(span, logs):
        return _model_call(span, logs)
    if not operation and span.scope.startswith(FUNCTION_SCOPE):
        missing = gap("content_not_captured", span.span_id, switch=SWITCH)
        return tool_run(span, name=span.name, gaps=(missing,))
    return Wrapper(span)


def _model_call(span: Span, logs: Logs) -> ModelCall:
    if genai.INPUT in span.attributes or genai.OUTPUT in span.attributes:
        return genai.read_model_call(span, logs, SWITCH)
    return genai_events.read_model_call(span, logs, SWITCH)


DIALECT = Dialect(
    name="semantic-kernel",
    title="Semantic Kernel",
    precedence=160,
    read=read,
    scopes=("semantic_kernel.*", "Microsoft.SemanticKernel*"),
    switch=SWITCH,
)
