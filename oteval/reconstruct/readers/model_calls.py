"""A model call, built from its request and its answer in the same way for all dialects.

A dialect reads the request and the answer. This module reads the attributes that all dialects
share: the model, the answer's id, the tools and the tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...messages import ModelAnswer, ModelRequest, answer_of, request_of, tool_definitions
from ...model import Gap, Span, Usage, semconv
from ..dialect import ModelCall
from ..gaps import gap
from . import spans

__all__ = ["call_gaps", "client_call", "model_call"]

_TOOLS, _RESPONSE_ID = "gen_ai.tool.definitions", "gen_ai.response.id"


def call_gaps(span: Span, keys: tuple[str, ...], switch: str, failure: str = "") -> list[Gap]:
    """The gaps of a model call's attributes, and the gap of a failed call.

    Args:
        span: The span.
        keys: The attributes with content.
        switch: The setting that makes the emitter write content.
        failure: Why the call failed, if a field of the dialect has the reason.
    """
    failures = [gap("model_call_failed", span.span_id, reason=failure)] if failure else []
    return spans.attribute_gaps(span, keys, switch) + (failures or spans.model_failure(span))


def model_call(
    span: Span,
    request: ModelRequest,
    answer: ModelAnswer,
    gaps: list[Gap],
    *,
    model: object = None,
    usage: Usage | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> ModelCall:
    """A model call.

    Args:
        span: The span.
        request: The messages sent, with the tools offered.
        answer: The messages received. Its model and id apply if the attributes have none.
        gaps: The gaps found in both.
        model: The model that answered, if a field of the dialect names it.
        usage: The tokens, if a field of the dialect counts them.
        attributes: The attributes, if events and log records add to the span's own.
    """
    attributes = span.attributes if attributes is None else attributes
    # The other attributes of this list name the requested model.
    model_name = model or attributes.get(semconv.RESPONSE_MODEL[0]) or answer.model
    model_name = model_name or semconv.first(attributes, semconv.RESPONSE_MODEL) or ""
    return ModelCall(
        span,
        input=tuple(request.messages),
        output=tuple(answer.messages),
        choices=tuple(answer.choices),
        tools=request.tools or tool_definitions(attributes.get(_TOOLS)),
        model=str(model_name),
        response_id=str(attributes.get(_RESPONSE_ID) or answer.response_id),
        usage=spans.usage(span.attributes) if usage is None else usage,
        whole=spans.is_whole(gaps),
        is_delta=request.is_delta,
        gaps=tuple(gaps),
    )


def client_call(
    span: Span,
    sides: Mapping[str, Any],
    switch: str,
    *,
    model: object = None,
    tools: tuple[Mapping[str, Any], ...] = (),
    usage: Usage | None = None,
    failure: str = "",
) -> ModelCall:
    """A model call from the client library's request and response.

    Args:
        span: The span.
        sides: The values of the request and the response, by their attributes.
        switch: The setting that makes the emitter write content.
        model: The model that answered, if a field of the dialect names it.
        tools: The tools' definitions, if the request has none.
        usage: The tokens, if a field of the dialect counts them.
        failure: As for `call_gaps`.
    """
    (request_key, raw_request), (response_key, raw_response) = sides.items()
    gaps = call_gaps(span, (request_key, response_key), switch, failure)
    request, answer = request_of(raw_request, span), answer_of(raw_response, span)
    has_failed = span.is_error or bool(failure)
    messages_by_key = {request_key: request.messages, response_key: answer.messages or has_failed}
    gaps += spans.not_captured(span, messages_by_key, switch, gaps)
    request = request._replace(tools=request.tools or tools)
    return model_call(span, request, answer, gaps, model=model, usage=usage)
