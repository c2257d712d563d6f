"""What tokens cost: a small table with a date, which users override by model.

An unknown model has no price, and its cost is None, never 0.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from ...errors import ConfigError

__all__ = ["Price", "Prices", "make_prices"]

# A model's name with its date or "latest" behind it costs what the name alone does.
_DATED = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8}|latest)$")
_MILLION = 1e6


@dataclass(frozen=True)
class Price:
    """What a model costs, in US dollars per million tokens.

    Attributes:
        input: Tokens read.
        output: Tokens written.
        cached_input: Tokens read from the provider's cache; None costs as much as `input`.
    """

    input: float
    output: float
    cached_input: float | None = None

    def __post_init__(self) -> None:
        """Refuse what would make costs fall or compare with nothing.

        Raises:
            ValueError: A figure is negative, infinite or NaN.
        """
        for figure in (self.input, self.output, self.cached_input):
            if figure is not None and not 0 <= figure < math.inf:
                raise ValueError(f"{figure} is not a price")

    def cost(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> float:
        """Return what so many tokens cost, in US dollars."""
        cached = self.input if self.cached_input is None else self.cached_input
        fresh = max(input_tokens - cached_tokens, 0)
        paid = fresh * self.input + cached_tokens * cached + output_tokens * self.output
        return paid / _MILLION


@dataclass(frozen=True)
class Prices:
    """The prices that hold for a judge: the user's before those of the table."""

    own: Mapping[str, Price] = field(default_factory=dict)

    def of(self, *models: str) -> Price | None:
        """Return the price of the first of some names that has one, or None."""
        for table in (self.own, _table()):
            for model in models:
                for name in (model, model.rpartition("/")[2]):
                    found = table.get(name) or table.get(_DATED.sub("", name))
                    if found is not None:
                        return found
        return None


@cache
def _table() -> Mapping[str, Price]:
    text = resources.files(__package__ or "").joinpath("prices.json").read_text("utf-8")
    return {name: Price(**price) for name, price in json.loads(text)["models"].items()}


def make_prices(given: Mapping[str, Any] | None) -> Prices:
    """Return the prices that a user gives.

    Args:
        given: By model: ``{"input": 0.25, "output": 2.0}``, with ``cached_input`` perhaps, or
            ``(input, output)``, in US dollars per million tokens.

    Raises:
        ConfigError: A price is none.
    """
    return Prices({name: _price(name, price) for name, price in (given or {}).items()})


def _price(name: str, given: Any) -> Price:
    try:
        if isinstance(given, Price):
            return given
        if isinstance(given, Mapping):
            return Price(**{key: float(value) for key, value in given.items()})
        if isinstance(given, Sequence) and len(given) == 2:
            return Price(float(given[0]), float(given[1]))
    except (TypeError, ValueError):
        pass
    raise ConfigError(
        f"prices[{name!r}] is {given!r}; expected {{'input': ..., 'output': ...}} in US dollars "
        "per million tokens"
    )
