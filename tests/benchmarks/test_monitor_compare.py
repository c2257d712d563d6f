"""The benchmark of `oteval monitor compare`: its streams, and the rows of its table."""

from __future__ import annotations

from benchmarks import monitor_compare


def test_every_condition_has_a_name() -> None:
    """No two rows are the same."""
    names = [str(each) for each in monitor_compare.CONDITIONS]

    assert len(set(names)) == len(names)


def test_a_condition_gives_its_row() -> None:
    """A row has false positives, coverage and drops, and whether the targets hold."""
    condition = monitor_compare.Condition("weekends", 0.1, 0.0, 0.05)

    row, zipf = monitor_compare.rows(
        {
            "streams": 2,
            "conditions": [monitor_compare.one_condition(condition, 2)],
            "zipf": [monitor_compare.one_zipf(monitor_compare.ZIPF[2], 2)],
        }
    )

    assert row.figure.startswith("weekends, 0.1/min, 0.05: false positives")
    assert row.ours.startswith("0.000, 1.000, 1.000")
    assert row.held
    assert "neighbours only" in row.other
    assert zipf.figure == "new_variants, 0.1/min, Zipf 1.1: false positives"
    assert zipf.held
