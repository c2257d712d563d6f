"""The page of variants: ``/variants``, the tool sequences of runs and the graph of their tools."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...base.errors import ConfigError
from ...scoring import variants as count_variants
from ...store import Store, is_exact
from ..report.graph_layout import draw_graph
from ..report.tool_graph import ToolGraphCounts
from ..run_texts import mean_cost_text
from ..text import clean, duration
from .responses import page
from .search import RunSearch, parse_search
from .site import Site

__all__ = [
    "VariantItem",
    "variants_figures",
    "variants_page",
    "variants_routes",
]

_MOST, _LATEST = 100, 20_000
_LONGEST_PATH = 40


@dataclass(frozen=True, slots=True)
class VariantItem:
    """A sequence of tools.

    Attributes:
        tools: The tools in order.
        left_out: How many further calls there are.
        runs: The number of runs.
        share: Their share of all runs.
        rate: The pass rate, None without a verdict.
        low: The lower end of its 95% interval.
        high: The upper end of it.
        failing: The number of runs with a failed call.
        took: The median duration.
        cost: The mean cost at list prices, or "".
        tokens: The mean number of tokens, or "".
        first_ns: When the first run began (ns since the epoch).
        last_ns: When the last run began.
        example: The id of the first run.
    """

    tools: tuple[str, ...]
    left_out: int
    runs: int
    share: float
    rate: float | None
    low: float
    high: float
    failing: int
    took: str
    cost: str
    tokens: str
    first_ns: int
    last_ns: int
    example: str


def variants_routes(site: Site) -> list[Route]:
    """The route of variants."""

    async def variants(request: Request) -> Response:
        search = parse_search(request.query_params.get("q", ""))
        if search.verdict is not None:
            raise ConfigError("variants cannot be searched by passed, status or evaluator")
        listing = await site.cached(*_counted(search))
        return page("variants.html.j2", section="variants", now_ns=site.clock(), variants=listing)

    return [Route("/variants", variants)]


def variants_figures() -> list[tuple[Hashable, Callable[[Store], object]]]:
    """The key of the page of all variants, with the function that reads it."""
    return [_counted(parse_search(""))]


def _counted(search: RunSearch) -> tuple[Hashable, Callable[[Store], Mapping[str, Any]]]:
    """The key of a page of variants, and the function that reads it."""
    return ("variants", *search.key), lambda store: variants_page(store, search)


def variants_page(store: Store, search: RunSearch) -> Mapping[str, Any]:
    """The page of variants.

    Args:
        store: The store.
        search: The runs.
    """
    selection = replace(search.selection, limit=_LATEST)
    variant_list = count_variants(store, selection, evaluator=None, top=_MOST)
    items = tuple(_item(row) for row in variant_list.rows)
    counts = ToolGraphCounts()
    if is_exact(selection):
        for shape in store.statistics.of(selection).shapes():
            counts.add_shape(shape)
    graph = counts.graph()
    return {
        "search": search,
        "rows": items,
        "runs": variant_list.runs,
        "count": variant_list.variants,
        "latest": _LATEST if variant_list.runs == _LATEST else 0,
        "tools": graph,
        "drawing": draw_graph(graph) if graph else None,
    }


def _item(row: Mapping[str, Any]) -> VariantItem:
    interval: Sequence[float] = row["pass_rate_interval"] or (0.0, 1.0)
    tokens = None if row["input_tokens"] is None else row["input_tokens"] + row["output_tokens"]
    tools = row["tools"]
    return VariantItem(
        tools=tuple(clean(name)[:80] for name in tools[:_LONGEST_PATH]),
        left_out=max(0, len(tools) - _LONGEST_PATH),
        runs=row["count"],
        share=row["share"],
        rate=row["pass_rate"],
        low=interval[0],
        high=interval[1],
        failing=row["errors"],
        took=duration(round(row["seconds"] * 1e9)) if row["seconds"] is not None else "",
        cost=mean_cost_text(row["cost"], row["priced"], row["count"]),
        tokens="" if tokens is None else f"{tokens:,.0f}",
        first_ns=row["first_seen_ns"],
        last_ns=row["last_seen_ns"],
        example=row["example"],
    )
