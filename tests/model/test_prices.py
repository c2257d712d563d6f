"""Prices of models: the user's own, then those of genai-prices; an unknown model has no cost."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from oteval import ConfigError, create_llm_as_judge
from oteval.model import Usage
from oteval.model.prices import Price, make_prices


def test_prices_are_found_by_name_date_and_provider():
    """The user's prices come first; an unknown model has no price."""
    prices = make_prices({"m": (1.0, 2.0), "gpt-4o": {"input": 9, "output": 9}})

    assert prices.of("m") == Price(1.0, 2.0)
    assert prices.of("gpt-4o-2024-08-06") == Price(9.0, 9.0)
    assert prices.of("openai/gpt-5-mini-2025-08-07") == prices.of("gpt-5-mini")
    assert prices.of("gpt-5-mini") != prices.of("gpt-5")


COMMON = (
    "gpt-4o gpt-4o-2024-08-06 gpt-4.1-mini gpt-5 o3 o4-mini claude-sonnet-4-5 gemini-2.5-flash "
    "claude-3-5-sonnet-20241022 claude-opus-4-1 claude-haiku-4-5 gemini-2.0-flash grok-4 "
    "mistral-large-latest deepseek-chat command-r-plus sonar-pro llama-3.3-70b-versatile "
    "openai/gpt-4o openai:gpt-4o anthropic/claude-sonnet-4-5 azure/gpt-4o models/gemini-2.5-pro "
    "groq/llama-3.3-70b-versatile us.anthropic.claude-sonnet-4-20250514-v1:0 "
    "anthropic.claude-3-5-sonnet-20240620-v1:0 bedrock/anthropic.claude-3-haiku-20240307-v1:0 "
    "vertex_ai/gemini-2.5-pro openrouter/anthropic/claude-sonnet-4"
)


@pytest.mark.parametrize(
    "name",
    COMMON.split(),
)
def test_common_models_have_a_price(name: str):
    """Also with the prefixes that gateways and frameworks write."""
    price = make_prices(None).of(name)

    assert price is not None
    assert 0 < price.input < price.output < 100


@pytest.mark.parametrize(
    "name", ["", "m", "unknown", "my-claude-proxy", "gpt", "claude", "gpt-4o-tuned", "x/y:z", "/"]
)
def test_unknown_models_have_none(name: str):
    """A name that only resembles a model's is not priced like it."""
    assert make_prices(None).of(name) is None


def test_each_kind_of_tokens_has_its_price():
    """What is cached, written or audio is part of the input, and is paid at its own price."""
    usage = Usage(1000, 100, 600, 1, 200, input_audio_tokens=50, output_audio_tokens=10)
    price = Price(10, 100, cached_input=1, cache_write=12, input_audio=20, output_audio=200)

    cost = (150 * 10 + 600 * 1 + 200 * 12 + 50 * 20 + 90 * 100 + 10 * 200) / 1e6
    assert price.cost(usage) == pytest.approx(cost)
    assert Price(10, 100).cost(usage) == pytest.approx((1000 * 10 + 100 * 100) / 1e6)
    assert Price(10, 100, 1).cost(Usage(300, 0, 700)) == pytest.approx(700 / 1e6)


def test_caches_have_a_price_of_their_own():
    """A run that mostly reads a cache costs a tenth, and writing costs more than reading anew."""
    price = make_prices(None).of("claude-sonnet-4-5")

    assert price is not None
    assert price.cached_input is not None
    assert price.cache_write is not None
    assert price.cached_input < price.input < price.cache_write


def test_a_price_is_that_of_the_time_of_the_run():
    """Prices change: a run of an earlier year costs what it cost then."""
    prices = make_prices(None)

    then = prices.of("o3", at_ns=1_746_000_000 * 10**9)
    now = prices.of("o3")

    assert then is not None
    assert now is not None
    assert then.input > now.input


@pytest.mark.parametrize(
    "price", [3, {"in": 1}, (1,), {"input": "x", "output": 1}, {"input": -1, "output": 1}]
)
def test_a_price_of_another_form_is_refused(price: Any):
    """The message shows the expected form."""
    with pytest.raises(ConfigError, match="US dollars per million tokens"):
        make_prices({"m": price})


def test_a_limit_on_unknown_costs_is_refused():
    """It could not be enforced."""
    with pytest.raises(ConfigError, match="max_cost needs the price of 'nobody'"):
        create_llm_as_judge(prompt="{outputs}", model="openai:nobody", max_cost=1.0)


def test_the_price_list_is_imported_only_for_a_price():
    """It takes a third of a second, which commands that need no price do not wait."""
    code = (
        "import sys, oteval.model.prices as p, oteval.cli.commands; "
        "p.make_prices({'m': (1, 2)}).of('m'); sys.exit('genai_prices' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
