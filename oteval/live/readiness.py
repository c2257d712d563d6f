"""Decide for `/readyz` whether acknowledged requests are stored in time."""

from __future__ import annotations

__all__ = ["LATE", "SILENCE", "STALLED", "lateness"]

# Seconds without a word from the storing process after which it counts as stuck.
SILENCE = 3.0
# Seconds that a request may wait while nothing at all is stored, and while others are.
STALLED, LATE = 3.5, 60.0


def lateness(oldest: float, unmoved: float) -> str:
    """Return why requests are not stored in time, "" when they are.

    Args:
        oldest: For how many seconds the oldest acknowledged request waits to be stored.
        unmoved: For how many seconds nothing was stored.
    """
    if oldest > STALLED and unmoved > STALLED:
        return f"nothing was stored for {min(oldest, unmoved):.0f} s, though requests wait for it"
    if oldest > LATE:
        return f"the oldest acknowledged request has waited {oldest:.0f} s to be stored"
    return ""
