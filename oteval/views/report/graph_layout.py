"""The graph of tools as SVG: layers from the first calls at the top to the end of runs below.

A tool is one layer below the tool that most often comes before it. Edges that lead up, and edges
from a tool to itself, pass on the right. This module computes where everything goes; the macro in
``templates/graph.svg.j2`` draws it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...base.text import counted
from .charts import axis_labels
from .tool_graph import END, START, ToolEdge, ToolGraph, ToolNode

__all__ = ["DrawnEdge", "DrawnNode", "GraphDrawing", "draw_graph"]

_WIDTH, _HEIGHT = 150, 36
_GAP_X, _GAP_Y = 34, 52
_MARGIN = 16
_SIDE = 70  # room on the right for edges that lead up
_MOST_LABELS = 24
_SWEEPS = 4
_FAILING = 0.1
_THICKEST = 5.0


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A node; its coordinates are its upper left corner.

    Attributes:
        x: From the left.
        y: From the top.
        label: Its short name.
        remark: The line below the name.
        note: The tooltip.
        is_end: Whether it is the beginning or the end of runs.
        is_failing: Whether many of its calls failed.
    """

    x: float
    y: float
    label: str
    remark: str
    note: str
    is_end: bool
    is_failing: bool


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """An edge.

    Attributes:
        path: The path.
        width: The width of its line.
        note: The tooltip.
        label: The text in its middle, or "".
        x: Where the text is.
        y: Where the text is.
        is_failing: Whether many of the calls that it leads to failed.
    """

    path: str
    width: float
    note: str
    label: str
    x: float
    y: float
    is_failing: bool


@dataclass(frozen=True, slots=True)
class GraphDrawing:
    """Everything that the template draws.

    Attributes:
        nodes: The nodes.
        edges: The edges.
        rows: The edges as rows of the table: from, to, count, failed calls, calls.
        width: The width of the picture.
        height: Its height.
        node_width: The width of every node.
        node_height: The height of every node.
    """

    nodes: tuple[DrawnNode, ...]
    edges: tuple[DrawnEdge, ...]
    rows: tuple[tuple[str, str, int, int, int], ...]
    width: int
    height: int
    node_width: int = _WIDTH
    node_height: int = _HEIGHT


_Places = Mapping[str, tuple[float, float]]


def draw_graph(graph: ToolGraph) -> GraphDrawing:
    """The geometry of a graph."""
    layers = _layers(graph)
    widest = max(map(len, layers))
    inner = widest * (_WIDTH + _GAP_X) - _GAP_X
    places: dict[str, tuple[float, float]] = {}
    for depth, layer in enumerate(layers):
        left = _MARGIN + (inner - (len(layer) * (_WIDTH + _GAP_X) - _GAP_X)) / 2
        for at, key in enumerate(layer):
            x, y = left + at * (_WIDTH + _GAP_X), _MARGIN + depth * (_HEIGHT + _GAP_Y)
            places[key] = (round(x, 1), float(y))
    names = {node.key: node.label for node in graph.nodes}
    short = dict(zip(names, axis_labels(list(names.values())), strict=True))
    most = max((edge.count for edge in graph.edges), default=1)
    return GraphDrawing(
        nodes=tuple(_node(node, places[node.key], short[node.key]) for node in graph.nodes),
        edges=tuple(
            _edge(edge, places, names, most, is_labelled=at < _MOST_LABELS)
            for at, edge in enumerate(graph.edges)
        ),
        rows=tuple(
            (names[edge.source], names[edge.target], edge.count, edge.errors, edge.calls)
            for edge in graph.edges
        ),
        width=math.ceil(inner + 2 * _MARGIN + _SIDE),
        height=2 * _MARGIN + len(layers) * (_HEIGHT + _GAP_Y) - _GAP_Y,
    )


def _layers(graph: ToolGraph) -> list[list[str]]:
    """The keys of the nodes by layer, ordered so that few edges cross."""
    tools = [node for node in graph.nodes if node.key not in (START, END)]
    before: dict[str, list[ToolEdge]] = {node.key: [] for node in graph.nodes}
    for edge in graph.edges:
        before[edge.target].append(edge)
    depth = {START: 0}
    for node in sorted(tools, key=lambda tool: (tool.position, -tool.calls, tool.key)):
        # The tools that come earlier in runs have their layers already, so that cycles end here.
        placed_edges = [edge for edge in before[node.key] if edge.source in depth]
        heaviest = max(placed_edges, key=lambda edge: edge.count, default=None)
        depth[node.key] = depth[heaviest.source] + 1 if heaviest else 1
    depth[END] = max(depth.values()) + 1
    layers: list[list[str]] = [[] for _ in range(depth[END] + 1)]
    for key, at in depth.items():
        layers[at].append(key)
    for _ in range(_SWEEPS):
        _sweep(layers, before)
    return layers


def _sweep(layers: Sequence[list[str]], before: Mapping[str, Sequence[ToolEdge]]) -> None:
    """Order each layer by the mean place of the tools that come before its tools."""
    heights = {key: (at + 0.5) / len(layer) for layer in layers for at, key in enumerate(layer)}
    for layer in layers[1:]:
        centre = {}
        for key in layer:
            edges = [edge for edge in before[key] if edge.source != key]
            weight = sum(edge.count for edge in edges)
            total = sum(heights[edge.source] * edge.count for edge in edges)
            centre[key] = total / weight if weight else heights[key]
        layer.sort(key=lambda key: (centre[key], key))
        heights.update({key: (at + 0.5) / len(layer) for at, key in enumerate(layer)})


def _node(node: ToolNode, centre: tuple[float, float], label: str) -> DrawnNode:
    is_end = node.key in (START, END)
    noun = "run" if is_end else "call"
    remark = counted(node.calls, noun)
    if node.errors:
        remark += f", {node.errors / node.calls:.1%} failed"
    is_failing = node.errors >= _FAILING * node.calls > 0
    note = f"{node.label}: {remark}"
    return DrawnNode(*centre, label, remark, note, is_end, is_failing)


def _edge(
    edge: ToolEdge, places: _Places, names: Mapping[str, str], most: int, *, is_labelled: bool
) -> DrawnEdge:
    path, x, y = _path(places[edge.source], places[edge.target])
    failed = f", {edge.error_share:.1%} of the calls failed" if edge.errors else ""
    return DrawnEdge(
        path=path,
        width=round(max(1.0, _THICKEST * math.sqrt(edge.count / most)), 1),
        note=f"{names[edge.source]} → {names[edge.target]}: {counted(edge.count, 'time')}{failed}",
        label=f"{edge.count:,}" if is_labelled else "",
        x=round(x, 1),
        y=round(y, 1),
        is_failing=edge.error_share >= _FAILING,
    )


def _path(source: tuple[float, float], target: tuple[float, float]) -> tuple[str, float, float]:
    """The path of an edge, and its middle."""
    (x1, y1), (x2, y2) = source, target
    if y2 > y1:
        x1, x2, y1 = x1 + _WIDTH / 2, x2 + _WIDTH / 2, y1 + _HEIGHT
        # Edges over several layers bend around the nodes between.
        layers = (y2 - y1 - _GAP_Y) / (_HEIGHT + _GAP_Y)
        bend = 0.0 if layers < 0.5 else (_WIDTH * 0.75 if x2 >= x1 else -_WIDTH * 0.75)
        reach = (y2 - y1) / 2
        path = (
            f"M{x1:.1f} {y1:.1f}C{x1 + bend:.1f} {y1 + reach:.1f} "
            f"{x2 + bend:.1f} {y2 - reach:.1f} {x2:.1f} {y2 - 3:.1f}"
        )
        return path, (x1 + x2) / 2 + 0.75 * bend, (y1 + y2) / 2
    x1, y1, x2, y2 = x1 + _WIDTH, y1 + _HEIGHT * 0.65, x2 + _WIDTH, y2 + _HEIGHT * 0.35
    side = max(x1, x2) + 26 + min(40.0, (y1 - y2) / 8)
    path = f"M{x1:.1f} {y1:.1f}C{side:.1f} {y1:.1f} {side:.1f} {y2:.1f} {x2 + 3:.1f} {y2:.1f}"
    return path, (x1 + x2) / 8 + side * 0.75, (y1 + y2) / 2
