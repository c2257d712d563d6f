"""The same spans get the same scores, comments and statuses however they are scored."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
import yaml

from oteval.evaluators.registry import evaluator_types
from oteval.extras.spark.group_scores import GroupScorer
from oteval.model import LogRecord, Score, Span
from oteval.model.selection import EVERYTHING
from oteval.scoring import prepare, refresh, score
from oteval.scoring.config import Config, load_config
from oteval.scoring.run_scorer import RunScorer
from oteval.scoring.trace_scores import score_batch
from oteval.serve.evaluator_rules import EvaluatorRules
from oteval.serve.scoring_loop import ScoringLoop
from oteval.store import Store
from oteval.store.telemetry_rows import log_table, span_table

from ..extras.spark.test_group_scores import batches
from ..make import CAPTURES, capture, chat
from ..serve.conftest import BEGIN, SECOND

FUNCTIONS = """
import threading

def passes(outputs): return True
def rates(outputs, reference_outputs): return {"score": 0.5, "comment": "\\ud83d", "label": "l"}
def names(outputs): return "a label"
def fails(outputs): raise ValueError("broken \\ud83d\\nhere")
def leaves(outputs): raise SystemExit("leaves")
def costs(outputs): return {"score": 1, "metadata": {"cost_usd": 0.25, "n": float("inf")}}
def returns_none(outputs): return None
async def waits(outputs): return len(outputs) > 3
def looks(trajectory, inputs):
    parts = [trajectory, inputs, trajectory.gaps, trajectory.attributes, trajectory.usage]
    return repr(parts)
def hangs(outputs): threading.Event().wait(600)
"""
RULES = """
salt: pepper
evaluators:
  - {name: match, type: trajectory_match, mode: superset, reference: r.json}
  - {name: strict, type: trajectory_match, mode: strict, reference: r.json, scope: conversation}
  - {name: cases, type: trajectory_match, reference: {dataset: d.jsonl, key: test.case}}
  - {name: questions, type: trajectory_match, reference: {dataset: q.jsonl, key: question}}
  - name: accepted
    type: trajectory_match
    mode: superset
    reference: {any: [r.json, {dataset: d.jsonl, key: test.case}]}
  - {name: graph, type: graph_match, reference: g.json}
  - {name: order, type: tool_order, rules: [get_weather before get_time]}
  - {name: schema, type: tool_schema}
  - {name: finish, type: finish_reason}
  - {name: latency, type: latency, max: 1s}
  - {name: budget, type: budget, max_total_tokens: 100, max_steps: 2}
  - {name: cost, type: cost, max_cost: 0.001}
  - {name: loops, type: loops, scope: conversation}
  - {name: text, type: required_text, texts: Paris}
  - {name: answer, type: final_answer, expected: hello}
  - {name: forbidden, type: forbidden_tools, forbidden: ["get_w*"]}
  - {name: errors, type: tool_errors}
  - {name: half, type: tool_errors, sample: 0.5}
  - {name: some, type: "python", call: "MODULE:passes", sample: 0.5}
  - {name: agents, type: tool_errors, where: {agent: [support, researcher]}}
  - {name: others, type: tool_errors, where: {not: {model: "gpt*"}}}
  - {name: attributes, type: tool_errors, where: {attributes: {test.case: ["1"]}}}
  - {name: passes, type: "python", call: "MODULE:passes"}
  - {name: rates, type: "python", call: "MODULE:rates", reference: r.json}
  - name: unreferenced
    type: python
    call: MODULE:rates
    reference: {dataset: d.jsonl, key: test.case}
  - {name: names, type: "python", call: "MODULE:names"}
  - {name: fails, type: "python", call: "MODULE:fails"}
  - {name: leaves, type: "python", call: "MODULE:leaves"}
  - {name: costs, type: "python", call: "MODULE:costs"}
  - {name: nothing, type: "python", call: "MODULE:returns_none"}
  - {name: waits, type: "python", call: "MODULE:waits", scope: conversation}
  - name: hangs
    type: python
    call: MODULE:hangs
    timeout: 0.001
    where: {attributes: {test.case: ["1"]}}
  - {name: looks, type: "python", call: "MODULE:looks"}
  - {name: recovered, type: recovered}
  - name: program
    type: command
    command: [sh, -c, 'read run; echo "{\\"score\\": true}"']
    where: {attributes: {test.case: ["1"]}}
"""
REFERENCE = [
    {"role": "user", "content": "x"},
    {
        "role": "assistant",
        "tool_calls": [
            {"id": "1", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
        ],
    },
]


class Case(NamedTuple):
    """Spans and log records, and the configuration that they are scored by."""

    spans: Sequence[Span]
    logs: Sequence[LogRecord]
    path: Path

    @property
    def config(self) -> Config:
        """The configuration."""
        return load_config(self.path)

    def fill(self, store: Store) -> None:
        """Store the spans, and reconstruct their runs."""
        store.spans.write(self.spans, self.logs)
        refresh(store)


def from_store(case: Case) -> list[Score]:
    """Score as `oteval score --db` does."""
    with Store() as store:
        case.fill(store)
        for _ in score(store, case.config, case.path.parent):
            pass
        return list(store.scores.read())


def by_reading(case: Case) -> list[Score]:
    """Read each stored run as a whole, and score it."""
    with Store() as store:
        case.fill(store)
        scorer = RunScorer(prepare(case.config, store, case.path.parent), case.config.salt)
        store.scores.write(list(scorer.score(store.trajectories.read())))
        return list(store.scores.read())


def live(case: Case) -> list[Score]:
    """Score as a server does when the traces have ended."""
    with Store() as store:
        store.spans.write(case.spans, case.logs)
        now = BEGIN
        rules = EvaluatorRules(case.path, store)
        loop = ScoringLoop(store.sibling(), rules, clock=lambda: now)
        loop.notify({span.trace_id for span in case.spans}, now)
        loop.tick()
        now += 3600 * SECOND
        assert loop.drain(30)
        loop.close()
        return list(store.scores.read())


def from_tables(case: Case) -> list[Score]:
    """Score a batch of Arrow rows."""
    prepared = prepare(case.config, store=None, base=case.path.parent)
    tables = span_table(case.spans, 1), log_table(case.logs, 1)
    return scores_of(score_batch(*tables, prepared, salt=case.config.salt).scores.to_pylist())


def on_executor(case: Case) -> list[Score]:
    """Score groups as a task of Spark does."""
    prepared = tuple(prepare(case.config, store=None, base=case.path.parent))
    scorer = GroupScorer(prepared, case.config.salt, EVERYTHING, 1, 1 << 30)
    rows = pa.Table.from_batches(batches(case.spans, 1000, log_table(case.logs, 1)))
    group = pa.array([1] * len(rows), pa.int64())
    rows = rows.set_column(rows.column_names.index("group"), "group", group)
    output = [row for batch in scorer.score(rows.to_batches()) for row in batch.to_pylist()]
    return scores_of([row["score"] for row in output if row["kind"] == "score"])


def scores_of(rows: Sequence[dict[str, Any]]) -> list[Score]:
    """Return rows as scores."""
    plain = [{k: v for k, v in row.items() if k not in ("start_ns", "seq")} for row in rows]
    return [Score(**{**row, "metadata": json.loads(row["metadata"])}) for row in plain]


WAYS = [by_reading, live, from_tables, on_executor]


def table(scores: Sequence[Score]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return scores by run and evaluator, without the time."""
    values_by_key = {}
    for row in scores:
        values = {**row.as_dict(), "rev": row.rev, "sample_p": row.sample_p}
        values_by_key[row.trajectory_id, row.evaluator] = {
            name: value for name, value in values.items() if name != "time_ns"
        }
    assert len(values_by_key) == len(scores)
    return values_by_key


@pytest.fixture
def case_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Case]]:
    """Return a function that writes the configuration beside its files."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = re.sub(r"\W", "_", f"verdicts_{tmp_path.name}")
    (tmp_path / f"{module}.py").write_text(FUNCTIONS)
    (tmp_path / "r.json").write_text(json.dumps(REFERENCE))
    (tmp_path / "g.json").write_text('{"steps": [["a", "b"]]}')
    (tmp_path / "d.jsonl").write_text(json.dumps({"test.case": "1", "messages": REFERENCE}))
    (tmp_path / "q.jsonl").write_text(json.dumps({"question": "hi", "messages": REFERENCE}))
    path = tmp_path / "oteval.yaml"
    path.write_text(RULES.replace("MODULE", module))
    yield lambda spans, logs=(): Case(spans, logs, path)
    sys.modules.pop(module, None)


def test_every_type_of_evaluator_is_compared():
    """A new type of evaluator is added to the rules; judges ask a model."""
    types = {rule["type"] for rule in yaml.safe_load(RULES)["evaluators"]}

    assert types == {*evaluator_types()} - {"judge"}


def test_chats_get_the_same_scores_everywhere(case_of: Callable[..., Case]):
    """Failing and hanging functions, samples, filters, and references that are missing."""
    chats = [
        chat(n, 1, [("user", "hi")], f"hello {n}", **({"test.case": str(n % 3)} if n % 2 else {}))
        for n in range(1, 7)
    ]
    case = case_of(chats)
    expected = table(from_store(case))

    assert {row["status"] for row in expected.values()} == {"ok", "error", "not_evaluated"}
    for way in WAYS:
        assert table(way(case)) == expected, way


@pytest.mark.parametrize(
    "name",
    [
        name if at % 16 == 0 else pytest.param(name, marks=pytest.mark.slow)
        for at, name in enumerate(CAPTURES)
    ],
)
def test_captures_get_the_same_scores_everywhere(name: str, case_of: Callable[..., Case]):
    """Captured runs have the same scores whether they were stored, and decided by columns."""
    case = case_of(*capture(name))
    expected = table(from_store(case))

    for way in WAYS:
        assert table(way(case)) == expected, way
