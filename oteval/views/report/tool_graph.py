"""The graph of tools: which tools runs called, and which calls came next.

A **step** is a message with calls. An edge leads from each tool of a step to each tool of the next
one, so that parallel calls have no order. Edges from `START` lead to the tools of the first step,
and edges to `END` come from the tools of the last step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...model import Trajectory, call_errors
from ..text import shorten

__all__ = ["END", "START", "ToolEdge", "ToolGraph", "ToolGraphCounts", "ToolNode"]

START, END = "start", "end"
_OTHERS = "others"
# The keys of tools begin with it, so that a tool may be named "start".
_TOOL = "tool "
# Traces may name any number of tools. Beyond so many, new ones are counted together.
_MOST_NAMES = 2000
_MOST_NODES, _MOST_EDGES = 30, 120
_LONGEST = 200  # characters


@dataclass(frozen=True, slots=True)
class ToolNode:
    """A tool, or the beginning or end of runs.

    Attributes:
        key: `START`, `END`, or another key that edges name.
        label: The name as text.
        calls: Its calls; for the beginning and the end, the runs.
        errors: The calls that failed.
        position: The mean index of its steps.
    """

    key: str
    label: str
    calls: int
    errors: int = 0
    position: float = 0.0


@dataclass(frozen=True, slots=True)
class ToolEdge:
    """Two tools, one called in the step after the other's.

    Attributes:
        source: The key of the earlier tool.
        target: The key of the later tool.
        count: How often such steps followed each other.
        calls: The calls of the later tool there.
        errors: The failed calls of the later tool there.
    """

    source: str
    target: str
    count: int
    calls: int = 0
    errors: int = 0

    @property
    def error_share(self) -> float:
        """The share of the later tool's calls that failed there."""
        return self.errors / self.calls if self.calls else 0.0


@dataclass(frozen=True, slots=True)
class ToolGraph:
    """The tools of some runs.

    Attributes:
        nodes: The tools by calls, most first, between the beginning and the end.
        edges: The edges by count, most first.
        left_out: How many further edges there are.
    """

    nodes: tuple[ToolNode, ...]
    edges: tuple[ToolEdge, ...]
    left_out: int = 0


class ToolGraphCounts:
    """Counts the tools of runs."""

    def __init__(self) -> None:
        self._runs = 0
        self._keys: dict[str, str] = {}
        self._calls: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._positions: Counter[str] = Counter()
        self._edges: dict[tuple[str, str], list[int]] = {}

    def add(self, run: Trajectory) -> None:
        """Count the calls of a run; a run without calls does not count."""
        own = run.own_messages
        calls = [(at, call.name) for at, message in enumerate(own) for call in message.tool_calls]
        if calls:
            places, names = zip(*calls, strict=True)
            self._add(self._steps(names, places, call_errors(own)), 1)

    def add_shape(self, shape: Mapping[str, Any]) -> None:
        """Count the calls of stored runs with the same calls, of `SelectedRuns.shapes`."""
        columns = (shape["call_names"], shape["call_messages"], shape["call_errors"])
        self._add(self._steps(*columns), shape["runs"])

    def _add(self, steps: Sequence[dict[str, list[int]]], runs: int) -> None:
        self._runs += runs
        before: dict[str, list[int]] = {START: [0, 0]}
        for at, step in enumerate(steps):
            for name, (calls, errors) in step.items():
                self._calls[name] += calls * runs
                self._errors[name] += errors * runs
                self._positions[name] += calls * at * runs
            self._connect(before, step, runs)
            before = step
        self._connect(before, {END: [0, 0]}, runs)

    def _steps(
        self, names: Sequence[str], places: Sequence[int], errors: Sequence[bool | None]
    ) -> list[dict[str, list[int]]]:
        """The calls and failed calls of each tool, by step.

        Args:
            names: The tool of each call.
            places: The index of each call's message.
            errors: Whether each call failed.
        """
        steps: dict[int, dict[str, list[int]]] = {}
        for name, message_index, error in zip(names, places, errors, strict=True):
            counts = steps.setdefault(message_index, {}).setdefault(self._known(name), [0, 0])
            counts[0] += 1
            counts[1] += error is True
        return list(steps.values())

    def _known(self, name: str) -> str:
        key = self._keys.get(name)
        if key is None:
            if len(self._keys) >= _MOST_NAMES:
                return _OTHERS
            key = self._keys[name] = _TOOL + (shorten(name, _LONGEST) or "(no name)")
        return key

    def _connect(self, before: dict[str, list[int]], step: dict[str, list[int]], runs: int) -> None:
        for source in before:
            for target, (calls, errors) in step.items():
                counts = self._edges.setdefault((source, target), [0, 0, 0])
                counts[0] += runs
                counts[1] += calls * runs
                counts[2] += errors * runs

    def graph(self) -> ToolGraph | None:
        """The graph, its rarer tools counted together; None without calls."""
        if not self._runs:
            return None
        ordered = sorted(self._calls, key=lambda name: (-self._calls[name], name))
        tool_names = [name for name in ordered if name != _OTHERS]
        is_whole = len(ordered) <= _MOST_NODES and _OTHERS not in self._calls
        shown_names = set(tool_names if is_whole else tool_names[: _MOST_NODES - 1])
        key = {name: name if name in shown_names else _OTHERS for name in ordered}
        nodes = [ToolNode(START, "start", self._runs)]
        nodes += [
            self._node(name, name.removeprefix(_TOOL), [name])
            for name in tool_names
            if name in shown_names
        ]
        if left_out := [name for name in ordered if name not in shown_names]:
            nodes.append(self._node(_OTHERS, "other tools", left_out))
        nodes.append(ToolNode(END, "end", self._runs))
        merged: dict[tuple[str, str], list[int]] = {}
        for (source, target), counts in self._edges.items():
            sums = merged.setdefault((key.get(source, source), key.get(target, target)), [0, 0, 0])
            sums[:] = [a + b for a, b in zip(sums, counts, strict=True)]
        edges = [ToolEdge(*ends, *counts) for ends, counts in merged.items()]
        edges.sort(key=lambda edge: (-edge.count, edge.source, edge.target))
        return ToolGraph(tuple(nodes), tuple(edges[:_MOST_EDGES]), max(0, len(edges) - _MOST_EDGES))

    def _node(self, key: str, label: str, names: list[str]) -> ToolNode:
        calls = sum(self._calls[name] for name in names)
        return ToolNode(
            key,
            label,
            calls,
            sum(self._errors[name] for name in names),
            sum(self._positions[name] for name in names) / calls,
        )
