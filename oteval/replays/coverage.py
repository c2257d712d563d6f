"""How far the recording answers an agent that behaves differently from the recorded one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["Coverage"]


@dataclass(frozen=True, slots=True)
class Coverage:
    """The answers to the tool calls of a new run, and to its other requests.

    Attributes:
        exact: Tool calls with a recorded result of equal arguments.
        normalized: Tool calls with a result of arguments that differ only in their form.
        policy: Tool calls with the result of the most similar recorded call.
        missing: Tool calls without a recorded result; the agent got an error.
        ran: Tool calls that the replay could not intercept, so that the tools ran.
        served: HTTP requests besides model calls that the recording answered.
        blocked: Requests and connections that were refused, one line each.
        approximate: Model requests answered although the answering recording has another request.
    """

    exact: int = 0
    normalized: int = 0
    policy: int = 0
    missing: int = 0
    ran: int = 0
    served: int = 0
    blocked: tuple[str, ...] = ()
    approximate: int = 0

    @property
    def tool_calls(self) -> int:
        """The number of tool calls."""
        return self.exact + self.normalized + self.policy + self.missing + self.ran

    @property
    def is_full(self) -> bool:
        """Whether the recording has a result for everything that the agent asked for."""
        return not (self.policy or self.missing or self.blocked)

    @property
    def text(self) -> str:
        """The counts that are not 0, such as ``5 exact, 1 missing``."""
        counts = [
            (self.exact, "exact"),
            (self.normalized, "normalized"),
            (self.policy, "by policy"),
            (self.missing, "missing"),
            (self.ran, "ran"),
            (len(self.blocked), "blocked"),
        ]
        return ", ".join(f"{count} {name}" for count, name in counts if count) or "no tools"

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "blocked": list(self.blocked)}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Coverage:
        """Read the JSON form."""
        names = {field.name for field in fields(cls)}
        values = {name: item for name, item in value.items() if name in names}
        return cls(**{**values, "blocked": tuple(values.get("blocked", ()))})

    @classmethod
    def total(cls, parts: Iterable[Coverage]) -> Coverage:
        """Add up coverages."""
        all_of_them = list(parts)
        sums = {
            field.name: sum(getattr(part, field.name) for part in all_of_them)
            for field in fields(cls)
            if field.name != "blocked"
        }
        lines = dict.fromkeys(line for part in all_of_them for line in part.blocked)
        return cls(**sums, blocked=tuple(lines))
