"""The table of variants: the sequences of tools that runs called, one a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .columns import Column, Columns, one_row
from .run_cells import mean_cost_text
from .text import ago, duration, short_ids

__all__ = ["variants_table"]

_HOUR = 3600 * 10**9
_PERIODS = {1: "last hour", 24: "last day", 168: "last week", 672: "last 4 weeks"}


def variants_table(rows: Sequence[Mapping[str, Any]], now_ns: int, period_ns: int) -> Columns:
    """Return variants, one a line.

    Args:
        rows: The variants, as `oteval.scoring.variants` returns them.
        now_ns: The current time.
        period_ns: The length of the periods that they were counted in. The share in the last period
            is a column if there was an earlier period.
    """
    period = _PERIODS.get(period_ns // _HOUR, "last period")
    table = Columns(
        Column("runs", right=True),
        Column("share", rank=2, right=True),
        Column(period, rank=6, extra=True, right=True, optional=True),
        Column("failed calls", rank=4, right=True),
        Column("pass rate", rank=3, right=True),
        Column("95%", rank=5, extra=True, optional=True),
        Column("cost", rank=8, extra=True, right=True, optional=True),
        Column("tokens", rank=9, extra=True, right=True, optional=True),
        Column("time", rank=7, extra=True, right=True),
        Column("first seen", rank=11, extra=True),
        Column("last seen", rank=10, extra=True),
        Column("example", rank=1),
        Column("tools", least=20, most=48),
    )
    ids = short_ids(row["example"] for row in rows)
    for row in rows:
        rate, interval = row["pass_rate"], row["pass_rate_interval"]
        tokens = None if row["input_tokens"] is None else row["input_tokens"] + row["output_tokens"]
        table.add_row(
            str(row["count"]),
            f"{row['share']:.1%}",
            "" if row["earlier_share"] is None else f"{row['recent_share'] or 0:.1%}",
            str(row["errors"]),
            "-" if rate is None else f"{rate:.3f}",
            "" if interval is None else f"{interval[0]:.3f} - {interval[1]:.3f}",
            mean_cost_text(row["cost"], row["priced"], row["count"]),
            "" if tokens is None else f"{tokens:.0f}",
            duration(round(row["seconds"] * 1e9)) if row["seconds"] is not None else "",
            ago(row["first_seen_ns"], now_ns),
            ago(row["last_seen_ns"], now_ns),
            ids[row["example"]],
            one_row(" → ".join(row["tools"]) or "(no calls)"),
        )
    return table
