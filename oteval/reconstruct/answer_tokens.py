"""Find the tokens of a model call in its recorded answer, if its span has no counts.

SDKs that trace any function record the provider's response as it is, including its usage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..messages import parse
from ..model import NO_TOKENS, Span, TokenCounts, read_tokens, semconv
from .finish_reasons import CONTAINERS, DEEPEST

__all__ = ["tokens_in_answer"]

_NAMES = ("usage", "usageMetadata", "usage_metadata", "token_usage", "tokenUsage")
_OUTPUT = frozenset(semconv.OUTPUT)


def tokens_in_answer(span: Span) -> TokenCounts:
    """The tokens that the recorded answer of a model call reports.

    Args:
        span: The span of the model call.
    """
    for key in sorted(span.attributes.keys() & _OUTPUT, key=semconv.OUTPUT.index):
        tokens = _tokens_in(span.attributes[key], 0)
        if tokens != NO_TOKENS:
            return tokens
    return NO_TOKENS


def _tokens_in(value: Any, depth: int) -> TokenCounts:
    if isinstance(value, str):
        # Most texts have no counts, and parsing them would take as long as reading the span.
        if value[:1] not in ("{", "[") or not any(f'{name}"' in value for name in _NAMES):
            return NO_TOKENS
        value = parse(value).value
    if depth > DEEPEST:
        return NO_TOKENS
    inner_values: list[Any] = []
    if isinstance(value, list):
        inner_values = value
    elif isinstance(value, Mapping):
        counts = [read_tokens(value[name]) for name in _NAMES if name in value]
        if any(tokens != NO_TOKENS for tokens in counts):
            return next(tokens for tokens in counts if tokens != NO_TOKENS)
        inner_values = [value[name] for name in CONTAINERS if name in value]
    inner_tokens = (_tokens_in(inner, depth + 1) for inner in inner_values)
    return next((tokens for tokens in inner_tokens if tokens != NO_TOKENS), NO_TOKENS)
