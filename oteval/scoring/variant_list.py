"""Variants of runs with their rates, costs and times, from the counts of the store.

A variant is a sequence of tools that runs called. Calls of one message may be in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..evaluators import pass_rate
from ..model import EVERYTHING, Prices, Selection, make_prices
from ..store import Period, Store, usages_of

__all__ = ["VariantList", "variants"]


class VariantList(NamedTuple):
    """The variants of the selected runs.

    Attributes:
        runs: How many runs were selected.
        variants: How many variants they have.
        period_ns: The length of the periods that runs are counted by; 0 without runs.
        rows: The variants; see `variants`. They can be read once.
    """

    runs: int
    variants: int
    period_ns: int
    rows: Iterator[dict[str, Any]]


def variants(
    store: Store,
    selection: Selection = EVERYTHING,
    evaluator: str | None = None,
    top: int | None = None,
) -> VariantList:
    """The tool sequences of runs, most frequent first.

    A row has:

    - ``tools``; ``count``, ``share``; ``example``, the id of the first run;
    - ``errors``: runs with a failed call;
    - ``passed``; ``judged``: passes, fails and errors, the current score of each evaluator;
      ``pass_rate`` and its 95% interval, None if nothing passed or failed;
    - ``cost``: the mean in US dollars at list prices over the ``priced`` runs: one model each,
      with a known price, and known tokens; ``input_tokens``, ``output_tokens``: means over the
      runs that report them, None if no run does;
    - ``seconds``, ``seconds_p95``: the median and the 95% quantile, None without a time;
    - ``first_seen_ns``, ``last_seen_ns``: starts of runs; ``periods``: the count and the share in
      each period; ``recent_share``, ``earlier_share``: in the last period, and in all earlier
      periods.

    Args:
        store: The store.
        selection: Which trajectories.
        evaluator: The evaluator whose verdicts count; all of them when None.
        top: How many variants to return; all of them when None.
    """
    counts = store.variants.count(selection, evaluator, top)
    prices = make_prices(own=None)
    rows = (_row(row, counts.runs, counts.periods, prices) for row in counts.rows)
    length = counts.periods[0].length_ns if counts.periods else 0
    return VariantList(counts.runs, counts.variants, length, rows)


def _row(
    counts: Mapping[str, Any], runs: int, periods: Sequence[Period], prices: Prices
) -> dict[str, Any]:
    passed, failed, errors = counts["passed"], counts["failed"], counts["evaluator_errors"]
    rate = pass_rate(passed, failed, errors)
    cost = prices.total(usages_of(counts["models"]), counts["count"])
    median, p95 = counts["seconds"] or (None, None)
    return {
        "tools": counts["tools"],
        "errors": counts["errors"],
        "passed": passed,
        "judged": passed + failed + errors if passed or failed else 0,
        "example": counts["example"],
        "count": counts["count"],
        "share": counts["count"] / runs,
        "pass_rate": rate.value,
        "pass_rate_interval": None if rate.interval is None else list(rate.interval),
        "cost": cost.mean,
        "priced": cost.priced,
        "input_tokens": counts["input_tokens"],
        "output_tokens": counts["output_tokens"],
        "seconds": median,
        "seconds_p95": p95,
        "first_seen_ns": counts["first_seen_ns"],
        "last_seen_ns": counts["last_seen_ns"],
        **_over_time(counts["periods"], periods),
    }


def _over_time(counts: Sequence[int], periods: Sequence[Period]) -> dict[str, Any]:
    recent, total = sum(counts[-1:]), sum(period.runs for period in periods[-1:])
    before, earlier = sum(counts[:-1]), sum(period.runs for period in periods[:-1])
    return {
        "recent_share": recent / total if total else None,
        "earlier_share": before / earlier if earlier else None,
        "periods": [
            {
                "start_ns": period.start_ns,
                "count": count,
                "share": count / period.runs if period.runs else None,
            }
            for count, period in zip(counts, periods, strict=True)
        ],
    }
