"""Absent evidence is never a verdict: each evaluator on runs with unobserved parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import oteval
from oteval import Store, evaluate
from oteval.evaluators.judge.client import OUTPUT_MODE_MEMORY
from oteval.evaluators.registry import evaluator_types
from oteval.ingest.conversations.conversation_file import ConversationFile
from oteval.model import Gap, Message, Trajectory, Usage
from oteval.scoring.config import parse_config
from oteval.scoring.experiments import configured

from ...make import asks, call, gap, run
from ...model_server import Server, serving, verdict

QUESTION, ANSWER = Message("user", "Is it done?"), Message("assistant", "It is done.")
LOOK_UP = call("look_up", {"order": 7}, "c1", span_id="c" * 16, start_ns=10, end_ns=20)
WHOLE = (QUESTION, asks(LOOK_UP), Message("tool", "yes", tool_call_id="c1"), ANSWER)
TOOLS = ({"name": "look_up", "parameters": {"type": "object"}},)
OBSERVED = run(
    1,
    *WHOLE,
    usage=Usage(input_tokens=10, output_tokens=5, model_calls=2),
    models=("m",),
    finish_reasons=("tool_call", "stop"),
    start_ns=1,
    end_ns=10**9,
    steps=(("agent",),),
    tools=TOOLS,
)
PLAIN = [message.as_dict() for message in WHOLE]
OUTPUTS = {
    "text": ANSWER.content,
    "answer": ANSWER.as_dict(),
    "list": [ANSWER.as_dict()],
    "nothing": {"answer": ANSWER.content},
    "hidden": run(2, QUESTION, ANSWER, gaps=(gap("content_not_captured"),), start_ns=0, end_ns=0),
    "no_models": run(3, QUESTION, ANSWER, gaps=(gap("no_model_spans"),), start_ns=0, end_ns=0),
    "messages": PLAIN,
    "observed": OBSERVED,
}
CALLS = "nnnnnnpp"  # n: not evaluated, p: pass, f: fail; for the outputs above
RUN = "nnnnnnnp"
MATRIX: list[tuple[str, dict[str, Any], str]] = [
    ("tool_errors", {}, CALLS),
    ("tool_errors", {"missing_ok": True}, CALLS),
    ("tool_order", {"rules": ["look_up before refund"]}, CALLS),
    ("forbidden_tools", {"forbidden": ["delete_*"]}, CALLS),
    ("loops", {}, CALLS),
    ("recovered", {}, "nnnnnnnn"),
    ("tool_schema", {"definitions": "tools.json"}, CALLS),
    ("budget", {"max_steps": 3}, CALLS),
    ("budget", {"max_tool_calls": 3}, CALLS),
    ("budget", {"max_model_calls": 3}, RUN),
    ("budget", {"max_total_tokens": 30}, RUN),
    ("cost", {"max_cost": 1, "prices": {"m": {"input": 1, "output": 1}}}, RUN),
    ("latency", {"max": "2s"}, RUN),
    ("latency", {"max_tool": "2s"}, RUN),
    ("finish_reason", {}, RUN),
    ("required_text", {"texts": ["done"]}, "pppnpppp"),
    ("required_text", {"texts": ["cat"]}, "fffnnfff"),
    ("required_text", {"texts": ["cat"], "match": "none"}, "pppnnppp"),
    ("required_text", {"texts": ["cat"], "match": "none", "said_by": "tool"}, "nnnnnppp"),
    ("required_text", {"texts": ["done"], "match": "none", "said_by": "user"}, "fffnffff"),
    ("final_answer", {"expected": "It is done."}, "pppnpppp"),
    ("trajectory_match", {"mode": "superset", "reference": "wanted.json"}, CALLS),
    ("trajectory_match", {"mode": "subset", "reference": "wanted.json"}, CALLS),
    ("graph_match", {"reference": "steps.json"}, RUN),
    ("judge", {"model": "openai:m"}, "nnnnnnpp"),
    ("judge", {"model": "openai:m", "prompt": "conciseness"}, "pppnnppp"),
]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Return a server whose model always passes."""
    OUTPUT_MODE_MEMORY.clear()
    with serving(lambda _, __: verdict(score=True)) as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        yield running


def letter(status: str, passed: bool | None) -> str:
    return {("ok", True): "p", ("ok", False): "f", ("not_evaluated", None): "n"}[status, passed]


@pytest.mark.parametrize(("kind", "options", "expected"), MATRIX)
def test_what_was_not_observed_is_not_evaluated(
    store: Store, tmp_path: Path, server: Server, kind: str, options: Any, expected: str
):
    """A verdict needs the evidence that the evaluator looks at; each reason names the remedy."""
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    (tmp_path / "wanted.json").write_text(json.dumps(PLAIN))
    (tmp_path / "steps.json").write_text(json.dumps({"steps": [["agent"]]}))
    text = json.dumps({"evaluators": [{"name": "e", "type": kind, **options}]})
    data = [{"id": name, "inputs": {"q": QUESTION.content}} for name in OUTPUTS]
    outputs = iter(OUTPUTS.values())

    results = evaluate(
        lambda _: next(outputs),
        data,
        configured(parse_config(text), store, tmp_path),
        store=store,
        max_concurrency=1,
    )

    scored = [feedback for row in results for feedback in row.feedback]
    assert "".join(letter(feedback.status, feedback.passed) for feedback in scored) == expected
    assert all(feedback.comment for feedback in scored if feedback.status == "not_evaluated")


NO_EVIDENCE = {
    "none": None,
    "no_list": [],
    "no_fields": {},
    "no_messages": {"messages": []},
    "empty_run": run(4, start_ns=0, end_ns=0),
    "unread_run": run(5, gaps=(gap("no_model_spans"),), start_ns=0, end_ns=0),
    "hidden_run": run(6, gaps=(gap("content_not_captured"),), start_ns=0, end_ns=0),
}


@pytest.mark.parametrize(("kind", "options", "_"), MATRIX)
def test_no_type_of_evaluator_passes_a_run_without_evidence(
    store: Store, tmp_path: Path, server: Server, kind: str, options: Any, _: str
):
    """A run without observed calls, messages and answers is not evaluated."""
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    (tmp_path / "wanted.json").write_text(json.dumps(PLAIN))
    (tmp_path / "steps.json").write_text(json.dumps({"steps": [["agent"]]}))
    text = json.dumps({"evaluators": [{"name": "e", "type": kind, **options}]})
    outputs = iter(NO_EVIDENCE.values())

    results = evaluate(
        lambda _: next(outputs),
        [{"id": name, "inputs": {"a": 1, "b": 2}} for name in NO_EVIDENCE],
        configured(parse_config(text), store, tmp_path),
        store=store,
        max_concurrency=1,
    )

    scored = {row.example.id: feedback for row in results for feedback in row.feedback}
    assert {name: entry.status for name, entry in scored.items()} == dict.fromkeys(
        NO_EVIDENCE, "not_evaluated"
    )


def test_every_type_of_evaluator_is_in_the_matrix():
    """A new type of evaluator has to declare its needs."""
    assert {kind for kind, _, _ in MATRIX} == set(evaluator_types()) - {"command", "python"}


OURS = [
    oteval.create_tool_error_evaluator(),
    oteval.create_tool_order_evaluator(rules=["look_up before refund"]),
    oteval.create_forbidden_tools_evaluator(forbidden=["delete"]),
    oteval.create_loop_evaluator(),
    oteval.create_budget_evaluator(max_tool_calls=3),
    oteval.create_trajectory_match_evaluator(trajectory_match_mode="subset"),
    oteval.create_async_trajectory_match_evaluator(trajectory_match_mode="subset"),
    oteval.trajectory_subset,
    oteval.trajectory_subset_async,
]


def test_evaluators_in_python_know_as_much(store: Store):
    """Evaluators that are passed as functions see a run's gaps, not only its messages."""
    names = [name for name in OUTPUTS if name != "nothing"]
    data = [{"id": n, "inputs": QUESTION.content, "reference_outputs": PLAIN} for n in names]
    outputs = iter(OUTPUTS[name] for name in names)

    results = evaluate(lambda _: next(outputs), data, OURS, store=store, max_concurrency=1)

    letters: dict[str, str] = {}
    for entry in (feedback for row in results for feedback in row.feedback):
        letters[entry.evaluator] = letters.get(entry.evaluator, "") + letter(
            entry.status, entry.passed
        )
    assert list(letters.values()) == ["nnnnnpp"] * len(OURS)


@pytest.mark.parametrize("evaluator", OURS[:6], ids=lambda evaluator: evaluator.key)
def test_messages_without_a_question_or_a_call_prove_nothing(evaluator: Any):
    """A lone answer has no verdict in any form; one with its question is a run without calls."""
    answer = ANSWER.as_dict()
    system = {"role": "system", "content": "Be brief."}

    for outputs in (answer, ANSWER, [answer], [system, answer], {"messages": [answer]}):
        result = evaluator(outputs=outputs, reference_outputs=PLAIN)
        assert (result["score"], result["metadata"]) == (None, {"status": "not_evaluated"})
        assert result["comment"].startswith("calls_not_captured")
    conversation = [QUESTION.as_dict(), answer]
    assert evaluator(outputs=conversation, reference_outputs=PLAIN)["score"] is True
    assert evaluator(outputs=PLAIN[1:], reference_outputs=PLAIN)["score"] is True


@pytest.mark.parametrize(
    ("document", "is_whole"),
    [
        (PLAIN[-1], False),
        (PLAIN[-1:], False),
        ({"messages": PLAIN[-1:]}, False),
        ({"inputs": {"q": "?"}, "outputs": {"answer": "done"}}, False),
        ({"inputs": {"q": "?"}, "outputs": {"messages": PLAIN[1:]}}, True),
        ([PLAIN[0], PLAIN[-1]], True),
        (PLAIN[1:], True),
    ],
)
def test_a_file_with_an_answer_alone_does_not_show_calls(document: Any, is_whole: bool):
    """Messages of files are read by the rule for messages that a caller passes."""
    file = ConversationFile()
    taken = file.take(document)

    (scored,) = [*(taken.runs if taken else ()), *file.finish().runs]
    result = OURS[0](outputs=scored.trajectory)
    assert result["score"] is (True if is_whole else None)


@pytest.mark.parametrize("evaluator", OURS[:6], ids=lambda evaluator: evaluator.key)
@pytest.mark.parametrize("code", ["content_not_captured", "calls_not_captured"])
def test_gaps_that_a_caller_passes_count(evaluator: Any, code: str):
    """A `Trajectory`, or a dict with its gaps, may lack calls; a list of messages is the run."""
    missing = Gap(code, "why")
    lacking = run(1, QUESTION, ANSWER, gaps=(missing,))
    as_dict = {"messages": [ANSWER.as_dict()], "gaps": [missing.as_dict()]}

    for outputs in (lacking, as_dict):
        result = evaluator(outputs=outputs, reference_outputs=PLAIN)
        assert (result["score"], result["comment"]) == (None, f"{code}: why")
        assert result["metadata"] == {"status": "not_evaluated"}
    assert evaluator(outputs=PLAIN, reference_outputs=PLAIN)["score"] is True


@pytest.mark.parametrize(
    ("gaps", "reason"),
    [
        ([{"code": "content_not_captured", "detail": "why"}, 5], "content_not_captured: why"),
        (["content_not_captured"], "content_not_captured: "),
        ([{"detail": "why"}], "content_unreadable: a gap beside the messages"),
    ],
)
def test_a_gap_that_cannot_be_read_is_still_a_gap(gaps: list[Any], reason: str):
    """Neither it nor the gaps beside it make a run complete."""
    outputs = {"messages": [ANSWER.as_dict()], "gaps": gaps}

    for evaluator in OURS[:6]:
        result = evaluator(outputs=outputs, reference_outputs=PLAIN)
        assert result["score"] is None
        assert result["comment"].startswith(reason)


def test_an_answer_may_have_gaps_of_its_own():
    """A field ``gaps`` of a result without messages does not keep a judge from it."""
    judge = oteval.create_llm_as_judge(
        prompt="{outputs}", judge=lambda *_: {"reasoning": "", "score": True}
    )

    assert judge(outputs={"skills": 3, "gaps": [{"skill": "SQL"}, 5]})["score"] is True


def test_an_earlier_turn_may_lack_calls():
    """A match of a whole conversation needs the calls of every turn."""
    first = run(1, QUESTION, ANSWER, gaps=(gap("content_not_captured"),))
    second = Trajectory("x", first.root_span, tail=(QUESTION, ANSWER), history=first, new_from=2)

    result = OURS[5](outputs=second, reference_outputs=PLAIN)

    assert result["score"] is None
    assert "content_not_captured" in result["comment"]


def test_calls_that_the_emitter_left_out_may_be_any():
    """A call without a name may be the one that is forbidden."""
    nameless = run(1, QUESTION, asks(call("", {})), gaps=(gap("calls_left_out"),))

    result = oteval.create_forbidden_tools_evaluator(forbidden=["pay"])(outputs=nameless)

    assert (result["score"], result["comment"]) == (None, "calls_left_out: why")


def test_sessions_keep_their_gaps(store: Store):
    """A session in the form of `oteval trajectories --json` keeps the trace's gaps."""
    session = run(1, QUESTION, ANSWER, gaps=(gap("content_not_captured"),)).as_dict()

    results = evaluate(
        [session], data=None, evaluators=[oteval.create_tool_error_evaluator()], store=store
    )

    (feedback,) = results.rows[0].feedback
    assert feedback.status == "not_evaluated"


@pytest.mark.parametrize("answer", ["done", {"role": "assistant", "content": "done"}])
def test_a_simulated_app_that_answers_only_shows_no_calls(answer: Any):
    """Evaluators of calls have no verdict; one that returns its messages gets one."""
    evaluators = [oteval.create_tool_error_evaluator(), oteval.trajectory_subset]
    options: Any = {
        "user": ["hi"],
        "max_turns": 1,
        "trajectory_evaluators": evaluators,
        "reference_outputs": PLAIN,
    }

    hidden: Any = oteval.run_multiturn_simulation(app=lambda *_, **__: answer, **options)
    complete: Any = oteval.run_multiturn_simulation(app=lambda *_, **__: PLAIN, **options)

    assert [result["score"] for result in hidden["evaluator_results"]] == [None, None]
    assert "return the list of all messages" in hidden["evaluator_results"][0]["comment"]
    assert [result["score"] for result in complete["evaluator_results"]] == [True, True]


@pytest.mark.parametrize("wrapped", [False, True], ids=["itself", "in a dict"])
def test_a_resumed_run_lacks_what_it_lacked(store: Store, wrapped: bool):
    """An evaluator that is added later knows the gaps and the usage of the stored runs."""
    hidden = run(1, QUESTION, ANSWER, gaps=(gap("content_not_captured"),))
    outputs = iter([hidden, OBSERVED])
    tools = oteval.create_tool_error_evaluator()
    tokens = oteval.create_budget_evaluator(max_total_tokens=30)

    def target(_: Any) -> Any:
        trajectory = next(outputs)
        return {"trajectory": trajectory} if wrapped else trajectory

    options: Any = {"data": [{"inputs": 1}, {"inputs": 2}], "store": store, "name": "x"}
    evaluate(target, evaluators=[tools], max_concurrency=1, **options)
    results = evaluate(target, evaluators=[tools, tokens], resume=True, **options)

    letters = [
        [letter(feedback.status, feedback.passed) for feedback in row.feedback] for row in results
    ]
    assert letters == [["n", "n"], ["p", "p"]]
    assert oteval.load_experiment("x", store).rows[0].run.trajectory.gaps == hidden.gaps  # type: ignore[union-attr]


def test_a_judge_does_not_compare_parts(store: Store, server: Server):
    """Runs whose content was not captured have no better one."""
    server.script = lambda _body, _number: verdict(1)
    hidden = run(1, QUESTION, ANSWER, gaps=(gap("content_not_captured"),))
    for name, session in (("a", hidden), ("b", OBSERVED), ("c", OBSERVED)):
        evaluate([session], data=None, store=store, name=name)
    judge = oteval.create_pairwise_llm_as_judge(model="openai:m")

    lacking = oteval.evaluate_comparative(["a", "b"], [judge], store=store)
    whole = oteval.evaluate_comparative(["b", "c"], [judge], store=store)

    assert {vote.status for vote in lacking.votes} == {"error"}
    assert "content_not_captured" in lacking.votes[0].comment
    assert {vote.status for vote in whole.votes} == {"ok"}
    judge.evaluator.close()
