"""Runs decided by their outlines get the scores that they get when they are read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from oteval.evaluators import EvaluationContext, EvaluationResult, TrajectoryMatch, registry
from oteval.evaluators.checks import Check
from oteval.evaluators.gates import Tally
from oteval.model import Message, OutlineRequest, Reference, Score, ToolCall, Trajectory, Usage
from oteval.model.selection import EVERYTHING
from oteval.scoring import ScoreCounts, decide, evaluation, refresh, score as score_all, score_pages
from oteval.scoring.config import parse_config
from oteval.scoring.score_counts import ListOrder
from oteval.scoring.score_pages import ScorePages
from oteval.store import Store

from ..make import CAPTURES, asks, call, capture, gap, keep, run

CASES = [
    {"role": "user", "content": "x"},
    {"role": "assistant", "tool_calls": [{"name": "f", "args": {"a": 1}}]},
    {"role": "tool", "content": "y", "tool_call_id": ""},
    {"role": "assistant", "tool_calls": [{"name": "g", "args": {"a": [1, 2]}}]},
]
MATCHES = [
    {"name": f"{mode}-{at}", "type": "trajectory_match", "mode": mode, "reference": "r.json", **how}
    for mode in ("strict", "unordered", "subset", "superset", "in_order")
    for at, how in enumerate(
        (
            {"tool_args": "exact"},
            {"tool_args": "ignore"},
            {"tool_args": "exact", "overrides": {"g": "ignore"}, "scope": "conversation"},
        )
    )
]
CHECKS: list[dict[str, Any]] = [
    {"name": "errors", "type": "tool_errors"},
    {"name": "some errors", "type": "tool_errors", "max_errors": 1, "tools": ["f*"]},
    {"name": "lenient", "type": "tool_errors", "missing_ok": True, "scope": "conversation"},
    {"name": "pattern", "type": "tool_errors", "error_pattern": "bad"},
    {"name": "forbidden", "type": "forbidden_tools", "forbidden": ["g*"]},
    {"name": "allowed", "type": "forbidden_tools", "allowed": ["f"], "scope": "conversation"},
    {"name": "order", "type": "tool_order", "rules": ["f before g", "never f after g"]},
    {"name": "latency", "type": "latency", "max": "3s"},
    {"name": "tools", "type": "latency", "max_tool": "1s"},
    {"name": "steps", "type": "budget", "max_steps": 1, "max_tool_calls": 2},
    {"name": "tokens", "type": "budget", "max_total_tokens": 10, "max_model_calls": 2},
    {"name": "cost", "type": "cost", "max_cost": 0.001, "scope": "conversation"},
    {"name": "loops", "type": "loops"},
    {"name": "answer", "type": "final_answer", "expected": "y"},
]
OTHERS: list[dict[str, Any]] = [
    {
        "name": "cases",
        "type": "trajectory_match",
        "mode": "superset",
        "reference": {"dataset": "d.jsonl", "key": "test.case"},
    },
    {**MATCHES[9], "name": "recall", "score_type": "recall", "threshold": 0.5},
    {**MATCHES[0], "name": "ordered", "strict_order": True},
    {**MATCHES[9], "name": "some", "sample": 0.5},
    {**MATCHES[9], "name": "where", "where": {"agent": "b"}},
    {**MATCHES[9], "name": "attributes", "where": {"attributes": {"test.case": ["1"]}}},
    {**MATCHES[3], "name": "writes", "view": "writes", "effect_tools": ["f"]},
    {**MATCHES[9], "name": "several", "reference": {"any": ["short.json", "r.json"]}},
    {
        **MATCHES[3],
        "name": "several cases",
        "reference": {"any": ["r.json", {"dataset": "d.jsonl", "key": "test.case"}]},
    },
]
WORDS = ("y", "Error: no", " \n\tTraceback", "\x1fException", "no Error", '"content":"Error', None)

names = st.sampled_from(["f", "f", "g", "g", "h", "\ud83d", "\\ud83d"])
arguments = st.sampled_from(
    [None, {}, {"a": 1}, {"a": 1}, {"a": 1.0}, {"a": [1, 2]}, {"a": [2, 1]}, "text", {"id": ""},
     {"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": math.nan},
     {"\ude00": "\ud83d"}, {"role": "tool", "content": "Error"}]
)  # fmt: skip
times = st.sampled_from([(0, 0), (1, 3), (2, 4), (5, 6)])
ids = st.sampled_from(["", "1", "2", "3"])
calls = st.builds(
    lambda name, value, call_id, when, span: ToolCall(name, value, call_id, span, *when),
    names,
    arguments,
    ids,
    times,
    st.sampled_from(["", "c" * 16]),
)
results = st.builds(
    lambda text, call_id, error: Message("tool", text, (), call_id, is_error=error),
    st.sampled_from(WORDS),
    ids,
    st.sampled_from([False, False, False, True]),
)


@st.composite
def steps(draw: Callable[[Any], Any]) -> list[Message]:
    """Return a message with calls and, mostly, their results."""
    tool_calls = draw(st.lists(calls, max_size=3))
    answers = [
        Message("tool", draw(st.sampled_from(WORDS)), (), tool_call.id) for tool_call in tool_calls
    ]
    answers = draw(st.sampled_from([answers, answers, answers[:1], answers[::-1]]))
    role = draw(st.sampled_from(["assistant"] * 5 + ["user"]))
    return [Message(role, None, tuple(tool_calls)), *answers]


messages = st.lists(
    st.one_of(
        steps(),
        results.map(lambda message: [message]),
        st.sampled_from([[Message("user", "x")], [Message("assistant", "y")]]),
    ),
    max_size=4,
).map(lambda groups: tuple(message for group in groups for message in group))
usages = st.sampled_from([Usage(), Usage(5, 5, 0, 1), Usage(5, 6, 1, 3)])
gaps = st.lists(
    st.sampled_from(
        [
            *("content_not_captured", "redacted", "missing_parent", "unmatched_tool_span"),
            *("internal_error", "x"),
        ]
    ).map(gap),
    max_size=1,
).map(tuple)  # fmt: skip
runs = st.fixed_dictionaries(
    {
        "tail": messages,
        "usage": usages,
        "gaps": st.one_of(st.just(()), gaps),
        "agent": st.sampled_from(["a", "b"]),
        "models": st.sampled_from([(), ("gpt-4o",), ("gpt-4o", "gpt-4o-mini"), ("unknown",)]),
        "start_ns": st.sampled_from([0, 1, 5, 5]),
        "seconds": st.sampled_from([-1, 1, 5]),
        "attributes": st.sampled_from(
            [{}, *({"test.case": case} for case in ("1", 1, 1.5, None, True))]
        ),
        "follows": st.sampled_from([None, 0, 1]),
        "skips": st.integers(0, 2),
        "old": st.booleans(),
    }
)  # fmt: skip


def trajectories(drawn: Sequence[dict[str, Any]]) -> list[Trajectory]:
    """Return runs of what was drawn; one may follow an earlier one of its conversation."""
    drawn_runs: list[Trajectory] = []
    for number, drawn_run in enumerate(drawn, 1):
        run_fields = dict(drawn_run)
        tail, follows, skips, seconds, old = map(
            run_fields.pop, ("tail", "follows", "skips", "seconds", "old")
        )
        history = drawn_runs[follows] if follows is not None and follows < len(drawn_runs) else None
        before = len(history.messages) if history else 0
        start = before - (1 if old and before else 0) + min(skips, len(tail))
        end = run_fields["start_ns"] + seconds * 10**9
        drawn_runs.append(
            run(number, *tail, history=history, new_from=start, end_ns=end, **run_fields)
        )
    return drawn_runs


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Return a folder with the references."""
    (tmp_path / "r.json").write_text(json.dumps(CASES))
    (tmp_path / "short.json").write_text(json.dumps(CASES[2:]))
    lines = [{"test.case": case, "messages": CASES[:at]} for at, case in enumerate(["1", "2"], 2)]
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return tmp_path


def stored(store: Store) -> list[dict[str, Any]]:
    """Return all fields of the stored scores, in the order of storage, but not their times."""
    rows = store._connection.sql("SELECT * FROM scores ORDER BY seq").to_arrow_table().to_pylist()
    store._connection.execute("DELETE FROM scores")
    return [{name: value for name, value in row.items() if name != "time_ns"} for row in rows]


def said(score: Score) -> Any:
    """Return all fields of a score but its time."""
    return [repr(getattr(score, f.name)) for f in fields(Score) if f.name not in ("_", "time_ns")]


@pytest.fixture
def read_all(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Return a function that turns the decision by outlines off or on."""
    request_of = decide._request_of

    def switch(off: bool) -> None:
        chosen = (lambda *_: None) if off else request_of
        monkeypatch.setattr(decide, "_request_of", chosen)

    return switch


class Outcome(NamedTuple):
    """The result of scoring a store: the stored and the yielded scores, and their counts."""

    rows: list[dict[str, Any]]
    yielded: list[Any]
    tallies: dict[str, Tally]
    list_order: dict[str, ListOrder]


def scored_both_ways(
    store: Store,
    base: Path,
    switch: Callable[[bool], None],
    rules: Sequence[dict[str, Any]],
) -> tuple[Outcome, Outcome]:
    """Return the outcome of reading every run, and that of deciding runs by their outlines."""
    config = parse_config(json.dumps({"evaluators": list(rules)}))

    def scored() -> Outcome:
        counts = ScoreCounts()
        yielded = list(map(said, score_all(store, config, base, run=counts)))
        return Outcome(stored(store), yielded, counts.tallies, counts.list_order)

    switch(True)
    read = scored()
    switch(False)
    return read, scored()


@pytest.mark.parametrize("examples", [4, pytest.param(60, marks=pytest.mark.slow)])
def test_random_runs_get_equal_scores_both_ways(
    base: Path, read_all: Callable[[bool], None], examples: int
):
    """Every field of every score is the same, whether runs are read or decided by outlines."""

    @settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(runs, min_size=1, max_size=6))
    def compare(drawn: list[dict[str, Any]]) -> None:
        with Store() as store:
            stored_runs = trajectories(drawn)
            keep(store, *stored_runs)
            first = {"reference": {"trajectory": stored_runs[0].id}}

            read, by_outlines = scored_both_ways(
                store, base, read_all, [*({**m, **first} for m in MATCHES), *CHECKS, *OTHERS]
            )

            assert by_outlines == read
            assert len(read.rows) > 0

    compare()


@pytest.mark.parametrize("references", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_captured_runs_get_equal_scores_both_ways(
    store: Store, base: Path, read_all: Callable[[bool], None], references: int
):
    """Captured runs get the same scores both ways, matched with some of the others."""
    for name in CAPTURES:
        store.spans.write(*capture(name))
    refresh(store)
    ids = [trajectory.id for trajectory in store.trajectories.read() if trajectory.own_messages]

    for name in ids[:: len(ids) // references][:references]:
        reference = {"trajectory": name}
        read, by_outlines = scored_both_ways(
            store, base, read_all, [*({**m, "reference": reference} for m in MATCHES), *CHECKS]
        )

        assert by_outlines == read
        assert len(read.rows) > 0


def decided(store: Store, base: Path, *rules: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """Yield, for each rule, how many runs it decides and how many must be read as a whole."""
    config = parse_config(json.dumps({"evaluators": rules}))
    deciders = [
        decide.Decider(evaluator, "") for evaluator in evaluation.prepare(config, store, base)
    ]
    with ScorePages(store, deciders, ()) as pages:
        (page,) = pages.read(EVERYTHING)
        for decision in page.decided:
            yield len(decision.rows), len(decision.undecided)


def test_the_usual_runs_are_decided_without_their_messages(store: Store, base: Path):
    """Passes are decided by columns, and fails by the arguments that their comments show."""
    right, wrong = call("f", {"a": 1}, "1"), call("f", {"a": 2}, "1")
    tool_result = Message("tool", "found", (), "1")
    keep(
        store,
        run(1, asks(right), tool_result, usage=Usage(5, 5)),
        run(2, asks(wrong), tool_result, usage=Usage(50, 5)),
        run(3, asks(call("h", {"a": 3}, "1")), tool_result, usage=Usage(5, 6)),
        run(4, asks(right), Message("tool", "Error: no", (), "1"), usage=Usage(5, 6)),
    )
    (base / "r.json").write_text(json.dumps(CASES[:2]))
    superset = {"type": "trajectory_match", "reference": "r.json", "mode": "superset"}
    rules = [
        {"name": "m", **superset},
        {"name": "e", "type": "tool_errors"},
        {"name": "b", "type": "budget", "max_total_tokens": 10},
        {"name": "l", "type": "latency", "max": "1s"},
        {"name": "o", "type": "tool_order", "rules": ["f before g"]},
    ]

    assert list(decided(store, base, *rules)) == [(4, 0), (3, 1), (4, 0), (4, 0), (4, 0)]


def test_runs_with_the_same_failing_call_are_evaluated_once(
    store: Store, base: Path, read_all: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
):
    """Arguments that the comment does not show make no difference; those that it shows do."""
    evaluated: list[object] = []
    evaluate = TrajectoryMatch.evaluate_outline
    monkeypatch.setattr(
        TrajectoryMatch,
        "evaluate_outline",
        lambda self, context: evaluated.append(0) or evaluate(self, context),
    )
    failing_runs = [
        run(number, asks(call("g", {"id": number})), asks(call("f", {"a": 2 + number % 2})))
        for number in range(1, 9)
    ]
    keep(store, *failing_runs)
    (base / "r.json").write_text(json.dumps(CASES[:2]))
    rule = {"name": "m", "type": "trajectory_match", "reference": "r.json", "mode": "superset"}

    read, by_outlines = scored_both_ways(store, base, read_all, [rule])

    assert by_outlines == read
    # Once without arguments, and once for each of the two that differ.
    assert len(evaluated) == 3


def test_passes_that_are_not_yielded_are_stored_and_counted(
    store: Store, base: Path, monkeypatch: pytest.MonkeyPatch
):
    """Without passes, fails are yielded in their order; all scores are stored in order."""
    monkeypatch.setattr(score_pages, "_RUNS", 3)
    tails = [(asks(call("f", {"a": number % 3})),) for number in range(10)]
    keep(store, *(run(number, *tail) for number, tail in enumerate(tails, 1)))
    (base / "r.json").write_text(json.dumps(CASES[:2]))
    rules = [
        {"name": "m", "type": "trajectory_match", "reference": "r.json", "mode": "superset"},
        {"name": "forbidden", "type": "forbidden_tools", "forbidden": ["g"]},
    ]
    config, counts = parse_config(json.dumps({"evaluators": rules})), ScoreCounts()

    yielded = list(score_all(store, config, base, run=counts, yields_passes=False))

    expected = [(run(number).id, name) for number in range(1, 11) for name in ("m", "forbidden")]
    assert [score.passed for score in yielded] == [False] * 7
    assert [(row["trajectory_id"], row["evaluator"]) for row in stored(store)] == expected
    assert (counts.tallies["m"].passed, counts.tallies["m"].failed) == (3, 7)
    assert (counts.tallies["forbidden"].passed, counts.trajectories) == (10, 10)


def test_a_reference_may_name_half_of_a_surrogate_pair(
    store: Store, base: Path, read_all: Callable[[bool], None]
):
    """A comment with such a name is stored as it is for runs that are read."""
    (base / "r.json").write_text(json.dumps([asks(call("f\ud83d", {})).as_dict()]))
    keep(store, run(1, asks(call("f", {}))))
    rule = {"name": "m", "type": "trajectory_match", "mode": "superset", "tool_args": "ignore"}

    read, by_outlines = scored_both_ways(store, base, read_all, [{**rule, "reference": "r.json"}])

    assert by_outlines == read
    assert len(read.rows) == 1


def test_stored_verdicts_are_used_again_and_others_decided(store: Store, base: Path):
    """With `reuse_all`, only runs without a verdict, or changed since, get a new score."""
    rules = [{"name": "forbidden", "type": "forbidden_tools", "forbidden": ["g"]}]
    config = parse_config(json.dumps({"evaluators": rules}))
    keep(store, run(1, asks(call("f"))), run(2, asks(call("g"))))
    list(score_all(store, config, base))
    keep(store, run(2, asks(call("f"))), run(3, asks(call("f"))))
    counts = ScoreCounts()

    yielded = list(score_all(store, config, base, run=counts, reuse_all=True))

    assert [(score.trajectory_id, score.rev) for score in yielded] == [
        (run(1).id, 1),
        (run(2).id, 2),
        (run(3).id, 1),
    ]
    assert (counts.reused, len(stored(store))) == (1, 4)


def test_a_served_store_is_scored_alike(tmp_path: Path, base: Path):
    """Outlines are read, and their scores written, through the socket of a server as well."""
    rules = [*MATCHES[:3], CHECKS[0], CHECKS[9]]
    config = parse_config(json.dumps({"evaluators": rules}))
    with Store(tmp_path / "a.duckdb") as owner:
        keep(owner, *(run(number, asks(call("f", {"a": number}))) for number in range(1, 4)))
        serving = owner.serve(lambda _: b"", {})
        with Store(owner.path) as client:
            client_scores = list(map(said, score_all(client, config, base)))
        serving.close()
        rows = stored(owner)
        owner_scores = list(map(said, score_all(owner, config, base)))

        assert rows == stored(owner)
    assert client_scores == owner_scores


@dataclass(frozen=True, kw_only=True)
class Answered(Check):
    """Another package's check, which knows no outlines."""

    type: ClassVar[str] = "answered"

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Pass a run that ends with text."""
        return self.result([] if context.messages[-1].content else ["no answer"], {})


@dataclass(frozen=True, kw_only=True)
class Outlined(Answered):
    """The same, which asks for an outline that does not have the text."""

    type: ClassVar[str] = "outlined"

    def outline_request(self, references: Sequence[Reference]) -> OutlineRequest:
        """Return a request without further facts."""
        return OutlineRequest()


class Inverted(TrajectoryMatch):
    """A match that passes where its parent fails, but inherits its outline form."""

    type: ClassVar[str] = "inverted"

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Return the opposite verdict."""
        return EvaluationResult.of_verdict(not super().evaluate(context).passed)


def test_evaluators_of_other_packages_work_without_outlines(
    store: Store,
    base: Path,
    read_all: Callable[[bool], None],
    monkeypatch: pytest.MonkeyPatch,
):
    """A check that knows no outlines, or reads more than its outline has, sees the whole run."""
    entries = {
        name: (EntryPoint(name, f"{__name__}:{name.title()}", registry.GROUP),)
        for name in ("answered", "outlined", "inverted")
    }
    monkeypatch.setattr(registry, "announced_evaluators", lambda: entries)
    keep(store, run(1, asks(call("f"), text="y")), run(2, asks(call("f", {"a": 1}))))
    rules = [
        {"name": "answered", "type": "answered"},
        {"name": "outlined", "type": "outlined"},
        {"name": "inverted", "type": "inverted", "mode": "superset", "reference": "r.json"},
    ]

    read, by_outlines = scored_both_ways(store, base, read_all, rules)

    assert by_outlines == read
    config = parse_config(json.dumps({"evaluators": rules}))
    passeds = [score.passed for score in score_all(store, config, base)]
    assert passeds == [True, True, True, False, False, True]
