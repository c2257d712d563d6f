"""The result of a replay: how far the agent got, and where it differs from its recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..model import Fidelity
from .conversations import ToolExecution
from .divergence import Divergence

__all__ = ["ReplayResult"]


@dataclass(frozen=True)
class ReplayResult:
    """The result of a replay.

    Attributes:
        session: The id of the recorded session.
        fidelity: ``wire`` or ``semconv``.
        reasons: Why the fidelity is not ``wire``, and how much of the session was not compared.
        divergences: The differences from the recording, the first one first.
        model_calls: The number of recorded model calls.
        served: The number of recorded model calls that answered a request.
        tool_calls: The number of recorded executions of tools.
        served_tools: The number of recorded executions that answered a call.
        exchanges: The number of other recorded HTTP exchanges.
        served_exchanges: The number of other recorded exchanges that answered a request.
        flagged: The number of requests that got an answer although they differ.
        live: The number of requests that were sent for real after a fork.
        executed: The tools that the agent ran, in order: names and arguments.
        missing: The names of recorded calls that the agent did not make, such as ``model call 2``.
        unguarded: Actions that the replay could not guard, such as the actions of an allowed
            program. Such a replay has no verdict, unless the agent has diverged.
        tools: How each tool that the model requested was answered: ``shop.py:41, answered``.
    """

    session: str
    fidelity: Fidelity
    reasons: tuple[str, ...] = ()
    divergences: tuple[Divergence, ...] = ()
    model_calls: int = 0
    served: int = 0
    tool_calls: int = 0
    served_tools: int = 0
    exchanges: int = 0
    served_exchanges: int = 0
    flagged: int = 0
    live: int = 0
    executed: tuple[ToolExecution, ...] = ()
    missing: tuple[str, ...] = ()
    unguarded: tuple[str, ...] = ()
    tools: Mapping[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether the agent did the same as in the recording, and could do nothing else."""
        return not self.divergences and not self.unguarded

    @property
    def coverage(self) -> float:
        """The share of the recorded model calls that answered a request."""
        return self.served / self.model_calls if self.model_calls else 1.0

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "session": self.session,
            "passed": self.passed,
            "fidelity": self.fidelity,
            "reasons": list(self.reasons),
            "divergences": [divergence.as_dict() for divergence in self.divergences],
            "model_calls": {"recorded": self.model_calls, "served": self.served},
            "tool_calls": {"recorded": self.tool_calls, "served": self.served_tools},
            "exchanges": {"recorded": self.exchanges, "served": self.served_exchanges},
            "flagged": self.flagged,
            "live": self.live,
            "executed": [list(execution) for execution in self.executed],
            "missing": list(self.missing),
            "unguarded": list(self.unguarded),
            "tools": dict(self.tools),
        }
