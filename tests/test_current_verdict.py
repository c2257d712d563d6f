"""Every surface shows the same verdict on a run: that of its current score.

Stores are drawn with revisions, scores that come late, versions, errors, runs that could not be
evaluated, and deletions. Each surface is read as a user reads it, and compared with a plain model.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, Phase, example, given, settings, strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from rich.console import Console
from starlette.testclient import TestClient

from oteval.base.clients.otlp_client import HttpClient
from oteval.model import SCORE_ATTRIBUTES, Score, Trajectory
from oteval.model.selection import EVERYTHING
from oteval.scoring import ScoreCounts, export_jsonl, variants
from oteval.serve.destinations import ScoreDestinations
from oteval.serve.publish.forwarder import Forwarder
from oteval.serve.publish.metrics import ScoringMetrics
from oteval.serve.publisher import ScorePublisher
from oteval.store import ObservationSource, ReadPosition, Store
from oteval.views.mcp.server import create_server
from oteval.views.mcp.workspace import Workspace
from oteval.views.pages.app import create_app
from oteval.views.pages.site import Site
from oteval.views.report import ReportOptions, build_stored, from_keys, stored_tallies
from oteval.views.tables import trajectories_table
from oteval.views.terminal import trajectory_view

from .make import ROOT, keep, run, score
from .otlp_endpoint import listening

START = 1_790_000_000 * 10**9
EXAMPLES = 4
RUNS, EVALUATORS = 4, ("e", "f")
STATES = ("pass", "fail", "error", "not_evaluated")
# A verdict on each run and evaluator that has one.
Verdicts = dict[tuple[str, str], str]


@dataclass(frozen=True)
class Revise:
    """Late spans change a run."""

    number: int


@dataclass(frozen=True)
class Give:
    """An evaluator scores a run: the newest revision, or the one before."""

    number: int
    evaluator: str
    version: str
    state: str
    is_late: bool


@dataclass(frozen=True)
class Delete:
    """A run is deleted with its scores."""

    number: int


NUMBERS = st.integers(1, RUNS)
GIVEN = st.builds(
    Give, NUMBERS, st.sampled_from(EVALUATORS), st.sampled_from("vw"),
    st.sampled_from(STATES), st.booleans(),
)  # fmt: skip
EVENTS = st.lists(
    # The first run stays: a report on no run is an error.
    st.one_of(*[GIVEN] * 5, st.builds(Revise, NUMBERS), st.builds(Delete, st.integers(2, RUNS))),
    min_size=4,
    max_size=24,
)


def made(number: int, rev: int = 1) -> Trajectory:
    """Return a revision of a run."""
    start = START + number * 10**9
    return run(number, agent=f"agent {number}", start_ns=start, end_ns=start + rev, turn=0)


def filled(store: Store, events: list[Any]) -> Verdicts:
    """Do what happened to a store, and return the verdicts that are current then."""
    revisions = dict.fromkeys(range(1, RUNS + 1), 1)
    keep(store, *map(made, revisions))
    latest: dict[tuple[int, str], tuple[int, str]] = {}
    for at, event in enumerate(events):
        number = event.number
        if number not in revisions:
            continue
        if isinstance(event, Revise):
            revisions[number] += 1
            keep(store, made(number, revisions[number]))
        elif isinstance(event, Delete):
            del revisions[number]
            store.deletion.delete([made(number).root_span.trace_id])
        else:
            rev = max(1, revisions[number] - event.is_late)
            store.scores.write([_score(event, rev, at)])
            if rev == revisions[number]:
                latest[number, event.evaluator] = rev, event.state
    return {
        (made(number).id, evaluator): state
        for (number, evaluator), (rev, state) in latest.items()
        if revisions.get(number) == rev
    }


def _score(event: Give, rev: int, at: int) -> Score:
    outcome: dict[str, Any] = {"status": "ok", "passed": event.state == "pass"}
    if event.state in ("error", "not_evaluated"):
        outcome = {"status": event.state}
    new_score = score(event.number, evaluator=event.evaluator, version=event.version, rev=rev,
                  time_ns=START + at, **outcome)  # fmt: skip
    return replace(new_score, score=None if new_score.passed is None else float(new_score.passed))


def state_of(value: Score | Mapping[str, Any]) -> str:
    """Return the verdict of a score or of its JSON form."""
    fields = value if isinstance(value, Mapping) else value.as_dict()
    return fields["status"] if fields["status"] != "ok" else "pass" if fields["passed"] else "fail"


def verdicts_of(scores: Iterator[Score] | list[Score]) -> Verdicts:
    """Return the verdicts of some scores, of which each is another."""
    verdicts = [((score.trajectory_id, score.evaluator), state_of(score)) for score in scores]
    assert len(dict(verdicts)) == len(verdicts)
    return dict(verdicts)


def counts_of(verdicts: Verdicts) -> dict[str, Counter[str]]:
    """Return how often each evaluator gave each verdict."""
    counts: dict[str, Counter[str]] = {}
    for (_, evaluator), state in verdicts.items():
        counts.setdefault(evaluator, Counter())[state] += 1
    return counts


def counted(figures: Any) -> Counter[str]:
    """Return the figures of an evaluator in the form of `counts_of`."""
    names = ("passed", "failed", "errors", "not_evaluated")
    return +Counter(dict(zip(STATES, (getattr(figures, name) for name in names), strict=True)))


@contextmanager
def client_of(store: Store) -> Iterator[TestClient]:
    """Yield a client of the pages."""
    site = Site("test", store.sibling, None, clock=lambda: START + 60 * 10**9)
    try:
        yield TestClient(create_app(site), base_url="http://127.0.0.1")
    finally:
        site.close()


def text_of(view: Any) -> str:
    """Return what a terminal shows."""
    out = StringIO()
    Console(file=out, width=200).print(view)
    return out.getvalue()


def in_lists(store: Store) -> Iterator[Verdicts]:
    """Yield the verdicts of `scores`, `show`, `trajectories` and exports."""
    runs = list(store.trajectories.read())
    yield verdicts_of(list(store.scores.read()))
    of_runs = store.scores.of([run.id for run in runs])
    yield verdicts_of([verdict for of_run in of_runs.values() for verdict in of_run])
    on_traces = store.scores.on_traces([run.root_span.trace_id for run in runs])
    yield verdicts_of([verdict for on_trace in on_traces.values() for verdict in on_trace])
    yield verdicts_of(store.scores.after(0, 100)[0])
    yield {
        (row["trajectory_id"], row["evaluator"]): state_of(row)
        for row in store.scores.export().read_all().to_pylist()
    }
    lines = StringIO()
    export_jsonl(store, lines)
    yield {
        (row["trajectory_id"], verdict["evaluator"]): state_of(verdict)
        for row in map(json.loads, lines.getvalue().splitlines())
        for verdict in row["scores"]
    }
    view = store._connection.execute(
        "SELECT trajectory_id, evaluator, status, passed FROM span_scores"
    ).fetchall()
    yield {(name, e): state_of({"status": s, "passed": p}) for name, e, s, p in view}


def in_filters(store: Store, client: TestClient) -> Iterator[Verdicts]:
    """Yield the verdicts by which `scores --status` and the list of runs find runs."""
    numbers_by_state = ((state, store.scores.numbers(outcome=state)) for state in STATES)
    yield {
        (verdict.trajectory_id, verdict.evaluator): state
        for state, numbers in numbers_by_state
        for verdict in store.scores.at(numbers)
    }
    words = {"pass": "passed=true", "fail": "passed=false"}
    yield {
        (name, evaluator): state
        for evaluator in EVALUATORS
        for state, word in words.items()
        for name in set(
            re.findall(
                r'href="/runs/(\w{16})',
                client.get("/runs", params={"q": f"evaluator={evaluator} {word}"}).text,
            )
        )
    }


def of_evaluators(store: Store, client: TestClient) -> Iterator[dict[str, Counter[str]]]:
    """Yield the counts of gates, reports, the overview, evaluators and their pages."""
    period = (START, START + 60 * 10**9)
    scored = ScoreCounts()
    scored.add_stored(store)
    yield {name: counted(tally) for name, tally in scored.tallies.items()}
    selected = store.statistics.of(EVERYTHING)
    yield {name: counted(tally) for name, tally in stored_tallies(selected).items()}
    report = build_stored(selected, from_keys(store, selected.worst(9)), ReportOptions())
    yield {evaluator.name: counted(evaluator) for evaluator in report.evaluators}
    agents: dict[str, Counter[str]] = {}
    for agent in store.agent_figures.of(*period, 3, 9):
        for verdict in agent.verdicts:
            agents.setdefault(verdict.evaluator, Counter()).update(counted(verdict))
    yield agents
    yield {
        figures.evaluator: counted(figures.counts)
        for figures in store.evaluator_figures.all(*period, 3)
    }
    yield {
        name: counts
        for name in EVALUATORS
        if (counts := counted(store.evaluator_figures.of(name, *period, 3, bins=2).counts))
    }


def of_variants(store: Store) -> dict[str, tuple[int, int]]:
    """Return the passes and the judged runs of each evaluator, over all variants."""
    figures = {}
    for name in EVALUATORS:
        rows = list(variants(store, evaluator=name).rows)
        figures[name] = (sum(r["passed"] for r in rows), sum(r["judged"] for r in rows))
    return figures


async def over_mcp(path: Path) -> Verdicts:
    """Return the verdicts that the list of runs of `oteval mcp` has."""
    from mcp import Client

    workspace = Workspace(str(path), str(path.parent / "none.yaml"))
    async with Client(create_server(workspace, writes=False)) as client:
        result = await client.call_tool("list_runs", {})
    text = result.content[0].text  # type: ignore[union-attr]
    verdicts: Verdicts = {}
    for row in (json.loads(line) for line in text.splitlines() if line.startswith("{")):
        verdicts |= {(row["run"], name): "pass" for name in row.get("passed", ())}
        for verdict in row.get("scores", ()):
            verdicts[row["run"], verdict["evaluator"]] = verdict["outcome"]
    return verdicts


def check_all(path: Path, events: list[Any]) -> None:
    """Compare all surfaces of a store with the model."""
    with Store(path) as store:
        expected = filled(store, events)
        counts = counts_of(expected)
        for verdicts in in_lists(store):
            assert verdicts == expected
        with client_of(store) as client:
            by_status, by_page = in_filters(store, client)
            for of_all in of_evaluators(store, client):
                assert of_all == counts
            for trajectory in store.trajectories.read():
                _check_run(store, client, trajectory, expected)
        assert by_status == expected
        assert by_page == {k: v for k, v in expected.items() if v in ("pass", "fail")}
        rates = of_variants(store)
        for name in EVALUATORS:
            passed, failed, errors, _ = (counts.get(name, Counter())[state] for state in STATES)
            assert rates[name] == (passed, passed + failed + errors if passed + failed else 0)
        assert by_monitors(store) == by_page
        assert forwarded(store, path.parent / "forward") == by_page
    assert asyncio.run(over_mcp(path)) == expected


def _check_run(store: Store, client: TestClient, run_: Trajectory, expected: Verdicts) -> None:
    """Compare the terminal and the page of a run with its verdicts."""
    scores = store.scores.of([run_.id])[run_.id]
    own = {name: state for (run_id, name), state in expected.items() if run_id == run_.id}
    key = store.run_list.find(run_.id)
    assert key is not None
    listed = trajectories_table(store.run_list.rows([key]), {run_.id: scores}, 0)
    for view in (trajectory_view(run_, scores), listed):
        assert bool(own) == bool(re.search(r"\b[ef]\b", text_of(view)))
    page = client.get(f"/runs/{run_.id}").text
    marks = re.findall(r'class="score-item (\w+)".*?</span>(\w)</span>', page, re.DOTALL)
    words = {"none": "not_evaluated"}
    assert {name: words.get(state, state) for state, name in marks} == own


def forwarded(store: Store, folder: Path) -> Verdicts:
    """Return the passes and fails on the spans that a receiver gets from live scoring."""
    export = ExportTraceServiceRequest()
    spans = export.resource_spans.add().scope_spans.add().spans
    roots = {each.root_span.span_id: each for each in store.trajectories.read()}
    for root in (each.root_span for each in roots.values()):
        trace_id, span_id = bytes.fromhex(root.trace_id), bytes.fromhex(root.span_id)
        spans.add(trace_id=trace_id, span_id=span_id, name="invoke_agent", end_time_unix_nano=1)
    with listening() as receiver:
        forward = Forwarder(folder, HttpClient(receiver.url), deadline=30.0, clock=lambda: START,
                            threaded=False)  # fmt: skip
        forward.take("traces", "protobuf", export.SerializeToString(), (1, 1), START)
        forward.sync()
        destinations = ScoreDestinations(ScoringMetrics(), forward)
        ScorePublisher(store, destinations).release(
            [each.root_span.trace_id for each in roots.values()]
        )
        while forward.pump():
            pass
        forward.close()
    assert {span.span_id.hex() for span in receiver.spans()} == roots.keys()
    passed = re.compile(rf"{re.escape(SCORE_ATTRIBUTES)}(\w+)\.passed")
    return {
        (roots[span.span_id.hex()].id, match[1]): "pass" if attribute.value.bool_value else "fail"
        for span in receiver.spans()
        for attribute in span.attributes
        if (match := passed.fullmatch(attribute.key))
    }


def by_monitors(store: Store) -> Verdicts:
    """Return the passes and fails that a first check of monitors reads."""
    verdicts: Verdicts = {}
    for name in EVALUATORS:
        source = ObservationSource("m", "pass_rate", name)
        last = store.observations.newest(source)
        rows, _ = store.observations.new_runs(source, ReadPosition(), last)
        for row in rows.to_pylist():
            key = row["trajectory_id"], name
            assert key not in verdicts
            verdicts[key] = "pass" if row["value"] == 1 else "fail"
    return verdicts


EVERYTHING_HAPPENS = [
    Give(1, "e", "v", "pass", False),
    Revise(1),
    Give(1, "f", "v", "fail", False),
    Give(1, "f", "v", "pass", True),
    Give(2, "e", "v", "pass", False),
    Give(2, "e", "v", "error", False),
    Give(2, "f", "w", "pass", False),
    Give(2, "f", "v", "not_evaluated", False),
    Give(3, "e", "v", "pass", False),
    Give(3, "e", "w", "fail", False),
    Give(3, "f", "v", "error", False),
    Give(3, "f", "v", "pass", False),
    Give(4, "e", "v", "fail", False),
    Delete(4),
]


@given(EVENTS)
@example(EVERYTHING_HAPPENS)
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_surface_shows_the_same_verdict(events: list[Any]) -> None:
    """Whatever happened to runs and scores, no surface knows another verdict than the others."""
    with TemporaryDirectory() as folder:
        check_all(Path(folder) / "runs.duckdb", events)


def test_the_model_knows_what_counts() -> None:
    """A changed run has no verdict until it is scored again, and the last attempt counts."""
    with Store() as store:
        verdicts = filled(store, EVERYTHING_HAPPENS)

    named = {(number, name): verdicts.get((made(number).id, name)) for number, name in SOME}
    assert named == dict(zip(SOME, SOME_STATES, strict=True))


SOME = [(1, "e"), (1, "f"), (2, "e"), (2, "f"), (3, "e"), (3, "f"), (4, "e")]
SOME_STATES = [None, "fail", "error", "not_evaluated", "fail", "pass", None]

# What another definition of the current score would look like, in a query of the table `scores`.
_RANKED = re.compile(
    r"PARTITION BY[^)]*\bevaluator\b|arg_max\w*\([^)]*\b(seq|rev)\b|\brev\s+DESC", re.IGNORECASE
)


def queries(path: Path) -> Iterator[str]:
    """Yield the texts of a module, those of f-strings without what they are filled with."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            yield " ".join(
                str(value.value) for value in node.values if isinstance(value, ast.Constant)
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_no_other_query_says_which_score_is_current() -> None:
    """Only `current_scores` orders scores by revision or number to find the one that counts."""
    own = ROOT / "oteval" / "store" / "current_scores.py"
    assert any(map(_RANKED.search, queries(own)))
    others = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "oteval" / "store").rglob("*.py")
        for text in (queries(path) if path != own else ())
        if re.search(r"\bscores\b", text) and _RANKED.search(text)
    }
    assert others == set()
