"""A limit on what judges may cost, which holds while many requests are under way.

Each request reserves what it may cost before it is made. The real cost replaces the reservation
once the reply is there, so the limit is exceeded by no more than the estimates are wrong.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field

from ...errors import BudgetSpent

__all__ = ["Budget"]


@dataclass
class Budget:
    """A limit in US dollars. All methods may be called from several threads.

    Attributes:
        limit: The most that may be spent.
        name: The setting's name, for messages.
        spent: What has been spent.
        reserved: What the requests under way may cost.
    """

    limit: float
    name: str = "max_cost"
    spent: float = 0.0
    reserved: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def reserve(self, estimate: float) -> float:
        """Reserve what a request may cost, and return it.

        Args:
            estimate: US dollars.

        Raises:
            BudgetSpent: That much is not left.
        """
        with self._lock:
            if self.spent >= self.limit > 0 or not self._fits(estimate):
                held = f", ${self.reserved:.4f} reserved" if self.reserved else ""
                raise BudgetSpent(
                    f"budget: {self.name} of ${self.limit:g} is spent (${self.spent:.4f} so far"
                    f"{held}); this request may cost ${estimate:.4f}"
                )
            self.reserved += estimate
            return estimate

    def settle(self, reserved: float, cost: float) -> None:
        """Replace a reservation by what the request cost; 0 releases it."""
        with self._lock:
            self.reserved = max(self.reserved - reserved, 0.0)
            self.spent += cost

    def _fits(self, estimate: float) -> bool:
        total = math.fsum((self.spent, self.reserved, estimate))
        return total <= self.limit or math.isclose(total, self.limit, rel_tol=1e-9)
