"""A pytest plugin that lets agentevals' tests find oteval under agentevals' module names.

The tests compare whole results with an `EvaluatorResult` without comment and metadata, which
oteval fills in: here it equals any result with the same key and score.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import oteval.evaluators
from oteval.evaluators import match


class EvaluatorResult:
    """A result as the tests write it."""

    def __init__(self, *, key: str, score: Any, **others: Any) -> None:
        del others
        self.wanted = (key, score)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict) and (other.get("key"), other.get("score")) == self.wanted

    def __hash__(self) -> int:
        return hash(self.wanted)

    def __repr__(self) -> str:
        return "key={!r}, score={!r}".format(*self.wanted)


def _module(name: str, **names: Any) -> None:
    module = ModuleType(name)
    module.__dict__.update(names)
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


def pytest_configure(config: Any) -> None:
    """Put the aliases in place and register the marker that the tests carry."""
    config.addinivalue_line("markers", "langsmith: the peer's own marker; nothing is logged here")
    public = {name: getattr(oteval.evaluators, name) for name in oteval.evaluators.__all__}
    _module("agentevals")
    _module("agentevals.types", EvaluatorResult=EvaluatorResult, ChatCompletionMessage=dict)
    _module("agentevals.trajectory")
    _module("agentevals.trajectory.match", **public)
    for mode in ("strict", "unordered", "subset", "superset"):
        wanted = {name: getattr(match, name) for name in match.__all__ if f"_{mode}" in name}
        _module(f"agentevals.trajectory.{mode}", **wanted)
