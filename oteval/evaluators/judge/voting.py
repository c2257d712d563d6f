"""One verdict out of several: the same judge asked again, or a jury of several judges.

A bool needs more than half of the votes given to be true: a tie is no pass. Of `choices` the one
named most often counts, the middle one of the votes where several are named as often; continuous
scores are averaged. Votes that failed are no votes; unless more than half of all votes were given
there is no verdict.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

__all__ = ["share", "verdict"]


def verdict(scores: Sequence[Any], *, continuous: bool = False) -> Any:
    """Return the score that some votes come to.

    Args:
        scores: At least one.
        continuous: Whether they are averaged.
    """
    if continuous:
        return statistics.fmean(scores)
    if isinstance(scores[0], bool):
        return 2 * sum(scores) > len(scores)
    counts = Counter(scores).most_common()
    most = [score for score, count in counts if count == counts[0][1]]
    return most[0] if len(most) == 1 else statistics.median_low(scores)


def share(scores: Sequence[Any], chosen: Any) -> float:
    """Return the share of votes for a verdict, 0 to 1."""
    return sum(bool(score == chosen) for score in scores) / len(scores)
