"""Language models as judges in oteval.yaml: scored in parallel, kept, within budgets, resumed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oteval.base.errors import ConfigError
from oteval.evaluators.judge.client import OUTPUT_MODE_MEMORY
from oteval.model import Message, Score
from oteval.reconstruct import reconstruct
from oteval.scoring import ScoreCounts, prepare, score as score_all
from oteval.scoring.config import parse_config
from oteval.store import Store

from ..make import asks, call, gap, keep, run
from ..model_server import Body, Reply, Server, error, serving, shown, verdict
from ..reconstruct.builders import DATA, capture


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Return a running server that gives a passing verdict until its script is changed."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    OUTPUT_MODE_MEMORY.clear()
    with serving() as running:
        yield running


def rule(server: Server | None, **fields: Any) -> dict[str, Any]:
    """Return the rule of an LLM judge."""
    address = {} if server is None else {"base_url": server.url}
    return {"name": "quality", "type": "judge", "model": "openai:m", **address, **fields}


def config(*rules: dict[str, Any]) -> Any:
    """Return a configuration."""
    return parse_config(json.dumps({"evaluators": rules}))


def scored(
    store: Store, *rules: dict[str, Any], run: ScoreCounts | None = None, again: bool = False
) -> list[Score]:
    """Return the scores of a configuration."""
    return list(score_all(store, config(*rules), Path(), run=run, again=again))


def runs(count: int) -> list[Any]:
    """Return runs with different texts."""
    return [
        run(n, Message("user", f"question {n}"), Message("assistant", f"answer {n}"))
        for n in range(1, count + 1)
    ]


def test_a_model_judges_stored_runs(store: Store, server: Server):
    """Score, label, reasons, tokens and latency are in the score, and the run in the prompt."""
    keep(store, *runs(1))

    (score,) = scored(store, rule(server))

    assert (score.status, score.score, score.passed, score.label) == ("ok", 1.0, True, "pass")
    assert (score.comment, score.evaluator) == ("It does.", "quality")
    assert score.metadata["input_tokens"] == 100
    assert "question 1" in shown(server.requests[0])
    assert [score.score for score in store.scores.read()] == [1.0]


def test_numbers_pass_from_the_threshold_on(store: Store, server: Server):
    """Figures without a threshold neither pass nor fail."""
    keep(store, *runs(1))
    server.script = lambda _body, _number: verdict(0.6)

    low, high, none = scored(
        store,
        rule(server, name="a", continuous=True, threshold=0.5),
        rule(server, name="b", continuous=True, threshold=0.7),
        rule(server, name="c", choices=[0.6, 1.0]),
    )

    by_name = {score.evaluator: score for score in (low, high, none)}
    assert [by_name[name].passed for name in "abc"] == [True, False, None]
    assert {score.score for score in by_name.values()} == {0.6}


def test_runs_are_judged_several_at_once(store: Store, server: Server):
    """The server sees no more requests at once than the rule allows."""
    server.script = lambda _body, _number: verdict(delay=0.05)
    keep(store, *runs(24))

    scores = scored(store, rule(server, max_concurrency=6))

    assert len(scores) == 24
    assert 2 <= server.busiest <= 6


def test_a_missing_key_or_server_is_an_error_per_run(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Each error is one line; the scores of other evaluators are kept."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    keep(store, *runs(2))
    missing = rule(server=None, name="no key")
    gone = rule(server=None, name="gone", base_url="http://127.0.0.1:9/v1", max_retries=0)
    steps = {"name": "steps", "type": "tool_errors"}

    scores = scored(store, missing, gone, steps)

    by_name: dict[str, list[Score]] = {}
    for score in scores:
        by_name.setdefault(score.evaluator, []).append(score)
    assert {s.comment for s in by_name["no key"]} == {
        "VerdictMissing: no API key: set OPENAI_API_KEY, or give api_key"
    }
    assert all("cannot reach http://127.0.0.1:9/v1" in s.comment for s in by_name["gone"])
    assert all(s.status == "error" and s.score is None for s in by_name["gone"])
    assert [s.status for s in by_name["steps"]] == ["ok", "ok"]


def test_the_key_comes_from_the_environment(
    store: Store, server: Server, monkeypatch: pytest.MonkeyPatch
):
    """The rule names the environment variable; the score never has its value."""
    monkeypatch.setenv("JUDGE_KEY", "s3cret")
    keep(store, *runs(1))

    (score,) = scored(store, rule(server, api_key_env="JUDGE_KEY"))

    assert server.headers[0]["authorization"] == "Bearer s3cret"
    assert "s3cret" not in json.dumps(score.as_dict())


def test_judged_runs_are_not_judged_again(store: Store, server: Server):
    """A second scoring yields the same scores without a request; `again` asks again."""
    keep(store, *runs(5))
    first = scored(store, rule(server))
    second_run = ScoreCounts()

    second = scored(store, rule(server), run=second_run)

    assert len(server.requests) == 5
    assert [s.trajectory_id for s in second] == sorted(
        (s.trajectory_id for s in first), key=[s.trajectory_id for s in second].index
    )
    assert (second_run.reused, second_run.evaluated) == (5, 5)
    scored(store, rule(server), again=True)
    assert len(server.requests) == 10


def test_failures_and_changed_rules_are_asked_about_again(store: Store, server: Server):
    """Only verdicts of exactly the same version are reused."""
    keep(store, *runs(2))
    server.script = lambda _body, number: error(400, "no") if number <= 4 else verdict()
    broken = rule(server, max_retries=0, max_concurrency=1)
    assert {s.status for s in scored(store, broken)} == {"error", "ok"}
    requests = len(server.requests)

    assert {s.status for s in scored(store, broken)} == {"ok"}
    assert len(server.requests) == requests + 1
    scored(store, {**broken, "system": "Be strict."})
    assert len(server.requests) == requests + 3


def test_answers_are_kept_beyond_the_scores(tmp_path: Path, server: Server):
    """The same question of another evaluator comes from the store, in another process too."""
    path = tmp_path / "x.duckdb"
    with Store(path) as store:
        keep(store, *runs(3))
        scored(store, rule(server))
    with Store(path) as store:
        counted = ScoreCounts()

        scores = scored(store, rule(server, name="other"), run=counted)

        assert len(server.requests) == 3
        assert (counted.cache_hits, counted.cost) == (3, 0.0)
        assert all(score.metadata["cached"] for score in scores)
        (totals,) = store.judge_calls.totals()
        assert (totals["evaluator"], totals["calls"], totals["input_tokens"]) == ("quality", 3, 300)


def interrupted(scores: Iterator[Score], after: int) -> None:
    """Take some scores, then interrupt the scoring."""
    for _ in zip(range(after), scores, strict=False):
        pass
    raise KeyboardInterrupt


def test_ctrl_c_keeps_what_is_done_and_the_next_run_goes_on(tmp_path: Path, server: Server):
    """Verdicts are kept, and answers without a score yet come from the cache."""
    path = tmp_path / "x.duckdb"
    server.script = lambda _body, _number: verdict(delay=0.01)
    judge = rule(server, max_concurrency=4)
    with Store(path) as store:
        keep(store, *runs(40))
        with pytest.raises(KeyboardInterrupt):
            interrupted(score_all(store, config(judge), Path()), 10)
    requests = len(server.requests)
    assert 10 <= requests < 40

    with Store(path) as store:
        counted = ScoreCounts()
        rest = scored(store, judge, run=counted)

        assert len(rest) == 40
        assert counted.reused >= 10
        # The interruption did not wait for calls in flight.
        assert 40 <= len(server.requests) <= 40 + 4
        assert {s.status for s in store.scores.read()} == {"ok"}


def test_a_spent_budget_leaves_the_rest_not_evaluated(store: Store, server: Server):
    """Scores have the reason; the day's budget includes earlier spending."""
    server.script = lambda _body, _number: verdict(tokens=(0, 100))  # $0.10
    keep(store, *runs(6))
    priced = {"prices": {"m": {"input": 0, "output": 1000}}, "max_concurrency": 1}

    scores = scored(store, rule(server, max_cost_per_day=0.35, **priced))

    statuses = [score.status for score in scores]
    assert (statuses.count("ok"), statuses.count("not_evaluated")) == (0, 6)
    for _ in range(2):
        scores = scored(store, rule(server, max_cost_per_day=0.55, **priced))
        statuses = [score.status for score in scores]
        assert (statuses.count("ok"), statuses.count("not_evaluated")) == (5, 1)
        assert "max_cost_per_day of $0.55 is spent ($0.5000 so far)" in scores[-1].comment
        assert len(server.requests) == 5


def test_runs_without_content_are_not_judged(store: Store, server: Server):
    """Without captured content, a verdict would be made up."""
    keep(store, run(1, Message("user"), Message("assistant"), gaps=(gap(),)))

    (score,) = scored(store, rule(server))

    assert (score.status, score.comment) == ("not_evaluated", "content_not_captured: why")
    assert not server.requests


def test_references_and_variables_are_shown(store: Store, server: Server, tmp_path: Path):
    """With a reference the prompt that compares is used, and a rubric is an instruction."""
    keep(store, *runs(1))
    (tmp_path / "r.json").write_text(json.dumps([{"role": "assistant", "content": "as it was"}]))
    judge = rule(server, reference="r.json", variables={"rubric": "Mind the tone."})

    list(score_all(store, config(judge), tmp_path))

    text = shown(server.requests[0])
    assert "as it was" in text
    assert "an example at hand" in text
    assert "\n\nMind the tone." in text


def test_prompts_are_names_files_or_texts(store: Store, server: Server, tmp_path: Path):
    """Each prompt gives a different version."""
    (tmp_path / "mine.txt").write_text("From a file: {outputs}")
    versions = set()
    for prompt in ("trajectory_accuracy", "mine.txt", "A text: {outputs}"):
        (judge,) = prepare(config(rule(server, prompt=prompt)), store, tmp_path)
        versions.add(judge.scorer.version)

    assert len(versions) == 3


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"prompt": "nowhere.txt"}, "nowhere.txt: no such file; bundled prompts are"),
        ({"prompt": "Is it {good}?"}, r"does not show \{outputs\}"),
        ({"prompt": "{outputs}", "reference": "r.json"}, r"does not show \{reference_outputs\}"),
        ({"max_cost": 1.0}, r"max_cost needs the price of 'm': add prices: \{'m': \{input:"),
        ({"max_cost_per_day": 1.0}, "max_cost_per_day needs the price of 'm': add prices"),
        (
            {"max_cost": 1.0, "model": None, "jury": ["openai:gpt-5", {"model": "b"}]},
            "needs the price of 'b'",
        ),
        ({"prompt": "{outptus}\n"}, r"does not show \{outputs\}; write that in place of \{outptus"),
        (
            {"prompt": "{outputs} {rubrik}"},
            r"\{rubrik\}, which has no value: did you mean \{rubric",
        ),
        ({"prompt": "{outputs} {rubric}"}, r"shows \{rubric\}, which has no value"),
        ({"prompt": "{outputs} {reference_outputs}"}, r"has no value without a reference; add"),
        ({"variables": {"rubrik": "x"}}, "does not show 'rubrik'; did you mean 'rubric'?"),
        ({"variables": {"outputs": "x"}}, "'outputs' is filled in from the run"),
        ({"instruction_variables": ["tone"]}, "instruction_variables: the prompt does not show"),
        ({"prompt": "hallucination", "variables": {"contxt": "x"}}, "did you mean 'context'"),
        ({"model": None}, "give either model or jury"),
        ({"threshold": 0.5}, "threshold needs continuous or choices"),
        ({"continuous": True, "choices": [1]}, "exclude each other"),
        ({"timeout": "soon"}, "not a duration"),
        ({"samples": 0}, "greater than or equal to 1"),
        ({"promt": "x"}, "did you mean 'prompt'"),
        ({"jury": [{"model": "a", "sed": 1}], "model": None}, "unknown key 'sed'"),
    ],
)
def test_rules_that_are_wrong_are_refused_in_one_line(
    store: Store, tmp_path: Path, fields: dict[str, Any], reason: str
):
    """The error is raised before any request."""
    (tmp_path / "r.json").write_text("[]")
    settings = {
        key: value for key, value in rule(server=None, **fields).items() if value is not None
    }

    with pytest.raises(ConfigError, match=reason) as raised:
        prepare(config(settings), store, tmp_path)
    assert "\n" not in str(raised.value)


def test_a_budget_under_budgets_needs_a_price_too(store: Store):
    """The error names the setting and the missing price."""
    limits = {"quality": {"max_cost_per_day": 1.0}}
    text = json.dumps({"evaluators": [rule(server=None)], "budgets": limits})

    with pytest.raises(ConfigError, match=r"budgets.quality.max_cost_per_day needs the price of"):
        prepare(parse_config(text), store, Path())


def test_the_question_is_shown_where_the_prompt_needs_it(store: Store, server: Server):
    """A prompt with inputs contains the user's question; a run without one is not judged."""
    keep(store, run(1, Message("user", "why?"), Message("assistant", "so")))
    keep(store, run(2, Message("assistant", "unasked")))

    scores = scored(store, rule(server, prompt="{inputs}\n{outputs}", max_concurrency=1))

    by_status = {score.status: score for score in scores}
    (request,) = server.requests
    assert '\n"why?"\n[[end inputs' in shown(request)
    assert set(by_status) == {"ok", "not_evaluated"}
    assert "{inputs}" in by_status["not_evaluated"].comment


@pytest.mark.parametrize("name", ["langchain_openinference", "haystack_native"])
def test_retrieved_documents_are_shown_as_the_context(store: Store, server: Server, name: str):
    """The stored run has them, and the judge sees each as data."""
    keep(store, *reconstruct(*capture(name, DATA / "retrieval")))

    (score,) = scored(store, rule(server, prompt="hallucination"))

    assert score.status == "ok"
    context = re.search(r"\[\[data context.*\n(.*)\n\[\[end context", shown(server.requests[0]))
    assert context is not None
    assert sorted(json.loads(context[1])) == [
        "Refunds are paid within 5 working days.",
        "Shoes may be returned within 30 days if they are unworn.",
    ]


@pytest.mark.parametrize("prompt", ["hallucination", "{outputs} {context}"])
def test_documents_that_were_not_captured_are_not_judged_by(
    store: Store, server: Server, prompt: str
):
    """The reason names the gap and the remedy; a context of the configuration is such a remedy."""
    keep(store, *reconstruct(*capture("langchain_genai", DATA / "retrieval")))

    (score,) = scored(store, rule(server, prompt=prompt))

    assert (score.status, score.score, score.passed) == ("not_evaluated", None, None)
    assert "documents_not_captured: " in score.comment
    assert not server.requests
    (with_context,) = scored(
        store, rule(server, prompt=prompt, variables={"context": "as in the prompt"})
    )
    assert with_context.status == "ok"


def test_a_run_that_retrieved_nothing_has_no_context(store: Store, server: Server):
    """A prompt that needs it is not judged; where it is optional, results of tools are sources."""
    keep(store, *runs(1))

    (needed,) = scored(store, rule(server, prompt="{outputs} {context}"))
    (optional,) = scored(store, rule(server, prompt="hallucination"))

    assert (needed.status, optional.status) == ("not_evaluated", "ok")
    assert "the run retrieved no documents" in needed.comment


def test_a_run_without_a_graph_is_not_judged_by_its_path(store: Store, server: Server):
    """A verdict on an empty path would be made up."""
    keep(store, *runs(1))

    (score,) = scored(store, rule(server, prompt="graph_trajectory_accuracy"))

    assert score.status == "not_evaluated"
    assert "{thread}" in score.comment
    assert not server.requests


def test_variables_are_data_unless_declared(store: Store, server: Server):
    """Variables of the configuration are data as well; a rubric is an instruction."""
    keep(store, *runs(1))
    fields = {"prompt": "{rubric}\n{tone}\n{outputs}", "variables": {"rubric": "r", "tone": "kind"}}

    scored(store, rule(server, **fields))
    scored(store, rule(server, **fields, instruction_variables=["tone"]))

    assert '"kind"\n[[end tone' in shown(server.requests[0])
    assert "r\nkind\n[[data outputs" in shown(server.requests[1])


def test_juries_and_samples_vote(store: Store, server: Server):
    """A rule may name several models, or ask one several times."""
    keep(store, *runs(1))

    def script(body: Body, _number: int) -> Reply:
        return verdict(body["model"] != "b")

    server.script = script
    fields = {"model": None, "jury": ["openai:a", "openai:b", {"model": "c", "temperature": 0}]}
    jury = {key: value for key, value in rule(server, **fields).items() if value is not None}

    (score,) = scored(store, jury)

    assert score.passed is True
    assert score.metadata["vote_share"] == pytest.approx(2 / 3)


def test_calls_are_judged_by_what_the_trace_shows(store: Store, server: Server):
    """Tool calls are in the prompt with their arguments."""
    keep(store, run(1, asks(call("refund", {"order": "W1"}, "c1"))))

    scored(store, rule(server))

    assert '"name":"refund","arguments":"{\\"order\\":\\"W1\\"}"' in shown(server.requests[0])


REFUND = {
    "name": "match",
    "type": "trajectory_match",
    "reference": "r.json",
    "overrides": {"refund": {"reason": "judged"}},
}


def refunded(store: Store, folder: Path, *reasons: str) -> None:
    """Store runs that refund for a reason, and write the reference."""
    arguments = {"reason": "broken"}
    message = {"role": "assistant", "tool_calls": [{"name": "refund", "args": arguments}]}
    (folder / "r.json").write_text(json.dumps([message]))
    refunds = [
        asks(call("refund", {"reason": reason}, "1", span_id="c" * 16)) for reason in reasons
    ]
    keep(store, *(run(number, refund) for number, refund in enumerate(refunds, 1)))


def matched(store: Store, folder: Path, server: Server, **judge: Any) -> list[Score]:
    """Return the scores of a match whose judge is the server."""
    rules = {**REFUND, "judge": {"model": "openai:m", "base_url": server.url, **judge}}
    return list(score_all(store, config(rules), folder))


def test_a_model_compares_an_argument(store: Store, server: Server, tmp_path: Path):
    """The verdict is the model's, with its cost; the same question is answered from the store."""
    refunded(store, tmp_path, "faulty", "faulty", "broken")
    prices = {"m": {"input": 1.0, "output": 1.0}}

    scores = matched(store, tmp_path, server, prices=prices, max_concurrency=1)

    assert [score.passed for score in scores] == [True, True, True]
    assert len(server.requests) == 1
    assert sum(score.cost or 0 for score in scores) > 0
    assert "faulty" in shown(server.requests[0])
    assert "broken" in shown(server.requests[0])


def test_a_spent_budget_gives_no_verdict(store: Store, server: Server, tmp_path: Path):
    """Over its budget a judged match is not evaluated, and a failed request is an error."""
    refunded(store, tmp_path, "faulty")
    prices = {"m": {"input": 1.0, "output": 1.0}}

    (poor,) = matched(store, tmp_path, server, prices=prices, max_cost=0.0)
    server.script = lambda _body, _number: error(400)
    (failed,) = matched(store, tmp_path, server, max_retries=0)

    assert (poor.status, poor.passed) == ("not_evaluated", None)
    assert (failed.status, failed.passed) == ("error", None)
    assert failed.metadata["judged"][0]["agrees"] is None


def test_a_price_is_needed_for_a_budget(tmp_path: Path, store: Store, server: Server):
    """A limit on the cost of judged arguments without a price is refused."""
    refunded(store, tmp_path, "faulty")

    with pytest.raises(ConfigError, match="needs the price"):
        matched(store, tmp_path, server, max_cost=1.0)
