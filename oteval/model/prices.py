"""The prices of tokens: first the user's prices, then the prices of the package ``genai-prices``.

The package has the list prices of some 2,300 models and their history, and contacts no server. If
prices depend on the length of a request, the lowest price counts, because a run's sums do not show
how long each request was. Prices of searches and other tools do not count. A model without a known
price has no cost, never 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from importlib import metadata
from typing import TYPE_CHECKING, Any, ClassVar

from ..base.errors import ConfigError
from .usage import Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

__all__ = ["CostSum", "Price", "Prices", "list_version", "make_prices", "require_price"]

_MILLION = 1e6
# Names of models on Bedrock, perhaps with a region: "eu.anthropic.claude-sonnet-4-20250514-v1:0".
_BEDROCK = re.compile(
    r"(?:[a-z-]{2,10}\.)?(?:ai21|amazon|anthropic|cohere|deepseek|meta|mistral)\."
)


@dataclass(frozen=True)
class Price:
    """The price of a model, in US dollars per million tokens.

    Attributes:
        input: The price of input tokens.
        output: The price of output tokens.
        cached_input: The price of input tokens read from the provider's cache; None means `input`.
        cache_write: The price of input tokens written to that cache; None means `input`.
        input_audio: The price of input tokens of audio; None means `input`.
        output_audio: The price of output tokens of audio; None means `output`.
    """

    # A price in oteval.yaml has no other keys.
    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid"}

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None
    input_audio: float | None = None
    output_audio: float | None = None

    def __post_init__(self) -> None:
        """Reject prices that are negative, infinite or NaN.

        Raises:
            ValueError: A price is negative, infinite or NaN.
        """
        for figure in vars(self).values():
            if figure is not None and not 0 <= figure < math.inf:
                raise ValueError(f"invalid price {figure}")

    @property
    def surcharges(self) -> Mapping[str, float]:
        """US dollars per token by field of `Usage`, where parts of the input and output differ.

        The cost is the sum of all fields times these: cached tokens are part of the input as well,
        so their entry is the difference between the two prices.
        """
        parts = (
            ("cached_tokens", self.cached_input, self.input),
            ("cache_write_tokens", self.cache_write, self.input),
            ("input_audio_tokens", self.input_audio, self.input),
            ("output_audio_tokens", self.output_audio, self.output),
        )
        return {
            "input_tokens": self.input / _MILLION,
            "output_tokens": self.output / _MILLION,
            **{
                name: 0.0 if price is None else (price - base) / _MILLION
                for name, price, base in parts
            },
        }

    def cost(self, usage: Usage) -> float:
        """The cost of tokens in US dollars."""
        # In runs that older versions stored, the input may not include cached tokens.
        sent = max(usage.input_tokens, usage.cached_tokens + usage.cache_write_tokens)
        counted = replace(usage, input_tokens=sent)
        amounts = (getattr(counted, name) * rate for name, rate in self.surcharges.items())
        return float(sum(amounts))


@dataclass(frozen=True, slots=True)
class CostSum:
    """The cost of several runs at list prices.

    Attributes:
        dollars: The cost of the runs whose cost is known, in US dollars.
        priced: The number of these runs.
        runs: The number of all runs.
    """

    dollars: float
    priced: int
    runs: int

    @property
    def mean(self) -> float | None:
        """The mean of the known costs; None if no cost is known."""
        return self.dollars / self.priced if self.priced else None


@dataclass(frozen=True)
class Prices:
    """A price list: the user's prices first, then the prices of ``genai-prices``.

    Attributes:
        own: The user's prices by model name.
    """

    own: Mapping[str, Price] = field(default_factory=dict)

    def of(self, *models: str, at_ns: int = 0) -> Price | None:
        """The price of the first model name with a price, or None.

        A name also matches without its provider prefix ("openai/") and its date suffix.

        Args:
            models: The names.
            at_ns: When the tokens were used (ns since the epoch); 0 means now.
        """
        for model in models:
            own = self._own(model)
            if own is not None:
                return own
        for model in models:
            info = _listed_model(model)
            price = None if info is None else _price_at(info, at_ns)
            if price is not None:
                return price
        return None

    def cost(self, models: Sequence[str], usage: Usage) -> float | None:
        """The cost of a run in US dollars.

        It is None for the reasons of `why_unknown`.
        """
        price = self.of(models[0]) if len(models) == 1 and usage.is_known else None
        return None if price is None else price.cost(usage)

    def why_unknown(self, models: Sequence[str], usage: Usage) -> str:
        """Why the cost of a run is not known; "" if it is."""
        if not usage.is_known:
            return "the trace has no tokens"
        if len(models) != 1:
            return "several models answered" if models else "the trace does not name the model"
        return "" if self.of(models[0]) else f"the price of {models[0]!r} is not known"

    def total(self, usages: Iterable[tuple[str, int, Usage]], runs: int) -> CostSum:
        """The cost of several runs.

        Args:
            usages: By model: the number of runs with known tokens that only this model answered,
                and the sum of their tokens.
            runs: The number of all runs.
        """
        dollars, priced = 0.0, 0
        for model, count, usage in usages:
            if price := self.of(model):
                dollars += price.cost(usage)
                priced += count
        return CostSum(dollars, priced, runs)

    def _own(self, model: str) -> Price | None:
        for name in (model, model.rpartition("/")[2]):
            price = self.own.get(name) or self.own.get(_DATE_SUFFIX.sub("", name))
            if price is not None:
                return price
        return None


# "gpt-4o-2024-08-06" and "gpt-4o-latest" have the price of "gpt-4o".
_DATE_SUFFIX = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8}|latest)$")


def list_version() -> str:
    """The version of the price list."""
    return metadata.version("genai-prices")


@lru_cache(maxsize=4096)
def _listed_model(name: str) -> ModelInfo | None:
    """A model of the price list, or None."""
    # Importing the list takes a third of a second, and most commands need no price.
    from genai_prices.data_snapshot import get_snapshot

    snapshot = get_snapshot()
    for provider, reference in _references(name):
        try:
            return snapshot.find_provider_model(reference, None, provider, None)[1]
        except LookupError:
            continue
    # Models that only one provider has, such as "sonar-pro".
    lower = name.lower()
    models = [model for p in snapshot.providers for model in p.models if model.id == lower]
    return models[0] if len(models) == 1 else None


def _references(name: str) -> Iterator[tuple[str | None, str]]:
    """Yield a model's name as the providers know it, each with the provider or None."""
    yield None, name
    for separator in ("/", ":"):
        provider, matched_separator, model_name = name.partition(separator)
        if matched_separator:
            yield provider, model_name
    last = name.rpartition("/")[2]
    if last != name:
        yield None, last
    if _BEDROCK.match(last):
        yield "aws", last


def _price_at(info: ModelInfo, at_ns: int) -> Price | None:
    """The price of a model at a time, or None if its tokens have none."""
    time = datetime.now(UTC) if at_ns <= 0 else datetime.fromtimestamp(at_ns // 10**9, UTC)
    listed = info.get_prices(time)
    sent, received = _figure(listed, "input_mtok"), _figure(listed, "output_mtok")
    if sent is None or received is None:
        return None
    return Price(
        sent,
        received,
        _figure(listed, "cache_read_mtok"),
        _figure(listed, "cache_write_mtok"),
        _figure(listed, "input_audio_mtok"),
        _figure(listed, "output_audio_mtok"),
    )


def _figure(listed: ModelPrice, name: str) -> float | None:
    price = getattr(listed, name, None)
    price = getattr(price, "base", price)
    return None if price is None else float(price)


def make_prices(own: Mapping[str, Any] | None) -> Prices:
    """A price list with the user's prices.

    Args:
        own: For each model ``{"input": 0.25, "output": 2.0}``, optionally with the other fields of
            `Price`, or ``(input, output)``, in US dollars per million tokens.

    Raises:
        ConfigError: A price has another form.
    """
    return Prices({name: _make_price(name, price) for name, price in (own or {}).items()})


def _make_price(name: str, price: Any) -> Price:
    try:
        if isinstance(price, Price):
            return price
        if isinstance(price, Mapping):
            figures = {key: float(figure) for key, figure in price.items() if figure is not None}
            return Price(**figures)
        if isinstance(price, Sequence) and len(price) == 2:
            return Price(float(price[0]), float(price[1]))
    except (TypeError, ValueError):
        pass
    raise ConfigError(
        f"prices[{name!r}] is {price!r}; expected {{'input': ..., 'output': ...}} in US dollars "
        "per million tokens"
    )


def require_price(model: str, prices: Prices, setting: str) -> None:
    """Check that the price of a model is known, as a limit on its cost requires.

    Args:
        model: The model's name.
        prices: The price list.
        setting: The name of the setting that limits the cost, for the message.

    Raises:
        ConfigError: The price is unknown.
    """
    if prices.of(model) is None:
        raise ConfigError(
            f"{setting} needs the price of {model!r}: give prices={{{model!r}: {{'input': ..., "
            "'output': ...}} in US dollars per million tokens"
        )
