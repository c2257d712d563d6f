"""The benchmark of when a pass rate fell, and to what: its streams and rows."""

from __future__ import annotations

from benchmarks import monitor_changes


def test_alerts_after_falls_give_rows():
    """Each fall has the share of intervals that hold the truth, and the wrong estimates."""
    by_drop = monitor_changes.outcomes(monitor_changes.CONDITIONS[0], 2)

    figures = [monitor_changes._figures(f"to {drop}", alerts) for drop, alerts in by_drop.items()]
    rows = monitor_changes.rows({"falls": figures})
    assert [row.figure for row in rows] == ["to 0.5", "to 0.85"]
    assert [each["alerts"] for each in figures] == [2, 2]
    assert rows[0].held
