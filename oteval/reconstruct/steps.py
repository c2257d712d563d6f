"""The graph form of a run: which nodes ran, in order.

Where the framework shows the nodes of its graph, they are the steps, after ``__start__`` as
LangGraph's own extraction has them; else agents are. What runs inside a node or an agent is named
``parent:child``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .runs import Run
from .tree import order

__all__ = ["children_of", "steps_of"]

START = "__start__"


def children_of(runs: Sequence[Run]) -> dict[int, list[Run]]:
    """Return the runs that were started in others, by the id of the one that started them."""
    found: dict[int, list[Run]] = {}
    for run in runs:
        if run.parent is not None:
            found.setdefault(id(run.parent), []).append(run)
    return found


def steps_of(run: Run, children: Mapping[int, Sequence[Run]]) -> tuple[tuple[str, ...], ...]:
    """Return the steps of one run: the nodes of its one turn, or nothing without any name.

    Args:
        run: The run.
        children: The runs that were started in others, as `children_of` gives them.
    """
    below = children.get(id(run), ())
    own = [(order(visit.span), visit.node) for visit in run.visits]
    name = run.agent.name if run.agent else ""
    if not own and not name:
        return ()
    begin = order(run.root.span)
    found = own or [(begin, name)]
    for child in below:
        found += _inside(child, child.node or name)
    found.sort(key=lambda step: step[0])
    nodes = [node for _, node in found]
    return ((START, *nodes),) if own else (tuple(nodes),)


def _inside(child: Run, parent: str) -> list[tuple[tuple[int, int, str], str]]:
    """Return the steps of a run as its parent shows them."""
    begin = order(child.root.span)
    if not child.visits:
        name = child.agent.name if child.agent else ""
        return [(begin, f"{parent}:{name}" if parent else name)] if name else []
    nodes = [(begin, START), *((order(v.span), v.node.rpartition(":")[2]) for v in child.visits)]
    return [(at, f"{parent}:{node}" if parent else node) for at, node in nodes]
