"""Faults in recorded sessions of an agent of the shop, which really acts when its tools run."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..make import ROOT

pytestmark = [
    pytest.mark.slow,
    # `check.py` leaves files to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

AGENTS = ROOT / "tests" / "data" / "replay_agents"
QUESTION = "Please refund order 17"


@pytest.fixture(scope="module")
def agent() -> Iterator[Any]:
    """Return the plain loop on the OpenAI client, recorded; its model is a live server."""
    spec = importlib.util.spec_from_file_location("shop_check", AGENTS / "check.py")
    assert spec is not None
    assert spec.loader is not None
    check: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check)
    python = Path(sys.executable)
    bench = check.Bench(str(python), str(python.with_name("oteval")))
    try:
        recorded = bench.agent(str(AGENTS / "a01_plain_openai.py"))
        recorded.env["PYTHONPATH"] += f"{os.pathsep}{ROOT}"
        assert recorded.record(QUESTION) is None
        yield recorded
    finally:
        bench.close()


@pytest.mark.parametrize(
    ("fault", "ending"),
    [
        ("refund=timeout", "after the fault refund=timeout: the agent raised TimeoutError"),
        ("refund=empty", "never succeeded, but the answer does not mention it"),
    ],
)
def test_faults_of_a_loop_without_a_framework(agent: Any, fault: str, ending: str) -> None:
    """Nothing is executed; an exception that the loop does not catch is its end."""
    effects = Path(agent.dir, "effects.log")
    before = effects.read_text("utf-8")

    done = agent.run(
        *(agent.bench.oteval, "whatif", "--fault", fault, "--json"),
        *("--", agent.bench.python, agent.path, QUESTION),
    )

    rows = [json.loads(line) for line in done.stdout.splitlines()]
    (recovery,) = [row for row in rows if row["row"] == "recovery"]
    assert (done.returncode, recovery["passed"]) == (1, False)
    assert recovery["question"] == QUESTION
    assert ending in recovery["comment"]
    assert effects.read_text("utf-8") == before
