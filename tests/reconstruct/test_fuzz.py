"""What holds of any spans that look like those of real emitters and are not quite."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from oteval.base.jsontext import dumps
from oteval.model import Trajectory
from oteval.reconstruct import CODES, explain, reconstruct
from oteval.scoring import refresh
from oteval.store import Store

from .odd_spans import (
    Spans,
    clean,
    examples,
    few_or_many,
    forest,
    mutant,
    shuffled,
    together,
)

seeds = st.integers(0, 2**63)


def check_whole(found: Spans) -> None:
    """Check that no span is lost, and that trajectories are well formed."""
    spans, logs = found
    before = repr(found)

    trajectories = reconstruct(spans, logs)

    ids: dict[str, set[str]] = defaultdict(set)
    for span in spans:
        ids[span.trace_id].add(span.span_id)
    runs = {name for t in trajectories for name in t.trace_ids}
    assert runs <= set(ids)
    roots = Counter(t.id for t in trajectories)
    assert not roots or max(roots.values()) == 1
    stand_ins = {(span.trace_id, span.parent_id) for span in spans}
    known = {(trace, name) for trace, names in ids.items() for name in names}
    # What log records say of a missing parent is kept.
    told = known | {(record.trace_id, record.span_id) for record in logs} & stand_ins
    for trajectory in trajectories:
        check_trajectory(trajectory)
        said = {(m.trace_id, m.span_id) for m in trajectory.messages}
        assert said <= told, said - told
        root = (trajectory.root_span.trace_id, trajectory.root_span.span_id)
        assert root in known | stand_ins
        assert not trajectory.parent_id or trajectory.parent_id in roots
    for trace, names in ids.items():
        explanation = explain(trace, spans, logs)
        # A trace of nothing but requests and the like has no run, and its explanation says so.
        assert bool(explanation.hints) == (trace not in runs)
        assert sorted(account.span.span_id for account in explanation.accounts) == sorted(names)
        assert bool(explanation.trajectories) == (trace in runs)
        json.loads(dumps(explanation.as_dict()))
    assert repr(found) == before


def check_trajectory(trajectory: Trajectory) -> None:
    """Check that a trajectory is well formed."""
    assert trajectory.messages or trajectory.gaps or trajectory.steps
    assert trajectory.turn >= 1
    assert trajectory.start_ns <= trajectory.end_ns
    assert 0 <= trajectory.new_from <= len(trajectory.messages)
    assert trajectory.messages[trajectory.new_from :] == trajectory.own_messages
    for gap in trajectory.gaps:
        assert gap.code in CODES
        assert gap.detail
        assert len(gap.detail.splitlines()) == 1, gap.detail
        assert len(gap.detail) < 2000, gap.detail[:300]
    for message in trajectory.messages:
        texts = (message.role, message.tool_call_id, message.name)
        assert all(isinstance(text, str) for text in texts), message
        assert isinstance(message.content, (str, type(None))), message
        assert isinstance(message.is_error, bool), message
        for call in message.tool_calls:
            assert isinstance(call.name, str), call
            assert isinstance(call.id, str), call
    assert isinstance(trajectory.conversation_id, str)
    assert isinstance(trajectory.agent, str)
    assert all(isinstance(model, str) for model in trajectory.models)
    assert all(isinstance(node, str) for step in trajectory.steps for node in step)
    assert all(isinstance(definition, dict) for definition in trajectory.tools)
    json.loads(dumps(trajectory.as_dict()))


def check_order(found: Spans, seed: int) -> None:
    """Check that spans in another order, with ids of their own, give the same."""
    spans, logs = found
    distinct = list({(span.trace_id, span.span_id): span for span in spans}.values())

    told = reconstruct(distinct, logs)

    other, _ = shuffled((distinct, logs), seed + 1)
    assert repr(reconstruct(other, logs)) == repr(told)


def check_stored(found: Spans) -> None:
    """Check that what a store hands back is what was reconstructed without one."""
    spans, logs = clean(found)
    with Store() as store:
        store.spans.write(spans, logs)
        refresh(store)
        stored = {t.id: t for t in store.trajectories.read()}

    told = reconstruct(spans, logs)

    assert set(stored) == {t.id for t in told}
    for direct in told:
        found_again = stored[direct.id]
        assert (found_again.history and found_again.history.id) == (
            direct.history and direct.history.id
        )
        assert replace(found_again, rev=1, history=None) == replace(direct, history=None)


@examples(250)
def test_no_span_of_an_odd_forest_is_lost(count: int):
    """Spans of any dialects on any trees never raise, and each is accounted for once."""

    @few_or_many(count)
    @given(seeds)
    def check(seed: int) -> None:
        check_whole(forest(seed))

    check()


@examples(120)
def test_no_span_of_a_mutated_capture_is_lost(count: int):
    """Captures with mutated, cut, dropped and repeated spans never raise or lose a span."""

    @few_or_many(count)
    @given(seeds)
    def check(seed: int) -> None:
        check_whole(mutant(seed))

    check()


@examples(120)
def test_the_order_of_arrival_does_not_matter(count: int):
    """Spans with distinct ids give equal trajectories in any order."""

    @few_or_many(count)
    @given(seeds)
    def check(seed: int) -> None:
        check_order(forest(seed), seed)
        check_order(mutant(seed), seed)

    check()


@pytest.mark.database
@examples(6)
def test_a_store_keeps_odd_trajectories(count: int):
    """Trajectories of odd spans come out of a store as they were reconstructed without one."""

    @few_or_many(count)
    @given(seeds)
    def check(seed: int) -> None:
        check_stored(together([make(seed + i) for i in range(12) for make in (forest, mutant)]))

    check()
