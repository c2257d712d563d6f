"""The graph of tools: its counts, its layout, and its place on the page."""

from __future__ import annotations

import random
import re
from itertools import combinations

from oteval.model import Message, Trajectory
from oteval.views.report import ReportOptions, build, render
from oteval.views.report.graph_layout import GraphDrawing, draw_graph
from oteval.views.report.model import ReportRun
from oteval.views.report.tool_graph import END, START, ToolGraph, ToolGraphCounts

from ...make import asks, call, run
from .sample import HOSTILE, START_NS
from .test_page import parse, words


def graph_of(*runs: Trajectory) -> ToolGraph:
    """Return the graph of runs with calls."""
    counts = ToolGraphCounts()
    for one in runs:
        counts.add(one)
    graph = counts.graph()
    assert graph is not None
    return graph


def edges_of(graph: ToolGraph) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Return the counts of each edge by the names of its ends."""
    names = {node.key: node.label for node in graph.nodes}
    return {
        (names[edge.source], names[edge.target]): (edge.count, edge.calls, edge.errors)
        for edge in graph.edges
    }


def page(*runs: Trajectory) -> str:
    """Return the report on some runs."""
    items = [ReportRun(one.id, "", one.id, one.id, trajectory=one) for one in runs]
    return render(build(items, ReportOptions(), made_ns=START_NS))


def many(tools: int, runs: int = 60) -> list[Trajectory]:
    """Return runs that call many tools, mostly in one order, some of them in parallel."""
    chance = random.Random(4)
    names = [f"warehouse_inventory_lookup_{at:02}" for at in range(tools)]
    found = []
    for number in range(1, runs + 1):
        messages = []
        for at in sorted(chance.sample(range(tools), 6), key=lambda at: at + chance.gauss(0, 3)):
            messages.append(asks(call(names[at], {}, "a"), call(names[at - 1], {}, "b")))
            failed = chance.random() < at / 100
            messages.append(Message("tool", "x", (), "a", is_error=failed))
        found.append(run(number, *messages))
    return found


def test_transitions_are_counted_with_their_failures():
    """Steps follow each other; parallel calls have no edge, and failures belong to the target."""
    failed = Message("tool", "no", (), "2", is_error=True)
    graph = graph_of(
        run(1, asks(call("f", {}, "1")), asks(call("g", {}, "2")), failed),
        run(2, asks(call("f", {}, "1")), asks(call("g", {}, "2"), call("h", {}, "3"))),
        run(3, asks(call("g", {}, "1"), call("g", {}, "2")), Message("tool", "", (), "2")),
        run(4, Message("user", "no calls")),
    )

    assert edges_of(graph) == {
        ("start", "f"): (2, 2, 0),
        ("start", "g"): (1, 2, 0),
        ("f", "g"): (2, 2, 1),
        ("f", "h"): (1, 1, 0),
        ("g", "end"): (3, 0, 0),
        ("h", "end"): (1, 0, 0),
    }
    assert [(node.label, node.calls, node.errors) for node in graph.nodes] == [
        ("start", 3, 0),
        ("g", 4, 1),
        ("f", 2, 0),
        ("h", 1, 0),
        ("end", 3, 0),
    ]


def test_the_order_of_runs_and_of_parallel_calls_does_not_count():
    """The graph of the same runs in another order is the same."""
    runs = many(12)
    other = [
        run(at, *(asks(*reversed(m.tool_calls)) if m.tool_calls else m for m in one.own_messages))
        for at, one in enumerate(reversed(runs), 1)
    ]

    assert graph_of(*runs) == graph_of(*other)


def test_rare_tools_are_counted_together():
    """At most 30 tools and 120 edges are shown; the others are one node, and announced."""
    runs = [run(at, *(asks(call(f"t{n}", {})) for n in range(at))) for at in range(1, 3000, 37)]

    graph = graph_of(*runs)

    assert len(graph.nodes) == 2 + 30
    assert [node.label for node in graph.nodes][-2:] == ["other tools", "end"]
    assert sum(node.calls for node in graph.nodes[1:-1]) == sum(range(1, 3000, 37))
    assert (len(graph.edges), graph.left_out) == (34, 0)
    assert graph_of(*many(60)).left_out > 0


def test_nodes_do_not_overlap_and_calls_lead_down():
    """With 30 tools each node has a place, and the usual order is from top to bottom."""
    graph = graph_of(*many(30, 200))
    drawn = draw_graph(graph)

    assert len(drawn.nodes) == 32
    for one, other in combinations(drawn.nodes, 2):
        assert abs(one.x - other.x) >= drawn.node_width or abs(one.y - other.y) >= drawn.node_height
    for node in drawn.nodes:
        assert 0 <= node.x <= drawn.width - drawn.node_width
        assert 0 <= node.y <= drawn.height - drawn.node_height
    assert len({node.label for node in drawn.nodes}) == 32
    assert all(len(node.label) <= 18 for node in drawn.nodes)
    assert min(node.y for node in drawn.nodes) == drawn.nodes[0].y
    assert max(node.y for node in drawn.nodes) == drawn.nodes[-1].y
    assert drawn == draw_graph(graph)


def test_cycles_and_loops_are_drawn():
    """A tool that is called again has an edge to itself, and one that leads up passes outside."""
    graph = graph_of(run(1, *(asks(call(name, {})) for name in "ffgfg")))
    drawn: GraphDrawing = draw_graph(graph)

    assert {("f", "f"), ("f", "g"), ("g", "f")} < set(edges_of(graph))
    assert {edge.source for edge in graph.edges} >= {START}
    assert {edge.target for edge in graph.edges} >= {END}
    for edge in drawn.edges:
        xs = [float(x) for x in re.findall(r"(-?[\d.]+) -?[\d.]+", edge.path)]
        assert max(xs) <= drawn.width


def test_the_page_has_the_graph_and_the_same_figures_in_a_table():
    """The picture names the table, which has each transition with its failures."""
    failed = Message("tool", "no", (), "2", is_error=True)
    root = parse(page(run(1, asks(call("f", {}, "1")), asks(call("g", {}, "2")), failed)))

    (section,) = root.query("#tools")
    (picture,) = section.query("svg")
    rows = [[words(cell) for cell in row.query("td")] for row in section.query("tbody tr")]
    assert picture.attrs["role"] == "img"
    assert "table" in picture.attrs["aria-label"]
    assert ["f", "g", "1", "1 (100.0%)"] in rows
    assert ["start", "f", "1", ""] in rows
    assert len(section.query("g.failing")) == 2
    assert root.query('nav a[href="#tools"]')


def test_hostile_names_stay_text():
    """Names are escaped, whatever they hold, and a tool named as the beginning is a tool."""
    names = [HOSTILE, "", "start", "end", "\0start", "x" * 10_000, "</svg><script>", "🙂" * 40]
    root = parse(page(run(1, *(asks(call(name, {})) for name in names))))

    (section,) = root.query("#tools")
    assert not section.query("script")
    assert len(section.query("svg")) == 1
    assert len(section.query("g.node")) == 2 + len(names)
    assert "</svg><script>" in words(section)
    assert all(len(words(cell)) < 1000 for cell in section.query("td.tool"))


def test_runs_without_calls_have_no_graph():
    """A report on runs without calls has no section for tools."""
    text = page(run(1, Message("user", "x")))

    assert 'id="tools"' not in text
    assert 'href="#tools"' not in text
