"""Large files that are scored without a store give the same scores as stored ones."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import traces
from oteval.config import Config, parse_config
from oteval.model import Span
from oteval.pipeline import (
    FileScores,
    ScoreRun,
    can_score_files,
    file_scores,
    load,
    refresh,
    score,
    score_units,
    score_worker,
)
from oteval.selection import EVERYTHING, Selection
from oteval.store import Store

from ..make import CAPTURES, SOME_SEEDS, TRACES, alike, retried

_RULES = """
evaluators:
  - {name: errors, type: tool_errors}
  - {name: calls, type: trajectory_match, mode: superset, reference: reference.json}
  - {name: half, type: tool_errors, sample: 0.5}
  - {name: agents, type: loops, where: {agent: [support, researcher]}}
"""
_CALL = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
_REFERENCE = [{"role": "assistant", "tool_calls": [{"id": "1", "function": _CALL}]}]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "reference.json").write_text(json.dumps(_REFERENCE))
    return parse_config(_RULES)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the parts so small that the traces of a few captures lie in several."""
    monkeypatch.setattr(file_scores, "LEAST_SIZE", 1)
    monkeypatch.setattr(score_units, "PART_SIZE", 20_000)
    monkeypatch.setattr(score_units.machine, "processors", lambda: 3)


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the workers run in this process, which need not start others then."""

    class InThisProcess:
        def __init__(self, _module: str, **_options: Any) -> None:
            self.output: list[bytes] = []

        def send(self, path: str) -> None:
            score_worker.run_all(path, self.output.append)

        def close(self) -> None:
            pass

    monkeypatch.setattr(file_scores, "ChildProcess", InThisProcess)


def lines_of(name: str) -> Iterator[str]:
    """Yield the requests of a capture, one for each span or log record."""
    for path in (TRACES / f"{name}.json", TRACES / f"{name}.logs.json"):
        document = json.loads(path.read_text()) if path.exists() else {}
        for kind, scopes, items in (
            ("resourceSpans", "scopeSpans", "spans"),
            ("resourceLogs", "scopeLogs", "logRecords"),
        ):
            for group in document.get(kind, ()):
                for scoped in group[scopes]:
                    for item in scoped[items]:
                        one = {**group, scopes: [{**scoped, items: [item]}]}
                        yield json.dumps({kind: [one]})


def line_of(span: Span) -> str:
    """Return the request of a span whose attributes are texts."""
    texts = [{"key": k, "value": {"stringValue": v}} for k, v in span.attributes.items()]
    resource = [{"key": k, "value": {"stringValue": v}} for k, v in span.resource.items()]
    item = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "parentSpanId": span.parent_id,
        "name": span.name,
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": texts,
        "status": {"code": span.status_code},
    }
    group = {"resource": {"attributes": resource}, "scopeSpans": [{"spans": [item]}]}
    return json.dumps({"resourceSpans": [group]})


def stored(
    paths: Sequence[str], config: Config, base: Path, selection: Selection
) -> tuple[list[Any], list[str], ScoreRun]:
    """Return the scores of files that are loaded into a store, and the problems."""
    run = ScoreRun()
    with Store() as store:
        report = load(store, paths)
        refresh(store)
        found = [one.as_dict() for one in score(store, config, base, selection, run)]
    # Scores come from the workers as JSON, which has no tuples.
    return (
        json.loads(json.dumps(found)),
        [str(p) for file in report.files for p in file.problems],
        run,
    )


def direct(
    paths: Sequence[str], config: Config, base: Path, selection: Selection
) -> tuple[list[Any], list[str], ScoreRun] | None:
    """Return the same without a store; None if a store is needed."""
    run = ScoreRun()
    assert can_score_files(config, selection, paths)
    with FileScores(paths, config, base, selection) as files:
        if not files.read(lambda _done, _total: None):
            return None
        found = [one.as_dict() for one in files.scores(run, lambda _done: None)]
        return (
            json.loads(json.dumps(found)),
            [str(p) for file in files.report.files for p in file.problems],
            run,
        )


def written(lines: Sequence[str], count: int, folder: Path) -> list[str]:
    """Write lines to some files, and return their paths."""
    paths = [folder / f"{number}.jsonl" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_text("".join(f"{line}\n" for line in lines[number::count]))
    return [str(path) for path in paths]


def mixed(chance: random.Random) -> list[str]:
    """Return requests of captures and of chats without ids, some of them twice or damaged."""
    names = chance.sample(CAPTURES, 6)
    found = [line for name in names for line in lines_of(name)]
    found += map(line_of, [*alike(15, chance), *retried(15, chance)])
    found += chance.sample(found, 5)
    distance = chance.choice([1, 10, 200, 10_000])
    order = sorted(range(len(found)), key=lambda at: at + chance.uniform(0, distance))
    found = [found[at] for at in order]
    for _ in range(4):
        found.insert(chance.randrange(1, len(found)), '{"resourceSpans": [1]}')
    return found


@pytest.mark.usefixtures("small_parts", "one_process")
@pytest.mark.parametrize("seed", SOME_SEEDS)
def test_scattered_traces_have_the_scores_of_stored_ones(
    tmp_path: Path, config: Config, seed: int, monkeypatch: pytest.MonkeyPatch
):
    """Spans of captures in any order, in several files, twice and among damaged lines."""
    monkeypatch.setattr(file_scores, "_MAX_SHARED", 1.0)
    chance = random.Random(seed)
    paths = written(mixed(chance), chance.choice([1, 1, 2]), tmp_path)
    selection = chance.choice([EVERYTHING, Selection(services=("unknown", "demo", "shop"))])

    found = direct(paths, config, tmp_path, selection)
    expected = stored(paths, config, tmp_path, selection)

    assert found is not None
    assert found[0] == expected[0]
    assert found[1] == expected[1]
    assert (found[2].tallies, found[2].trajectories) == (
        expected[2].tallies,
        expected[2].trajectories,
    )


@pytest.mark.usefixtures("small_parts")
def test_processes_score_what_needs_no_store(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
):
    """Whole traces in the order of a file are scored by the worker processes alone."""
    paths = written([line.decode().strip() for line in traces.lines(256)], 1, tmp_path)
    expected = stored(paths, config, tmp_path, EVERYTHING)
    monkeypatch.setattr(file_scores.FileScores, "_store_shared", None)

    assert direct(paths, config, tmp_path, EVERYTHING) == expected


@pytest.mark.usefixtures("small_parts", "one_process")
def test_a_file_whose_traces_belong_together_is_stored(tmp_path: Path, config: Config):
    """If most traces are scattered over the file, or a file cannot be read, all is stored."""
    chance = random.Random(1)
    twice = [line for _ in range(2) for line in lines_of("openinference_chat")]
    scattered = written(twice + [line_of(one) for one in alike(3, chance)], 1, tmp_path)
    broken = tmp_path / "broken"
    broken.write_text("no trace")

    assert direct(scattered, config, tmp_path, EVERYTHING) is None
    assert direct([str(broken)], config, tmp_path, EVERYTHING) is None


def test_evaluators_that_need_a_store_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Judges, functions, stored references, a limit, and standard input."""
    monkeypatch.setattr(file_scores, "LEAST_SIZE", 1)
    path = tmp_path / "traces.jsonl"
    path.write_text("{}")

    def can(rule: str, selection: Selection = EVERYTHING, *paths: str) -> bool:
        rules = parse_config(f"evaluators: [{rule}]")
        return can_score_files(rules, selection, paths or [str(path)])

    assert can("{name: a, type: tool_errors}")
    assert can("{name: a, type: tool_errors}", Selection(agents=("a",), since_ns=1))
    assert not can("{name: a, type: tool_errors}", Selection(limit=3))
    assert not can("{name: a, type: tool_errors}", EVERYTHING, "-")
    assert not can("{name: a, type: tool_errors}", EVERYTHING, str(path), str(path))
    assert not can("{name: a, type: python, call: 'm:f'}")
    stored = "{name: a, type: trajectory_match, mode: strict, reference: {name: gold}}"
    assert not can(stored)
