from __future__ import annotations

from pathlib import Path

import pytest

from oteval.evaluators import create_trajectory_match_evaluator

from ..conformance.differential import CHANGES, Model, asked, cases

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("name", CHANGES)
def test_the_page_on_matching_lists_what_differs_from_the_peer(name: str):
    """Each change that the differential test knows has a row on the page."""
    rows = [
        line
        for line in (DOCS / "how-to" / "migrate-from-agentevals.md").read_text("utf-8").splitlines()
        if line[:1] == "|"
    ]

    assert any(line.startswith(f"| {name} |") for line in rows)


def test_random_cases_are_judged_as_the_peer_would_with_the_intended_changes():
    """A model of agentevals with the documented changes agrees on 400 random cases."""
    pytest.importorskip("langchain_core")
    for case in cases(400, seed=11):
        ours = asked(create_trajectory_match_evaluator, case)

        assert Model(case).verdict(frozenset(CHANGES)) == ours, case
