"""What a judge may cost, and how much of it is left while many calls are under way.

Each call reserves what it will probably cost, so that fifty calls at once cannot all pass a
check that only looks at what is spent. What comes out in the end replaces the reservation; the
budget is overrun by no more than the estimates are wrong.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from ...errors import BudgetSpent

__all__ = ["Budget"]


@dataclass
class Budget:
    """What may be spent, in US dollars.

    Attributes:
        limit: The most that may be spent.
        name: What messages call it.
        spent: What has been spent.
        reserved: What calls under way will probably cost.
    """

    limit: float
    name: str = "max_cost"
    spent: float = 0.0
    reserved: float = 0.0
    _calls: int = field(default=0, repr=False)
    _paid: float = field(default=0.0, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def reserve(self, estimate: float) -> float:
        """Reserve what a call will probably cost, and return it.

        Args:
            estimate: What it might cost, by its length; what earlier calls cost counts for more.

        Raises:
            BudgetSpent: That much is not left.
        """
        with self._lock:
            probable = self._paid / self._calls if self._calls else estimate
            if self.spent + self.reserved + probable > self.limit:
                raise BudgetSpent(
                    f"budget: {self.name} of ${self.limit:g} is spent (${self.spent:.4f} so far)"
                )
            self.reserved += probable
            return probable

    def settle(self, reserved: float, cost: float) -> None:
        """Replace a reservation by what the call cost."""
        with self._lock:
            self.reserved = max(self.reserved - reserved, 0.0)
            self.spent += cost
            self._calls += 1
            self._paid += cost
