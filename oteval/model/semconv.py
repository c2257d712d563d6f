"""Attribute names that more than one stage needs, in the order of precedence.

The names of OpenTelemetry's GenAI conventions come first, then the names of older instrumentations.
Names that only one dialect needs are in the file of that dialect.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

__all__ = [
    "AGENT_NAME",
    "ANSWERED",
    "CALL_ID",
    "COMPACTED",
    "CONVERSATION_ID",
    "EVENT_NAME",
    "FINISH_REASONS",
    "INPUT",
    "INVOCATION_ID",
    "OPERATION",
    "OUTPUT",
    "OWN_CONVERSATION_ID",
    "OWN_PROMPT",
    "OWN_USER_ID",
    "OWN_VERSION",
    "PROCESS",
    "PROVIDER",
    "REQUEST_MODEL",
    "RESPONSE_MODEL",
    "THREAD",
    "TOKENS_IN",
    "TOKENS_OUT",
    "TOOL_NAME",
    "USER_ID",
    "VERSION",
    "first",
    "named_event",
    "normal_finish_reason",
    "unusual_reasons",
]

INVOCATION_ID = "oteval.invocation.id"
"""The resource attribute with the id of an `oteval run`, or of a process with `instrument()`."""
PROCESS = (INVOCATION_ID, "service.instance.id", "process.pid")
"""The resource attributes that distinguish a process from others of its service."""

OPERATION = (
    "gen_ai.operation.name",
    "openinference.span.kind",
    "traceloop.span.kind",
    "llm.request.type",
    "ai.operationId",
    "langfuse.observation.type",
    "mlflow.spanType",
)
AGENT_NAME = ("gen_ai.agent.name", "agent.name", "agent_name", "ai.telemetry.functionId")
COMPACTED = "gen_ai.conversation.compacted"
OWN_CONVERSATION_ID = "oteval.conversation.id"
"""A copy of the attribute that the user named for the conversation, made when a span is stored."""
OWN_USER_ID = "oteval.user.id"
"""A copy of the attribute that was named for the user; see `OWN_CONVERSATION_ID`."""
OWN_VERSION = "oteval.version"
"""A copy of the attribute that was named for the version; see `OWN_CONVERSATION_ID`."""
OWN_PROMPT = "oteval.prompt"
"""A copy of the attribute that was named for the prompt; see `OWN_CONVERSATION_ID`."""
CONVERSATION_ID = (
    OWN_CONVERSATION_ID,
    "gen_ai.conversation.id",
    "session.id",
    "langwatch.thread.id",
    "spring.ai.chat.client.conversation.id",
    "gcp.vertex.agent.session_id",
    "langsmith.metadata.thread_id",
    "langsmith.metadata.session_id",
    "langsmith.metadata.conversation_id",
    "traceloop.association.properties.thread_id",
    "traceloop.association.properties.session_id",
    "ai.telemetry.metadata.sessionId",
    "ai.telemetry.metadata.threadId",
    "ai.telemetry.metadata.conversationId",
    "ai.telemetry.metadata.chatId",
    "ai.settings.context.sessionId",
    "genkit:sessionId",
    "genkit/sessionId",
    "langfuse.session.id",
    "traceloop.association.properties.conversation_id",
    "traceloop.association.properties.chat_id",
    # Not `thread.id`, nor `thread_id`: to OpenTelemetry, that is a thread of the operating system.
    "conversation.id",
    "conversation_id",
    "chat.id",
    "chat_id",
)
USER_ID = (
    "user.id",
    "enduser.id",
    "langfuse.user.id",
    "langwatch.user.id",
    "langsmith.metadata.user_id",
    "traceloop.association.properties.user_id",
    "ai.telemetry.metadata.userId",
    "ai.settings.context.userId",
    "user_id",
)
VERSION = ("service.version", "gen_ai.agent.version", "version", "deployment.id")
PROVIDER = ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system")
REQUEST_MODEL = ("gen_ai.request.model",)
# The thread and the task that called a tool. A replay uses them to recognise parallel calls.
THREAD = "oteval.thread"
RESPONSE_MODEL = ("gen_ai.response.model", "llm.model_name", "gen_ai.request.model")
# The name of a log event, from emitters that do not set OTLP's ``eventName``.
EVENT_NAME = ("event.name", "otel.event.name")
FINISH_REASONS = (
    "gen_ai.response.finish_reasons",
    "ai.response.finishReason",
    "llm.finish_reason",
    "gen_ai.completion.0.finish_reason",
    "gen_ai.response.finish_reason",
    "llm.output_messages.0.message.finish_reason",
    "anthropic.message.stop_reason",
    "llm.anthropic.stop_reason",
    "langfuse.observation.metadata.finish_reason",
    "stop_reason",
)
TOOL_NAME = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "haystack.tool.name")
CALL_ID = ("gen_ai.tool.call.id", "tool_call.id", "ai.toolCall.id", "tool_use_id")
TOKENS_IN = (
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.prompt_tokens",
    "llm.token_count.prompt",
)
TOKENS_OUT = (
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "llm.token_count.completion",
)
INPUT = (
    "gen_ai.input.messages",
    "gen_ai.tool.call.arguments",
    "gen_ai.prompt",
    "langfuse.observation.input",
    "mlflow.spanInputs",
    "gen_ai.tool.args",
    "input.value",
    "traceloop.entity.input",
    "events",
    "tool_arguments",
    "gcp.vertex.agent.tool_call_args",
    "gcp.vertex.agent.llm_request",
    "ai.prompt.messages",
    "ai.prompt",
    "ai.toolCall.args",
    "haystack.agent.step.llm.input",
    "haystack.agent.step.tool.input",
    "haystack.agent.input",
    "haystack.component.input",
    "genkit:input",
    "genkit/input",
    "mastra.agent_run.input",
    "mastra.model_generation.input",
    "mastra.model_step.input",
    "raw_input",
    "request_data",
)
OUTPUT = (
    "gen_ai.output.messages",
    "gen_ai.tool.call.result",
    "gen_ai.completion",
    "langfuse.observation.output",
    "mlflow.spanOutputs",
    "gen_ai.output",
    "genai.output",
    "output.value",
    "traceloop.entity.output",
    "all_messages_events",
    "pydantic_ai.all_messages",
    "tool_response",
    "gcp.vertex.agent.tool_response",
    "gcp.vertex.agent.llm_response",
    "ai.response.toolCalls",
    "ai.response.text",
    "ai.response.object",
    "ai.toolCall.result",
    "haystack.agent.step.llm.output",
    "haystack.agent.step.tool.output",
    "haystack.agent.output",
    "haystack.component.output",
    "genkit:output",
    "genkit/output",
    "mastra.agent_run.output",
    "mastra.model_generation.output",
    "mastra.model_step.output",
    "response_data",
)


def first(attributes: Mapping[str, Any], keys: Iterable[str]) -> Any:
    """The first value of these keys that is neither None nor empty, or None."""
    for key in keys:
        value = attributes.get(key)
        if value is not None and value != "":
            return value
    return None


def named_event(attributes: Mapping[str, Any]) -> str:
    """The name of a log event from its attributes, or ""."""
    name = first(attributes, EVENT_NAME)
    return name if isinstance(name, str) else ""


ANSWERED = frozenset({"stop", "length", "content_filter", "tool_call", "compaction", "pause_turn"})
"""The reasons of a model or its provider to end an answer."""

_SPELLINGS = {
    "stop": "end end_turn stop_sequence stop_sequences eos eos_token eos_found complete completed "
    "finish finished natural_end",
    "length": "max_tokens max_output_tokens max_length max_token token_limit max_tokens_reached "
    "model_length model_context_window_exceeded context_window_exceeded incomplete error_limit",
    "content_filter": "content_filtered filtered refusal safety recitation blocklist spii "
    "prohibited_content guardrail_intervened guardrails error_toxic image_safety "
    "image_prohibited_content image_recitation model_armor jailbreak",
    "tool_call": "tool_calls tool_use function_call function_calls toolcalls requires_action",
    "error": "failed malformed_function_call malformed_tool_use malformed_model_output "
    "unexpected_tool_call too_many_tool_calls",
}
_NORMAL = {
    spelling: reason for reason, spellings in _SPELLINGS.items() for spelling in spellings.split()
}
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SEPARATOR = re.compile(r"[^a-z0-9]+")


@lru_cache(maxsize=256)
def normal_finish_reason(reason: str) -> str:
    """A finish reason in the words of the conventions.

    Args:
        reason: The reason in any provider's spelling: ``max_tokens``, ``MAX_TOKENS``,
            ``FinishReason.MAX_TOKENS``, ``FINISH_REASON_MAX_TOKENS``, ``tool-calls``.

    Returns:
        The reason of the conventions, or else the reason as it was written.
    """
    last = reason.strip().rpartition(".")[2]
    plain = _SEPARATOR.sub("_", _HUMP.sub("_", last).lower()).strip("_")
    plain = plain.removeprefix("finish_reason_")
    return _NORMAL.get(plain) or (plain if plain in _SPELLINGS or plain in ANSWERED else reason)


def unusual_reasons(reasons: Iterable[str]) -> list[str]:
    """The reasons, each once, except that a model had finished or called tools."""
    return [reason for reason in dict.fromkeys(reasons) if reason not in ("stop", "tool_call")]
