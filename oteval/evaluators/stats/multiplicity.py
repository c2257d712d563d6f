"""Several tests at once: the rate of false discoveries, kept."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["benjamini_hochberg"]


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted so that the expected share of false discoveries is kept.

    Source: Y. Benjamini and Y. Hochberg, "Controlling the false discovery rate", JRSS B 57
    (1995). Those at most alpha are the discoveries at the rate alpha.

    Args:
        p_values: The tests' p-values.

    Returns:
        The adjusted ones in the same order.

    Raises:
        ValueError: One is not in 0 to 1.
    """
    if not all(0 <= p <= 1 for p in p_values):
        raise ValueError("a p-value is not in 0 to 1")
    total = len(p_values)
    order = sorted(range(total), key=lambda at: p_values[at], reverse=True)
    adjusted = [0.0] * total
    least = 1.0
    for place, at in enumerate(order):
        least = min(least, p_values[at] * (total / (total - place)))
        adjusted[at] = least
    return adjusted
