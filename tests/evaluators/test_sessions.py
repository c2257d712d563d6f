from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SESSIONS = ROOT.parent / "shared" / "sessions"


def documented_rows() -> list[str]:
    """Return the rows of the table in the sessions' own README."""
    lines = (SESSIONS / "README.md").read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| recipe"))
    return [line for line in lines[start + 2 :] if line.startswith("|")]


@pytest.mark.skipif(not SESSIONS.is_dir(), reason="the shared sessions are not here")
def test_the_agreement_with_the_reward_is_the_documented_one(monkeypatch):
    """All five recipes on the 40 airline sessions give exactly the published figures."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import sessions_table

    assert sessions_table.table(SESSIONS) == documented_rows()
    sys.modules.pop("sessions_table")
