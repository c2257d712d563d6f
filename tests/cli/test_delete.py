"""``oteval delete`` and ``oteval audit``."""

from __future__ import annotations

from .conftest import Run


def traces(command: Run) -> list[str]:
    return sorted(row["trace_ids"][0] for row in command("trajectories", "--json").rows)


def test_a_trace_is_deleted_and_the_audit_log_says_so(filled: Run):
    """The trace is gone from every list, and the log names the trace and who deleted it."""
    first, *others = traces(filled)

    done = filled("delete", "--trace", first[:12], "--yes")

    assert done.status == 0, done.err
    assert "deleted: 1 trace, " in done.out
    assert "oteval compact" in done.err
    assert traces(filled) == others
    [entry] = filled("audit", "--json").rows
    assert entry["action"] == "delete"
    assert entry["detail"]["chosen"] == {"trace": [first[:12]]}
    assert entry["detail"]["deleted"]["traces"] == 1
    assert "1 trace" in filled("audit").out


def test_runs_are_deleted_by_a_filter(filled: Run):
    """--where takes the traces of the runs that it chooses; --dry-run only lists them."""
    known = traces(filled)

    planned = filled("delete", "--where", "errors>0", "--dry-run")
    done = filled("delete", "--where", "errors>0", "--yes", "--json")

    assert planned.out.split() == [one for one in known if one not in traces(filled)]
    assert done.rows[0]["deleted"]["traces"] == len(planned.out.split()) > 0


def test_nothing_is_deleted_by_accident(filled: Run):
    """Without a choice, an answer or an unambiguous id there is an error, and all stays."""
    known = traces(filled)

    assert "nothing selected" in filled("delete", "--yes").err
    assert "pass --yes" in filled("delete", "--where", "turn>0").err
    assert "no such trace" in filled("delete", "--trace", "ffff", "--yes").err
    nothing = filled("delete", "--conversation", "none", "--yes")
    assert (nothing.status, "nothing was deleted" in nothing.err) == (0, True)
    assert traces(filled) == known
    assert filled("audit", "--json").rows == []
