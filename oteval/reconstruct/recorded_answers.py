"""The reason and the tokens that the recorded answer of a model call reports.

Most instrumentations have an attribute for the reason. Others have it only inside of the recorded
answer: in the messages of the conventions, in a chat completion, Anthropic's message, Gemini's
candidates, LangChain's generations, or the event of a choice. Without a whole answer, the Responses
API and Gemini have the reason in other places. SDKs that trace any function record the provider's
response as it is, including its usage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ..messages import parse
from ..model import NO_TOKENS, Span, TokenCounts, normal_finish_reason, read_tokens, semconv
from .dialect import Logs
from .readers.spans import finish_reasons

__all__ = ["finish_reason_of", "tokens_in_answer"]

T = TypeVar("T")

_NAMES = (
    *("finish_reason", "finishReason", "stop_reason", "stopReason", "blockReason", "block_reason"),
)
# If an answer is incomplete, the Responses API has the reason here.
_DETAILS = ("incomplete_details", "incompleteDetails")
# The keys in answers that are searched.
_CONTAINERS = (
    *("choices", "candidates", "generations", "messages", "choice", "message", "response"),
    *("generation_info", "response_metadata", "metadata", "meta", "kwargs", "output", "data"),
    *("llm_output", "raw", "body", "result", "additional_kwargs", "_meta"),
    *("promptFeedback", "prompt_feedback", "replies"),
)
# How deep a search goes into an answer.
_DEEPEST = 8
_USAGE = ("usage", "usageMetadata", "usage_metadata", "token_usage", "tokenUsage")
_OUTPUT = frozenset(semconv.OUTPUT)


def finish_reason_of(span: Span, logs: Logs) -> str:
    """Why the model stopped, in the words of the conventions; "" if nothing shows it.

    Args:
        span: The span of a model call.
        logs: The log records in its context.
    """
    reasons = finish_reasons(span)
    if reasons:
        return reasons[0]
    for record in logs:
        if reason := _reason_in(record.body) or _reason_in(record.attributes):
            return normal_finish_reason(reason)
    for event in span.events:
        if reason := _reason_in(event.attributes):
            return normal_finish_reason(reason)
    for key in sorted(span.attributes.keys() & _OUTPUT, key=semconv.OUTPUT.index):
        if reason := _reason_in(span.attributes[key]):
            return normal_finish_reason(reason)
    return ""


def _reason_in(value: Any) -> str:
    """The first reason in a recorded answer, as it was written, or ""."""
    return _search(value, _may_hold_reason, _reason) or ""


def _may_hold_reason(text: str) -> bool:
    return "eason" in text and any(name in text for name in (*_NAMES, *_DETAILS))


def _reason(fields: Mapping[str, Any]) -> str:
    for name in _NAMES:
        recorded = fields.get(name)
        if isinstance(recorded, str) and recorded:
            return recorded
    for name in _DETAILS:
        details = fields.get(name)
        if isinstance(details, Mapping) and isinstance(details.get("reason"), str):
            return str(details["reason"])
    return ""


def tokens_in_answer(span: Span) -> TokenCounts:
    """The tokens that the recorded answer of a model call reports.

    Args:
        span: The span of the model call.
    """
    for key in sorted(span.attributes.keys() & _OUTPUT, key=semconv.OUTPUT.index):
        if tokens := _search(span.attributes[key], _may_hold_usage, _tokens):
            return tokens
    return NO_TOKENS


def _may_hold_usage(text: str) -> bool:
    return any(f'{name}"' in text for name in _USAGE)


def _tokens(fields: Mapping[str, Any]) -> TokenCounts | None:
    counts = (read_tokens(fields[name]) for name in _USAGE if name in fields)
    return next((tokens for tokens in counts if tokens != NO_TOKENS), None)


def _search(
    value: Any,
    may_hold: Callable[[str], bool],
    read: Callable[[Mapping[str, Any]], T],
    depth: int = 0,
) -> T | None:
    """The first result of a function for the objects of a recorded answer, or None.

    Args:
        value: The answer.
        may_hold: Whether a text of JSON is worth parsing: most texts have nothing, and parsing them
            would take as long as reading the span.
        read: Returns the result for one object; None or "" to search the objects in it.
        depth: The depth of the value in the answer.
    """
    if isinstance(value, str):
        if value[:1] not in ("{", "[") or not may_hold(value):
            return None
        value = parse(value).value
    if depth > _DEEPEST:
        return None
    inner_values: Iterable[Any] = ()
    if isinstance(value, list):
        inner_values = value
    elif isinstance(value, Mapping):
        if result := read(value):
            return result
        inner_values = (value[name] for name in _CONTAINERS if name in value)
    results = (_search(inner, may_hold, read, depth + 1) for inner in inner_values)
    return next((result for result in results if result), None)
