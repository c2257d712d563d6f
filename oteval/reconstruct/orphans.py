"""Spans whose parents are missing, beside the agent that they belong to.

A sampled or lost span leaves what hung below it without a parent. Where one agent's time holds it
all, that agent ran it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..model import LogRecord
from .dialects import read_span
from .readings import AgentRun
from .tree import Node, order

__all__ = ["adopted"]


def adopted(roots: Sequence[Node], logs: Mapping[str, Sequence[LogRecord]]) -> list[Node]:
    """Return a trace's roots with the orphans hung below the only agent whose time holds them.

    Args:
        roots: The roots, in order of start; their nodes are changed.
        logs: The trace's log records by span id.
    """
    orphans = [root for root in roots if root.is_stand_in or root.span.parent_id]
    if not orphans or len(roots) < 2:
        return list(roots)
    agents = [agent for root in roots for agent in _topmost_agents(root, logs)]
    taken: set[int] = set()
    for orphan in orphans:
        holders = [agent for agent in agents if _holds(agent, orphan)]
        if len(holders) == 1:
            _hang(orphan, holders[0])
            taken.add(id(orphan))
    return [root for root in roots if id(root) not in taken]


def _topmost_agents(root: Node, logs: Mapping[str, Sequence[LogRecord]]) -> Iterator[Node]:
    """Yield the agents of a tree that are below no other agent."""
    stack = [root]
    while stack:
        node = stack.pop()
        _, reading = read_span(node.span, logs.get(node.span.span_id, ()))
        if isinstance(reading, AgentRun) and not node.is_stand_in:
            yield node
        else:
            stack.extend(node.children)


def _holds(agent: Node, orphan: Node) -> bool:
    """Return whether an agent of another tree ran all the time that an orphan did."""
    top = next((node for node in (agent, *agent.ancestors()) if node.parent is None), agent)
    one, other = agent.span, orphan.span
    return top is not orphan and one.start_ns <= other.start_ns and other.end_ns <= one.end_ns


def _hang(orphan: Node, agent: Node) -> None:
    """Hang an orphan below an agent; of a stand-in for a missing span, what hung below it."""
    children = orphan.children if orphan.is_stand_in else [orphan]
    if orphan.is_stand_in:
        children[0].gaps.extend(orphan.gaps)
    for child in children:
        child.parent = agent
    agent.children.extend(children)
    agent.children.sort(key=lambda node: order(node.span))
