"""``oteval trajectories``, ``show``, ``explain``, ``diff``, ``variants``: look at stored runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click
import pyarrow as pa

from ..base.text import counted
from ..model import make_prices
from ..scoring import align, explain as explain_trace, first_divergence, variants as find_variants
from ..store import RunKey
from ..views import (
    CHOICES,
    JSON_CHOICES,
    check_choices,
    columns_of,
    diff_view,
    explanation_view,
    json_row,
    trajectories_table,
    trajectory_view,
    unknown_costs,
    variants_table,
)
from . import common
from .common import (
    TABLE_ROWS,
    databases_option,
    filters,
    json_option,
    open_store,
    out,
    print_json,
    select,
    warn,
)

__all__ = ["diff", "explain", "show", "trajectories", "variants"]

# DuckDB's memory for counting variants; with less, queries are repeated and take longer.
_VARIANTS_MEMORY = "200MB"
# DuckDB's memory for listing trajectories; more would only cache rows that are read once.
_LIST_MEMORY = "192MB"
# The number of runs that are read at a time.
_JSON_PAGE = 1000


@click.command()
@databases_option
@filters
@click.option(
    "--columns",
    metavar="NAME,...",
    default="",
    help="Show these columns beside the agent, the scores and the question; an unknown name lists "
    "all.",
)
@json_option
def trajectories(db: tuple[str, ...], columns: str, as_json: bool, **filter_options: Any) -> int:
    """List the trajectories, one for each agent run.

    With --json, each line has the messages in OpenAI's format and the gaps, or the --columns alone.
    Without --json, this lists the latest 1,000, or as many as --limit allows.
    """
    selection = select(**filter_options)
    names = [name.strip() for name in columns.split(",") if name.strip()]
    check_choices(names, "--columns", JSON_CHOICES if as_json else CHOICES)
    with open_store(db) as store, store.reduced_memory(_LIST_MEMORY):
        if as_json and names:
            prices = make_prices(own=None)
            for keys in store.trajectories.keys(selection, _JSON_PAGE):
                for row in store.run_list.rows(_run_keys(keys), columns_of(names)):
                    print_json(json_row(row, names, prices))
            return 0
        if as_json:
            for trajectory in store.trajectories.read(selection):
                print_json(trajectory.as_dict())
            return 0
        # One extra row shows whether the table is complete.
        limited = replace(selection, limit=selection.limit or TABLE_ROWS + 1)
        key_table = store.trajectories.key_table(limited)
        keys = (
            key_table if selection.limit else key_table.slice(max(0, len(key_table) - TABLE_ROWS))
        )
        rows = store.run_list.rows(_run_keys(keys))
        scores = store.scores.of([row.id for row in rows])
    if rows:
        out().print(trajectories_table(rows, scores, common.now_ns(), names))
    if "cost" in names and (reasons := unknown_costs(rows, make_prices(own=None))):
        warn(f"no cost: {reasons}")
    count = counted(len(rows), "trajectory")
    if len(key_table) > len(keys):
        count = f"the latest {count}; --limit N or --json lists more"
    warn(count + ("; oteval show ID shows one" if rows else ""))
    return 0


def _run_keys(keys: pa.Table) -> list[RunKey]:
    pairs = zip(keys["start_ns"].to_pylist(), keys["trajectory_id"].to_pylist(), strict=True)
    return [RunKey(*pair) for pair in pairs]


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@databases_option
@click.option("--all", "whole", is_flag=True, help="Show earlier turns as well.")
@click.option("--full", is_flag=True, help="Do not shorten messages.")
@json_option
def show(ids: tuple[str, ...], db: tuple[str, ...], whole: bool, full: bool, as_json: bool) -> int:
    """Show trajectories: messages, calls, gaps and scores.

    ID is a trajectory's id or a prefix of one, the trace id or span id of its root span, or the id
    of a conversation, for all of its turns.
    """
    with open_store(db) as store:
        runs = [run for name in ids for run in store.trajectories.named(name)]
        for trajectory in runs:
            scores = store.scores.of([trajectory.id])[trajectory.id]
            if as_json:
                own = [score.as_dict() for score in scores]
                print_json({**trajectory.as_dict(), "scores": own})
            else:
                length = 10**9 if full else 1000
                out().print(trajectory_view(trajectory, scores, whole=whole, length=length))
    return 0


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="TRACE...")
@databases_option
@json_option
def explain(names: tuple[str, ...], db: tuple[str, ...], as_json: bool) -> int:
    """Explain how each span of a trace was read.

    For each span this shows the dialect that read it, its content, and the messages made from it,
    or the reason for none; then the gaps, with the variable or option that closes each. TRACE is a
    trace id or a prefix of one, or the id of a span or trajectory in the trace.
    """
    with open_store(db) as store:
        for name in names:
            explanation = explain_trace(store, name)
            if as_json:
                print_json(explanation.as_dict())
            else:
                out().print(explanation_view(explanation))
    return 0


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID ID...")
@databases_option
@click.option("--all", "whole", is_flag=True, help="Compare earlier turns as well.")
@json_option
def diff(ids: tuple[str, ...], db: tuple[str, ...], whole: bool, as_json: bool) -> int:
    """Compare trajectories and mark where they diverge.

    All are compared with the first one. Messages are aligned by role and content. System messages
    are shown separately and do not count. The exit status is 1 if a trajectory differs from the
    first.
    """
    if len(ids) < 2:
        raise click.UsageError("give at least two trajectory ids")
    differs = False
    with open_store(db) as store:
        left = store.trajectories.get(ids[0])
        for name in ids[1:]:
            right = store.trajectories.get(name)
            sides = [left.messages, right.messages]
            if not whole:
                sides = [left.own_messages, right.own_messages]
            pairs = align(sides[0], sides[1])
            first = first_divergence(pairs)
            differs = differs or first is not None
            if as_json:
                rows = [
                    {
                        "same": pair.same,
                        "left": pair.left.as_dict() if pair.left else None,
                        "right": pair.right.as_dict() if pair.right else None,
                    }
                    for pair in pairs
                ]
                ends = {"left": left.id, "right": right.id, "first_divergence": first}
                print_json({**ends, "rows": rows})
            else:
                starts = (0, 0) if whole else (left.new_from, right.new_from)
                out().print(diff_view(left, right, pairs, starts=starts))
    return 1 if differs else 0


@click.command()
@databases_option
@filters
@click.option("--evaluator", help="Count only this evaluator's passes.")
@click.option("--top", type=click.IntRange(min=1), help="Only the N most frequent sequences.")
@json_option
def variants(
    db: tuple[str, ...],
    evaluator: str | None,
    top: int | None,
    as_json: bool,
    **filter_options: Any,
) -> int:
    """Group runs by their sequence of tool calls.

    The most frequent sequence is first. The order of the calls in one message does not count. With
    --json, each line also has the share of the sequence over time. Without --json, this lists
    1,000 sequences, or --top.
    """
    most = top or (None if as_json else TABLE_ROWS)
    with open_store(db) as store, store.reduced_memory(_VARIANTS_MEMORY):
        variant_counts = find_variants(store, select(**filter_options), evaluator, most)
        listed_count = 0
        if as_json:
            for listed_count, row in enumerate(variant_counts.rows, 1):  # noqa: B007
                print_json(row)
        elif rows := list(variant_counts.rows):
            listed_count = len(rows)
            out().print(variants_table(rows, common.now_ns(), variant_counts.period_ns))
    count = (
        f"{counted(variant_counts.variants, 'variant')} in {counted(variant_counts.runs, 'run')}"
    )
    if listed_count < variant_counts.variants:
        count += f"; listed: the first {listed_count}; --top N lists more"
    warn(count)
    return 0
