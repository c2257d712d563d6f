"""Statistics of evaluations, in plain Python; each function names the source of its formula.

The unit is the **example**: its repetitions are not independent of each other, so tests pair
examples and the bootstrap draws whole examples. Runs that could not be evaluated are not
part of any figure here; callers count them separately.

numpy is not needed: 10,000 sign flips of 1,000 differences take about 0.1 s.
"""

from __future__ import annotations

from .agreement import Confusion, Kappa, cohen_kappa, confusion_matrix
from .bootstrap import (
    Permutation,
    benjamini_hochberg,
    bootstrap,
    bootstrap_mean,
    paired_permutation,
    selected_confidence,
)
from .bradley_terry import ExampleVotes, Ranking, bradley_terry, rank
from .differences import (
    detectable_difference,
    difference_interval,
    difference_p_value,
    more_pairs_needed,
)
from .means import mean_interval
from .power import fewest_pairs, minimal_detectable_difference, minimal_detectable_share
from .ppi import Corrected, ppi_mean
from .rates import (
    Interval,
    PassRate,
    clopper_pearson,
    fisher_exact,
    mcnemar,
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
    "Permutation",
    "Ranking",
    "benjamini_hochberg",
    "bootstrap",
    "bootstrap_mean",
    "bradley_terry",
    "clopper_pearson",
    "cohen_kappa",
    "confusion_matrix",
    "detectable_difference",
    "difference_interval",
    "difference_p_value",
    "fewest_pairs",
    "fisher_exact",
    "mcnemar",
    "mean_interval",
    "minimal_detectable_difference",
    "minimal_detectable_share",
    "more_pairs_needed",
    "paired_permutation",
    "pass_at_k",
    "pass_hat_k",
    "pass_rate",
    "ppi_mean",
    "rank",
    "selected_confidence",
    "sign_test",
]
