"""The pytest plugin: the log of marked tests; other tests are left alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from oteval.replays import testing

from ...make import ROOT
from ...test_package import HEAVY
from .conftest import Project, new_project

AGENT = """
import pytest
from oteval import trajectory_superset
from oteval.replays import testing
from tests.agent import answer

WANTED = [{"role": "assistant", "tool_calls": [{"name": "look_up", "args": {}}]}]
"""

FIXTURES = """
import asyncio, threading

@pytest.mark.parametrize("n", range(3))
def test_alone(oteval_trajectory, n):
    answer(f"q{n}", "look_up")
    assert oteval_trajectory().messages[0].content == f"q{n}"

def test_thread(oteval_capture):
    thread = threading.Thread(target=answer, args=("in a thread",))
    thread.start(); thread.join()
    assert oteval_capture.trajectory.messages[0].content == "in a thread"

async def test_async(oteval_trajectory):
    await asyncio.gather(asyncio.to_thread(answer, "async"), asyncio.sleep(0))
    assert oteval_trajectory().messages[0].content == "async"

def test_nothing(oteval_capture):
    assert oteval_capture.spans == []
"""

ONE_LOOP = """
pytestmark = pytest.mark.asyncio(loop_scope="module")

@pytest.mark.oteval
@pytest.mark.parametrize("n", range(3))
async def test_async(oteval_trajectory, n):
    answer(f"q{n}")
    testing.log_feedback(key=f"k{n}", score=n + 70)
    assert oteval_trajectory().messages[0].content == f"q{n}"
"""

PROVIDER = """
from opentelemetry.sdk.trace import TracerProvider
PROVIDER = TracerProvider()

@pytest.fixture
def oteval_tracer_provider():
    return PROVIDER

def test_it(oteval_trajectory):
    answer("mine", provider=PROVIDER)
    assert oteval_trajectory().messages[0].content == "mine"
"""

TABLE = """
@pytest.mark.oteval
def test_logged():
    testing.log_inputs({"question": "why"})
    testing.log_outputs({"answer": "because"})
    testing.log_reference_outputs({"answer": "therefore"})
    testing.log_feedback(key="tone", score=0.25, comment="rude")
    testing.log_feedback({"key": "style", "score": None, "value": "formal"})

@pytest.mark.oteval(output_keys=["expected"])
@pytest.mark.parametrize(("question", "expected"), [("two and two", "four")])
def test_captured(oteval_trajectory, question, expected):
    answer(question, "look_up")
    assert trajectory_superset(outputs=oteval_trajectory(), reference_outputs=WANTED)["score"]

@pytest.mark.oteval
def test_failed(oteval_trajectory):
    answer("nothing")
    assert trajectory_superset(outputs=oteval_trajectory(), reference_outputs=WANTED)["score"]

@pytest.fixture
def broken():
    raise ValueError("no database")

@pytest.mark.oteval
def test_broken(broken): pass

@pytest.mark.oteval
def test_skipped(): pytest.skip("not today")

def test_unmarked(oteval_trajectory):
    answer("q", "look_up")
    trajectory_superset(outputs=oteval_trajectory(), reference_outputs=WANTED)
"""

SCORES = """
@pytest.mark.oteval
def test_it(oteval_capture):
    answer("q")
    oteval_capture.score("oteval.yaml")
"""

REPETITIONS = """
COUNT = iter(range(100))

@pytest.mark.oteval(repetitions=3)
@pytest.mark.parametrize("name", ["a", "b-run1of3"])
def test_it(name):
    n = next(COUNT)
    testing.log_feedback(key="n", score=n)
    assert n != 1
"""


class Modules:
    """The output of one pytest run on several modules.

    Starting pytest takes a second or two, so tests share a run. A table has a column for each
    feedback key only up to five keys: modules of one project have no more than five together.
    """

    def __init__(self, printed: str) -> None:
        verbose, _, table = printed.partition("= oteval =")
        self._outcomes, self._rows = verbose.splitlines(), table.splitlines()

    def outcomes(self, module: str) -> list[str]:
        """Return the outcomes of a module's tests."""
        lines = [line for line in self._outcomes if line.startswith(f"test_{module}.py::")]
        return [match[1] for line in lines if (match := OUTCOME.search(line))]

    def rows(self, module: str) -> list[str]:
        """Return the table's rows of a module, without the module and the duration."""
        start = f"test_{module}.py::"
        lines = [line.removeprefix(start) for line in self._rows if line.startswith(start)]
        return [" ".join(line.split()[:-1]) for line in lines]


OUTCOME = re.compile(r" (PASSED|FAILED|ERROR|SKIPPED)\b")


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Modules:
    """Return the finished run of modules that capture spans."""
    project = new_project(tmp_path_factory.mktemp("captured"))
    (project.path / "oteval.yaml").write_text(
        "evaluators:\n- {name: mine, type: python, call: 'evals:check'}\n"
        "- {name: raises, type: python, call: 'evals:raises'}\n"
    )
    project.write(
        evals="def check(outputs): return 0.75\ndef raises(outputs): raise ValueError('no')\n",
        test_fixtures=AGENT + FIXTURES,
        test_one_loop=AGENT + ONE_LOOP,
        test_provider=AGENT + PROVIDER,
        test_scores=AGENT + SCORES,
    )
    printed = project.run("-v", "--oteval-output")
    assert project.status == 0, printed
    return Modules(printed)


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Modules:
    """Return the finished run of modules that log inputs, outputs and feedback."""
    project = new_project(tmp_path_factory.mktemp("logged"))
    project.write(test_table=AGENT + TABLE, test_repetitions=AGENT + REPETITIONS)
    return Modules(project.run("-v", "--oteval-output"))


def test_importing_the_plugin_is_cheap():
    """Pytest imports the plugin in every project, so it imports no slow or unneeded modules."""
    code = (
        "import sys, pytest; before = set(sys.modules); import oteval.replays.testing.plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )

    loaded = set(done.stdout.split())

    assert not loaded & {*HEAVY, "opentelemetry", "langsmith", "oteval.evaluators", "oteval.store"}
    assert len([name for name in loaded if name.startswith("oteval")]) <= 7


@pytest.mark.slow
def test_a_project_that_does_not_use_it_is_left_alone(project: Project):
    """Pytest prints the same with and without the plugin."""
    project.write(test_it="def test_a(): pass\n\ndef test_b(): assert 0\n")

    with_it, without = project.run("-q"), project.run("-q", "-p", "no:oteval")

    assert project.status == 1
    strip = [line for line in with_it.splitlines() if " in " not in line]
    assert strip == [line for line in without.splitlines() if " in " not in line]


@pytest.mark.slow
def test_switched_off_nothing_of_it_is_there(project: Project):
    """`-p no:oteval` removes the options and the mark; the functions then do nothing."""
    project.write(
        test_it="""
from oteval import trajectory_superset
from oteval.replays import testing

def test_logs_into_the_void():
    testing.log_inputs({"a": 1})
    testing.log_feedback(key="k", score=1)
    assert trajectory_superset(outputs=[], reference_outputs=[])["score"]
"""
    )

    printed = project.run("-p", "no:oteval")
    assert project.status == 0, printed
    assert "unrecognized arguments" in project.run("-p", "no:oteval", "--oteval-output")
    project.write(test_it="import pytest\n@pytest.mark.oteval\ndef test_a(): pass\n")
    assert "'oteval' not found in `markers`" in project.run("-p", "no:oteval")


@pytest.mark.slow
def test_the_fixtures_give_each_test_its_own_agent(captured: Modules):
    """Each test captures only its own spans, also from threads and coroutines."""
    assert captured.outcomes("fixtures") == ["PASSED"] * 6


def test_one_loop_for_all_tests_does_not_mix_them(captured: Modules):
    """Tests that share an event loop, and perhaps a context, keep their spans and feedback."""
    assert captured.outcomes("one_loop") == ["PASSED"] * 3
    rows = [row.split() for row in captured.rows("one_loop")]
    assert [[cell for cell in row if cell[0] == "7"] for row in rows] == [["70"], ["71"], ["72"]]


def test_a_provider_of_the_projects_own(captured: Modules):
    """A project whose agent has its own tracer provider overrides one fixture."""
    assert captured.outcomes("provider") == ["PASSED"]


def test_the_table_shows_what_was_logged(logged: Modules):
    """Rows have inputs, outputs, references, feedback and outcome, from logs or captures."""
    rows = dict(row.partition(" ")[::2] for row in logged.rows("table"))

    assert rows["test_logged"] == (
        '{"question":"why"} {"answer":"therefore"} {"answer":"because"} 0.25 formal pass'
    )
    (row,) = [row for row in logged.rows("table") if row.startswith("test_captured[two")]
    assert '{"question":"two and two"}' in row
    assert "two and two: 1 calls" in row
    assert rows["test_failed"] == "nothing: 0 calls fail FAIL"
    assert rows["test_broken"] == "ERROR"
    assert rows["test_skipped"] == "skip"
    assert "test_unmarked" not in rows


@pytest.mark.slow
def test_every_kind_of_evaluator_logs_itself(passes: Callable[..., str]):
    """Matches, async ones, graphs, checks and judges log once each; a failed judge as an error."""
    printed = passes(
        AGENT
        + """
import oteval

def judge(messages, schema):
    return {"reasoning": "fine", "score": True}

def broken(messages, schema):
    raise RuntimeError("down")

GRAPH = {"inputs": [], "results": [], "steps": [["a"]]}

@pytest.mark.oteval
async def test_all():
    both = {"outputs": WANTED, "reference_outputs": WANTED}
    oteval.trajectory_unordered_match(**both)
    await oteval.trajectory_subset_async(**both)
    oteval.graph_trajectory_strict_match(outputs=GRAPH, reference_outputs=GRAPH)
    oteval.create_loop_evaluator()(outputs=WANTED)
    make = oteval.create_trajectory_llm_as_judge
    make(judge=judge, feedback_key="good")(**both)
    amake = oteval.create_async_trajectory_llm_as_judge
    await amake(judge=judge, feedback_key="agood")(**both)
    make(judge=broken, feedback_key="down")(**both)
""",
        "--oteval-output",
    )

    text = " ".join(printed.split())
    for key in (
        "trajectory_unordered_match: pass",
        "trajectory_subset: pass",
        "graph_trajectory_strict_match: pass",
        "good: pass",
        "agood: pass",
        "down: error",
    ):
        assert key in text
    assert "(2)" not in text


def test_scores_of_a_configuration_are_feedback(captured: Modules):
    """`run.score("oteval.yaml")` in a marked test logs each score under its evaluator's name."""
    assert captured.outcomes("scores") == ["PASSED"]
    (row,) = captured.rows("scores")
    assert row.endswith("0.75 error pass")


def test_repetitions_are_one_row(logged: Modules):
    """All runs of a repeated test are one row, with its parameters and its pass rate."""
    assert sorted(logged.outcomes("repetitions")) == ["FAILED"] + ["PASSED"] * 5
    assert logged.rows("repetitions") == [
        'test_it[a] {"name":"a"} 1 (3) 2/3',
        'test_it[b-run1of3] {"name":"b-run1of3"} 4 (3) 3/3',
    ]


@pytest.mark.slow
@pytest.mark.parametrize("distribution", ["load", "loadscope", "worksteal"])
def test_workers_send_their_rows(project: Project, distribution: str):
    """Under xdist the controller prints the same table as without."""
    project.write(
        test_it=AGENT
        + """
@pytest.mark.oteval(repetitions=2)
@pytest.mark.parametrize("n", range(6))
def test_it(oteval_trajectory, n):
    answer(f"q{n} \\ud800 \\u00e9", "look_up")
    trajectory_superset(outputs=oteval_trajectory(), reference_outputs=WANTED)
    assert n != 5
"""
    )

    alone = project.run("--oteval-output")
    spread = project.run("--oteval-output", "-n", "2", "--dist", distribution)

    def rows(printed: str) -> list[str]:
        lines = [line for line in printed.splitlines() if line.startswith("test_it.py::test_it[")]
        return sorted(" ".join(line.split()[:-1]) for line in lines)

    assert project.status == 1
    assert "2 workers" in spread
    assert len(rows(alone)) == 6
    assert rows(spread) == rows(alone)


def test_logging_in_an_unmarked_test_is_an_error(project: Project):
    """A forgotten mark is reported."""
    project.write(
        test_it="from oteval.replays import testing\ndef test_it(): testing.log_inputs({'a': 1})\n"
    )

    printed = project.run()

    assert "log_inputs: test_it.py::test_it has no @pytest.mark.oteval" in printed


@pytest.mark.parametrize(
    ("mark", "error"),
    [
        ("repetitions=0", "repetitions must be 1 or more"),
        pytest.param(
            *("repetition=2", "takes repetitions, output_keys, tolerance, not 'repetition'"),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *("3", "takes repetitions, output_keys, tolerance, not 3"), marks=pytest.mark.slow
        ),
        pytest.param(*("output_keys='a'", "output_keys must be a list"), marks=pytest.mark.slow),
        pytest.param(*("tolerance='a'", "tolerance must be a number"), marks=pytest.mark.slow),
    ],
)
def test_a_wrong_mark_fails_the_collection(project: Project, mark: str, error: str):
    """One line names the test and the mark's arguments."""
    project.write(test_it=f"import pytest\n@pytest.mark.oteval({mark})\ndef test_a(): pass\n")

    printed = project.run()

    assert project.status == 2
    assert "test_it.py::test_a: pytest.mark.oteval" in printed
    assert error in printed
    assert "Traceback" not in printed


def test_what_a_log_refuses():
    """A call that names nothing to log, or no number, is a clear error even outside pytest."""
    with pytest.raises(ValueError, match="either an evaluator's result or key="):
        testing.log_feedback()
    with pytest.raises(ValueError, match="the score of 'k' must be a number, not 'high'"):
        testing.log_feedback(key="k", score="high")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be a number, not nan"):
        testing.log_feedback(key="k", score=float("nan"))
    with pytest.raises(ValueError, match="feedback needs a key"):
        testing.log_feedback({"score": 1})


@pytest.mark.slow
def test_a_run_in_a_process_that_has_oteval_already_warns_of_nothing(project: Project):
    """Pytest runs with the plugin's package already imported, as in a notebook."""
    info = project.site / "oteval-0.dist-info"
    (info / "RECORD").write_text("oteval/__init__.py,,\noteval/testing/plugin.py,,\n")
    project.write(
        test_it="def test_a(): pass\n",
        notebook="import oteval, pytest, sys\nsys.exit(pytest.main(['-W', 'error', 'test_it.py']))",
    )
    places = os.pathsep.join([str(project.site), str(ROOT)])

    done = subprocess.run(
        [sys.executable, "notebook.py"],
        cwd=project.path,
        env={**os.environ, "PYTHONPATH": places},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "oteval-0" in done.stdout


# Runs a failed test again, as pytest-rerunfailures and flaky do: within one protocol.
RERUNS = """
from _pytest.runner import runtestprotocol

def pytest_configure(config):
    config.addinivalue_line("markers", "reruns(count): run the test again when it fails")

def pytest_runtest_protocol(item, nextitem):
    mark = item.get_closest_marker("reruns")
    if mark is None:
        return None
    for left in range(mark.args[0], -1, -1):
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        is_again = left > 0 and any(report.failed for report in reports)
        for report in reports:
            if is_again and report.failed:
                report.outcome = "rerun"
            item.ihook.pytest_runtest_logreport(report=report)
        if not is_again:
            return True
        item._initrequest()
"""
# As pytest-retry: from within the hook that makes the report of the first attempt.
RETRIES = """
import pytest

def pytest_configure(config):
    config.addinivalue_line("markers", "reruns(count): run the test again when it fails")

@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if call.when != "call" or not report.failed:
        return
    for _ in range(item.get_closest_marker("reruns").args[0]):
        item.ihook.pytest_runtest_teardown(item=item, nextitem=None)
        item._initrequest()
        item.ihook.pytest_runtest_setup(item=item)
        again = pytest.CallInfo.from_call(
            lambda: item.ihook.pytest_runtest_call(item=item), when="call"
        )
        new = pytest.TestReport.from_item_and_call(item, again)
        report.outcome, report.longrepr = new.outcome, new.longrepr
        if new.passed:
            return
"""
FLAKY = """
import pytest
from oteval import create_loop_evaluator
from oteval.replays import testing
attempts = []

@pytest.mark.oteval
@pytest.mark.reruns(3)
def test_flaky():
    attempts.append(1)
    testing.log_inputs({"attempt": len(attempts)})
    testing.log_feedback(key="k", score=len(attempts) >= 3)
    create_loop_evaluator()(outputs=[{"role": "user", "content": "q"}])
    if len(attempts) == 1:
        testing.log_feedback(key="only-at-first", score=0.0)
    assert len(attempts) >= 3
"""


@pytest.mark.parametrize("again", [RERUNS, RETRIES], ids=["protocol", "report"])
def test_of_a_test_that_is_run_again_only_the_last_attempt_counts(project: Project, again: str):
    """Its feedback, inputs and outcome come from the attempt that passed."""
    project.write(conftest=again, test_it=FLAKY)

    printed = project.run("--oteval-save-baseline=base")

    assert project.status == 0, printed
    baseline = json.loads((project.path / "oteval-baselines" / "base.json").read_text())
    (figures,) = baseline["tests"].values()
    scores = {key: figure["scores"] for key, figure in figures.items()}
    assert scores.pop("loops") in ([1.0], [])
    assert scores == {"test": [1.0], "k": [1.0]}
