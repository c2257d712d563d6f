"""The budget of false alarms, and how a changing set of groups shares it.

A budget such as ``1 per 30d`` is spent continuously: a detector receives an allowance for every
observation, and alarms at most with the probability of the sum of its allowances while nothing is
wrong. The allowance of an observation is

    alarms * share * (time since the previous observation) / period

so that the allowances of a group in any 30 days add up to its share of the budget, at any traffic.
The allowances of all groups add up to the budget, as long as the shares of the groups that are live
at any moment add up to at most 1. Every live group has the share 1 / (number of live groups). A new
group lowers the shares of the others from then on. Past spending is unaffected, and nobody's
promise is loosened. A group that ends leaves its share to the others from then on.

Source: an e-detector whose increments are not 1 but the allowances; by Ville's inequality for its
difference with their sum (Shin, Ramdas, Rinaldo 2022, https://arxiv.org/abs/2203.03532).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DAY_NS", "AlarmBudget", "spending"]

DAY_NS = 86_400_000_000_000


@dataclass(frozen=True, slots=True)
class AlarmBudget:
    """At most this many false alarms in a period, expected, over all groups of a monitor.

    Attributes:
        alarms: The number of false alarms, above 0.
        period_ns: The period.
    """

    alarms: float = 1.0
    period_ns: int = 30 * DAY_NS


def spending(budget: AlarmBudget, live_groups: int = 1) -> float:
    """The allowance of false alarms per nanosecond of one of the live groups."""
    return budget.alarms / budget.period_ns / max(1, live_groups)
