"""Prices of models, bundled and given."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest

from oteval import ConfigError, create_llm_as_judge
from oteval.evaluators.judge.costs import Price, make_prices


def test_prices_are_found_by_name_date_and_provider():
    """The user's prices come first; an unknown model has no price."""
    prices = make_prices({"m": (1.0, 2.0), "gpt-4o": {"input": 9, "output": 9}})

    assert prices.of("m") == Price(1.0, 2.0)
    assert prices.of("gpt-4o-2024-08-06") == Price(9.0, 9.0)
    assert prices.of("openai/gpt-5-mini-2025-08-07") == prices.of("gpt-5-mini")
    assert prices.of("gpt-5-mini") != prices.of("gpt-5")
    assert prices.of("nobody") is None
    assert Price(1.0, 2.0, 0.5).cost(1_000_000, 500_000, 200_000) == pytest.approx(0.8 + 0.1 + 1)


@pytest.mark.parametrize("price", [3, {"in": 1}, (1,), {"input": "x", "output": 1}])
def test_a_price_of_another_form_is_refused(price: Any):
    """The message shows the expected form."""
    with pytest.raises(ConfigError, match="US dollars per million tokens"):
        make_prices({"m": price})


def test_a_limit_on_unknown_costs_is_refused():
    """It could not be enforced."""
    with pytest.raises(ConfigError, match="max_cost needs the price of 'nobody'"):
        create_llm_as_judge(prompt="{outputs}", model="openai:nobody", max_cost=1.0)


def test_prices_have_a_date():
    """The bundled table states its date and unit."""
    table = json.loads(
        resources.files("oteval.evaluators.judge").joinpath("prices.json").read_text()
    )

    assert table["date"] >= "2025"
    assert table["unit"] == "USD per million tokens"
    assert all(price["output"] >= price["input"] > 0 for price in table["models"].values())
