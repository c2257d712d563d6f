"""Traceloop / OpenLLMetry, old (indexed keys) and new (messages of parts).

Old model calls have ``gen_ai.prompt.N.*`` and ``gen_ai.completion.N.*``; new ones have the current
GenAI attributes. Decorated functions are ``traceloop.span.kind`` spans with ``traceloop.entity.*``.
So are LangChain's chains and tools, which contain the inputs and outputs of its callbacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...messages import (
    ModelAnswer,
    ModelRequest,
    as_list,
    choices,
    from_messages,
    join_neighbours,
    last_message_of,
    mappings_of,
    parse,
    returned_value,
    text_message,
    tool_definitions,
)
from ...model import Span, normal_finish_reason, semconv
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..gaps import gap
from ..readers.flat_lists import nested
from ..readers.model_calls import call_gaps, model_call
from ..readers.spans import call_arguments, missing_side, only_argument, parsed_unless_cut
from ..tool_spans import tool_of_attributes
from . import genai

__all__ = ["DIALECT"]

SWITCH = "set TRACELOOP_TRACE_CONTENT=true"
KIND, NAME = "traceloop.span.kind", "traceloop.entity.name"
INPUT, OUTPUT = "traceloop.entity.input", "traceloop.entity.output"
REQUEST = "llm.request.type"
TASK = "crewai.task.description"
NOT_WRITTEN = (
    "the framework's instrumentation does not write it; instrument the model client as well "
    "(opentelemetry-instrumentation-openai)"
)
_SCOPE = "opentelemetry.instrumentation."
_AGENTS = "opentelemetry.instrumentation.openai_agents"
_LANGCHAIN = "opentelemetry.instrumentation.langchain"
_RUNS = "gen_ai.workflow.nodes"
_NODE = "traceloop.association.properties.langgraph_node"
_AGENT = "traceloop.association.properties.lc_agent_name"
_RESPONSE = "openai.response"
# The first attributes of indexed messages; other instrumentations write them as well.
_INDEXED = (
    *("gen_ai.prompt.0.role", "gen_ai.prompt.0.content"),
    *("gen_ai.completion.0.role", "gen_ai.completion.0.content"),
)


def claims(span: Span, logs: Logs) -> bool:  # noqa: ARG001
    """Whether OpenLLMetry wrote the span."""
    attributes = span.attributes
    if KIND in attributes or "llm.request.type" in attributes:
        return True
    if not attributes.keys().isdisjoint(_INDEXED):
        return True
    if span.scope.startswith("traceloop.") or _is_of_agents_sdk(span) or _is_beside_graph(span):
        return True
    return "gen_ai.is_streaming" in attributes and span.scope.startswith(_SCOPE)


def _is_of_agents_sdk(span: Span) -> bool:
    return span.scope == _AGENTS and span.name == _RESPONSE


def _is_beside_graph(span: Span) -> bool:
    """Whether a span only marks a graph's run, while another span contains the steps."""
    return span.scope == _LANGCHAIN and _RUNS in span.attributes


def read(span: Span, logs: Logs) -> Operation:
    """The span's operation: a decorated function by its kind, otherwise a model call."""
    attributes = span.attributes
    kind = attributes.get(KIND)
    if _is_beside_graph(span):
        return Wrapper(span)
    if kind in ("workflow", "agent"):
        return _agent(span)
    if kind == "tool":
        return _tool(span)
    if kind == "task" and TASK in attributes:
        return _crew_task(span)
    if kind is not None:
        return _task(span)
    if genai.INPUT in attributes or genai.OUTPUT in attributes:
        return _model_call(span, logs)
    is_old = REQUEST in attributes or not attributes.keys().isdisjoint(_INDEXED)
    if "gen_ai.operation.name" in attributes and not is_old:
        return _model_call(span, logs)
    if attributes.get("llm.request.type", "chat") in ("chat", "completion"):
        return _old_model_call(span)
    return Wrapper(span)


def _model_call(span: Span, logs: Logs) -> ModelCall:
    """A model call with messages of parts.

    Each item of a Responses API answer is a message with its own finish reason.
    """
    call = genai.read_model_call(span, logs, SWITCH)
    if call.choices and span.name == _RESPONSE:
        answer = join_neighbours([*call.output, *call.choices])
        return replace(call, output=tuple(answer), choices=())
    if call.input and not call.output and not call.gaps and _is_of_agents_sdk(span):
        gaps = missing_side(span, NOT_WRITTEN, sent=True, received=False)
        return replace(call, whole=False, gaps=tuple(gaps))
    return call


def _agent(span: Span) -> AgentRun:
    attributes = span.attributes
    inputs, outputs = (parse(attributes.get(key)).value for key in (INPUT, OUTPUT))
    if isinstance(inputs, Mapping) and "inputs" in inputs:
        return _langchain_agent(span, inputs["inputs"], outputs)
    return AgentRun(
        span,
        name=_agent_name(span),
        input=text_message(only_argument(inputs), span, "user"),
        output=text_message(outputs, span, "assistant"),
    )


def _task(span: Span) -> Operation:
    """A step; LangGraph's may be a graph's node or an agent."""
    attributes = span.attributes
    name = attributes.get(NAME)
    node = str(name) if name and name == attributes.get(_NODE) else ""
    if name and name == attributes.get(_AGENT):
        return replace(_agent(span), node=node)
    return Wrapper(span, node=node)


def _crew_task(span: Span) -> AgentRun:
    """A crew's task, which has the input and output of its child agent."""
    return AgentRun(
        span,
        name=str(span.attributes.get("crewai.task.agent") or ""),
        input=text_message(span.attributes[TASK], span, "user"),
        output=text_message(span.attributes.get(OUTPUT), span, "assistant"),
    )


def _agent_name(span: Span) -> str:
    """An agent's name, or the decorated function's."""
    return str(semconv.first(span.attributes, ("gen_ai.agent.name", NAME)) or span.name)


def _langchain_agent(span: Span, inputs: Any, outputs: Any) -> AgentRun:
    """A graph's or a chain's run, from the values of LangChain's callbacks."""
    if isinstance(outputs, Mapping):
        outputs = outputs.get("outputs", outputs)
    return AgentRun(
        span,
        name=_agent_name(span),
        input=last_message_of(only_argument(inputs), span, "user"),
        output=last_message_of(only_argument(outputs), span, "assistant"),
    )


def _tool(span: Span) -> ToolRun:
    attributes = span.attributes
    own = INPUT in attributes or OUTPUT in attributes
    if not own and (genai.ARGUMENTS in attributes or genai.RESULT in attributes):
        return genai.read_tool(span, SWITCH)
    recorded = parsed_unless_cut(attributes.get(OUTPUT))
    returned = returned_value(recorded, _returned(recorded))
    call_id = attributes.get("gen_ai.tool.call.id") or returned.call_id
    return tool_of_attributes(
        span,
        (INPUT, OUTPUT),
        SWITCH,
        name=attributes.get(NAME),
        call_id=call_id or _callback_id(attributes.get(INPUT)),
        arguments=_arguments(attributes.get(INPUT)),
        result=returned.content,
        failed=returned.is_error,
    )


def _arguments(value: Any) -> Any:
    """A tool's arguments, from a decorated function or LangChain's callback."""
    fields = parsed_unless_cut(value)
    if not isinstance(fields, Mapping) or "input_str" not in fields:
        return call_arguments(fields)
    inputs = fields.get("inputs")
    return inputs if isinstance(inputs, Mapping) else parse(fields["input_str"]).value


def _callback_id(value: Any) -> Any:
    """The call's id in the arguments of LangChain's callback: the only id of a failed tool."""
    fields = parsed_unless_cut(value)
    keywords = (
        fields.get("kwargs") if isinstance(fields, Mapping) and "input_str" in fields else None
    )
    return keywords.get("tool_call_id") if isinstance(keywords, Mapping) else None


def _returned(result: Any) -> Any:
    """A LangChain tool's result without the callback's envelope."""
    if isinstance(result, Mapping) and set(result) == {"output", "kwargs"}:
        return result["output"]
    return result


def _old_model_call(span: Span) -> ModelCall:
    attributes = span.attributes
    gaps = call_gaps(span, (), SWITCH)
    sent = from_messages([*map(_prompt, nested(attributes, "gen_ai.prompt."))], span)
    first, alternatives = choices(nested(attributes, "gen_ai.completion."))
    received = from_messages(first, span, "assistant")
    if not sent and not received:
        gaps.append(gap("content_not_captured", span.span_id, switch=SWITCH))
    offered = tool_definitions(nested(attributes, "llm.request.functions."))
    answer = ModelAnswer(received, from_messages(alternatives, span, "assistant"))
    call = model_call(span, ModelRequest(sent, offered), answer, gaps)
    return replace(call, finish_reason=_finish_reason(first))


def _finish_reason(answer: Any) -> str:
    """Why the model stopped; reasoning may precede the message with the reason."""
    items = mappings_of(as_list(answer))
    reasons = [str(item["finish_reason"]) for item in items if item.get("finish_reason")]
    return normal_finish_reason(reasons[0]) if reasons else ""


def _prompt(item: Any) -> Any:
    """A message of a request; a completion's prompt is under its role as the only key."""
    if isinstance(item, Mapping) and "role" not in item and isinstance(item.get("user"), str):
        return {"role": "user", "content": item["user"]}
    return item


DIALECT = Dialect(
    name="traceloop",
    title="OpenLLMetry (Traceloop)",
    precedence=270,
    read=read,
    scopes=("traceloop.*", _AGENTS),
    keys=(
        KIND,
        REQUEST,
        *_INDEXED,
        "gen_ai.is_streaming",
        _RUNS,
    ),
    claims=claims,
    switch=SWITCH,
)
