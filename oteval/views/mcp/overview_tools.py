"""The tools about many runs: list_variants and list_alerts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from ...base.errors import ConfigError
from ...base.text import counted
from ...monitor import require_packages
from ...scoring import Config, variants
from ...store import Store
from ..text import clock
from .arguments import McpTool, RunFilters, ToolArguments
from .results import DataBlock, given
from .workspace import Workspace

__all__ = ["OVERVIEW_TOOLS"]

# The characters of a row.
_VARIANT, _ALERT = 1200, 3000
# DuckDB's memory while variants are counted; less would be raised again, and take twice the time.
_VARIANTS_MEMORY = "144MB"
_MAX_VARIANTS = 1000
# Alerts first, then by how much they need a look.
_STATES = ("alert", "no_data", "warn", "recovered", "learning", "ok")


class _ListVariants(RunFilters):
    evaluator: str = Field("", max_length=500, description="Count only this evaluator's passes.")
    count: int = Field(20, ge=1, le=100, description="The most variants to return.")
    start: int = Field(0, ge=0, le=_MAX_VARIANTS - 1, description="How many variants to skip.")


def _list_variants(workspace: Workspace, arguments: _ListVariants) -> str:
    most = min(_MAX_VARIANTS, arguments.start + arguments.count)
    with workspace.store() as store, store.reduced_memory(_VARIANTS_MEMORY):
        variant_list = variants(
            store, arguments.selection(), evaluator=arguments.evaluator or None, top=most
        )
        rows = list(variant_list.rows)
    block, next_start = DataBlock("variants"), arguments.start
    for row in rows[arguments.start :]:
        if not block.add(_variant_row(row), _VARIANT):
            break
        next_start += 1
    lines = [
        f"{counted(variant_list.variants, 'variant')} (sequences of tools called) in "
        f"{counted(variant_list.runs, 'run')}, the most frequent first."
    ]
    if next_start < min(variant_list.variants, _MAX_VARIANTS):
        lines.append(f"There are more: call again with start={next_start}.")
    return block.text(*lines)


def _variant_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return given(
        {
            "calls": row["tools"] or ["(no calls)"],
            "runs": row["count"],
            "share": round(row["share"], 4),
            "share_in_last_period": _rounded(row["recent_share"]),
            "share_before": _rounded(row["earlier_share"]),
            "runs_with_failed_calls": row["errors"],
            "pass_rate": _rounded(row["pass_rate"]),
            "interval_95": [round(end, 4) for end in row["pass_rate_interval"] or ()] or None,
            "verdicts": row["judged"],
            "mean_cost_usd": _rounded(row["cost"], 6),
            "runs_with_known_cost": row["priced"] if row["priced"] < row["count"] else None,
            "median_seconds": _rounded(row["seconds"]),
            "first_seen": clock(row["first_seen_ns"]),
            "last_seen": clock(row["last_seen_ns"]),
            "example_run": row["example"],
        }
    )


def _rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)


class _ListAlerts(ToolArguments):
    all: bool = Field(False, description="Also groups without an alert.")
    start: int = Field(0, ge=0, description="How many groups to skip.")


def _list_alerts(workspace: Workspace, arguments: _ListAlerts) -> str:
    config = workspace.config()
    if not config.monitors:
        raise ConfigError(
            f"{workspace.config_path}: no monitors; add for instance "
            "monitors: [{measure: latency}], then run oteval monitor run --once or oteval serve"
        )
    require_packages(config)
    # Each server checks its own runs, so that each database has its own states.
    rows = [
        {**({"database": path} if workspace.more else {}), **row}
        for path, store in workspace.each_store()
        for row in _alert_rows(store, config)
    ]
    rows.sort(key=_urgency)
    alerts = sum(row["state"] == "alert" for row in rows)
    chosen = rows if arguments.all else rows[:alerts]
    block, next_start = DataBlock("alerts"), arguments.start
    for row in chosen[arguments.start :]:
        if not block.add(row, _ALERT):
            break
        next_start += 1
    lines = [f"{counted(alerts, 'alert')} in {counted(len(rows), 'group')}, as of the last check."]
    if not arguments.all and alerts < len(rows):
        lines.append("all=true lists the other groups.")
    if next_start < len(chosen):
        lines.append(f"There are more: call again with start={next_start}.")
    return block.text(*lines)


def _alert_rows(store: Store, config: Config) -> Iterator[dict[str, Any]]:
    # This imports numpy, which the extra `monitor` installs.
    from ...monitor import statuses

    now = time.time_ns()
    for entry in config.monitors:
        for status in statuses(store, entry, now):
            row = status.as_dict()
            yield given({**row, **_readable(row)})


def _readable(row: Mapping[str, Any]) -> dict[str, Any]:
    """The times of a row as texts, in place of the numbers."""
    times = {
        name.removesuffix("_ns"): clock(value) if value else None
        for name, value in row.items()
        if name.endswith("_ns")
    }
    numbers = {name: None for name in row if name.endswith("_ns")}
    episodes = [
        {
            (name.removesuffix("_ns")): clock(value) if name.endswith("_ns") and value else value
            for name, value in episode.items()
        }
        for episode in row["episodes"]
    ]
    return {**numbers, **times, "episodes": episodes}


def _urgency(row: Mapping[str, Any]) -> int:
    return _STATES.index(row["state"]) if row["state"] in _STATES else len(_STATES)


OVERVIEW_TOOLS = (
    McpTool(
        "list_variants",
        "Group runs by the sequence of tools they called, the most frequent first, with pass rate, "
        "failed calls, cost, time and an example run. Finds rare and new behaviour.",
        _ListVariants,
        _list_variants,
    ),
    McpTool(
        "list_alerts",
        "Show the monitors of oteval.yaml that alert: since when, before and after, the worst "
        "slices, and example runs of before and after.",
        _ListAlerts,
        _list_alerts,
    ),
)
