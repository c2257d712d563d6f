"""Semantic Kernel, Python (scopes ``semantic_kernel.*``) and .NET (``Microsoft.SemanticKernel*``).

Source: ``utils/telemetry/model_diagnostics`` and ``InternalUtilities/src/Diagnostics`` of
https://github.com/microsoft/semantic-kernel. A model call's messages are events, one a message,
whose body is JSON text: log records in Python, ordered by ``CHAT_MESSAGE_INDEX``; span events with
``gen_ai.event.content`` in .NET. Before, there were two span events, ``gen_ai.content.prompt`` and
``gen_ai.content.completion``. The agent's span holds OpenAI's messages, and its answer alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...messages.reader import EVENT_ROLES
from ...model import Message, Span
from ..dialect import Dialect, Logs
from ..gaps import gap
from ..operations import ModelCall, Operation, Wrapper
from ..readers.spans import attribute_gaps, integer, is_whole, model_failure
from ..tool_spans import tool_run
from . import genai
from .genai_events import CONTENT, PROMPT, Emitted, model_call, prompt_and_completion

__all__ = ["DIALECT"]

SWITCH = (
    "set SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE=true (in .NET, the "
    "switch Microsoft.SemanticKernel.Experimental.GenAI.EnableOTelDiagnosticsSensitive); in "
    "Python, load the log records beside the spans"
)
FUNCTION_SCOPE = "semantic_kernel.functions."
INDEX = "CHAT_MESSAGE_INDEX"
MODEL_OPERATIONS = genai.MODEL_OPERATIONS | {"chat.completions", "text.completions"}


def read(span: Span, logs: Logs) -> Operation:
    """Return the span's operation; a function's may have none."""
    operation = str(span.attributes.get("gen_ai.operation.name") or "")
    if operation in MODEL_OPERATIONS or operation.removesuffix(".streaming") in MODEL_OPERATIONS:
        return _model_call(span, logs)
    if operation == "execute_tool":
        return genai.read_tool(span, SWITCH)
    if operation == "invoke_agent":
        return genai.read_agent(span, logs)
    if not operation and (_emitted(span, logs) or prompt_and_completion(span) is not None):
        return _model_call(span, logs)
    if not operation and span.scope.startswith(FUNCTION_SCOPE):
        missing = gap("content_not_captured", span.span_id, switch=SWITCH)
        return tool_run(span, name=span.name, gaps=(missing,))
    return Wrapper(span)


def _model_call(span: Span, logs: Logs) -> ModelCall:
    if genai.INPUT in span.attributes or genai.OUTPUT in span.attributes:
        call = genai.read_model_call(span, logs, SWITCH)
    elif (pair := prompt_and_completion(span)) is not None:
        call = _old_call(span, pair)
    else:
        call = model_call(span, _emitted(span, logs), SWITCH)
    return call


def _emitted(span: Span, logs: Logs) -> list[Emitted]:
    """Return the message events, those sent in the order of their index."""
    records = [record for record in logs if record.event_name in EVENT_ROLES]
    records.sort(
        key=lambda record: (
            integer(record.attributes.get(INDEX)),
            record.time_ns or record.observed_ns,
            record.seq,
        )
    )
    found = [Emitted(record.event_name, record.body) for record in records]
    found += [
        Emitted(event.name, event.attributes.get(CONTENT, event.attributes))
        for event in span.events
        if event.name in EVENT_ROLES
    ]
    return found


def _old_call(span: Span, pair: tuple[Sequence[Message], Sequence[Message]]) -> ModelCall:
    gaps = attribute_gaps(span, (), SWITCH) + model_failure(span)
    sent, received = pair
    if not sent and not received:
        gaps.append(gap("content_unreadable", span.span_id, key=PROMPT, reason="it is not JSON"))
    call = model_call(span, [], SWITCH)
    return replace(
        call,
        input=tuple(sent),
        output=tuple(received[:1]),
        whole=is_whole(gaps),
        gaps=tuple(gaps),
    )


DIALECT = Dialect(
    name="semantic-kernel",
    title="Semantic Kernel",
    precedence=160,
    read=read,
    scopes=("semantic_kernel.*", "Microsoft.SemanticKernel*"),
    switch=SWITCH,
)
