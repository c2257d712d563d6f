"""Runs as text: titles, and the cells of columns, costs and tokens."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ..base.errors import ConfigError
from ..base.jsontext import escaped
from ..base.text import counted
from ..model import (
    CASE_ATTRIBUTES,
    COLUMNS,
    LISTED,
    LONGEST_CASE,
    Prices,
    RunColumn,
    RunRow,
    Trajectory,
    Usage,
    case_text,
    first_attribute,
)
from .text import clean, clock, duration, one_line, shorten

__all__ = [
    "CHOICES",
    "JSON_CHOICES",
    "alignment_of",
    "case_key",
    "cell_text",
    "check_choices",
    "columns_of",
    "cost_text",
    "head_of",
    "json_row",
    "mean_cost_text",
    "question_line",
    "run_title",
    "tokens_text",
    "total_cost_text",
    "unique",
    "unknown_costs",
]

_ALWAYS_SHOWN = ("id", "started", "agent", "asked")
CHOICES = (*(name for name in LISTED if name not in _ALWAYS_SHOWN), "cost")
"""The columns that somebody who looks at a list may choose."""
JSON_CHOICES = (*(name for name in LISTED if name != "id"), "cost")
"""The columns that JSON may have in addition to the id."""
_LONGEST = 60
_LONGEST_IN_TITLE = 120


def check_choices(names: Iterable[str], option: str, choices: Sequence[str] = CHOICES) -> None:
    """Check the names of columns.

    Args:
        names: The names.
        option: The name of the option or parameter.
        choices: The known names.

    Raises:
        ConfigError: A name is unknown.
    """
    for name in sorted(set(names) - {*choices}):
        raise ConfigError(f"{option}={name[:40]}: there are {', '.join(choices)}")


def columns_of(names: Iterable[str]) -> list[str]:
    """The columns to read for some of `JSON_CHOICES`; the cost needs the model."""
    return [*(name for name in names if name != "cost"), "model"]


def head_of(name: str) -> str:
    """The head of one of `CHOICES`."""
    return COLUMNS[name].head if name in COLUMNS else name


def alignment_of(name: str) -> str:
    """Return on which side the cells of one of `CHOICES` begin: ``left`` or ``right``."""
    return "left" if name in COLUMNS and COLUMNS[name].kind in ("text", "texts") else "right"


def cell_text(row: RunRow, name: str, prices: Prices) -> str:
    """The value of one of `CHOICES` as text, "" if the run lacks it.

    Args:
        row: The run.
        name: The column.
        prices: The prices of models. A run of several models has no cost.
    """
    if name != "cost":
        return _text_of(COLUMNS[name], row[name])
    cost = prices.cost(row["model"], row.usage)
    return "" if cost is None else cost_text(cost)


def json_row(row: RunRow, names: Iterable[str], prices: Prices) -> dict[str, Any]:
    """A run's id and some of `CHOICES` as JSON; None where the run lacks them.

    Args:
        row: The run.
        names: The columns.
        prices: The prices of models.
    """
    values = {
        name: prices.cost(row["model"], row.usage) if name == "cost" else row[name]
        for name in names
    }
    texts = {name: list(value) for name, value in values.items() if isinstance(value, tuple)}
    return {"trajectory_id": row.id, **values, **texts}


def _text_of(column: RunColumn, value: Any) -> str:
    if value is None:
        return ""
    if column.kind == "time":
        return clock(value)
    if column.kind in ("text", "texts"):
        texts = value if isinstance(value, tuple) else (value,)
        return shorten(one_line(", ".join(map(clean, dict.fromkeys(texts)))), _LONGEST)
    if column.unit == "s":
        return duration(round(value * 1e9))
    if column.unit == "share":
        return f"{value:.0%}"
    return f"{value:,}"


def unknown_costs(rows: Iterable[RunRow], prices: Prices) -> str:
    """Why runs have no cost, each reason with its number of runs; "" if all have one.

    Args:
        rows: The runs, with their models.
        prices: The prices of models.
    """
    reasons = Counter(prices.why_unknown(row["model"], row.usage) for row in rows)
    del reasons[""]
    return "; ".join(
        f"{clean(reason)} ({counted(count, 'run')})" for reason, count in reasons.most_common()
    )


def cost_text(dollars: float) -> str:
    """An amount in US dollars with two significant digits, ``$0.0012``."""
    if dollars < 0.000001:
        return "< $0.000001" if dollars > 0 else "$0"
    if dollars >= 1:
        return f"${dollars:,.2f}"
    return f"${dollars:.6f}".rstrip("0") if dollars < 0.0001 else f"${dollars:.4f}"


def mean_cost_text(mean: float | None, priced: int, runs: int) -> str:
    """The mean cost of the priced runs, and how many of all runs they are; "" if none is."""
    if mean is None:
        return ""
    return cost_text(mean) + ("" if priced == runs else f" ({priced:,} of {runs:,})")


def total_cost_text(dollars: float | None, unknown: int) -> str:
    """A sum of costs, a lower bound if some are unknown; "" if none is known."""
    if dollars is None:
        return ""
    return f"at least {cost_text(dollars)}" if unknown else cost_text(dollars)


def tokens_text(usage: Usage) -> str:
    """The tokens of a run and its model calls: ``10 in, 5 out, 2 model calls``, or ""."""
    tokens = f"{usage.input_tokens:,} in, {usage.output_tokens:,} out"
    cached = f", {usage.cached_tokens:,} from a cache" if usage.cached_tokens else ""
    calls = counted(usage.model_calls, "model call") if usage.model_calls else ""
    tokens = f"{tokens}{cached}" if usage.is_known else "not reported" if calls else ""
    return ", ".join(filter(None, (tokens, calls)))


def question_line(trajectory: Trajectory) -> str:
    """The user's first message in a run on one line; "" if it was not captured."""
    question = trajectory.question
    return one_line((question.content or "")[:LONGEST_CASE]) if question else ""


def case_key(trajectory: Trajectory, keys: Sequence[str]) -> str:
    """The key that a run shares with the runs of the same case, and with no others.

    See `oteval.model.experiment`.

    Args:
        trajectory: The run.
        keys: The attributes that name a case; the first one present counts.
    """
    text = case_text(trajectory, keys)
    if not text.startswith("\0"):
        return clean(text)
    # The line lacks the end of a long text and images, which also distinguish cases.
    digest = hashlib.blake2b(escaped(text).encode(), digest_size=4).hexdigest()
    return f"{question_line(trajectory)} #{digest}"


def run_title(trajectory: Trajectory) -> str:
    """A name for a run that stays the same when the run is repeated.

    It consists of the agent, the case and the question, as far as they are known. A run without a
    case and a question is named by its id.
    """
    case = first_attribute(trajectory, CASE_ATTRIBUTES)
    question = shorten(question_line(trajectory), _LONGEST_IN_TITLE)
    parts = [part for part in (trajectory.agent, case, question) if part]
    return one_line(" · ".join(parts if case or question else [*parts, trajectory.id]))


def unique(names: Iterable[str]) -> list[str]:
    """Return names with " #2" and so on appended where one is repeated."""
    counts: dict[str, int] = {}
    unique_names = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        unique_names.append(name if counts[name] == 1 else f"{name} #{counts[name]}")
    return unique_names
