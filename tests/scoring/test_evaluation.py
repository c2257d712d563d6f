from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from oteval.base.errors import ConfigError
from oteval.evaluators.functions import code_version, load_function
from oteval.model import Message, Score
from oteval.model.selection import Selection
from oteval.scoring import ScoreCounts, check_gates, evaluation, prepare, score as score_all
from oteval.scoring.config import parse_config
from oteval.store import Store

from ..make import asks, call, gap, keep, run

Module = Callable[[str], str]
REFERENCE = [
    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1}'}}]}
]
FITS = asks(call("f", {"a": 1}, "1", span_id="c" * 16))
CONVERSATION = (Message("user", "hi"), FITS)


@pytest.fixture(autouse=True)
def reference(tmp_path: Path) -> Path:
    """Write the reference that the configurations name."""
    path = tmp_path / "r.json"
    path.write_text(json.dumps(REFERENCE))
    return path


def rule(name: str = "e", **fields: Any) -> dict[str, Any]:
    """Return a match rule."""
    defaults = {"type": "trajectory_match", "mode": "superset", "reference": "r.json"}
    return {"name": name, **defaults, **fields}


def python(module: str, function: str = "check", name: str = "e", **fields: Any) -> dict[str, Any]:
    """Return a rule that calls a function."""
    return {"name": name, "type": "python", "call": f"{module}:{function}", **fields}


def scored(
    store: Store,
    base: Path,
    *rules: dict[str, Any],
    run: ScoreCounts | None = None,
    selection: Selection = Selection(),  # noqa: B008
    **more: Any,
) -> list[Score]:
    """Return the scores of a configuration, and assert that the store has them."""
    config = parse_config(json.dumps({"evaluators": rules, **more}))
    scores = list(score_all(store, config, base, selection, run))
    stored = [said(score) for score in store.scores.read()]
    assert all(said(score) in stored for score in scores[:20])
    return scores


def said(score: Score) -> str:
    """Return a score's fields; tuples in its metadata become lists, as in the store."""
    return json.dumps(asdict(score))


def version(store: Store, base: Path, *rules: dict[str, Any]) -> str:
    """Return the version of the first rule."""
    config = parse_config(json.dumps({"evaluators": rules}))
    return prepare(config, store, base)[0].scorer.version


def test_passes_and_fails_are_scored_with_their_reasons(store: Store, tmp_path: Path):
    """A pass has no comment, a fail names the difference; both have figures and the rate."""
    keep(store, run(1, *CONVERSATION), run(2, asks(call("f", {"a": 2}))))

    passing, failing = scored(store, tmp_path, rule())

    assert (passing.status, passing.passed, passing.score, passing.label, passing.comment) == (
        "ok",
        True,
        1.0,
        "pass",
        "",
    )
    assert (failing.status, failing.passed, failing.score, failing.label) == (
        "ok",
        False,
        0.0,
        "fail",
    )
    assert "argument 'a' is 2 in the output, 1 in the reference" in failing.comment
    assert (failing.metadata["missing"], failing.metadata["extra"], failing.sample_p) == (1, 1, 1.0)
    assert (passing.trace_id, passing.span_id) == (
        run(1).root_span.trace_id,
        run(1).root_span.span_id,
    )


@pytest.mark.parametrize(
    ("trajectory", "reason"),
    [
        (run(1), "the run has no messages"),
        (run(1, gaps=(gap(),)), "content_not_captured: why"),
        (run(1, Message("user", "x"), gaps=(gap("redacted"),)), "redacted: why"),
        (
            run(1, asks(call("f", span_id="c" * 16))),
            "the arguments of f are not in the trace",
        ),
        (
            run(1, asks(call("f", span_id="c" * 16), call("f")), gaps=(gap(),)),
            "the arguments of f are not in the trace (content_not_captured: why)",
        ),
    ],
    ids=["nothing", "nothing and why", "content gap", "arguments", "arguments and why"],
)
def test_what_the_trace_does_not_hold_is_not_evaluated(
    store: Store, tmp_path: Path, trajectory: Any, reason: str
):
    """A verdict that needs missing content is `not_evaluated`, with the reason as its comment."""
    keep(store, trajectory)

    (score,) = scored(store, tmp_path, rule())

    assert (score.status, score.score, score.passed) == ("not_evaluated", None, None)
    assert score.comment == reason


def test_a_fail_whatever_was_not_captured_is_a_fail(store: Store, tmp_path: Path):
    """Unknown arguments excuse only the differences that they may have caused."""
    unknown = call("g", span_id="c" * 16)
    keep(store, run(1, asks(unknown, call("f", {"a": 2}))), run(2, asks(unknown)))

    scores = scored(store, tmp_path, rule())

    assert [s.status for s in scores] == ["ok", "ok"]
    assert [s.passed for s in scores] == [False, False]


def test_an_attribute_names_the_case_of_a_run(store: Store, tmp_path: Path):
    """Each run is compared with its case; runs without a case, or of another, are not evaluated."""
    cases = [{"case": 1, "messages": REFERENCE}, {"case": "b\u2028", "messages": []}]
    (tmp_path / "d.jsonl").write_text("\n\n".join(json.dumps(c, ensure_ascii=False) for c in cases))
    keep(
        store,
        run(1, *CONVERSATION, attributes={"case": "1"}),
        run(2, *CONVERSATION, attributes={"case": "b\u2028"}),
        run(3, *CONVERSATION, attributes={"case": "c"}),
        run(4, *CONVERSATION),
    )

    scores = scored(
        store, tmp_path, rule(mode="unordered", reference={"dataset": "d.jsonl", "key": "case"})
    )

    assert [(s.status, s.passed) for s in scores] == [
        ("ok", True),
        ("ok", False),
        ("not_evaluated", None),
        ("not_evaluated", None),
    ]
    assert scores[2].comment == "d.jsonl has no case 'c'"
    assert scores[3].comment == "the run has no attribute 'case' that names its case"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "d.jsonl: holds no cases"),
        ('{"case": 1}', "d.jsonl:1: a case needs 'case' and 'messages'"),
        ('\n{"case": 1,', "d.jsonl:2: not valid JSON"),
        ('{"case": 1, "messages": [{"role": "x"}]}', "d.jsonl:1: messages[0]: unknown role 'x'"),
        (
            '{"case":1,"messages":[]}\n{"case":"1","messages":[]}',
            "d.jsonl:2: case '1' occurs twice",
        ),
    ],
)
def test_a_broken_dataset_is_refused_with_its_line(
    store: Store, tmp_path: Path, text: str, reason: str
):
    """The error names the evaluator, the file and the line."""
    (tmp_path / "d.jsonl").write_text(text)

    with pytest.raises(ConfigError) as caught:
        version(store, tmp_path, rule(reference={"dataset": "d.jsonl", "key": "case"}))

    assert "evaluator 'e': " in str(caught.value)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"reference": "none.json"}, "none.json: no such file"),
        ({"reference": {"name": "none"}}, "no reference 'none'; oteval reference list shows them"),
        ({"reference": {"trajectory": "none"}}, "no trajectory 'none'"),
    ],
)
def test_a_rule_that_cannot_be_prepared_is_named(
    store: Store, tmp_path: Path, fields: dict[str, Any], reason: str
):
    """Errors that show only when the rule is prepared are configuration errors."""
    with pytest.raises(ConfigError) as caught:
        version(store, tmp_path, rule(**fields))

    assert "evaluator 'e': " in str(caught.value)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"overrides": {"f": "exactly"}}, "exactly"),
        ({"error_pattern": "("}, "error_pattern"),
    ],
)
def test_an_option_that_is_wrong_is_named_with_its_line(
    store: Store, tmp_path: Path, fields: dict[str, Any], reason: str
):
    """Settings that the evaluator's class refuses are configuration errors."""
    with pytest.raises(ConfigError) as caught:
        version(store, tmp_path, rule(**fields))

    assert str(caught.value).startswith("oteval.yaml:1: evaluator 'e': ")
    assert reason in str(caught.value)


def test_stored_references_are_held_against(store: Store, tmp_path: Path):
    """A trajectory, or a name given to one, means its own messages."""
    before = run(1, asks(call("g", {})))
    reference = run(2, *CONVERSATION, history=before, new_from=1)
    keep(store, before, reference, run(3, *CONVERSATION))
    store.references.add("kept", reference.own_messages, reference.id, 1)

    scores = scored(
        store,
        tmp_path,
        rule("one", mode="strict", reference={"trajectory": reference.id[:8]}),
        rule("two", mode="strict", reference={"name": "kept"}),
        selection=Selection(ids=(run(3).id,)),
    )

    assert [(s.evaluator, s.passed) for s in scores] == [("one", True), ("two", True)]


def test_a_reference_without_arguments_gives_no_verdict(store: Store, tmp_path: Path):
    """A reference without captured arguments decides nothing that depends on them."""
    keep(store, run(1, asks(call("f", {}))), run(2, asks(call("g", {}))))
    store.references.add("kept", [asks(call("f"))], "", 1)

    undecided, failing = scored(store, tmp_path, rule(reference={"name": "kept"}))

    assert (undecided.status, undecided.comment) == (
        "not_evaluated",
        "the arguments of f are not in the reference",
    )
    assert (failing.status, failing.passed) == ("ok", False)


def test_a_threshold_makes_a_figure_a_verdict(store: Store, tmp_path: Path):
    """With score_type f1 the score is the figure, and passes from the threshold on."""
    keep(store, run(1, asks(call("f", {"a": 1}), call("g", {}))))

    scores = scored(
        store,
        tmp_path,
        rule("low", score_type="f1", threshold=0.6),
        rule("high", score_type="f1", threshold=0.7),
    )

    assert [(round(s.score or 0, 3), s.passed) for s in scores] == [(0.667, True), (0.667, False)]


def test_functions_get_what_they_ask_for(store: Store, tmp_path: Path, module: Module):
    """Outputs and reference are OpenAI messages, the input is the first user message."""
    name = module(
        "def check(*, outputs, reference_outputs, inputs, trajectory):\n"
        "    assert outputs[1]['tool_calls'][0]['function']['name'] == 'f'\n"
        "    assert reference_outputs[0]['tool_calls'][0]['function']['name'] == 'f'\n"
        "    assert (inputs, trajectory.agent) == ('hi', 'a')\n"
        "    return {'score': 0.5, 'comment': 'so', 'label': 'half', 'metadata': {'a': 1}}\n"
    )
    keep(store, run(1, *CONVERSATION))

    (score,) = scored(store, tmp_path, python(name, reference="r.json"))

    assert (score.status, score.score, score.passed, score.label) == ("ok", 0.5, None, "half")
    assert (score.comment, score.metadata) == ("so", {"a": 1})


BAD = """
import sys, threading
gate = threading.Event()
def good(outputs): return True
def raises(outputs): raise ValueError("no idea")
def exits(outputs): sys.exit(3)
def nonsense(outputs): return object()
def nothing(outputs): return None
def nan(outputs): return float("nan")
def infinite(outputs): return {"score": float("inf")}
def no_score(outputs): return {"comment": "x"}
def bad_metadata(outputs): return {"score": 1, "metadata": "text"}
def endless(outputs):
    metadata = {}
    metadata["self"] = metadata
    return {"score": 1, "metadata": metadata}
def asks_for_more(outputs, temperature): return True
def hangs(outputs): gate.wait()
async def is_async(outputs): return False
async def is_cancelled(outputs):
    import asyncio
    raise asyncio.CancelledError
"""
REASONS = {
    "raises": "ValueError: no idea",
    "exits": "SystemExit: 3",
    "nonsense": "which is not a score",
    "nothing": "returned None, which is not a score",
    "nan": "returned nan, which is not a score",
    "infinite": "returned inf, which is not a score",
    "no_score": "returned a dict without 'score': {'comment': 'x'}",
    "bad_metadata": "returned metadata that is not a dict: 'text'",
    "endless": "Circular reference",
    "asks_for_more": "missing 1 required positional argument: 'temperature'",
    "hangs": "TimeoutError: no answer within 0.05 s",
    "is_cancelled": "CancelledError",
}


def test_a_function_that_fails_is_an_error_and_the_others_stand(
    store: Store, tmp_path: Path, module: Module
):
    """Whatever a function does, its score is an error without a number; the rest is scored."""
    name = module(BAD)
    keep(store, run(1, *CONVERSATION))
    rules = [python(name, bad, bad, timeout="50ms" if bad == "hangs" else None) for bad in REASONS]

    scores = scored(
        store,
        tmp_path,
        *rules,
        python(name, "good", "good", timeout="1m"),
        python(name, "is_async", "async"),
    )

    __import__(name).gate.set()
    by_name = {s.evaluator: s for s in scores}
    assert by_name["good"].passed
    assert by_name["async"].passed is False
    for bad, reason in REASONS.items():
        assert by_name[bad].status == "error", bad
        assert by_name[bad].score is None
        assert reason in by_name[bad].comment


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("no_such_module_here:check", "cannot import no_such_module_here: ModuleNotFoundError"),
        ("json:no_function", "json has no function 'no_function'"),
        ("json:__name__", "json has no function '__name__'"),
    ],
)
def test_a_function_that_is_not_there_is_a_configuration_error(
    store: Store, tmp_path: Path, call: str, reason: str
):
    """The error names the evaluator, the call and the problem."""
    with pytest.raises(ConfigError) as caught:
        version(store, tmp_path, {"name": "e", "type": "python", "call": call})

    assert f"evaluator 'e': call {call!r}: {reason}" in str(caught.value)


def test_where_and_not_choose_what_is_scored(store: Store, tmp_path: Path):
    """Each evaluator looks at its own trajectories among the selected ones."""
    keep(
        store,
        run(1, *CONVERSATION, agent="x", attributes={"env": "prod"}),
        run(2, *CONVERSATION, agent="x", attributes={"env": "dev"}),
        run(3, *CONVERSATION, agent="y", attributes={"env": "prod"}),
        run(4, *CONVERSATION, agent="y", service="other"),
    )
    rules = (
        rule("agent", where={"agent": "x"}),
        rule("list", where={"agent": ["x", "z"], "attributes": {"env": "prod"}}),
        rule("not", where={"not": {"attributes": {"env": ["dev", "prod"]}}}),
        rule("condition", where={"conditions": ["calls>0"], "service": "s"}),
    )

    scores = scored(store, tmp_path, *rules, selection=Selection(since_ns=2))

    numbers = {t.id: t.start_ns for t in store.trajectories.read()}
    by_rule: dict[str, list[int]] = {}
    for score in scores:
        by_rule.setdefault(score.evaluator, []).append(numbers[score.trajectory_id])
    assert by_rule == {"agent": [2], "not": [4], "condition": [2, 3]}


def test_sampling_draws_the_same_traces_near_its_rate(store: Store, tmp_path: Path):
    """A rate selects about its share, always the same; another salt or name selects others."""
    keep(store, *(run(number, *CONVERSATION) for number in range(1, 1001)))

    def drawn(name: str = "e", sample: float = 0.2, **more: Any) -> set[str]:
        scores = scored(store, tmp_path, rule(name, sample=sample), **more)
        assert {s.sample_p for s in scores} <= {sample}
        return {s.trajectory_id for s in scores}

    first = drawn()

    assert 150 < len(first) < 250
    assert drawn() == first
    assert first < drawn(sample=0.5)
    assert drawn(salt="other") != first
    assert drawn("f") != first
    assert (len(drawn(sample=0.0)), len(drawn(sample=1.0))) == (0, 1000)


def test_the_scope_is_the_turn_or_the_conversation(store: Store, tmp_path: Path):
    """A turn is judged by its own messages, a conversation by all up to its end."""
    first = run(1, *CONVERSATION)
    keep(store, first, run(2, Message("user", "more"), history=first, new_from=2))

    scores = scored(store, tmp_path, rule("turn"), rule("all", scope="conversation"))

    assert [(s.evaluator, s.passed) for s in scores] == [
        ("turn", True),
        ("all", True),
        ("turn", False),
        ("all", True),
    ]


def test_a_version_stays_while_nothing_changes(store: Store, tmp_path: Path):
    """The same rule has the same version, whatever its name and its filters."""
    first = version(store, tmp_path, rule())

    assert version(store, tmp_path, rule("other", where={"agent": "x"}, sample=0.5)) == first


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "subset"},
        {"tool_args": "ignore"},
        {"overrides": {"f": ["a"]}},
        {"view": "writes", "effect_tools": ["f"]},
        {"error_pattern": "no"},
        {"score_type": "f1"},
        {"threshold": 0.5},
        {"strict_order": True},
        {"scope": "conversation"},
        {"reference": "other.json"},
    ],
)
def test_a_version_changes_with_the_configuration(
    store: Store, tmp_path: Path, fields: dict[str, Any]
):
    """Everything that the verdict depends on is in the version."""
    (tmp_path / "other.json").write_text("[]")

    assert version(store, tmp_path, rule(**fields)) != version(store, tmp_path, rule())


def test_a_version_changes_with_the_reference(store: Store, tmp_path: Path, reference: Path):
    """The version depends on the file's content, not on its formatting."""
    first = version(store, tmp_path, rule())
    reference.write_text(json.dumps(REFERENCE, indent=4))
    assert version(store, tmp_path, rule()) == first

    reference.write_text("[]")

    assert version(store, tmp_path, rule()) != first


def test_a_version_changes_with_the_code(store: Store, tmp_path: Path, module: Module):
    """Another body of the function is another version."""
    original = module("def check(outputs):\n    return True\n")
    changed = module("def check(outputs):\n    return False\n")
    same = module("# moved\ndef check(outputs):\n    return True\n")

    versions = [version(store, tmp_path, python(name)) for name in (original, changed, same)]
    functions = [prepare_digest(store, tmp_path, name) for name in (original, changed, same)]

    assert versions[0] != versions[1]
    assert functions[0] == functions[2] != functions[1]


def prepare_digest(store: Store, base: Path, module: str) -> str:
    """Return the digest of a function's code."""
    return code_version(load_function(f"{module}:check"))


def test_the_scores_of_another_version_replace_those_before(store: Store, tmp_path: Path):
    """Scoring again replaces a score, also with another rule; both versions stay stored."""
    keep(store, run(1, *CONVERSATION))
    scored(store, tmp_path, rule())
    scored(store, tmp_path, rule())
    assert len(list(store.scores.read())) == 1

    scored(store, tmp_path, rule(mode="subset"))

    assert len(store.scores.versions(rule()["name"])) == 2
    assert [score.version for score in store.scores.read()] == store.scores.versions(
        rule()["name"]
    )[:1]


def test_scores_until_ctrl_c_are_kept(store: Store, tmp_path: Path):
    """An interruption in the middle of a page loses no finished score."""
    keep(store, *(run(number, *CONVERSATION) for number in range(1, 6)))
    config = parse_config(json.dumps({"evaluators": [rule()]}))

    scores = score_all(store, config, tmp_path)
    yielded = [next(scores), next(scores)]
    scores.close()

    assert list(map(said, store.scores.read())) == list(map(said, yielded))


def test_pages_of_scores_are_kept_as_they_fill(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """More scores than a page holds are all kept."""
    monkeypatch.setattr(evaluation, "_PAGE", 2)
    keep(store, *(run(number, *CONVERSATION) for number in range(1, 6)))

    assert len(scored(store, tmp_path, rule())) == 5


def test_a_run_counts_what_happened(store: Store, tmp_path: Path):
    """Tallies are by evaluator in the configuration's order, also of evaluators without runs."""
    keep(store, run(1, *CONVERSATION), run(2), run(3, Message("user", "x")))
    counted = ScoreCounts()

    scored(store, tmp_path, rule("b"), rule("a", where={"agent": "none"}), run=counted)

    assert list(counted.tallies) == ["b", "a"]
    b = counted.tallies["b"]
    assert (b.passed, b.failed, b.not_evaluated, b.errors) == (1, 1, 1, 0)
    assert (counted.trajectories, counted.evaluated) == (3, 2)


def test_gates_are_checked_over_a_run(store: Store, tmp_path: Path):
    """A gate depends on the counts of its evaluator; one without scores fails."""
    keep(store, run(1, *CONVERSATION), run(2, Message("user", "x")))
    counted = ScoreCounts()
    rules = [rule("half"), rule("none", where={"agent": "none"})]
    gates = [
        {"evaluator": "half", "min_pass_rate": 0.5},
        {"evaluator": "half", "min_pass_rate": 0.6},
        {"evaluator": "none"},
    ]
    scored(store, tmp_path, *rules, run=counted, gates=gates)

    config = parse_config(json.dumps({"evaluators": rules, "gates": gates}))

    assert [gate.passed for gate in check_gates(config.gates, counted.tallies)] == [
        True,
        False,
        False,
    ]
