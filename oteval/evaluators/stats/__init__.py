"""Statistics of evaluations, in plain Python; each function names the source of its formula.

The unit is the **example**: its repetitions are not independent of each other, so tests pair
examples. Runs that could not be evaluated are not part of any figure here; callers count them
separately.
"""

from __future__ import annotations

from .agreement import Confusion, Kappa, cohen_kappa, confusion_matrix
from .bradley_terry import ExampleVotes, Ranking, bradley_terry, rank
from .differences import (
    benjamini_hochberg,
    detectable_difference,
    difference_interval,
    difference_p_value,
    fewest_pairs,
    minimal_detectable_share,
    more_pairs_needed,
    selected_confidence,
)
from .ppi import Corrected, ppi_mean
from .rates import (
    Interval,
    PassRate,
    clopper_pearson,
    fisher_exact,
    mean_interval,
    pass_at_k,
    pass_hat_k,
    pass_rate,
    sign_test,
)

__all__ = [
    "Confusion",
    "Corrected",
    "ExampleVotes",
    "Interval",
    "Kappa",
    "PassRate",
    "Ranking",
    "benjamini_hochberg",
    "bradley_terry",
    "clopper_pearson",
    "cohen_kappa",
    "confusion_matrix",
    "detectable_difference",
    "difference_interval",
    "difference_p_value",
    "fewest_pairs",
    "fisher_exact",
    "mean_interval",
    "minimal_detectable_share",
    "more_pairs_needed",
    "pass_at_k",
    "pass_hat_k",
    "pass_rate",
    "ppi_mean",
    "rank",
    "selected_confidence",
    "sign_test",
]
