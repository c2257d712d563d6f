from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings, strategies as st

from oteval.base.jsontext import escaped
from oteval.model import Message, Score, Trajectory, Usage
from oteval.model.columns import COLUMNS
from oteval.model.prices import make_prices
from oteval.model.selection import EVERYTHING, Selection, parse_asked, parse_condition
from oteval.scoring import refresh, variants
from oteval.store import Store

from ..make import CAPTURES, asks, call, capture, keep, run, score

_HOUR = 3600 * 10**9
_DAY = 24 * _HOUR
NAMES = st.sampled_from(["f", "g", "f,g", "→", "'; --", "é\0", "\ud83d", ""])
MESSAGES = st.one_of(
    st.sampled_from([Message("user", "x"), Message("tool", "x")]),
    st.just(Message("tool", "no", (), "c", is_error=True)),
    st.builds(
        lambda names: asks(*(call(name, {}, "c") for name in names)), st.lists(NAMES, max_size=3)
    ),
)
USAGES = st.sampled_from(
    [Usage(), Usage(10, 5, 0, 1), Usage(10, 5, 30, 2), Usage(10**20, 1, 1, 1), Usage(7, 7, 7, 0)]
)
# Each example takes several queries, so that shrinking one takes minutes.
_PHASES = (Phase.explicit, Phase.generate)
RUNS = st.lists(
    st.builds(
        lambda messages, usage, models, begin, length: {
            "tail": tuple(messages),
            "usage": usage,
            "models": models,
            "start_ns": begin,
            "end_ns": begin + length,
        },
        st.lists(MESSAGES, max_size=3),
        USAGES,
        st.sampled_from([(), ("gpt-4o",), ("gpt-4o", "gpt-4o-mini"), ("unpriced",)]),
        st.sampled_from([0, 1, _HOUR, 3 * _HOUR, 200 * _DAY, 200 * _DAY + _HOUR, 2**62]),
        st.integers(0, 10**12),
    ),
    max_size=12,
)
Rows = list[dict[str, Any]]
SCORES = st.lists(
    st.tuples(
        st.integers(1, 12),
        st.sampled_from(["e", "other"]),
        st.sampled_from(["v1", "v2"]),
        st.sampled_from([True, False, None]),
        st.integers(1, 2),
    ),
    max_size=25,
)


def sequence_of(trajectory: Trajectory) -> tuple[str, ...]:
    """Return the tools of a run in the order of its variant."""
    groups = [sorted(escaped(c.name) for c in m.tool_calls) for m in trajectory.own_messages]
    return tuple(name for group in groups for name in group)


def expected(
    runs: Sequence[Trajectory], scores: Sequence[Score], evaluator: str | None = None
) -> list[dict[str, Any]]:
    """Return the rows of the variants of some runs, by their start, computed one by one."""
    newest: dict[tuple[str, str], tuple[int, int, bool | None]] = {}
    for seq, verdict in enumerate(scores):
        if evaluator in (None, verdict.evaluator):
            key = (verdict.trajectory_id, verdict.evaluator)
            rank = (verdict.rev, seq, verdict.passed)
            newest[key] = max(newest.get(key, rank), rank, key=lambda ranked: ranked[:2])
    groups: dict[tuple[str, ...], list[Trajectory]] = {}
    for trajectory in runs:
        groups.setdefault(sequence_of(trajectory), []).append(trajectory)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return [
        _row(
            tools,
            members,
            len(runs),
            [
                passed
                for (name, _), (_, _, passed) in newest.items()
                if passed is not None and name in {member.id for member in members}
            ],
        )
        for tools, members in ordered
    ]


def _row(
    tools: tuple[str, ...], members: Sequence[Trajectory], total: int, verdicts: Sequence[bool]
) -> dict[str, Any]:
    times = [COLUMNS["seconds"].value(member) for member in members]
    took = sorted(seconds for seconds in times if seconds is not None)
    prices = make_prices(None)
    members_with_usage = [member for member in members if member.usage.is_known]
    single = [member for member in members_with_usage if len(member.models) == 1]
    costs = [price.cost(m.usage) for m in single if (price := prices.of(*m.models))]
    return {
        "tools": "\n".join(tools),
        "count": len(members),
        "share": len(members) / total,
        "errors": sum(_failed(member) for member in members),
        "passed": sum(verdicts),
        "judged": len(verdicts),
        "example": members[0].id,
        "cost": sum(costs) / len(costs) if costs else None,
        "priced": len(costs),
        "input_tokens": _mean([m.usage.input_tokens for m in members_with_usage]),
        "output_tokens": _mean([m.usage.output_tokens for m in members_with_usage]),
        "seconds": _quantile(took, 0.5),
        "seconds_p95": _quantile(took, 0.95),
        "first_seen_ns": min((m.start_ns for m in members if m.start_ns), default=0),
        "last_seen_ns": members[-1].start_ns,
        "timed": sum(member.start_ns > 0 for member in members),
    }


def _mean(values: Sequence[int]) -> float | None:
    return sum(values) / len(values) if values else None


def _failed(trajectory: Trajectory) -> bool:
    """Return whether a call failed: an error that answers a call of the message before it."""
    waiting: list[str] = []
    for message in trajectory.own_messages:
        if message.role == "assistant":
            waiting = [tool_call.id for tool_call in message.tool_calls]
        elif message.role == "tool" and message.tool_call_id in waiting:
            waiting.remove(message.tool_call_id)
            if message.is_error:
                return True
    return False


def _quantile(values: Sequence[float], share: float) -> float | None:
    if not values:
        return None
    at = (len(values) - 1) * share
    low, high = values[math.floor(at)], values[math.ceil(at)]
    return low + (high - low) * (at - math.floor(at))


def shown(store: Store, *arguments: Any) -> list[dict[str, Any]]:
    """Return the rows of variants, with the sum of the periods' counts in place of the periods."""
    rows = []
    for row in variants(store, *arguments).rows:
        assert sum(p["share"] or 0 for p in row["periods"]) <= len(row["periods"])
        timed = sum(period["count"] for period in row["periods"])
        rows.append({**row, "tools": "\n".join(row["tools"]), "timed": timed})
    return rows


def variants_both_ways(
    store: Store, selection: Selection, scores: Sequence[Score]
) -> tuple[dict[str, Rows], dict[str, Rows]]:
    """Return the variants of SQL and of Python: of all evaluators, of one, and the first alone.

    SQL's rows have only the fields that Python computes.
    """
    chosen = list(store.trajectories.read(selection))
    by_sql, by_python = {}, {}
    for evaluator in (None, "e"):
        rows = expected(chosen, scores, evaluator)
        names = rows[0].keys() if rows else ()
        by_python[evaluator or "all"] = _approximate(rows)
        by_sql[evaluator or "all"] = [
            {name: row[name] for name in names} for row in shown(store, selection, evaluator)
        ]
    by_sql["first"] = shown(store, selection, None, 1)
    by_python["first"] = shown(store, selection)[:1]
    return by_sql, by_python


def _approximate(rows: Rows) -> Rows:
    return [
        {
            name: pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
            for name, value in row.items()
        }
        for row in rows
    ]


@settings(max_examples=8, deadline=None, phases=_PHASES)
@given(RUNS, SCORES)
@pytest.mark.slow
def test_sql_and_python_agree_on_random_runs(
    given_runs: list[dict[str, Any]], given_scores: list[tuple[Any, ...]]
):
    """Counts, verdicts, costs, times and order are those of the runs taken one by one."""
    stored_runs = [replace(run(number), **fields) for number, fields in enumerate(given_runs, 1)]
    scores = [
        score(number, evaluator=name, version=version, passed=passed, rev=rev)
        for number, name, version, passed, rev in given_scores
    ]
    with Store() as store:
        keep(store, *stored_runs)
        store.scores.write(scores)

        by_sql, by_python = variants_both_ways(store, EVERYTHING, scores)

    assert by_sql == by_python
    assert sum(row["count"] for row in by_sql["all"]) == len(stored_runs)


@pytest.mark.slow
def test_sql_and_python_agree_on_all_captures(store: Store):
    """Captured runs are grouped the same way, whatever filters hold."""
    for name in CAPTURES:
        store.spans.write(*capture(name))
    refresh(store)
    runs = list(store.trajectories.read())
    scores = [
        replace(
            score(evaluator="e" if at % 3 else "f", passed=bool(at % 5)),
            trajectory_id=t.id,
            rev=t.rev,
        )
        for at, t in enumerate(runs)
    ]
    store.scores.write(scores)

    assert sum(row["count"] for row in shown(store)) == len(runs) > 100
    for selection in (
        EVERYTHING,
        Selection(since_ns=runs[len(runs) // 3].start_ns),
        Selection(limit=20),
        Selection(conditions=(parse_condition("calls>1"), parse_condition("errors=0"))),
        Selection(conditions=(parse_condition("tool~^get"),), limit=5),
        Selection(attributes={"service.name": ("none",)}),
    ):
        by_sql, by_python = variants_both_ways(store, selection, scores)

        assert by_sql == by_python
        selected = list(store.trajectories.read(selection))
        assert sum(row["count"] for row in by_sql["all"]) == len(selected)


def test_variants_count_the_sequences_of_tools(store: Store):
    """Runs are grouped by the tools they called, most frequent first, with their outcomes."""
    keep(
        store,
        run(1, asks(call("f", {})), asks(call("g", {}))),
        run(2, asks(call("f", {}), call("g", {})), Message("tool", "no", is_error=True)),
        run(3, asks(call("g", {}))),
        run(4),
    )
    store.scores.write(
        [
            score(1),
            score(2, passed=False),
            score(2, evaluator="other"),
            score(3, status="not_evaluated"),
            score(4, passed=None),
        ]
    )

    rows = list(variants(store).rows)
    of_one = list(variants(store, evaluator="e").rows)
    chosen = list(variants(store, Selection(since_ns=3)).rows)

    first = {"tools": ["f", "g"], "count": 2, "share": 0.5, "errors": 1, "passed": 2, "judged": 3}
    assert rows[0].items() >= {**first, "example": run(1).id}.items()
    assert rows[0]["pass_rate"] == pytest.approx(2 / 3)
    assert rows[0]["pass_rate_interval"] == pytest.approx([0.094, 0.992], abs=1e-3)
    assert rows[2]["pass_rate"] is rows[2]["pass_rate_interval"] is None
    assert [row["tools"] for row in rows] == [["f", "g"], ["g"], []]
    assert (of_one[0]["passed"], of_one[0]["judged"]) == (1, 2)
    assert [(row["tools"], row["share"]) for row in chosen] == [(["g"], 0.5), ([], 0.5)]


def test_the_order_of_calls_in_a_message_does_not_count(store: Store):
    """Parallel calls that come in another order are the same variant; later calls are not."""
    f, g = call("f", {}), call("g", {})
    keep(store, run(1, asks(g, f)), run(2, asks(f, g)), run(3, asks(g), asks(f)))

    rows = variants(store).rows

    assert [(row["tools"], row["count"]) for row in rows] == [(["f", "g"], 2), (["g", "f"], 1)]


@pytest.mark.parametrize(
    ("gap_ns", "length_ns", "periods"),
    [(_HOUR, _HOUR, 6), (_DAY, _DAY, 6), (7 * _DAY, _DAY, 36), (60 * _DAY, 7 * _DAY, 44)],
)
def test_the_share_is_counted_by_periods(store: Store, gap_ns: int, length_ns: int, periods: int):
    """Periods are hours, days or weeks, whichever give a series that is not too long."""
    begin = 20_000 * _DAY + 5
    runs = [run(at, start_ns=begin + at * gap_ns, end_ns=begin + at * gap_ns) for at in range(5)]
    keep(store, *runs, run(9, asks(call("f", {})), start_ns=begin + 5 * gap_ns, end_ns=2**62))

    result = variants(store)
    without, with_f = result.rows

    assert (result.runs, result.variants, result.period_ns) == (6, 2, length_ns)
    assert len(with_f["periods"]) == len(without["periods"]) == periods
    assert (with_f["recent_share"], with_f["earlier_share"]) == (1.0, 0.0)
    assert (without["recent_share"], without["earlier_share"]) == (0.0, 1.0)
    assert with_f["periods"][-1]["count"] == 1
    assert [p["count"] for p in without["periods"] if p["share"] is not None] == [1] * 5 + [0]
    first = without["periods"][0]["start_ns"]
    assert first <= begin < first + length_ns


def test_nothing_selected_has_no_variants(store: Store):
    """An empty selection is an empty list, with SQL's conditions as with Python's."""
    keep(store, run(1))

    for chosen in (Selection(agents=("none",)), Selection(asked=(parse_asked("none"),))):
        result = variants(store, chosen)
        assert (result.runs, result.variants, result.period_ns, list(result.rows)) == (0, 0, 0, [])


def test_unfinished_rows_leave_the_store_usable(store: Store):
    """Other queries run while rows are still to be read."""
    keep(store, *(run(at, asks(call(f"f{at}", {}))) for at in range(1, 1500)))

    result = variants(store)
    next(result.rows)

    assert store.trajectories.count() == 1499
    assert sum(1 for _ in result.rows) == 1498
