from __future__ import annotations

import asyncio
import inspect
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import oteval
from oteval import (
    ConfigError,
    ExperimentResults,
    InputError,
    NothingEvaluated,
    OtevalError,
    Selection,
    Store,
    aevaluate,
    compare_experiments,
    create_trajectory_match_evaluator,
    evaluate,
    load_experiment,
)
from oteval.model import Example, Message, Run, Trajectory
from oteval.scoring.config import parse_config
from oteval.scoring.experiments import Progress, configured

from ...make import asks, call, keep, run

DATA = [{"id": f"e{n}", "inputs": {"n": n}, "reference_outputs": 2 * n} for n in range(6)]


def double(inputs: dict[str, int]) -> int:
    return 2 * inputs["n"]


def right(outputs: Any, reference_outputs: Any) -> bool:
    return bool(outputs == reference_outputs)


def statuses(results: ExperimentResults, key: str) -> Counter[str]:
    return Counter(feedback.status for _, feedback in results.feedback()[key])


def _of_run(run: Run) -> int:
    return run.repetition


def test_evaluate_is_a_name_of_the_package():
    """`oteval.evaluate` is the function, and `oteval.evaluators` the package of evaluators."""
    assert oteval.evaluate is evaluate
    assert oteval.evaluators.compare is oteval.compare
    with Store() as store:
        assert len(oteval.evaluate(double, DATA, [right], store=store)) == 6


@pytest.mark.parametrize(
    ("blocking", "asynchronous"),
    [
        ("evaluate", "aevaluate"),
        ("evaluate_comparative", "aevaluate_comparative"),
        ("run_multiturn_simulation", "run_multiturn_simulation_async"),
        ("create_llm_simulated_user", "create_async_llm_simulated_user"),
    ],
)
def test_both_forms_have_one_signature_and_docstring(blocking: str, asynchronous: str):
    """Each has its own name, and only the name differs."""
    blocking_form, asynchronous_form = getattr(oteval, blocking), getattr(oteval, asynchronous)

    assert (blocking_form.__name__, asynchronous_form.__name__) == (blocking, asynchronous)
    assert blocking_form.__doc__ == asynchronous_form.__doc__
    assert inspect.signature(blocking_form) == inspect.signature(asynchronous_form)


def test_an_experiment_is_run_evaluated_and_stored(store: Store):
    """Each example goes through the target, each run through the evaluators, and all is stored."""
    results = evaluate(
        double,
        DATA,
        [right],
        experiment_prefix="sums",
        description="about",
        metadata={"model": "m"},
        store=store,
    )

    assert results.name.startswith("sums-")
    assert [row.run.outputs for row in results] == [0, 2, 4, 6, 8, 10]
    assert [row["evaluation_results"]["results"][0].passed for row in results] == [True] * 6
    (figure,) = results.summary()
    assert (figure.key, figure.evaluated, figure.passed, figure.mean) == ("right", 6, 6, 1.0)
    again = load_experiment("sums", store)
    assert again.to_dicts() == results.to_dicts()
    assert again.experiment == results.experiment
    assert (again.experiment.description, again.experiment.metadata) == ("about", {"model": "m"})


@pytest.mark.parametrize("is_async", [False, True])
async def test_targets_and_evaluators_may_be_asynchronous(store: Store, is_async: bool):
    """Both forms await them, also while an event loop runs."""

    async def later(inputs: dict[str, int]) -> int:
        await asyncio.sleep(0)
        return double(inputs)

    async def right_later(outputs: int, reference_outputs: int) -> bool:
        await asyncio.sleep(0)
        return outputs == reference_outputs

    target, judge = (later, right_later) if is_async else (double, right)
    awaited = await aevaluate(target, DATA, [judge], store=store)
    results = evaluate(
        target, DATA, [judge], store=store
    )  # within a running loop, as in a notebook

    for experiment in (awaited, results):
        assert experiment.summary()[0].passed == 6


def test_evaluators_get_the_arguments_they_name(store: Store):
    """Arguments are passed by name, to any keyword, or as run and example by position."""
    seen: dict[str, Any] = {}

    def all_of_them(
        inputs: Any, outputs: Any, reference_outputs: Any, run: Any, example: Any, trajectory: Any
    ) -> bool:
        seen["named"] = (inputs, outputs, reference_outputs, run, example, trajectory)
        return True

    def any_keyword(*, outputs: Any, **extra: Any) -> bool:
        seen["keywords"] = {"outputs": outputs, **extra}
        return True

    def old_style(a_run: Run, an_example: Example) -> bool:
        seen["positional"] = (a_run.outputs, an_example.outputs)
        return True

    evaluate(double, DATA[1:2], [all_of_them, any_keyword, old_style], store=store)

    inputs, outputs, reference, a_run, example, trajectory = seen["named"]
    assert (inputs, outputs, reference, trajectory) == ({"n": 1}, 2, 2, None)
    assert (a_run.outputs, example.id, example.inputs) == (2, "e1", {"n": 1})
    assert seen["keywords"] == {"inputs": {"n": 1}, "outputs": 2, "reference_outputs": 2}
    assert seen["positional"] == (2, 2)


def test_each_failing_evaluator_has_one_error(store: Store):
    """Evaluators that raise, exit, hang or return nonsense do not affect the others' results."""

    def raises(outputs: int) -> bool:
        raise ValueError("no")

    def nonsense(outputs: int) -> Any:
        return object()

    gate = threading.Event()

    def hangs(outputs: int) -> bool:
        return gate.wait(60)

    async def hangs_later(outputs: int) -> bool:
        await asyncio.sleep(60)
        return True

    def leaves(outputs: int) -> bool:
        raise SystemExit(1)

    bad = {raises: "ValueError: no", nonsense: "is not a score", hangs: "no answer within 0.5 s"}
    bad |= {hangs_later: "no answer within 0.5 s", leaves: "SystemExit"}
    results = evaluate(double, DATA[:3], [*bad, right], timeout=0.5, store=store)
    gate.set()

    assert statuses(results, "right") == {"ok": 3}
    for function, why in bad.items():
        rows = results.feedback()[function.__name__]
        assert len(rows) == 3
        for _, feedback in rows:
            assert (feedback.status, feedback.score, feedback.passed) == ("error", None, None)
            assert why in feedback.comment
    figures = {figure.key: figure for figure in results.summary()}
    assert (figures["raises"].errors, figures["raises"].mean) == (3, None)


def test_a_failing_target_makes_a_run_with_an_error(store: Store):
    """An exception or a timeout is the run's error, and no evaluator is called."""
    evaluated = []
    gate = threading.Event()

    def target(inputs: dict[str, int]) -> int:
        if inputs["n"] == 1:
            raise ValueError("one")
        if inputs["n"] == 2:
            gate.wait(60)
        return double(inputs)

    def note(outputs: int) -> bool:
        evaluated.append(outputs)
        return True

    results = evaluate(target, DATA, [note], target_timeout=0.5, store=store)
    gate.set()

    assert sorted(evaluated) == [0, 6, 8, 10]
    assert results.errors == 2
    errors = [row.run.error for row in results]
    assert errors[1:3] == ["ValueError: one", "TimeoutError: no answer within 0.5 s"]
    assert results.rows[1].feedback == ()


def test_on_error_raise_stops_and_keeps_finished_records(store: Store):
    """The first failure ends the experiment; earlier runs are in the store."""

    def fails_late(outputs: int) -> bool:
        if outputs == 6:
            raise ValueError("six")
        return True

    with pytest.raises(OtevalError, match="evaluator 'fails_late': ValueError: six"):
        evaluate(
            double, DATA, [fails_late], name="x", on_error="raise", max_concurrency=1, store=store
        )

    assert [row.run.outputs for row in load_experiment("x", store)] == [0, 2, 4, 6]


def test_repetitions_are_runs_of_the_same_example(store: Store):
    """Each example is run as often as requested, and the figures have pass@k and pass^k."""
    count = Counter[int]()
    lock = threading.Lock()

    def every_other(inputs: dict[str, int]) -> bool:
        with lock:
            count[inputs["n"]] += 1
            return count[inputs["n"]] % 2 == 0

    def said_so(outputs: bool) -> bool:
        return outputs

    results = evaluate(every_other, DATA[:2], [said_so], num_repetitions=4, store=store)

    assert [(row.example.id, row.run.repetition) for row in results] == [
        (f"e{n}", repetition) for n in range(2) for repetition in range(4)
    ]
    (figure,) = results.summary()
    assert figure.pass_at == pytest.approx({1: 0.5, 2: 5 / 6, 3: 1, 4: 1})
    assert figure.pass_hat == pytest.approx({1: 0.5, 2: 1 / 6, 3: 0, 4: 0})


def test_concurrency_is_limited(store: Store):
    """As many runs as allowed are in progress at once, and never more."""
    now, most = 0, 0

    async def target(inputs: dict[str, int]) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.02)
        now -= 1
        return 0

    evaluate(target, DATA, max_concurrency=3, store=store)

    assert most == 3


def test_a_thousand_slow_evaluations_run_concurrently(store: Store):
    """With 50 at a time, groups of 50 evaluations wait for each other, and all of them end."""
    together: list[asyncio.Barrier] = []

    async def slow(outputs: int) -> float:
        if not together:
            together.append(asyncio.Barrier(50))
        await together[0].wait()
        return 0.5

    data = [{"inputs": {"n": n}} for n in range(1000)]
    results = evaluate(double, data, [slow], max_concurrency=50, timeout=60, store=store)

    assert results.summary()[0].evaluated == 1000


def test_summary_evaluators_see_the_whole_experiment(store: Store):
    """They are called once, with lists in the same order; a failing one has one error."""

    def total(outputs: list[int], reference_outputs: list[int]) -> dict[str, Any]:
        return {"key": "sum", "score": sum(outputs) - sum(reference_outputs)}

    def pairs(runs: list[Run], examples: list[Example]) -> int:
        return sum(
            run.example_id == example.id for run, example in zip(runs, examples, strict=True)
        )

    def broken(results: list[Any]) -> float:
        return 1 / 0

    results = evaluate(double, DATA, [right], [total, pairs, broken], name="x", store=store)

    feedback_by_key = {
        feedback.key: (feedback.status, feedback.score) for feedback in results.overall
    }
    assert feedback_by_key == {"sum": ("ok", 0), "pairs": ("ok", 6), "broken": ("error", None)}
    assert load_experiment("x", store).overall == results.overall


def test_a_target_cannot_change_the_examples(store: Store):
    """A target gets its own copy of the inputs."""

    def greedy(inputs: dict[str, int]) -> int:
        return inputs.pop("n")

    results = evaluate(greedy, DATA, num_repetitions=2, store=store)

    assert results.errors == 0
    assert results.rows[0].example.inputs == {"n": 0}


class _Message:
    """An object like LangChain's messages."""

    def __init__(self, kind: str, content: str) -> None:
        self.type, self.content, self.tool_calls = kind, content, []
        self.additional_kwargs: dict[str, Any] = {}
        self.response_metadata: dict[str, Any] = {}


async def _stream() -> AsyncIterator[str]:
    yield "refund"


@pytest.mark.parametrize("output", [_stream(), iter(["a"]), b"a", object(), ValueError("a"), len])
@pytest.mark.parametrize("wrap", [lambda output: output, lambda output: {"answer": output}])
def test_an_output_without_a_json_form_is_a_failed_run(
    store: Store, output: Any, wrap: Callable[[Any], Any]
):
    """The text that Python prints for a stream is not the answer, and no evaluator passes it."""

    def target(inputs: Any) -> Any:
        return wrap(output)

    (row,) = evaluate(target, [{"inputs": {}}], [right], store=store)

    assert f"the target returned a {type(output).__name__}, which has no JSON form" in row.run.error
    assert not row.feedback


@pytest.mark.parametrize("beside", [{"trajectory": ["search", "answer"]}, {"tool_calls": 3}])
def test_messages_count_beside_other_outputs(store: Store, beside: dict[str, Any]):
    """The names of nodes, or the fields of a message, do not take the place of the messages."""
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]

    def target(inputs: Any) -> dict[str, Any]:
        return {"messages": messages, **beside}

    (row,) = evaluate(target, [{"inputs": {}}], [right], store=store)

    assert row.run.trajectory is not None
    assert [message.role for message in row.run.trajectory.messages] == ["user", "assistant"]


def test_outputs_that_are_messages_are_a_trajectory(store: Store):
    """Evaluators that take a trajectory get one, also when the experiment is read back."""
    seen = []

    def agent(inputs: dict[str, int]) -> dict[str, Any]:
        calls = [{"name": "f", "args": {"x": 1}, "id": "1"}]
        return {"messages": [{"role": "assistant", "tool_calls": calls}, _Message("ai", "done")]}

    def looks(trajectory: Trajectory) -> bool:
        seen.append([message.role for message in trajectory.messages])
        return trajectory.messages[0].tool_calls[0].name == "f"

    match = create_trajectory_match_evaluator(trajectory_match_mode="superset")
    reference = [{"role": "assistant", "tool_calls": [{"name": "f", "args": {"x": 1}}]}]
    data = [{"inputs": {}, "reference_outputs": reference}]
    results = evaluate(agent, data, [looks, match], name="x", store=store)

    assert [figure.passed for figure in results.summary()] == [1, 1]
    assert seen == [["assistant", "assistant"]]
    (row,) = load_experiment("x", store)
    assert row.run.trajectory is not None
    assert row.run.trajectory.messages[1].content == "done"


def test_a_runnable_is_a_target(store: Store):
    """An object with `invoke`, such as a LangChain runnable or a graph, is called by it."""

    class Runnable:
        def invoke(self, inputs: dict[str, int]) -> int:
            return double(inputs)

    assert evaluate(Runnable(), DATA, [right], store=store).summary()[0].passed == 6


def sessions(store: Store) -> list[Trajectory]:
    question = Message("user", "refund order 7")
    trajectories = [
        run(1, question, asks(call("refund", {"id": 7})), attributes={"test.case.id": "r"}),
        run(2, question, Message("assistant", "no")),
        run(3, question, asks(call("refund", {"id": 7}))),
    ]
    keep(store, *trajectories)
    return trajectories


def test_stored_trajectories_are_evaluated_without_a_target(store: Store):
    """The experiment has the runs of the selection; equal questions are repetitions."""
    trajectories = sessions(store)

    def refunded(trajectory: Trajectory) -> bool:
        return any(message.tool_calls for message in trajectory.messages)

    results = evaluate(Selection(), evaluators=[refunded], name="x", store=store)

    assert [row.run.trajectory_id for row in results] == [
        trajectory.id for trajectory in trajectories
    ]
    assert results.rows[0].example.id == "r"
    assert [row.run.repetition for row in results] == [0, 0, 1]
    assert results.summary()[0].passed == 2
    assert results.rows[0].run.outputs[1]["tool_calls"][0]["function"]["name"] == "refund"


def test_sessions_are_matched_with_their_examples(store: Store):
    """Each session finds its reference by case, by inputs, or else by position."""
    trajectories = sessions(store)
    chats = [
        {"messages": [m.as_dict() for m in trajectory.messages]} for trajectory in trajectories
    ]
    question = chats[0]["messages"][:1]
    by_case = [
        {"id": "r", "inputs": 0, "reference_outputs": "case"},
        {"id": "other", "inputs": {"messages": question}, "reference_outputs": "asked"},
    ]
    by_place = [{"inputs": n, "reference_outputs": f"place {n}"} for n in range(3)]

    def reference(reference_outputs: str) -> str:
        return reference_outputs

    matched_by_case = evaluate(trajectories, by_case, [reference], store=store)
    results = evaluate(chats, by_place, [reference], store=store)

    assert matched_by_case.summary()[0].labels == {"case": 1, "asked": 2}
    assert results.summary()[0].labels == {"place 0": 1, "place 1": 1, "place 2": 1}
    with pytest.raises(ConfigError, match=r"sessions\[1\] matches no example of data"):
        evaluate(trajectories, by_case[:1], store=store)


def test_evaluators_of_a_configuration(store: Store, tmp_path: Path):
    """Evaluators of oteval.yaml evaluate runs; an example's own reference overrides the file's."""
    (tmp_path / "r.json").write_text('[{"role": "assistant", "content": "x"}]')
    text = """
evaluators:
  - {name: calls, type: trajectory_match, mode: superset, reference: r.json}
  - {name: elsewhere, type: trajectory_match, reference: r.json, where: {agent: nobody}}
"""
    judges = configured(parse_config(text), store, tmp_path)
    reference = [{"role": "assistant", "tool_calls": [{"name": "refund", "args": {"id": 7}}]}]
    trajectories = sessions(store)
    data = [{"inputs": n, "reference_outputs": reference if n < 2 else None} for n in range(3)]

    trajectories = [replace(trajectory, attributes={}) for trajectory in trajectories]
    results = evaluate(trajectories, data, judges, store=store)

    verdicts = [feedback.passed for _, feedback in results.feedback()["calls"]]
    assert verdicts == [True, False, True]  # the third has the file's, which asks for nothing
    assert statuses(results, "elsewhere") == {"not_evaluated": 3}


def test_a_configuration_may_use_the_examples_reference(store: Store, tmp_path: Path):
    """With `reference: {example: true}`, an example without a reference is not evaluated."""
    text = """
evaluators:
  - {name: calls, type: trajectory_match, mode: superset, reference: {example: true}}
"""
    judges = configured(parse_config(text), store, tmp_path)
    reference = [{"role": "assistant", "tool_calls": [{"name": "refund", "args": {"id": 7}}]}]
    trajectories = [replace(session, attributes={}) for session in sessions(store)]
    data = [{"inputs": n, "reference_outputs": reference if n < 2 else None} for n in range(3)]

    results = evaluate(trajectories, data, judges, store=store)

    verdicts = [(feedback.status, feedback.passed) for _, feedback in results.feedback()["calls"]]
    assert verdicts == [("ok", True), ("ok", False), ("not_evaluated", None)]
    assert "no example with a reference" in results.rows[2].feedback[0].comment


def test_an_example_may_accept_several_references(store: Store, tmp_path: Path):
    """The best match counts; an unreadable one shows where references count, a function has one."""
    text = """
evaluators:
  - {name: calls, type: trajectory_match, mode: superset, reference: {example: true}}
  - {name: one, type: python, call: "math:isclose", reference: {example: true}}
  - {name: loops, type: loops}
"""
    judges = configured(parse_config(text), store, tmp_path)
    refund = [{"role": "assistant", "tool_calls": [{"name": "refund", "args": {"id": 7}}]}]
    other = [{"role": "assistant", "tool_calls": [{"name": "ask", "args": {}}]}]
    trajectories = [replace(session, attributes={}) for session in sessions(store)[:2]]
    data = [
        {"inputs": 0, "reference_outputs": {"any": [other, refund]}},
        {"inputs": 1, "reference_outputs": {"any": [other, "refund"]}},
    ]

    rows = evaluate(trajectories, data, judges, store=store).rows

    results = [{feedback.key: feedback for feedback in row.feedback} for row in rows]
    assert [result["calls"].passed for result in results] == [True, None]
    assert results[0]["calls"].metadata["reference"] == "any[1]"
    assert "any[1]: messages is a str" in results[1]["calls"].comment
    assert results[0]["one"].status == "not_evaluated"
    assert [result["loops"].status for result in results] == ["ok", "ok"]


def test_steps_of_a_graph_are_no_reference_of_calls(store: Store, tmp_path: Path):
    """An example whose reference has another form than the evaluator compares gives no verdict."""
    text = """
evaluators:
  - {name: calls, type: trajectory_match, mode: superset, reference: {example: true}}
  - {name: nodes, type: graph_match, reference: {example: true}}
"""
    judges = configured(parse_config(text), store, tmp_path)
    session = replace(sessions(store)[0], attributes={}, steps=(("agent",),))
    data = [{"inputs": 0, "reference_outputs": {"steps": [["agent"]]}}]

    (row,) = evaluate([session], data, judges, store=store).rows

    assert {feedback.key: feedback.passed for feedback in row.feedback} == {
        "calls": None,
        "nodes": True,
    }


def test_a_text_is_evaluated_as_an_answer(store: Store, tmp_path: Path):
    """A configured evaluator sees a target's text as the answer to the question."""
    seen = []

    def judge(trajectory: Trajectory) -> bool:
        seen.append([(message.role, message.content) for message in trajectory.messages])
        return True

    (tmp_path / "answer_judges.py").write_text(
        "def judge(trajectory):\n    return hook(trajectory)"
    )
    text = 'evaluators: [{name: j, type: python, call: "answer_judges:judge"}]'
    judges = configured(parse_config(text), store, tmp_path)
    import answer_judges  # found beside the configuration

    answer_judges.hook = judge
    evaluate(lambda _: "4", [{"inputs": {"q": "2+2?"}}], judges, store=store)

    assert seen == [[("user", "2+2?"), ("assistant", "4")]]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"target": double}, "data is missing"),
        ({"target": 3}, "the target is int"),
        ({"target": double, "data": DATA, "num_repetitions": 0}, "num_repetitions is 0"),
        ({"target": double, "data": DATA, "on_error": "ignore"}, "on_error is 'ignore'"),
        ({"target": double, "data": DATA, "order": "both"}, "does not take 'order'"),
        ({"target": double, "data": DATA, "evaluators": [3]}, "3 cannot be called"),
        ({"target": double, "data": DATA, "name": "a\ud83d"}, "half of a character"),
        ({"target": double, "data": DATA, "experiment_prefix": "\ud83d"}, "half of a character"),
        ({"target": double, "data": DATA, "evaluators": [abs]}, "requires the argument 'x'"),
        (
            {"target": double, "data": DATA, "summary_evaluators": [_of_run]},
            "requires the argument 'run'",
        ),
    ],
)
def test_wrong_arguments_are_refused_at_once(store: Store, options: dict[str, Any], why: str):
    """A wrong argument is an error at once, and no experiment is stored."""
    target = options.pop("target")
    with pytest.raises(ConfigError, match=why):
        evaluate(target, **options, store=store)

    assert store.experiments.list() == []


def test_nothing_to_run_is_an_error(store: Store):
    """An empty selection or list is an error."""
    for target in (Selection(), []):
        with pytest.raises(InputError, match="no sessions"):
            evaluate(target, store=store)


def test_progress_is_reported(store: Store):
    """Each run, errors, cached answers and cost are reported."""
    heard: list[Progress] = []

    def judge(outputs: int) -> dict[str, Any]:
        if outputs == 4:
            raise ValueError
        return {"score": 1, "metadata": {"cost_usd": 0.25, "cached": outputs == 0}}

    evaluate(double, DATA, [judge], store=store, on_progress=lambda p: heard.append(replace(p)))

    last = heard[-1]
    assert [progress.done for progress in heard] == [1, 2, 3, 4, 5, 6]
    assert (last.total, last.errors, last.cached, last.cost) == (6, 1, 1, 1.25)


def test_the_default_store_is_that_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """OTEVAL_DB names the database; it is closed afterwards."""
    monkeypatch.setenv("OTEVAL_DB", str(tmp_path / "x.duckdb"))
    results = evaluate(double, DATA, [right])

    with Store(tmp_path / "x.duckdb", create=False) as store:
        assert len(load_experiment(results.name, store)) == 6


def test_runs_without_a_question_are_separate_examples(store: Store):
    """Missing questions are not equal: such runs are not repetitions, and pair with themselves."""
    unknown = [
        run(1, Message("user", content=None), Message("assistant", "a")),
        run(2, Message("user", content=None), Message("assistant", "b")),
        run(3, Message("system", "be kind"), Message("assistant", "c")),
        run(4, Message("system", "be kind"), Message("assistant", "d")),
        run(5, Message("user", "  ")),
        run(6, Message("user", "  ")),
    ]
    case = run(7, Message("user", content=None), attributes={"test.case.id": "r"})
    keep(store, *unknown, case)

    def good(trajectory: Trajectory) -> bool:
        return bool(trajectory.messages)

    first = evaluate(unknown[:3], evaluators=[good], name="a", store=store)
    second = evaluate([*unknown[3:], case], evaluators=[good], name="b", store=store)
    again = evaluate(unknown[:3], evaluators=[good], name="c", store=store)
    chats = [[m.as_dict() for m in trajectory.messages] for trajectory in unknown]

    assert [row.example.id for row in first] == [trajectory.id for trajectory in unknown[:3]]
    assert second.rows[3].example.id == "r"
    assert compare_experiments(first, again).differences[0].pairs == 3
    with pytest.raises(NothingEvaluated, match="no scores of the same example in common"):
        compare_experiments(first, second)
    listed = evaluate(chats, evaluators=[completed], store=store)
    assert len({row.example.id for row in listed}) == len(chats)


def completed(run: Run) -> bool:
    """Pass every run that did not fail."""
    return not run.error


def test_a_greeting_is_not_an_answer(store: Store):
    """Agents that greet first are paired by their question, not by their greeting."""
    hello = Message("assistant", "Hello!")
    keep(store, *(run(n, hello, Message("user", f"q{n % 2}")) for n in range(1, 5)))

    results = evaluate(Selection(), evaluators=[completed], store=store)

    assert [row.run.repetition for row in results] == [0, 1, 0, 1]
    assert len(results.rows[0].example.inputs["messages"]) == 2
