"""The current GenAI semantic conventions: names of spans and attributes, and the form of values.

This module alone knows them; the decorators and `model_call` pass plain values to it. The
conventions are in Development (https://github.com/open-telemetry/semantic-conventions-genai): when
they change, this module does.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ..messages import field_of
from ..model import TokenCounts, normal_finish_reason
from .class_kinds import class_name
from .content import HIDDEN, MAX_TEXT, is_plain_json, json_text, plain, shortened, typed_form
from .provider_messages import (
    ProviderAnswer,
    are_messages,
    convention_messages,
    read_answer,
    text_message,
)

__all__ = [
    "AGENT_ANSWER",
    "AGENT_RETURNED",
    "CALL_ID",
    "CONVERSATION_ID",
    "OF_OBJECTS",
    "TOOL_FUNCTION",
    "TOOL_RAISED",
    "TOOL_RESULT",
    "TOOL_RETURNED",
    "Attributes",
    "agent_input",
    "agent_output",
    "agent_returned",
    "agent_start",
    "answer_attributes",
    "error_type",
    "exception_event",
    "finish_attributes",
    "model_call_start",
    "model_input",
    "setting_attributes",
    "stream_attributes",
    "token_attributes",
    "tool_arguments",
    "tool_raised",
    "tool_result",
    "tool_start",
]

Attributes = dict[str, Any]

# Innermost frames of a traceback. With all frames, 1,000 nested calls that end in a RecursionError
# took 12.8 s of CPU instead of 4.9.
_MAX_FRAMES = 50

CONVERSATION_ID: Final = "gen_ai.conversation.id"
CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
# The conventions have no attributes for the types of values: a replay needs them.
TOOL_RETURNED: Final = "oteval.tool.returned"
AGENT_RETURNED: Final = "oteval.agent.returned"
OF_OBJECTS: Final = " of objects"
TOOL_RAISED: Final = "oteval.tool.raised"
# The import path of a plain function that was watched while it ran a tool.
TOOL_FUNCTION: Final = "oteval.tool.function"
ERROR_TYPE: Final = "error.type"
_OPERATION: Final = "gen_ai.operation.name"
_INPUT: Final = "gen_ai.input.messages"
AGENT_ANSWER: Final = "gen_ai.output.messages"
_SYSTEM: Final = "gen_ai.system_instructions"
_DEFINITIONS: Final = "gen_ai.tool.definitions"
# Names of options of model APIs whose attribute has a different name.
_SETTINGS: Final = {
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "n": "choice.count",
    "previous_response_id": "previous_response.id",
    "reasoning_effort": "reasoning.level",
    "stop": "stop_sequences",
}
_KNOWN_SETTINGS: Final = frozenset(
    {
        *("frequency_penalty", "max_tokens", "presence_penalty", "seed", "stop_sequences"),
        *("stream", "temperature", "top_k", "top_p"),
        *_SETTINGS.values(),
    }
)


def agent_start(name: str, description: str, version: str) -> Attributes:
    """The first attributes of an agent's span."""
    attributes = {
        _OPERATION: "invoke_agent",
        "gen_ai.agent.name": name,
        "gen_ai.agent.description": description,
        "gen_ai.agent.version": version,
    }
    return {key: value for key, value in attributes.items() if value}


def agent_input(value: Any) -> Attributes:
    """The attributes of an agent's input: messages, a text, or any other value as JSON."""
    return {_INPUT: json_text(_agent_messages(value, "user"))}


def agent_output(value: Any, sent: str = "") -> Attributes:
    """The attributes of an agent's output.

    Args:
        value: Messages, a response of a model, a text, or any other value.
        sent: The JSON text of the agent's input; messages that the output repeats are left out.
    """
    if value is None:
        return {}
    messages = _agent_messages(value, "assistant")
    text = json_text(messages)
    if sent and len(text) > len(sent) and text.startswith(f"{sent[:-1]},"):
        text = f"[{text[len(sent) :]}"
    return {AGENT_ANSWER: text}


def agent_returned(value: Any, *, is_closed: bool) -> Attributes:
    """The type of an agent's answer as an attribute: None and the text ``None`` differ.

    Args:
        value: The answer.
        is_closed: Whether it has only the chunks that a generator yielded before its consumer left.
    """
    if is_closed:
        return {AGENT_RETURNED: "closed"}
    return {AGENT_RETURNED: class_name(type(value)) + ("" if is_plain_json(value) else OF_OBJECTS)}


def _agent_messages(value: Any, role: str) -> list[dict[str, Any]]:
    if isinstance(value, str):
        return [text_message(role, shortened(value))]
    if are_messages(value):
        return convention_messages(value, role)
    if role == "assistant":
        return read_answer(value).messages
    return [text_message(role, json_text(value))]


def tool_start(name: str, description: str) -> Attributes:
    """The first attributes of a tool's span."""
    attributes = {
        _OPERATION: "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": description,
    }
    return {key: value for key, value in attributes.items() if value}


def tool_arguments(arguments: Mapping[str, Any], hidden: Iterable[str] = ()) -> Attributes:
    """The arguments of a tool as an attribute.

    Args:
        arguments: The arguments by name.
        hidden: The names of arguments that are not recorded.
    """
    recorded = {**arguments, **{name: HIDDEN for name in hidden if name in arguments}}
    return {"gen_ai.tool.call.arguments": json_text(recorded)}


def tool_result(result: Any, delivered: Any = None) -> Attributes:
    """The attributes of a tool's result: text as it is, any other value as JSON.

    Args:
        result: The result.
        delivered: The generator or coroutine that the caller received in its place, or None.
    """
    text = shortened(result) if isinstance(result, str) else json_text(result)
    form = typed_form(result if delivered is None else delivered)
    if form is None or len(text) >= MAX_TEXT:
        return {TOOL_RESULT: text}
    return {TOOL_RESULT: text, TOOL_RETURNED: form}


def tool_raised(error: Any) -> Attributes:
    """The exception of a tool as an attribute, with its type and its arguments.

    Args:
        error: The exception, or the value that represents a generator or coroutine that raised it.
    """
    form = typed_form(error)
    return {} if form is None else {TOOL_RAISED: form}


def error_type(error: BaseException) -> Attributes:
    """The type of an exception as an attribute, with its module unless it is a builtin."""
    kind = type(error)
    is_builtin = kind.__module__ == "builtins"
    return {
        ERROR_TYPE: kind.__qualname__ if is_builtin else f"{kind.__module__}.{kind.__qualname__}"
    }


def exception_event(error: BaseException) -> Attributes:
    """The attributes of an exception's event, with the innermost frames of its traceback.

    A deep recursion fails in each of its spans: whole tracebacks would take time and space
    proportional to the square of its depth.
    """
    frames = traceback.format_exception(error, limit=-_MAX_FRAMES)
    return {
        "exception.type": error_type(error)[ERROR_TYPE],
        "exception.message": shortened(str(error)),
        "exception.stacktrace": shortened("".join(frames)),
        "exception.escaped": "False",
    }


def model_call_start(model: str, provider: str, operation: str) -> Attributes:
    """The first attributes of a model call's span."""
    attributes = {
        _OPERATION: operation,
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
    }
    return {key: value for key, value in attributes.items() if value}


def setting_attributes(settings: Mapping[str, Any]) -> Attributes:
    """The attributes of a request's options, as far as the conventions define them."""
    attributes: Attributes = {}
    for key, value in settings.items():
        name = _SETTINGS.get(key, key)
        if value is None or name not in _KNOWN_SETTINGS:
            continue
        if name == "stop_sequences":
            value = [value] if isinstance(value, str) else [str(sequence) for sequence in value]
        if isinstance(value, (str, bool, int, float, list)):
            attributes[f"gen_ai.request.{name}"] = value
    return attributes


def model_input(messages: Any, system: Any, tools: Sequence[Any] | None) -> Attributes:
    """The attributes of a model's input.

    Args:
        messages: The messages, or a text of the user.
        system: The system instructions that are not among the messages, or None.
        tools: The definitions of the tools, or None.
    """
    attributes: Attributes = {}
    if messages is not None:
        attributes[_INPUT] = json_text(convention_messages(messages))
    if system is not None:
        parts = [
            part
            for convention_message in convention_messages(system, "system")
            for part in convention_message["parts"]
        ]
        attributes[_SYSTEM] = json_text(parts)
    if tools:
        attributes[_DEFINITIONS] = json_text([_definition(tool) for tool in tools])
    return attributes


def _definition(tool: Any) -> Any:
    """Convert the definition of a tool to the conventions' form, if it is known."""
    source = field_of(tool, "function", tool)
    name = field_of(source, "name")
    if callable(tool) or not isinstance(name, str):
        return plain(tool) if not callable(tool) else {"type": "function", "name": _name_of(tool)}
    parameters = field_of(source, "parameters") or field_of(source, "input_schema")
    return {
        "type": "function",
        "name": name,
        "description": field_of(source, "description"),
        "parameters": plain(parameters),
    }


def _name_of(tool: Any) -> str:
    return str(getattr(tool, "__name__", type(tool).__name__))


def answer_attributes(answer: ProviderAnswer, *, has_content: bool) -> Attributes:
    """The attributes of a model's answer.

    Args:
        answer: The answer.
        has_content: Whether to record its messages.
    """
    attributes: Attributes = {}
    if answer.model:
        attributes["gen_ai.response.model"] = answer.model
    if answer.response_id:
        attributes["gen_ai.response.id"] = answer.response_id
    if answer.finish_reasons:
        attributes["gen_ai.response.finish_reasons"] = answer.finish_reasons
    if has_content and answer.messages:
        reasons = answer.finish_reasons
        messages = [
            {**message, "finish_reason": reasons[min(index, len(reasons) - 1)] if reasons else ""}
            for index, message in enumerate(answer.messages)
        ]
        attributes[AGENT_ANSWER] = json_text(messages)
    return attributes | token_attributes(answer.tokens)


def stream_attributes(waited: float) -> Attributes:
    """The attributes of a streamed answer.

    Args:
        waited: The seconds until its first chunk.
    """
    return {"gen_ai.request.stream": True, "gen_ai.response.time_to_first_chunk": waited}


def finish_attributes(reason: str) -> Attributes:
    """The reason why a model stopped, as an attribute."""
    return {"gen_ai.response.finish_reasons": [normal_finish_reason(reason)]}


def token_attributes(tokens: TokenCounts) -> Attributes:
    """The attributes of a model call's tokens."""
    attributes = {
        "gen_ai.usage.input_tokens": tokens.input,
        "gen_ai.usage.output_tokens": tokens.output,
        "gen_ai.usage.cache_read.input_tokens": tokens.cached,
        "gen_ai.usage.cache_write.input_tokens": tokens.cache_write,
        "gen_ai.usage.reasoning.output_tokens": tokens.reasoning,
    }
    return {key: value for key, value in attributes.items() if value is not None}
