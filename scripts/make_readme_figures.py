"""Writes the figures of README.md from benchmarks/RESULTS.md; a test keeps them current.

The tables are between ``<!-- fidelity -->`` or ``<!-- figures -->`` and ``<!-- end -->``. Run it as
``python -m scripts.make_readme_figures`` after you renew a section of the results.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
_TABLE = re.compile(r"(<!-- (fidelity|figures) -->\n).*?(<!-- end -->)", re.DOTALL)
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_FIDELITY = ("tool", "strict", "wrong, and says so", "silently wrong")
_HEAD = ("measured", "oteval", "beside it", "ratio", "section")


@dataclass(frozen=True)
class Figure:
    """A line of the README's table. Several rows of the results become a range.

    Attributes:
        title: The measurement, for readers of the README; `{rows}` is the number of rows.
        section: The section of the results.
        rows: Matches the names of the rows.
        peer: The peer of these rows, with the name in the results; "" for none.
    """

    title: str
    section: str
    rows: str
    peer: str = ""

    def cells(self) -> tuple[str, ...]:
        """Return the texts of the columns."""
        peer_value = re.compile(rf"({_NUMBER.pattern}[^(),]*) \({re.escape(self.peer)}\)")
        rows = [
            (row, peer_value.search(row["peer or limit"]))
            for row in _table(self.section)
            if re.search(self.rows, row["figure"])
        ]
        rows = [(row, value) for row, value in rows if value or not self.peer]
        if not rows:
            raise ValueError(f"{self.section}: no row matches {self.rows!r}")
        peers = _range(value[1] for _, value in rows if value)
        return (
            self.title.format(rows=len(rows)),
            _range(row["oteval"] for row, _ in rows),
            f"{peers} ({self.peer})" if self.peer else "",
            _range(row["ratio"] for row, _ in rows),
            f"[{self.section}](benchmarks/RESULTS.md#{self.section})",
        )


FIGURES = (
    Figure("matches per CPU second, {rows} cases", "match", "per CPU second", "agentevals"),
    Figure("10,000 traces, from file to scores, CPU seconds", "cli", "CPU sec", "agentevals-cli"),
    Figure("the same, peak MB", "cli", "10,000 traces to scores: peak", "agentevals-cli"),
    Figure("`import oteval`, CPU ms", "imports", "`import oteval`", "agentevals"),
    Figure("received and stored; Phoenix with SQLite", "serve", "stored", "Phoenix"),
    Figure("loaded from a file, spans per second", "ingest", "per second", "DuckDB's read_json"),
    Figure("spans scored live a second, of 15,000 sent", "live_scoring", "^scored a second"),
    Figure("500 sessions replayed, seconds", "replay_verify", "database: seconds"),
    Figure("planted secrets that redaction removes", "redaction", "all .* planted"),
    Figure(
        "false alarms per 10,000 scores, {rows} conditions",
        "monitor",
        "^[^b].*false al",
        "threshold",
    ),
    Figure("the same, {rows} harder conditions", "monitor", "^beyond", "threshold"),
)


def page() -> str:
    """Return README.md with current figures."""
    tables = {"fidelity": _fidelity(), "figures": _figures()}
    return _TABLE.sub(lambda match: match[1] + tables[match[2]] + match[3], PAGE.read_text("utf-8"))


def _fidelity() -> str:
    rows = _table("fidelity")
    return _markdown([_FIDELITY, *([row[name] for name in _FIDELITY] for row in rows)])


def _figures() -> str:
    return _markdown([_HEAD, *(figure.cells() for figure in FIGURES)])


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _table(section: str) -> list[dict[str, str]]:
    """Return the rows of a section of the results, by the names of the columns."""
    text = RESULTS.read_text("utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    head, *rows = [[cell.strip() for cell in line] for line in lines]
    return [dict(zip(head, row, strict=True)) for row in rows]


def _range(texts: Iterable[str]) -> str:
    """Return the lowest and the highest of some figures, or the only one."""
    values = sorted((_number(text), text) for text in texts if text)
    if not values:
        return ""
    lowest, highest = values[0][1], values[-1][1]
    return lowest if lowest == highest else f"{lowest} to {highest}"


def _number(text: str) -> float:
    match = _NUMBER.search(text)
    return float(match[0].replace(",", "")) if match else 0.0


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
