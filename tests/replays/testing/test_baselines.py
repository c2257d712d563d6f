"""Baselines: a regression fails the run and is named; other changes do not."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from oteval import InputError, NotFound, Store, compare_experiments
from oteval.replays.testing.baselines import (
    Baseline,
    load_experiment,
    make_baseline,
    read_file,
    regressions,
    save_experiment,
    write_file,
)
from oteval.replays.testing.rows import Row

from .conftest import INI, Project

pytestmark = pytest.mark.slow

TESTS = """
import json, pathlib, pytest
from oteval.replays import testing

SCORES = json.loads(pathlib.Path("scores.json").read_text())

@pytest.mark.oteval(repetitions=2)
@pytest.mark.parametrize("name", SCORES)
def test_agent(name):
    for key, score in SCORES[name].items():
        testing.log_feedback(key=key, score=score, lower_is_better=key == "seconds")

@pytest.mark.oteval
def test_other(): pass
"""


def scored(project: Project, **tests: dict[str, float | bool]) -> None:
    project.write(test_it=TESTS)
    (project.path / "scores.json").write_text(json.dumps(tests))


def note(key: str, score: float | None = 1.0, lower: bool = False) -> dict[str, object]:
    status = "ok" if score is not None else "error"
    return {
        "key": key,
        "score": score,
        "passed": None,
        "label": "",
        "comment": "",
        "status": status,
        "lower_is_better": lower,
    }


@pytest.mark.parametrize("store", [(), ("--oteval-db", "runs.duckdb")], ids=["file", "database"])
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_regression_fails_the_run_and_is_named(
    project: Project, store: tuple[str, ...], workers: tuple[str, ...]
):
    """Saved, equal, worse: exit statuses 0, 0, 1, and the test and evaluator in the last."""
    scored(project, one={"good": 0.9, "seconds": 2.0}, two={"good": True})
    saved = project.run("--oteval-save-baseline", "main", *store, *workers)
    assert project.status == 0, saved
    assert "oteval: saved: " in saved
    same = project.run("--oteval-baseline", "main", *store, *workers)
    assert project.status == 0, same
    assert "no regression from baseline main" in same

    scored(project, one={"good": 0.7, "seconds": 2.5}, two={"good": True})
    worse = project.run("--oteval-baseline", "main", *store, *workers)

    assert project.status == 1
    section = worse.partition("regressions from baseline main")[2].splitlines()
    assert section[1:3] == [
        "test_it.py::test_agent[one]  good: 0.9 -> 0.7",
        "test_it.py::test_agent[one]  seconds: 2 -> 2.5",
    ]
    assert "test_agent[two]  " not in worse


def test_a_baseline_in_version_control_reads_well(project: Project):
    """The file is in the folder of the ini option, sorted, with the scores of each run."""
    (project.path / "pytest.ini").write_text(INI + "oteval_baselines = kept\n")
    scored(project, one={"good": 0.5})

    project.run("--oteval-save-baseline", "main")

    content = json.loads((project.path / "kept" / "main.json").read_text())
    figures = content["tests"]["test_it.py::test_agent[one]"]
    assert figures["good"] == {"scores": [0.5, 0.5], "errors": 0, "lower_is_better": False}
    assert figures["test"]["scores"] == [1.0, 1.0]


def test_a_baseline_can_be_named_by_its_path(project: Project):
    """A name that ends in .json is a file's path."""
    scored(project, one={"good": 0.5})

    project.run("--oteval-save-baseline", "here.json")
    printed = project.run("--oteval-baseline", "here.json")

    assert project.status == 0, printed
    assert (project.path / "here.json").exists()


def test_an_absolute_path_needs_no_ini_file(project: Project, tmp_path: Path):
    """Pytest takes the path for one of its arguments, and then guesses another root folder."""
    (project.path / "pytest.ini").unlink()
    scored(project, one={"good": 0.5})
    path = tmp_path / "elsewhere" / "main.json"
    path.parent.mkdir()

    # pytest-asyncio warns without an ini file.
    project.run("-pno:asyncio", "--oteval-save-baseline", str(path))
    printed = project.run("-pno:asyncio", "--oteval-baseline", str(path))
    joined = project.run("-pno:asyncio", f"--oteval-baseline={path}")

    assert project.status == 0, printed + joined
    assert "no regression from baseline" in printed
    assert "no regression from baseline" in joined
    assert "test_it.py::test_agent[one]" in json.loads(path.read_text())["tests"]


@pytest.mark.parametrize("store", [(), ("--oteval-db", "runs.duckdb")], ids=["file", "database"])
def test_a_selection_replaces_only_its_tests(project: Project, store: tuple[str, ...]):
    """As with --lf: of a test that ran again the last result counts, others keep theirs."""
    scored(project, one={"good": 0.2}, two={"good": 1})
    project.run("--oteval-save-baseline", "main", *store)
    scored(project, one={"good": 0.9}, two={"good": 0})

    saved = project.run("--oteval-save-baseline", "main", "-k", "one", *store)
    compared = project.run("--oteval-baseline", "main", *store)

    assert "2 tests that did not run as before" in saved
    assert "test_agent[two]  good: 1 -> 0" in compared
    assert "test_agent[one]" not in compared.partition("regressions from baseline")[2]
    first_run = project.run("--oteval-save-baseline", "main", *store)
    assert "did not run as before" not in first_run


def test_a_tolerance_lets_small_falls_pass(project: Project):
    """The option holds for all tests; a test's mark comes before it."""
    scored(project, one={"good": 0.9})
    project.run("--oteval-save-baseline", "main")
    scored(project, one={"good": 0.85})

    project.run("--oteval-baseline", "main", "--oteval-tolerance", "0.1")
    assert project.status == 0
    project.write(test_it=TESTS.replace("repetitions=2", "repetitions=2, tolerance=0.01"))
    project.run("--oteval-baseline", "main", "--oteval-tolerance", "0.1")
    assert project.status == 1


def test_feedback_that_is_gone_is_a_regression(project: Project):
    """An evaluator that is no longer called does not count as passing."""
    scored(project, one={"good": 0.9, "kind": 1})
    project.run("--oteval-save-baseline", "main")
    scored(project, one={"kind": 1})

    printed = project.run("--oteval-baseline", "main")

    assert project.status == 1
    assert "test_agent[one]  good: was 0.9, and is no longer logged" in printed


def test_tests_that_did_not_run_are_counted(project: Project):
    """Only the selected tests are compared; an empty selection fails."""
    scored(project, one={"good": 0.9}, two={"good": 1})
    project.run("--oteval-save-baseline", "main")

    second_run = project.run("--oteval-baseline", "main", "-k", "one")
    assert project.status == 0, second_run
    assert "2 of the 3 tests of baseline main did not run" in second_run

    project.write(test_new="def test_new(): pass\n")
    none = project.run("--oteval-baseline", "main", "test_new.py")
    assert project.status == 1
    assert "no test of the baseline ran: nothing was compared" in none


def test_a_regression_is_not_saved_over_its_baseline(project: Project):
    """Comparing and saving under one name keeps the better one."""
    scored(project, one={"good": 0.9})
    project.run("--oteval-save-baseline", "main")
    scored(project, one={"good": 0.1})

    printed = project.run("--oteval-baseline", "main", "--oteval-save-baseline", "main")

    assert project.status == 1
    assert "main was not saved, because of the regressions" in printed
    assert "0.9" in (project.path / "oteval-baselines" / "main.json").read_text()


@pytest.mark.parametrize("store", [(), ("--oteval-db", "runs.duckdb")], ids=["file", "database"])
def test_a_baseline_that_is_not_there_is_a_usage_error(project: Project, store: tuple[str, ...]):
    """The run does not begin, and the line says how to make one."""
    scored(project, one={"good": 0.9})
    if store:
        project.run("--oteval-save-baseline", "other", *store)

    printed = project.run("--oteval-baseline", "main", *store)

    assert project.status == 4
    assert "save one: pytest --oteval-save-baseline main" in printed
    assert "Traceback" not in printed


def test_a_file_that_is_no_baseline_is_named(tmp_path: Path):
    """Broken, foreign and newer files each have their line."""
    path = tmp_path / "b.json"

    with pytest.raises(NotFound, match="no such baseline"):
        read_file(path)
    for text in ("{", "[]", "{}", '{"oteval_baseline": 1, "tests": {"a": {"k": {"x": 1}}}}'):
        path.write_text(text)
        with pytest.raises(InputError, match="not an oteval baseline; save it again"):
            read_file(path)
    path.write_text('{"oteval_baseline": 2}')
    with pytest.raises(InputError, match="a newer oteval wrote it"):
        read_file(path)


@pytest.mark.parametrize(
    ("before", "now", "reason"),
    [
        ([1.0], [0.0], "1 -> 0"),
        ([1.0], [None], "was 1, and could not be evaluated"),
        ([1.0, 1.0], [1.0, None], "1 of 2 could not be evaluated"),
        ([None], [None], None),
        ([None], [0.0], None),
        ([0.5], [1.0], None),
    ],
)
def test_what_counts_as_worse(
    before: list[float | None], now: list[float | None], reason: str | None
):
    """An error does not count as 0, but is worse than an earlier score."""
    old = make_baseline([Row("t", n, feedback=[note("k", s)]) for n, s in enumerate(before)])
    new = [Row("t", n, feedback=[note("k", s)]) for n, s in enumerate(now)]

    worse, missing = regressions(old, new)

    assert [regression.reason for regression in worse] == ([reason] if reason else [])
    assert missing == []


def test_a_test_that_fails_now_is_a_regression():
    """Under the key `test`, which a key of the user's own of that name does not touch."""
    old = make_baseline([Row("t", feedback=[note("test", 0.0)])])

    worse, _ = regressions(old, [Row("t", outcome="failed", feedback=[note("test", 0.0)])])

    assert [(regression.key, regression.reason) for regression in worse] == [("test", "1 -> 0")]


ROWS = st.lists(
    st.builds(
        Row,
        test=st.sampled_from(["a.py::x", "a.py::y[1-\u00e9]"]),
        repetition=st.integers(0, 3),
        outcome=st.sampled_from(["passed", "failed", "error"]),
        inputs=st.none() | st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2),
        feedback=st.lists(
            st.builds(
                note,
                st.sampled_from(["k", "test"]),
                st.none() | st.floats(-5, 5),
                st.just(value=False),
            ),
            max_size=3,
        ),
    ),
    unique_by=lambda row: (row.test, row.repetition),
    min_size=1,
    max_size=6,
)


# Each example opens a database, which is slow.
@settings(deadline=None, max_examples=30)
@given(ROWS)
def test_a_run_does_not_regress_from_itself(rows: list[Row]):
    """Whatever tests came to, written and read again in either way nothing is worse."""
    with Store() as store:
        save_experiment(store, "b", rows)
        baseline = load_experiment(store, "b")

    assert regressions(make_baseline(rows), rows) == ([], [])
    assert regressions(baseline, rows) == ([], [])
    assert _means(baseline) == pytest.approx(_means(make_baseline(rows)))


@settings(deadline=None)
@given(ROWS)
def test_a_file_keeps_a_baseline(tmp_path_factory: pytest.TempPathFactory, rows: list[Row]):
    """A file reads back as written."""
    path = tmp_path_factory.mktemp("b") / "b.json"

    write_file(path, make_baseline(rows))

    assert read_file(path) == make_baseline(rows)


def _means(baseline: Baseline) -> dict[str, float]:
    return {
        f"{test} {key}": -99.0 if figure.mean is None else math.fsum(figure.scores)
        for test, figures in baseline.items()
        for key, figure in figures.items()
    }


def test_saved_experiments_are_compared_like_any_other(project: Project):
    """Two runs of the tests saved in a database are two experiments of the same examples."""
    for name, score in (("before", 0.9), ("after", 0.2)):
        scored(project, one={"good": score}, two={"good": score})
        project.run("--oteval-save-baseline", name, "--oteval-db", "runs.duckdb")

    with Store(project.path / "runs.duckdb") as store:
        comparison = compare_experiments("before", "after", store=store)

    differences = {difference.key: difference for difference in comparison.differences}
    assert differences["good"].delta == pytest.approx(-0.7)
    assert differences["good"].pairs == 2
    assert differences["test"].delta == 0


def test_a_baseline_of_failing_tests_says_so(project: Project):
    """Later runs cannot fall below a failing test, so saving one is a warning that names it."""
    project.write(
        test_it="import pytest\n"
        "@pytest.mark.oteval\ndef test_good(): pass\n"
        "@pytest.mark.oteval\ndef test_bad(): assert 0\n"
    )

    printed = project.run("--oteval-save-baseline", "main")

    assert "WARNING: 1 of 2 tests failed, and so they are in the baseline: " in printed
    assert "test_it.py::test_bad" in printed
