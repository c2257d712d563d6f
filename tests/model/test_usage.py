"""Tokens: every spelling of every emitter gives the same totals."""

from __future__ import annotations

from typing import Any

import pytest

from oteval.model import NO_TOKENS, TokenCounts, Usage, read_tokens, span_tokens

# The same call: 1,000 tokens read, of which 700 came from a cache; 50 written.
TOTALS = TokenCounts(1000, 50, 700)
USAGES: dict[str, dict[str, Any]] = {
    "openai chat": {
        "prompt_tokens": 1000,
        "completion_tokens": 50,
        "total_tokens": 1050,
        "prompt_tokens_details": {"cached_tokens": 700},
    },
    "openai responses": {
        "input_tokens": 1000,
        "output_tokens": 50,
        "input_tokens_details": {"cached_tokens": 700},
    },
    "anthropic": {"input_tokens": 300, "output_tokens": 50, "cache_read_input_tokens": 700},
    "bedrock": {
        "inputTokens": 300,
        "outputTokens": 50,
        "totalTokens": 1050,
        "cacheReadInputTokens": 700,
    },
    "gemini": {
        "promptTokenCount": 1000,
        "candidatesTokenCount": 50,
        "cachedContentTokenCount": 700,
        "totalTokenCount": 1050,
    },
    "gemini in python": {
        "prompt_token_count": 1000,
        "candidates_token_count": 50,
        "cached_content_token_count": 700,
    },
    "langchain": {
        "input_tokens": 1000,
        "output_tokens": 50,
        "total_tokens": 1050,
        "input_token_details": {"cache_read": 700},
    },
    "litellm": {
        "prompt_tokens": 1000,
        "completion_tokens": 50,
        "cache_read_input_tokens": 700,
        "prompt_tokens_details": {"cached_tokens": 700},
    },
    "langfuse": {"input": 300, "output": 50, "input_cached_tokens": 700, "total": 1050},
    "langfuse without a total": {"input": 300, "output": 50, "input_cache_read": 700},
    "langfuse, cached within": {"input": 1000, "output": 50, "input_cached_tokens": 700}
    | {"total": 1050},
    "ai sdk": {"inputTokens": 1000, "outputTokens": 50, "cachedInputTokens": 700},
    "deepseek": {
        "prompt_tokens": 1000,
        "completion_tokens": 50,
        "prompt_cache_hit_tokens": 700,
        "prompt_cache_miss_tokens": 300,
    },
    "more cached than input": {"prompt_tokens": 300, "completion_tokens": 50, "cached_tokens": 700},
    "with what is not tokens": {
        "prompt_tokens": 1000,
        "completion_tokens": 50,
        "cached_tokens": 700,
        "prompt_cost": 3,
        "total_cost": 4.5,
        "cache_creation": {"ephemeral_5m_input_tokens": 0},
        "service_tier": "default",
    },
}


@pytest.mark.parametrize("name", USAGES)
def test_every_spelling_has_the_same_totals(name: str):
    """Cached tokens count as input, whether the emitter counts them within it or beside it."""
    assert read_tokens(USAGES[name]) == TOTALS


ATTRIBUTES: dict[str, dict[str, Any]] = {
    "conventions": {
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.output_tokens": 50,
        "gen_ai.usage.cache_read.input_tokens": 700,
    },
    "conventions as text": {
        "gen_ai.usage.input_tokens": "1000",
        "gen_ai.usage.output_tokens": "50",
        "gen_ai.usage.cache_read.input_tokens": "700",
    },
    "cached left out of the input": {
        "gen_ai.usage.input_tokens": 300,
        "gen_ai.usage.output_tokens": 50,
        "gen_ai.usage.cache_read.input_tokens": 700,
    },
    "anthropic's names": {
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.output_tokens": 50,
        "gen_ai.usage.cache_read_input_tokens": 700,
    },
    "anthropic's names, left out, with a total": {
        "gen_ai.usage.input_tokens": 300,
        "gen_ai.usage.output_tokens": 50,
        "gen_ai.usage.total_tokens": 1050,
        "gen_ai.usage.cache_read_input_tokens": 700,
    },
    "older names": {
        "gen_ai.usage.prompt_tokens": 1000,
        "gen_ai.usage.completion_tokens": 50,
        "gen_ai.usage.cached_tokens": 700,
    },
    "pydantic ai": {
        "gen_ai.usage.details.cache_read_tokens": 700,
        "gen_ai.usage.details.input_tokens": 300,
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.output_tokens": 50,
    },
    "openinference": {
        "llm.token_count.prompt": 1000,
        "llm.token_count.completion": 50,
        "llm.token_count.total": 1050,
        "llm.token_count.prompt_details.cache_read": 700,
    },
    "ai sdk": {
        "ai.usage.inputTokens": 1000,
        "ai.usage.outputTokens": 50,
        "ai.usage.inputTokenDetails.cacheReadTokens": 700,
        "ai.usage.inputTokenDetails.noCacheTokens": 300,
    },
    "semantic kernel": {
        "gen_ai.response.prompt_tokens": 1000,
        "gen_ai.response.completion_tokens": 50,
        "gen_ai.usage.cached_input_tokens": 700,
        "gen_ai.usage.cost": 12,
    },
}


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_of_spans_have_the_same_totals(name: str):
    """The conventions count cached tokens as input; what contradicts that is corrected."""
    assert span_tokens(ATTRIBUTES[name]) == TOTALS


@pytest.mark.parametrize(
    ("usage", "totals"),
    [
        (
            {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 700}
            | {"cache_creation_input_tokens": 90, "cache_creation": {"ephemeral_1h": 90}},
            TokenCounts(800, 5, 700, None, 90),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 5}
            | {"completion_tokens_details": {"reasoning_tokens": 4, "audio_tokens": 1}}
            | {"prompt_tokens_details": {"audio_tokens": 3}},
            TokenCounts(9, 5, None, 4, None, 3, 1),
        ),
        (
            {"toolUsePromptTokenCount": 7, "promptTokenCount": 9, "candidatesTokenCount": 5}
            | {"thoughtsTokenCount": 4, "totalTokenCount": 25}
            | {"promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 2}]},
            TokenCounts(16, 9, None, 4, None, 2),
        ),
        (
            {"input": 9, "output": 5, "output_reasoning_tokens": 40, "input_audio_tokens": 2},
            TokenCounts(11, 45, None, 40, None, 2),
        ),
    ],
    ids=["cache writes", "parts of openai", "parts of gemini", "amounts of langfuse"],
)
def test_every_kind_of_tokens_counts_once(usage: dict[str, Any], totals: TokenCounts):
    """Cache writes, reasoning and audio are kept, and are part of the input or output."""
    assert read_tokens(usage) == totals


@pytest.mark.parametrize(
    "value", [None, "", "many", -1, True, float("nan"), float("inf"), 1 << 60, [], {"a": 1}, b"1"]
)
def test_what_is_no_count_is_not_known(value: Any):
    """A count that cannot be one is left out, and breaks nothing."""
    assert span_tokens({"gen_ai.usage.input_tokens": value}) == NO_TOKENS
    assert read_tokens({"prompt_tokens": value}) == NO_TOKENS
    assert read_tokens(value) == NO_TOKENS


def test_usages_add_up():
    """A sum has the sum of every kind; of nothing, it is nothing."""
    usages = [Usage(1, 2, 3, 4, 5, 6, 7, 8), Usage(10, 20, 30, 40, 50, 60, 70, 80)]

    assert Usage.total(usages) == usages[0] + usages[1] == Usage(11, 22, 33, 44, 55, 66, 77, 88)
    assert Usage.total([]) == Usage()
