"""Fixtures of the tests of live scoring: servers, a clock that the test moves, and a driver."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.served import Served
from oteval.evaluators.judge.client import OUTPUT_MODE_MEMORY
from oteval.model import Score, Span
from oteval.serve.destinations import ScoreDestinations
from oteval.serve.evaluator_rules import EvaluatorRules
from oteval.serve.scoring_loop import ScoringLoop
from oteval.store import Store

from ..model_server import Server, serving
from ..otlp_endpoint import Downstream, listening

SECOND = 1_000_000_000
# Later than now, because the cost of judges is stored with the real time of day.
BEGIN = 4_000_000_000 * SECOND


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> int:
        """Return the time (ns)."""
        return self.now

    def move(self, seconds: float) -> None:
        """Let time pass."""
        self.now += round(seconds * SECOND)


class Driver:
    """A store, rules in a file, and live scoring over them."""

    def __init__(self, store: Store, folder: Path, clock: Clock) -> None:
        self.store, self.clock = store, clock
        self.path = folder / "oteval.yaml"
        self.scoring: ScoringLoop | None = None

    def rules(self, text: str) -> None:
        """Write the configuration."""
        self.path.write_text(text)

    def start(self, attach: ScoreDestinations | None = None) -> ScoringLoop:
        """Begin, as a process that starts does."""
        mine = self.store.sibling()
        self.scoring = ScoringLoop(mine, EvaluatorRules(self.path, self.store), attach, self.clock)
        return self.scoring

    def came(self, *spans: Span) -> None:
        """Store spans and say so."""
        self.store.spans.write(spans)
        assert self.scoring is not None
        self.scoring.notify({span.trace_id for span in spans}, self.clock.now)
        self.scoring.tick()

    def run(self, seconds: float = 0.0, patience: float = 10.0) -> None:
        """Let time pass, and go on until nothing is to be done at this time."""
        assert self.scoring is not None
        self.clock.move(seconds)
        until = time.monotonic() + patience
        while self.scoring.tick() or not self.scoring.is_idle:
            assert time.monotonic() < until, self.scoring.state()
            time.sleep(0.005)

    def scores(self, evaluator: str | None = None) -> list[Score]:
        """Return the current scores."""
        found = list(self.store.scores.read())
        return [score for score in found if evaluator in (None, score.evaluator)]

    def rows(self) -> list[tuple[Any, ...]]:
        """Return every row of scores, those that are superseded too."""
        return self.store._connection.execute(
            "SELECT trajectory_id, rev, evaluator, version, status FROM scores ORDER BY seq"
        ).fetchall()


@pytest.fixture(scope="module")
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A server with the `RULES`, and perhaps `ARGUMENTS` and `ENVIRONMENT`, of the module."""
    folder = tmp_path_factory.mktemp("served")
    module = request.module
    (folder / "oteval.yaml").write_text(module.RULES)
    environment = getattr(module, "ENVIRONMENT", None)
    server = Served(folder, *getattr(module, "ARGUMENTS", ()), environment=environment)
    yield server
    assert server.stop() == 0


@pytest.fixture
def start() -> Iterator[Callable[..., Served]]:
    """Return a function that starts a server; a server that the test does not stop is killed."""
    started: list[Served] = []

    def begin(folder: Path, *arguments: str, **more: Any) -> Served:
        started.append(Served(folder, *arguments, **more))
        return started[-1]

    yield begin
    for server in started:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


@pytest.fixture
def model_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server of a language model whose verdict is a pass until its script is changed."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    OUTPUT_MODE_MEMORY.clear()
    with serving() as running:
        yield running


@pytest.fixture
def downstream() -> Iterator[Downstream]:
    """Return an endpoint to send to."""
    with listening() as state:
        yield state


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def driver(store: Store, tmp_path: Path, clock: Clock) -> Iterator[Driver]:
    made = Driver(store, tmp_path, clock)
    yield made
    if made.scoring is not None:
        made.scoring.close()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Return a function that writes a module beside the configuration and returns its name."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    made: list[str] = []

    def write(text: str) -> str:
        name = f"live_evaluators_{tmp_path.name}_{len(made)}".replace("-", "_")
        (tmp_path / f"{name}.py").write_text(text)
        made.append(name)
        return name

    yield write
    for name in made:
        sys.modules.pop(name, None)
