"""Model calls in the form of providers and client libraries: requests, responses, and their parts.

Some instrumentations pass on a request's keyword arguments and the response as they are. This
module reads OpenAI's chat completions and Responses API, Anthropic's messages, Gemini's contents,
LangChain's results, plain lists of messages, and the blocks of the Bedrock Converse API, each
identified by its only key (https://docs.aws.amazon.com/bedrock/latest/APIReference).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..model import PROVIDER, Message
from .body import MessageSource
from .kinds import first_of
from .langchain import first_answer, generations, messages, model_of
from .reader import from_messages, tool_definitions
from .values import Parsed, hidden, list_of, parse, text_of

__all__ = [
    "ModelAnswer",
    "ModelRequest",
    "answer_of",
    "call_part",
    "definitions",
    "from_blocks",
    "from_candidate",
    "last_message_in",
    "last_message_of",
    "request_of",
    "response_id_of",
    "result_of",
    "result_part",
    "system_messages",
    "system_prompt_of",
]


def from_blocks(role: str, value: Any, source: MessageSource) -> list[Message]:
    """The messages of one message's blocks.

    Args:
        role: The role of its author; results in a user's message become messages of tools.
        value: The blocks, as a list or as its JSON text; any other text is the message itself.
        source: Where they were read.
    """
    blocks = None if hidden(value) else parse(value).value
    content: Any = text_of(value)
    if isinstance(blocks, list) and all(isinstance(block, Mapping) for block in blocks):
        content = [block for block in blocks if block.keys() != {"cachePoint"}]
    return from_messages([{"role": role, "content": content}], source) if content else []


def result_of(value: Any) -> Any:
    """A tool's result: its one text or value, several texts joined, otherwise the blocks.

    Args:
        value: The result's blocks, as a list or as its JSON text.
    """
    blocks = None if hidden(value) else parse(value).value
    if not isinstance(blocks, list) or not blocks:
        return value
    if not all(isinstance(block, Mapping) for block in blocks):
        return value
    if len(blocks) == 1 and "json" in blocks[0]:
        return blocks[0]["json"]
    texts = [text_of(block.get("text", block.get("json"))) for block in blocks]
    parts = [text for text in texts if text is not None]
    return "\n".join(parts) if len(parts) == len(texts) else value


_PARAMETERS = ("parameters_json_schema", "parametersJsonSchema", "parameters")
_DECLARATIONS = ("function_declarations", "functionDeclarations")


def from_candidate(candidate: Mapping[str, Any]) -> list[Any]:
    """An answer in the form of parts, after the searches that its grounding names."""
    content = candidate.get("content")
    fields = content if isinstance(content, Mapping) and content.get("parts") else {}
    parts = [*_searches(candidate), *list_of(fields.get("parts"))]
    return [{**fields, "role": "model", "parts": parts}] if parts else []


def _searches(candidate: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the call and the result of a search that Google ran for an answer.

    The answer has them next to its content, not as parts, and without an id.
    """
    grounding = first_of(candidate, ("groundingMetadata", "grounding_metadata"))
    if not isinstance(grounding, Mapping):
        return
    queries = first_of(grounding, ("webSearchQueries", "web_search_queries"))
    if not queries:
        return
    call = call_part("google_search", {"queries": queries})
    yield {**call, "executed_by": PROVIDER}
    chunks = first_of(grounding, ("groundingChunks", "grounding_chunks"))
    if chunks:
        yield result_part("google_search", chunks)


def call_part(name: Any, arguments: Any, id_: Any = None) -> dict[str, Any]:
    """The part of a tool call."""
    return {"type": "tool_call", "id": id_, "name": name, "arguments": arguments}


def result_part(name: Any, response: Any, id_: Any = None) -> dict[str, Any]:
    """The part of a tool's result."""
    return {"type": "tool_call_response", "id": id_, "name": name, "response": response}


def definitions(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The definitions of the functions that a Gemini request's config offers."""
    tools = config.get("tools")
    functions = []
    for tool in tools if isinstance(tools, list) else []:
        declared = first_of(tool, _DECLARATIONS) if isinstance(tool, Mapping) else None
        for item in declared if isinstance(declared, list) else []:
            if isinstance(item, Mapping):
                functions.append(_declared_function(item))
    return functions


def _declared_function(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "name": item.get("name"),
        "description": item.get("description"),
        "parameters": first_of(item, _PARAMETERS),
    }


_SYSTEM = ("system", "instructions", "system_instruction", "systemInstruction")
_MESSAGES = (
    *("messages", "input", "contents", "choices", "candidates", "generations", "output"),
    *("content", "tool_calls"),
)


class ModelRequest(NamedTuple):
    """The request of a model call.

    Attributes:
        messages: The messages, the system prompt first.
        tools: Definitions of the tools offered.
        is_delta: Whether the provider keeps the history.
    """

    messages: list[Message]
    tools: tuple[Mapping[str, Any], ...] = ()
    is_delta: bool = False


class ModelAnswer(NamedTuple):
    """The response of a model call.

    Attributes:
        messages: The answer.
        choices: Other answers to the same request.
        response_id: The provider's id of the response, or "".
        model: The model that the response names, or "".
    """

    messages: list[Message]
    choices: Sequence[Message] = ()
    response_id: str = ""
    model: str = ""


def request_of(value: Any, source: MessageSource) -> ModelRequest:
    """The request in an attribute.

    Args:
        value: The attribute.
        source: Where it was read.
    """
    parsed = parse(value)
    value = parsed.value
    if not isinstance(value, Mapping):
        items, offered = _without_tools(value)
        return ModelRequest(messages(items, source) if items else [], offered)
    sent = _without_cut_message(_asked(value, source), parsed)
    if not any(m.role == "system" for m in sent):
        sent = [*system_messages(value, source), *sent]
    return ModelRequest(
        sent, tool_definitions(value.get("tools")), bool(value.get("previous_response_id"))
    )


def system_messages(request: Mapping[str, Any], source: MessageSource) -> list[Message]:
    """The system prompt of a request as messages; empty if it has none."""
    prompt = system_prompt_of(request)
    return from_messages([{"role": "system", "content": prompt}], source) if prompt else []


def system_prompt_of(request: Mapping[str, Any]) -> str | list[Any]:
    """The system prompt in a request's fields or in its config; "" if it has none."""
    config = request.get("config")
    places = (request, config) if isinstance(config, Mapping) else (request,)
    prompt = next((fields[key] for key in _SYSTEM for fields in places if fields.get(key)), "")
    if isinstance(prompt, Mapping):
        prompt = prompt.get("parts", prompt.get("text", prompt.get("content")))
    return prompt if isinstance(prompt, (str, list)) else ""


def _without_cut_message(parsed_messages: list[Message], parsed: Parsed) -> list[Message]:
    """Return messages without the last one if the text was cut inside of it."""
    cut_key = next(reversed(parsed.value), "") if parsed.truncated else ""
    return parsed_messages[:-1] if cut_key in _MESSAGES else parsed_messages


def _asked(value: Mapping[str, Any], source: MessageSource) -> list[Message]:
    """The messages of a request's fields, whatever the API calls them."""
    for key in ("messages", "input", "contents", "prompts", "prompt"):
        field = parse(value.get(key)).value
        if isinstance(field, list):
            return messages(field, source)
        if key == "contents" and isinstance(field, Mapping):
            return messages([field], source)
        if isinstance(field, str) and field:
            return messages([field], source)
    return messages([value], source) if "role" in value or "lc" in value else []


def _without_tools(value: Any) -> tuple[Any, tuple[Mapping[str, Any], ...]]:
    """A list of messages without the tool definitions that Langfuse puts at its end."""
    if not isinstance(value, list):
        return value, ()
    offered = tuple(definition for item in value if (definition := _definition(item)))
    return [item for item in value if not _definition(item)], offered


def _definition(item: Any) -> Mapping[str, Any] | None:
    if not isinstance(item, Mapping) or item.get("role") != "tool" or "tool_call_id" in item:
        return None
    definition = item.get("content")
    is_one = isinstance(definition, Mapping) and not {"function", "input_schema"}.isdisjoint(
        definition
    )
    return definition if is_one else None


def answer_of(value: Any, source: MessageSource) -> ModelAnswer:
    """The response in an attribute.

    Args:
        value: The attribute.
        source: Where it was read.
    """
    parsed = parse(value)
    value = _only_response(parsed.value)
    if not isinstance(value, Mapping):
        answer_messages = messages(value, source, "assistant")
        return ModelAnswer(answer_messages if value else [])
    value = _in_usual_form(value)
    answers = generations(value, source) or _choices(value.get("choices"), source)
    if not answers:
        answers = [_answer_messages(value, source)]
    answers[-1] = _without_cut_message(answers[-1], parsed)
    return ModelAnswer(
        answers[0],
        tuple(message for answer in answers[1:] for message in answer[:1]),
        response_id_of(value),
        _text(value.get("model")) or model_of(value),
    )


def _in_usual_form(response: Mapping[str, Any]) -> Mapping[str, Any]:
    """A response of Gemini in the form of chat completions; any other response as it is."""
    candidates = response.get("candidates")
    if not isinstance(candidates, list):
        return response
    answers = [
        from_candidate(candidate) for candidate in candidates if isinstance(candidate, Mapping)
    ]
    return {**response, "choices": [{"message": item} for items in answers for item in items]}


def response_id_of(response: Any) -> str:
    """The provider's id of the answer in a parsed response, or ""."""
    if not isinstance(response, Mapping):
        return ""
    answer = first_answer(response)
    places = (response, response.get("llm_output"), answer.get("response_metadata"), answer)
    ids = (fields.get(key) for fields in places if isinstance(fields, Mapping) for key in _IDS)
    response_ids = (value for value in ids if isinstance(value, str) and value)
    return next((value for value in response_ids if not value.startswith(_LANGCHAIN_IDS)), "")


_IDS = ("id", "response_id", "responseId")
_LANGCHAIN_IDS = ("lc_run-", "run-")  # LangChain's own, if the provider set none


def _only_response(value: Any) -> Any:
    """The only complete response in a list, such as a stream's, or else the value itself."""
    only = value[0] if isinstance(value, list) and len(value) == 1 else None
    is_whole = isinstance(only, Mapping) and only.get("object") == "response"
    return only if is_whole else value


def _choices(choices: Any, source: MessageSource) -> list[list[Message]]:
    items = choices if isinstance(choices, list) else []
    answers = [item.get("message", item.get("text")) for item in items if isinstance(item, Mapping)]
    return [messages([item], source, "assistant") for item in answers if item]


def _answer_messages(value: Mapping[str, Any], source: MessageSource) -> list[Message]:
    for key in ("output", "message", "output_text", "completion"):
        output = parse(value.get(key)).value
        if isinstance(output, list):
            return messages(output, source, "assistant")
        if isinstance(output, Mapping):
            return _answer_messages(output, source) or messages([output], source, "assistant")
        if isinstance(output, str) and output:
            return messages([output], source, "assistant")
    history = value.get("messages")
    if isinstance(history, list):
        return messages(history, source, "assistant")[-1:]
    if {"content", "tool_calls", "parts"}.isdisjoint(value) and "lc" not in value:
        return []
    # Anthropic's message is of type "message".
    return messages([{**value, "role": value.get("role") or "assistant"}], source, "assistant")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def last_message_in(value: Any, source: MessageSource, role: str) -> tuple[Message, ...]:
    """The last message of a role in an attribute; see `last_message_of`."""
    decoded = parse(value).value
    value = decoded if isinstance(decoded, (Mapping, list)) else value
    return last_message_of(value, source, role)


def last_message_of(value: Any, source: MessageSource, role: str) -> tuple[Message, ...]:
    """The last message of a role in a text, a message, or a list of messages.

    Args:
        value: The parsed value; of a graph's state, its messages.
        source: Where it was read.
        role: The role of its author.
    """
    if isinstance(value, str):
        return tuple(messages([value], source, role)) if value and not hidden(value) else ()
    if isinstance(value, Mapping):
        value = value.get("messages", [value] if {"role", "lc"} & set(value) else None)
    candidates = messages(value, source, role) if isinstance(value, list) else []
    return tuple([message for message in candidates if message.role == role][-1:])
