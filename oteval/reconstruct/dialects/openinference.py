"""OpenInference: ``openinference.span.kind`` and flat, indexed ``llm.*_messages`` attributes.

Convention: https://github.com/Arize-ai/openinference/tree/main/spec. Without flat attributes,
``input.value`` and ``output.value`` may contain the raw request and response.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...messages import (
    SYSTEM_ROLES,
    ModelAnswer,
    ModelRequest,
    folded,
    last_message_in,
    mapping_of,
    parse,
    returned_value,
    tool_definitions,
)
from ...model import Message, Span, semconv
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..gaps import gap
from ..readers.flat_lists import has_prefix
from ..readers.model_calls import call_gaps, model_call
from ..readers.openinference_flat import (
    RECEIVED,
    SENT,
    completions,
    cut_arguments,
    flat_messages,
    prompts,
    tool_schemas,
)
from ..readers.openinference_raw import INPUT, OUTPUT, answer, request, response_id
from ..readers.spans import integer
from ..tool_spans import tool_of_attributes

__all__ = ["DIALECT", "SWITCH"]

SWITCH = (
    "unset OPENINFERENCE_HIDE_INPUTS, OPENINFERENCE_HIDE_OUTPUTS and their relatives, or set "
    "them to false"
)
KIND = "openinference.span.kind"
PARSED_ONLY = (
    "this span holds only the parsed answer; instrument the model's client as well (for "
    "instance with openinference-instrumentation-openai)"
)
OWN_SCOPE = "openinference."
_CALL_IDS = ("tool_call.id", "tool.call_id", "tool.id", "gen_ai.tool.call.id")
_TOOL_STATUS = ("gen_ai.tool.status", "tool.status")
HAND_OFF = "handoff to "
_LOSSES = frozenset({"attributes_dropped", "content_not_captured", "redacted"})
GRAPH = "LangGraph"  # the default name of a graph


def claims(span: Span, logs: Logs) -> bool:  # noqa: ARG001
    """Whether the span has OpenInference's kind."""
    return KIND in span.attributes


def is_added(span: Span) -> bool:
    """Whether the span may be another instrumentation's.

    Phoenix, and processors that translate a framework's own spans, lose some of their content.
    """
    return not span.scope.startswith(OWN_SCOPE)


def read(span: Span, logs: Logs) -> Operation:  # noqa: ARG001
    """The span's operation, by its kind."""
    kind = str(span.attributes[KIND]).upper()
    if kind == "LLM":
        return Wrapper(span) if _only_prepares(span) else _model_call(span)
    # openai-agents: the result of the hand-off is in the next agent's input.
    if kind == "TOOL" and "tool.name" not in span.attributes and span.name.startswith(HAND_OFF):
        return Wrapper(span)
    # A tool that calls an agent may be of kind AGENT, with the tool's name as an attribute.
    if kind == "TOOL" or (kind == "AGENT" and "tool.name" in span.attributes):
        return _tool(span)
    if kind == "AGENT" and _is_mark(span):
        return Wrapper(span)
    if kind == "CHAIN" and _asks_model(span):
        return _model_call(span)
    if kind == "AGENT" or (kind == "CHAIN" and "metadata" in span.attributes):
        return _agent_or_node(span, kind)
    return Wrapper(span)


def _is_mark(span: Span) -> bool:
    """Whether a span of kind AGENT only marks a moment of a run, as BeeAI writes them."""
    takes_time = span.end_ns > span.start_ns or not span.parent_id
    return not takes_time and not {INPUT, OUTPUT, "agent.name"} & set(span.attributes)


def _only_prepares(span: Span) -> bool:
    """Whether a span of kind LLM is a private method that prepares a request.

    LlamaIndex writes ``OpenAI._prepare_chat_with_tools`` next to the call itself.
    """
    if not span.name.rpartition(".")[2].startswith("_"):
        return False
    return not any(has_prefix(span.attributes, prefix) for prefix in (SENT, RECEIVED))


def _asks_model(span: Span) -> bool:
    """Whether a span of kind CHAIN is itself a model call, as Instructor writes it.

    If the model's client is instrumented as well, its span is a child.
    """
    return "llm.model_name" in span.attributes and has_prefix(span.attributes, SENT)


def _model_call(span: Span) -> ModelCall:
    attributes = span.attributes
    gaps = call_gaps(span, (INPUT, OUTPUT), SWITCH)
    sent = _sent(span)
    received, alternatives = _received(span)
    if received and not has_prefix(attributes, RECEIVED) and _asks_model(span):
        gaps.append(gap("content_not_captured", span.span_id, switch=PARSED_ONLY))
    gaps += cut_arguments(span, sent, received)
    parameters = mapping_of(attributes.get("llm.invocation_parameters"))
    is_delta = bool(parameters.get("previous_response_id"))
    request = ModelRequest(sent, tool_definitions(tool_schemas(span)), is_delta)
    call = model_call(span, request, ModelAnswer(received, alternatives, response_id(span)), gaps)
    is_whole = _LOSSES.isdisjoint([gap.code for gap in gaps])
    return call if call.whole == is_whole else replace(call, whole=is_whole)


def _sent(span: Span) -> list[Message]:
    """The messages that a model was sent."""
    flat = flat_messages(span, SENT, "user")
    hollow = folded(flat, _hollow)
    if flat and not hollow:
        return flat
    raw = request(span)
    if flat and [message.role for message in flat] == [message.role for message in raw]:
        # Flat and raw messages differ in the form of images, so only hollow messages are replaced.
        pairs = zip(flat, raw, strict=True)
        return [other if _is_hollow(message) else message for message, other in pairs]
    is_fuller = len(raw) >= len(flat) and sum(map(_is_hollow, raw)) < max(hollow, 1)
    return (raw if raw and is_fuller else flat) or prompts(span)


def _received(span: Span) -> tuple[list[Message], list[Message]]:
    """The messages of a model's answer, and its other choices."""
    flat = flat_messages(span, RECEIVED, "assistant")
    if len(flat) == 1 and flat[0].tool_calls:
        return [_with_thought(flat[0], span)], []
    raw = answer(span)
    if len(flat) > 1 and not raw.choices and _choice_count(span) == len(flat):
        return flat[:1], flat[1:]
    if not raw.messages:
        texts = [] if flat else completions(span)
        return flat or texts[:1], texts[1:]
    is_fuller = not flat or all(map(_is_hollow, flat)) or _calls(raw.messages) > _calls(flat)
    if (raw.choices and len(flat) != 1) or is_fuller:
        return raw.messages, list(raw.choices)
    return flat, []


def _choice_count(span: Span) -> int:
    """How many answers were requested, or 0 if unknown."""
    parameters = mapping_of(span.attributes.get("llm.invocation_parameters"))
    return integer(parameters.get("n"))


def _with_thought(message: Message, span: Span) -> Message:
    """An answer with the text next to its calls, which AutoGen writes only in the raw answer."""
    output = span.attributes.get(OUTPUT)
    if message.content or (isinstance(output, str) and '"thought"' not in output):
        return message
    thought = mapping_of(output).get("thought")
    return replace(message, content=thought) if thought and isinstance(thought, str) else message


def _calls(messages: Sequence[Message]) -> int:
    return sum(len(message.tool_calls) for message in messages)


def _hollow(count: int | None, messages: Sequence[Message]) -> int:
    """The number of hollow messages, with further messages added."""
    return (count or 0) + sum(map(_is_hollow, messages))


def _is_hollow(message: Message) -> bool:
    """Whether a message has only a role: some emitters omit calls from flat attributes.

    A tool may return an empty text.
    """
    if message.role == "tool":
        return message.content is None and not message.parts
    is_said = message.content or message.tool_calls or message.parts
    return not is_said and message.role not in SYSTEM_ROLES


def _tool(span: Span) -> ToolRun:
    attributes = span.attributes
    recorded = attributes.get(OUTPUT)
    returned = returned_value(parse(recorded).value, recorded)
    is_error = semconv.first(attributes, _TOOL_STATUS) == "error"
    return tool_of_attributes(
        span,
        (INPUT, OUTPUT),
        SWITCH,
        name=attributes.get("tool.name"),
        call_id=semconv.first(attributes, _CALL_IDS) or returned.call_id,
        result=returned.content,
        failed=is_error or returned.is_error,
    )


def _agent_or_node(span: Span, kind: str) -> Operation:
    """A node, a graph or an agent, by LangGraph's metadata if it has any.

    A node whose name contains "agent" has the kind AGENT, but is still a node.
    """
    metadata = mapping_of(span.attributes.get("metadata"))
    is_node = metadata.get("langgraph_node") == span.name
    is_agent = metadata.get("lc_agent_name") == span.name or (kind == "AGENT" and not is_node)
    if is_agent or _is_graph(span, metadata):
        return _agent(span, metadata, span.name if is_node else "")
    return Wrapper(span, node=span.name if is_node else "")


def _is_graph(span: Span, metadata: Mapping[str, Any]) -> bool:
    if "langgraph_node" in metadata:
        return span.name == GRAPH
    return span.name == GRAPH or metadata.get("ls_integration") == "langgraph"


def _agent(span: Span, metadata: Mapping[str, Any], node: str) -> AgentRun:
    attributes = span.attributes
    name = semconv.first(attributes, ("agent.name", "graph.node.id", "gen_ai.agent.name"))
    return AgentRun(
        span,
        name=str(name or metadata.get("lc_agent_name") or span.name),
        input=last_message_in(attributes.get(INPUT), span, "user"),
        output=last_message_in(attributes.get(OUTPUT), span, "assistant"),
        node=node,
    )


DIALECT = Dialect(
    name="openinference",
    title="OpenInference (Phoenix, Arize)",
    precedence=120,
    read=read,
    keys=(KIND,),
    claims=claims,
    is_added=is_added,
    switch=SWITCH,
)
