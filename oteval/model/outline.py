"""Outlines: columns of a stored run that let an evaluator decide it without its messages.

Runs with equal outlines get equal results, so one evaluation is enough for all of them. The store
has the columns of each fact in SQL (`oteval.store.outlines`). An evaluator names the facts that it
needs (`oteval.evaluators.evaluator.Evaluator.outline_request`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Fact", "Outline", "OutlineRequest"]

Fact = Literal["call_hashes", "overlapping", "models", "sound_results", "times", "usage"]
"""The data of an outline besides the roles, the tools called with their messages, and the gaps.

- ``call_hashes``: a hash of each call with its arguments; null where these were not captured.
- ``overlapping``: whether calls of different messages ran at the same time.
- ``models``: the models that answered.
- ``sound_results``: true only if each call has a result, no call failed, and no message resembles
  an error.
- ``times``: the start and end of the run.
- ``usage``: tokens and model calls.
"""

Outline = Mapping[str, Any]
"""The columns of an outline, by name."""


@dataclass(frozen=True, slots=True)
class OutlineRequest:
    """The columns that an evaluator needs of a run.

    Attributes:
        facts: The facts besides the facts that every outline has.
        calls: The hashes of calls that are distinguished. All other hashes become -1, so that more
            runs have the same outline. None distinguishes all.
        attribute: An attribute of the run that names its reference, or "".
    """

    facts: frozenset[Fact] = frozenset()
    calls: tuple[int, ...] | None = None
    attribute: str = ""
