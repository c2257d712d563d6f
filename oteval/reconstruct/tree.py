"""Build the forest of a trace's spans, even if parents are missing or form a circle.

Parents that are missing, or that form a circle, make their child a root. If several children have
the same missing parent, they get a stand-in as their parent. Every span is in the forest exactly
once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from ..model import Gap, Span, is_completed_by
from .gaps import gap

__all__ = ["Node", "build"]


@dataclass(slots=True, eq=False)
class Node:
    """A span and its children.

    Attributes:
        span: The span.
        parent: The node above, or None for a root.
        children: The nodes below, in order of start.
        gaps: The gaps of the span's place or times.
        is_stand_in: Whether the span is not in the trace, but several of its children are.
    """

    span: Span
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    is_stand_in: bool = False

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below it, parents before children, in order of start."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))

    def ancestors(self) -> Iterator[Node]:
        """Yield the nodes above, nearest first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent


order: Callable[[Span], tuple[int, int, str]] = attrgetter("start_ns", "seq", "span_id")
"""Return the sort key of a span: start, arrival, id."""


def build(spans: Sequence[Span]) -> list[Node]:
    """The roots of one trace's forest, in order of start.

    Args:
        spans: The trace's spans in any order.
    """
    nodes = _nodes(spans)
    orphans: dict[str, list[Node]] = defaultdict(list)
    span_ids: set[str] = set()
    may_circle = False
    for span_id, node in nodes.items():
        parent_id = node.span.parent_id
        node.parent = nodes.get(parent_id) if parent_id else None
        if node.parent is not None:
            node.parent.children.append(node)
            may_circle = may_circle or parent_id not in span_ids
        elif parent_id:
            orphans[parent_id].append(node)
        span_ids.add(span_id)
    for family in orphans.values():
        _note_missing(family, nodes)
    if may_circle:  # a parent that starts after its child
        _break_circles(nodes.values())
    roots = [node for node in nodes.values() if node.parent is None]
    return sorted(roots, key=_order_of_node) if orphans else roots


def _order_of_node(node: Node) -> tuple[int, int, str]:
    return order(node.span)


def _nodes(spans: Sequence[Span]) -> dict[str, Node]:
    """A node for each span id, in order of their spans."""
    nodes: dict[str, Node] = {}
    is_changed = False
    for span in sorted(spans, key=order):
        earlier = nodes.get(span.span_id)
        if earlier is None:
            nodes[span.span_id] = Node(span)
        elif is_completed_by(earlier.span, span):
            earlier.span, is_changed = span, True
        elif not is_completed_by(span, earlier.span):
            earlier.gaps.append(gap("duplicate_span", span.span_id))
            if order(span) == order(earlier.span):
                earlier.span = max(earlier.span, span, key=_fullest)
    for node in nodes.values():
        if node.span.end_ns < node.span.start_ns and node.span.end_ns:
            node.gaps.append(gap("negative_duration", node.span.span_id))
    if is_changed:
        return dict(sorted(nodes.items(), key=lambda item: order(item[1].span)))
    return nodes


def _fullest(span: Span) -> tuple[int, int, str]:
    """The key to choose one of two spans with equal order; the greater is kept."""
    return (span.end_ns, len(span.attributes), repr(span))


def _note_missing(orphans: list[Node], nodes: dict[str, Node]) -> None:
    """Note that a parent is missing, and put a stand-in above its children if there are several.

    Args:
        orphans: The children, in order of start.
        nodes: All nodes by span id; the stand-in is added.
    """
    first = orphans[0].span
    missing = gap("missing_parent", first.span_id, parent=first.parent_id)
    if len(orphans) == 1:
        orphans[0].gaps.append(missing)
        return
    span = Span(
        first.trace_id,
        first.parent_id,
        start_ns=first.start_ns,
        end_ns=max(max(node.span.end_ns, node.span.start_ns) for node in orphans),
        resource=first.resource,
        seq=first.seq,
    )
    parent = nodes[span.span_id] = Node(
        span, children=list(orphans), gaps=[missing], is_stand_in=True
    )
    for node in orphans:
        node.parent = parent


def _break_circles(nodes: Iterable[Node]) -> None:
    """Cut each circle of parents at its earliest span."""
    reached: set[int] = set()
    for root in nodes:
        if root.parent is None:
            reached.update(map(id, root.walk()))
    for node in nodes:
        if id(node) in reached:
            continue
        first = _earliest_of_circle(node)
        assert first.parent is not None
        first.parent.children.remove(first)
        first.parent = None
        first.gaps.append(gap("cyclic_parents", first.span.span_id))
        reached.update(map(id, first.walk()))


def _earliest_of_circle(node: Node) -> Node:
    """The earliest node of the circle that lies above a node."""
    visited: set[int] = set()
    while id(node) not in visited:
        visited.add(id(node))
        assert node.parent is not None
        node = node.parent
    circle = [node, *_until(node)]
    return min(circle, key=lambda member: order(member.span))


def _until(node: Node) -> Iterator[Node]:
    for above in node.ancestors():
        if above is node:
            return
        yield above
