"""Find out why a model stopped, from its span or log records.

Most instrumentations have an attribute. Others have the reason only inside of the recorded answer:
in the messages of the conventions, in a chat completion, Anthropic's message, Gemini's candidates,
LangChain's generations, or the event of a choice. Without a whole answer, the Responses API
and Gemini have the reason in other places.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..messages import parse
from ..model import Span, normal_finish_reason, semconv
from .dialect import Logs
from .readers.spans import finish_reasons

__all__ = ["CONTAINERS", "DEEPEST", "finish_reason_of"]

_NAMES = (
    *("finish_reason", "finishReason", "stop_reason", "stopReason", "blockReason", "block_reason"),
)
# If an answer is incomplete, the Responses API has the reason here.
_DETAILS = ("incomplete_details", "incompleteDetails")
CONTAINERS = (
    *("choices", "candidates", "generations", "messages", "choice", "message", "response"),
    *("generation_info", "response_metadata", "metadata", "meta", "kwargs", "output", "data"),
    *("llm_output", "raw", "body", "result", "additional_kwargs", "_meta"),
    *("promptFeedback", "prompt_feedback", "replies"),
)
"""The keys in answers that are searched for the reason."""
DEEPEST = 8
"""How deep the search for a reason goes into an answer."""
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


def _reason_in(value: Any, depth: int = 0) -> str:
    """The first reason in a recorded answer, as it was written, or ""."""
    if isinstance(value, str):
        # Most texts have no reason, and parsing them would take as long as reading the span.
        if value[:1] not in ("{", "[") or "eason" not in value:
            return ""
        if not any(name in value for name in (*_NAMES, *_DETAILS)):
            return ""
        value = parse(value).value
    if depth > DEEPEST:
        return ""
    if isinstance(value, list):
        return next((reason for item in value if (reason := _reason_in(item, depth + 1))), "")
    if not isinstance(value, Mapping):
        return ""
    for name in _NAMES:
        recorded = value.get(name)
        if isinstance(recorded, str) and recorded:
            return recorded
    for name in _DETAILS:
        details = value.get(name)
        if isinstance(details, Mapping) and isinstance(details.get("reason"), str):
            return str(details["reason"])
    inner = (value[name] for name in CONTAINERS if name in value)
    return next((reason for item in inner if (reason := _reason_in(item, depth + 1))), "")
