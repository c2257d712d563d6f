"""The measure ``cost``: the tokens of runs at the prices of their models."""

from __future__ import annotations

import pytest

from oteval.model import Usage
from oteval.model.prices import make_prices
from oteval.monitor.monitor_checks import check
from oteval.store import Store

from .histories import History, config

PRICED, DEARER = "gpt-4o-mini", "gpt-4o"


def cost_of(model: str, tokens_in: int, tokens_out: int) -> float:
    """Return US dollars by the table of prices that comes with oteval."""
    price = make_prices(own=None).of(model)
    assert price is not None
    return (tokens_in * price.input + tokens_out * price.output) / 1e6


def test_a_dearer_model_is_an_alert():
    """The limit is the usual model's cost in dollars; the more expensive model exceeds it."""
    with Store() as store:
        history = History(store)
        watched = config("{measure: cost, group_by: agent, notify: [ops]}")
        usage = Usage(input_tokens=1000, output_tokens=200)
        history.runs(420, models=(PRICED,), usage=usage)
        (before,) = check(store, watched, history.now)
        history.runs(60, models=(DEARER,), usage=usage)

        (after,) = check(store, watched, history.now)

        assert (before.state, after.state) == ("ok", "alert")
        usual, dear = (cost_of(model, 1000, 200) for model in (PRICED, DEARER))
        assert before.baselines["worse"].scale.limit == pytest.approx(usual)
        assert before.recent == pytest.approx(usual)
        assert usual < (after.recent or 0.0) <= dear * 1.001


def test_the_dearest_model_counts_and_models_without_a_price_do_not():
    """Two models cost as much as the dearer one; runs without prices or tokens are left out."""
    with Store() as store:
        history = History(store)
        usage = Usage(input_tokens=1000, output_tokens=200)
        history.runs(3, models=(PRICED, DEARER), usage=usage)
        history.runs(2, models=("nobody-knows-it",), usage=usage)
        history.runs(2, models=(PRICED,))

        (status,) = check(store, config("{measure: cost}"), history.now)

        assert status.observations == 3
        assert status.recent is not None
        assert status.recent > 0.0
