"""The table of ``--oteval-output``, with one row for each test and its repetitions."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...base.jsontext import dumps
from .rows import Row

__all__ = ["table_text"]

# More feedback keys than this share one column.
_MAX_KEY_COLUMNS = 5
_MIN_WIDTH, _MAX_WIDTH = 100, 240
_CELL = 60
# Terminals interpret control characters, and agents may write control characters.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def table_text(rows: Sequence[Row], width: int, has_color: bool) -> str:
    """Draw the table as text.

    Args:
        rows: The results of the tests.
        width: The terminal's width, in characters.
        has_color: Whether the terminal shows colours.
    """
    if not rows:
        return "no test with @pytest.mark.oteval ran\n"
    by_test: dict[str, list[Row]] = {}
    for row in rows:
        by_test.setdefault(row.test, []).append(row)
    keys = list(dict.fromkeys(record["key"] for row in rows for record in row.feedback))
    has_columns = len(keys) <= _MAX_KEY_COLUMNS
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("test", "inputs", "reference", "outputs"):
        table.add_column(name, overflow="fold")
    for name in keys if has_columns else ["feedback"]:
        table.add_column(Text(_line(name)), justify="right" if has_columns else "left")
    table.add_column("pass", justify="right")
    table.add_column("seconds", justify="right")
    for test, runs in by_test.items():
        table.add_row(*_cells(test, runs, keys, has_columns))
    out = io.StringIO()
    width = max(_MIN_WIDTH, min(width, _MAX_WIDTH))
    Console(
        file=out,
        width=width,
        force_terminal=has_color,
        color_system="standard" if has_color else None,
        legacy_windows=False,
    ).print(table)
    return out.getvalue()


def _cells(test: str, runs: Sequence[Row], keys: Sequence[str], has_columns: bool) -> list[Text]:
    first = runs[0]
    texts = [
        _line(test),
        *(_short(v) for v in (first.inputs, first.reference_outputs, first.outputs)),
    ]
    figures = [_figure(runs, key) for key in keys]
    if has_columns:
        texts += figures
    else:
        texts.append("\n".join(f"{_line(k)}: {f}" for k, f in zip(keys, figures, strict=True) if f))
    seconds = sum(row.duration for row in runs) / len(runs)
    return [*map(Text, texts), _passes(runs), Text(f"{seconds:.2f}")]


def _passes(runs: Sequence[Row]) -> Text:
    passed = sum(row.outcome == "passed" for row in runs)
    style = "green" if passed == len(runs) else "red"
    if len(runs) == 1:
        word = {"passed": "pass", "failed": "FAIL", "error": "ERROR", "skipped": "skip"}
        style = "yellow" if runs[0].outcome == "skipped" else style
        return Text(word.get(runs[0].outcome, runs[0].outcome), style)
    return Text(f"{passed}/{len(runs)}", style)


def _figure(runs: Sequence[Row], key: str) -> str:
    """The scores for a feedback key in the repetitions of a test."""
    records = [record for row in runs for record in row.feedback if record["key"] == key]
    scores = [record["score"] for record in records if record["score"] is not None]
    errors = sum(record["status"] != "ok" for record in records)
    parts = []
    if len(scores) == 1:
        passed = next(record["passed"] for record in records if record["score"] is not None)
        parts.append({True: "pass", False: "fail", None: f"{scores[0]:g}"}[passed])
    elif scores:
        parts.append(f"{sum(scores) / len(scores):.3g} ({len(scores)})")
    parts += [_line(record["label"]) for record in records if record["label"]]
    if errors:
        parts.append("error" if errors == 1 else f"{errors} errors")
    return ", ".join(parts)


def _short(value: object) -> str:
    if value is None:
        return ""
    text = _line(value if isinstance(value, str) else dumps(value))
    return text if len(text) <= _CELL else f"{text[: _CELL - 3]}..."


def _line(text: str) -> str:
    return _CONTROL.sub(" ", text)
