"""Writes the table of the tools of frameworks in docs/reference/replay.md; a test keeps it current.

The outcomes come from `make test-replay-agents`. The table is between
``<!-- tools of frameworks -->`` and ``<!-- end -->``. Run it as
``python -m scripts.make_replay_table``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "replay.md"
_AGENTS = ROOT / "tests" / "replays" / "framework_agents"
_TABLE = re.compile(r"(<!-- tools of frameworks -->\n).*?(<!-- end -->)", re.DOTALL)
MODES = ("verify", "whatif", "with", "fixture")


def page() -> str:
    """Return docs/reference/replay.md with a current table."""
    return _TABLE.sub(lambda match: f"{match[1]}{table()}{match[2]}", PAGE.read_text("utf-8"))


def table() -> str:
    """Return the table."""
    head = ("framework", "kind of tool", *(f"`{mode}`" for mode in MODES))
    rows = [head, ("---",) * len(head), *_rows()]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _rows() -> Iterator[tuple[str, ...]]:
    frameworks = json.loads((_AGENTS / "frameworks.json").read_text("utf-8"))
    outcomes = json.loads((_AGENTS / "outcomes.json").read_text("utf-8"))
    for name, framework in frameworks.items():
        for kind, outcome in outcomes.get(name, {}).items():
            yield framework["label"], kind, *(outcome[mode] for mode in MODES)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
