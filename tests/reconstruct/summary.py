"""Prints the table of captures after the tests that fill it; a hook of ``tests/conftest.py``."""

from __future__ import annotations

import pytest

HEADS = ("capture", "dialect", "messages", "calls", "results", "errors", "gaps")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what `record_property("table_row", ...)` recorded, also by other workers."""
    rows = [
        value
        for report in (
            *terminalreporter.getreports("passed"),
            *terminalreporter.getreports("failed"),
        )
        for key, value in getattr(report, "user_properties", ())
        if key == "table_row" and report.when == "call"
    ]
    if not rows:
        return
    terminalreporter.section("captures against gold")
    lines = [HEADS, *sorted(rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADS))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        terminalreporter.write_line("  ".join(cells).rstrip())
