"""The comparison of an experiment with a baseline: the runs that broke, then the figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...base.errors import ConfigError
from ...scoring import Comparison, Difference, load_experiment
from ...store import Store
from ..experiments import difference_cells, interval_title, needed_lines
from ..run_changes import ShownChange, shown_comparison
from ..text import one_line, shorten
from .experiment_matrix import run_links

__all__ = ["ComparedFigure", "LinkedChange", "comparison_page"]

_STATES = {"regressed": "fail", "improved": "pass", "inconclusive": "none", "no evidence": "same"}
_NAME = 80  # characters


@dataclass(frozen=True, slots=True)
class LinkedChange:
    """A run that broke or got better, with links.

    Attributes:
        change: The change.
        before_link: The path of the baseline's run, "" if its trace is not in the store.
        now_link: The path of the experiment's run.
    """

    change: ShownChange
    before_link: str
    now_link: str


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """How a figure differs between an experiment and its baseline.

    Attributes:
        key: The figure.
        verdict: ``improved``, ``regressed``, ``no evidence`` or ``inconclusive``.
        state: The state whose style the verdict has.
        before: The mean in the baseline.
        now: The mean in the experiment.
        delta: The difference.
        interval: Its interval.
        p_value: The p-value.
        p_adjusted: The p-value, adjusted for all figures.
        detectable: The smallest difference that the test would find.
        pairs: The number of examples in common.
        lost: The numbers of runs without the figure on either side, or "".
        better: The number of examples that got better.
        worse: The number of examples that got worse.
        same: The number of examples that stayed.
    """

    key: str
    verdict: str
    state: str
    before: str
    now: str
    delta: str
    interval: str
    p_value: str
    p_adjusted: str
    detectable: str
    pairs: int
    lost: str
    better: int
    worse: int
    same: int


def comparison_page(store: Store, name: str, baseline: str) -> dict[str, Any]:
    """The comparison of an experiment with a baseline.

    Args:
        store: The store.
        name: The experiment.
        baseline: The name or id of the baseline, or a prefix of its name.

    Raises:
        ConfigError: Both experiments are the same.
        NotFound: The store lacks one of them.
    """
    before, now = load_experiment(baseline, store), load_experiment(name, store)
    if before.experiment.id == now.experiment.id:
        raise ConfigError("an experiment cannot be compared with itself: choose another baseline")
    changes, comparison = shown_comparison(before, now)
    if comparison is None:
        return {
            "baseline": before.name,
            "baseline_id": before.experiment.id,
            "changes": changes,
            "linked": (),
            "figures": (),
            "notes": (),
            "only_before": (),
            "only_now": (),
            "alpha": 0.05,
            "interval_title": "",
        }
    links = [run_links(store, side.rows) for side in (before, now)]
    return {
        "baseline": before.name,
        "baseline_id": before.experiment.id,
        "changes": changes,
        "linked": tuple(
            LinkedChange(
                change, links[0].get(change.run_before, ""), links[1].get(change.run_now, "")
            )
            for change in changes.changes
        ),
        "figures": tuple(map(_figure, comparison.regressed_first)),
        "notes": tuple(needed_lines(comparison)),
        "only_before": _names(comparison, is_before=True),
        "only_now": _names(comparison, is_before=False),
        "alpha": comparison.alpha,
        "interval_title": interval_title(comparison.differences),
    }


def _names(comparison: Comparison, is_before: bool) -> tuple[str, ...]:
    keys = comparison.only_a if is_before else comparison.only_b
    return tuple(shorten(one_line(key), _NAME) for key in keys)


def _figure(difference: Difference) -> ComparedFigure:
    before, now, delta, interval, p_value, p_adjusted, detectable, *_ = difference_cells(difference)
    lost = (
        f"{difference.lost_a} and {difference.lost_b}"
        if difference.lost_a or difference.lost_b
        else ""
    )
    return ComparedFigure(
        key=shorten(one_line(difference.key), _NAME) or "(no name)",
        verdict=difference.verdict,
        state=_STATES[difference.verdict],
        before=before,
        now=now,
        delta=delta,
        interval=interval,
        p_value=p_value,
        p_adjusted=p_adjusted,
        detectable=detectable,
        pairs=difference.pairs,
        lost=lost,
        better=len(difference.better),
        worse=len(difference.worse),
        same=difference.pairs - len(difference.changed),
    )
