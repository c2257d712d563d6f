"""The table of ``--oteval-output``: a row for each test, its repetitions taken together."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..jsontext import dumps
from .rows import Row

__all__ = ["table_text"]

# With more keys than this a column for each would leave no room for any.
_MOST_KEYS = 5
_LEAST_WIDTH, _MOST_WIDTH = 100, 240
_CELL = 60
# Terminals act on control characters, and what an agent says is not ours.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def table_text(rows: Sequence[Row], width: int, has_color: bool) -> str:
    """Return the table as text.

    Args:
        rows: What the tests came to.
        width: The terminal's width, in characters.
        has_color: Whether it shows colours.
    """
    if not rows:
        return "no test with @pytest.mark.oteval ran\n"
    by_test: dict[str, list[Row]] = {}
    for row in rows:
        by_test.setdefault(row.test, []).append(row)
    keys = list(dict.fromkeys(note["key"] for row in rows for note in row.feedback))
    has_columns = len(keys) <= _MOST_KEYS
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
    width = max(_LEAST_WIDTH, min(width, _MOST_WIDTH))
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
    """Return what one key came to in the repetitions of a test."""
    notes = [note for row in runs for note in row.feedback if note["key"] == key]
    scores = [note["score"] for note in notes if note["score"] is not None]
    errors = sum(note["status"] != "ok" for note in notes)
    parts = []
    if len(scores) == 1:
        passed = next(note["passed"] for note in notes if note["score"] is not None)
        parts.append({True: "pass", False: "fail", None: f"{scores[0]:g}"}[passed])
    elif scores:
        parts.append(f"{sum(scores) / len(scores):.3g} ({len(scores)})")
    parts += [_line(note["label"]) for note in notes if note["label"]]
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
