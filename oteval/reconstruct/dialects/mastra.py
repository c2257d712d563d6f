"""Mastra: spans with ``mastra.span.type``, from its OpenTelemetry exporter and bridge.

Source: ``observability/otel-exporter`` of https://github.com/mastra-ai/mastra. An agent's run has
a generation, which has a step for each call of the model; the call itself (``model_inference``) may
be a span below its step. Inputs and outputs are ``mastra.<type>.input`` and ``.output``. A step's
output contains the calls, but its input shortens earlier steps' calls to ``[tool: name]``; only the
generation has the whole input. So a generation's input is added to its first step, and the later
steps contribute their outputs and the tools' spans.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...messages import SYSTEM_ROLES, ModelAnswer, ModelRequest, decoded, from_messages, parse
from ...model import LogRecord, Message, Span, semconv
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..readers.model_calls import call_gaps, model_call
from ..readers.spans import not_captured, usage
from ..tool_spans import tool_of_attributes
from ..tree import order
from . import genai

__all__ = ["DIALECT"]

SWITCH = "do not set hideInput or hideOutput in the agent's tracingOptions"
TYPE = "mastra.span.type"
GENERATIONS = ("model_generation", "llm_generation")
TOOLS = ("tool_call", "mcp_tool_call")
_GENERATION_INPUT = "mastra.model_generation.input"
# The record that adds a generation's input and a model span's usage to a step.
_STEP = "oteval.mastra.step"
_HAS_STEPS = "oteval.mastra.has_steps"
_SHORTENED = re.compile(r"\[tool(-result)?: [^\]]*\]")


def read(span: Span, logs: Logs) -> Operation:
    """The span's operation, by its type."""
    kind = str(span.attributes[TYPE])
    if kind == "agent_run":
        return _agent(span)
    if kind in TOOLS:
        return _tool(span, kind)
    if kind == "model_step":
        return _step(span, logs)
    if kind in GENERATIONS and not _has_steps(logs):
        return _generation(span, logs)
    return Wrapper(span)


def _value(span: Span, side: str) -> Any:
    """A span's input or output, from the attribute of its type or the GenAI attribute."""
    kind = span.attributes[TYPE]
    content = span.attributes.get(f"mastra.{kind}.{side}")
    if content is None:
        content = span.attributes.get(f"gen_ai.{side}.messages")
    return decoded(content)


def _keys(span: Span) -> tuple[str, str]:
    kind = span.attributes[TYPE]
    return f"mastra.{kind}.input", f"mastra.{kind}.output"


def _agent(span: Span) -> AgentRun:
    agent = genai.read_agent(span, ())
    sent = _sent(_value(span, "input"), span) or list(agent.input)
    spoken = [message for message in sent if message.role not in SYSTEM_ROLES]
    system = genai.read_system(span.attributes, span)
    return replace(
        agent,
        name=agent.name or str(span.attributes.get("gen_ai.agent.id") or ""),
        input=(*system, *spoken),
        output=tuple(_received(_value(span, "output"), span)) or agent.output,
        tools=tuple(tool for tool in agent.tools if isinstance(tool, Mapping)),
    )


def _tool(span: Span, kind: str) -> ToolRun:
    if genai.ARGUMENTS in span.attributes or genai.RESULT in span.attributes:
        return genai.read_tool(span, SWITCH)
    tool = tool_of_attributes(span, _keys(span), SWITCH)
    return replace(tool, name=tool.name.removeprefix(f"{kind} "))


def _sent(value: Any, span: Span) -> list[Message]:
    """The messages of an input: text, a list, or a mapping with a list."""
    if isinstance(value, Mapping):
        value = value.get("messages", value.get("content"))
    if isinstance(value, Mapping):
        value = value.get("parts")
    return from_messages(value, span)


def _received(value: Any, span: Span) -> list[Message]:
    """The message of an output: its text and calls."""
    if isinstance(value, (str, list)):
        return from_messages(value, span, "assistant")
    if not isinstance(value, Mapping):
        return []
    text, calls = value.get("text"), value.get("toolCalls")
    content = text if isinstance(text, str) and text else None
    if content is None and not calls:
        content = value.get("object")
    if content is None and not calls:
        return []
    return from_messages([{"content": content, "toolCalls": calls}], span, "assistant")


def _step(span: Span, logs: Logs) -> ModelCall:
    """Return one call of the model; the first call has the input of its generation."""
    step_attributes = next((record.attributes for record in logs if record.event_name == _STEP), {})
    value = parse(step_attributes.get(_GENERATION_INPUT)).value
    sent = _sent(value, span)
    if not sent:
        sent = _sent(_value(span, "input"), span)
        # A step's input is whole until the first tool call.
        is_short = any(_SHORTENED.search(message.content or "") for message in sent)
        sent = [] if is_short else sent
    attributes = {**step_attributes, **span.attributes}
    return _model_call(span, sent, attributes, needs_input=not step_attributes.get("follows"))


def _generation(span: Span, logs: Logs) -> ModelCall:
    """A generation without steps: the model call itself."""
    call = genai.read_model_call(span, logs, SWITCH)
    if call.input or call.output:
        return call
    return _model_call(span, _sent(_value(span, "input"), span), span.attributes, needs_input=True)


def _model_call(
    span: Span, sent: list[Message], attributes: Mapping[str, Any], *, needs_input: bool
) -> ModelCall:
    keys = _keys(span)
    gaps = call_gaps(span, keys, SWITCH)
    received = _received(_value(span, "output"), span)
    messages_by_key = {keys[0]: sent or not needs_input, keys[1]: received or span.is_error}
    gaps += not_captured(span, messages_by_key, SWITCH, gaps)
    return model_call(
        span,
        ModelRequest(sent),
        ModelAnswer(received),
        gaps,
        usage=usage(attributes),
        attributes=attributes,
    )


def _has_steps(logs: Logs) -> bool:
    return any(record.event_name == _HAS_STEPS for record in logs)


def attach_logs(spans: Sequence[Span], logs: Logs) -> Logs:
    """The log records, and new ones that add a generation's input and usage to its steps.

    Args:
        spans: All spans.
        logs: All log records.
    """
    own = sorted((span for span in spans if TYPE in span.attributes), key=order)
    if not own:
        return logs
    by_id = {(span.trace_id, span.span_id): span for span in reversed(own)}
    steps: dict[tuple[str, str], list[Span]] = defaultdict(list)
    inferences: dict[tuple[str, str], Span] = {}
    for span in own:
        above = (span.trace_id, span.parent_id)
        kind = span.attributes[TYPE]
        if kind == "model_step" and above in by_id and by_id[above].attributes[TYPE] in GENERATIONS:
            steps[above].append(span)
        elif kind == "model_inference":
            inferences.setdefault(above, span)
    records = [*logs]
    for key, members in steps.items():
        generation = by_id[key]
        records.append(_record(generation, _HAS_STEPS, {}))
        for number, step in enumerate(members):
            inference = inferences.get((step.trace_id, step.span_id))
            records.append(_record(step, _STEP, _of_step(generation, inference, number)))
    return records


def _of_step(generation: Span, inference: Span | None, number: int) -> dict[str, Any]:
    """The attributes that a step lacks: model and usage, and the first step's input."""
    step_attributes = dict(inference.attributes) if inference is not None else {}
    if number:
        return {**step_attributes, "follows": True}
    keys = (_GENERATION_INPUT, "mastra.llm_generation.input", genai.INPUT)
    generation_input = semconv.first(generation.attributes, keys)
    if generation_input is not None:
        step_attributes[_GENERATION_INPUT] = generation_input
    return step_attributes


def _record(span: Span, name: str, attributes: dict[str, Any]) -> LogRecord:
    return LogRecord(
        trace_id=span.trace_id,
        span_id=span.span_id,
        time_ns=span.start_ns,
        event_name=name,
        attributes=attributes,
    )


DIALECT = Dialect(
    name="mastra",
    title="Mastra",
    precedence=180,
    read=read,
    keys=(TYPE,),
    attach_logs=attach_logs,
)
