"""Traces with more bytes than can be reconstructed together, with and without a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from oteval.base.errors import TooLarge
from oteval.model import Span, Trajectory
from oteval.scoring import explain, reconstruction, refresh
from oteval.serve.evaluator_rules import EvaluatorRules
from oteval.serve.scoring_loop import ScoringLoop
from oteval.store import Store

from ..make import chat

SECOND = 1_000_000_000
RULES = """
evaluators:
  - {name: tools, type: tool_errors}
  - {name: fast, type: latency, max: 60s}
completion: {quiet: 1s}
"""


@pytest.fixture(autouse=True)
def _bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit reading to 100 kB."""
    monkeypatch.setattr("oteval.store.spans.MAX_READ_BYTES", 100_000)


def said(trace: int, size: int = 10, talk: str = "") -> Span:
    """Return a model call with an answer of so many bytes, in a conversation if one is given."""
    more = {"gen_ai.conversation.id": talk} if talk else {}
    return chat(trace, 1, [("user", f"hi {trace}")], "x" * size, **more)


def runs(store: Store) -> dict[int, Trajectory]:
    """Return the runs of a store by the number of their trace."""
    return {int(t.root_span.trace_id, 16): t for t in store.trajectories.read()}


def codes(run: Trajectory) -> list[str]:
    """Return the codes of a run's gaps."""
    return [gap.code for gap in run.gaps]


def test_a_trace_that_is_too_large_blocks_no_other() -> None:
    """Its placeholder names the limit, and the other traces are reconstructed."""
    with Store() as store:
        store.spans.write([said(1), said(2, 200_000), said(3)])

        refresh(store)
        again = refresh(store)
        found = runs(store)
        with pytest.raises(TooLarge, match="too much to be reconstructed"):
            explain(store, f"{2:032x}")

    assert {number: len(run.messages) for number, run in found.items()} == {1: 2, 2: 0, 3: 2}
    assert codes(found[2]) == ["too_large"]
    assert "more than 0.09537 MiB" in found[2].gaps[0].detail
    assert (codes(found[1]), again) == ([], 0)


def test_traces_that_are_too_large_only_together_are_reconstructed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reading whole conversations in parts gives the same trajectories as without a limit."""
    spans = [said(n, 30_000, talk=f"talk {n % 5}" if n % 3 else "") for n in range(1, 16)]
    with Store() as store:
        store.spans.write(spans)
        refresh(store)
        found = runs(store)
    monkeypatch.setattr("oteval.store.spans.MAX_READ_BYTES", 1 << 30)
    with Store() as store:
        store.spans.write(spans)
        refresh(store)
        whole = runs(store)

    assert found == whole
    assert len(found) == 15


def test_a_conversation_that_is_too_large_keeps_its_other_trajectories() -> None:
    """Only the requested trace gets a placeholder; earlier trajectories of the others stay."""
    turns = [said(number, 30_000, "talk") for number in range(1, 5)]
    with Store() as store:
        for turn in turns:
            store.spans.write([turn])
            reconstruction.refresh_traces(store, [turn.trace_id])
        found = runs(store)

    assert [codes(found[number]) for number in range(1, 5)] == [[], [], [], ["too_large"]]
    assert [len(found[number].messages) for number in range(1, 5)] == [2, 2, 2, 0]


def test_a_trace_that_grew_too_large_loses_its_trajectory() -> None:
    """The trajectory from before it grew is superseded by the placeholder."""
    with Store() as store:
        store.spans.write([said(1)])
        refresh(store)
        whole = runs(store)[1]
        store.spans.write([chat(1, 2, [("user", "more")], "x" * 200_000)])
        refresh(store)
        found = runs(store)[1]

    assert (codes(whole), codes(found)) == ([], ["too_large"])
    assert (found.id, found.rev) == (whole.id, 2)


def test_live_scoring_continues(tmp_path: Path) -> None:
    """The other traces are scored, the large one is not, and no trace stays open."""
    (tmp_path / "oteval.yaml").write_text(RULES)
    with Store() as store:
        scoring = ScoringLoop(
            store.sibling(), EvaluatorRules(tmp_path / "oteval.yaml", store), clock=lambda: SECOND
        )
        store.spans.write([said(1), said(2, 200_000), said(3)])
        scoring.tick(SECOND)
        while scoring.tick(3 * SECOND) or not scoring.is_idle:
            pass
        found = {(int(s.trace_id, 16), s.evaluator): s for s in store.scores.read()}
        left = scoring.open_traces
        scoring.close()

    assert {key: score.status for key, score in found.items()} == {
        (number, name): "not_evaluated" if number == 2 else "ok"
        for number in (1, 2, 3)
        for name in ("tools", "fast")
    }
    assert found[2, "fast"].comment.startswith("too_large: not reconstructed: the trace")
    assert left == 0
