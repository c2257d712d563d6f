from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from oteval.evaluators.judge.client import OUTPUT_MODE_MEMORY

from ..model_server import Reply, serving, shown, verdict
from .conftest import Run

MODULE = """
import os

def target(inputs):
    if inputs["n"] == 9:
        raise ValueError("nine")
    with open("calls.txt", "a") as calls:
        calls.write("x")
    return {"n": inputs["n"], "good": inputs["n"] < int(os.environ.get("GOOD", "100"))}

def good(outputs):
    return outputs["good"]

def broken(outputs):
    raise ValueError("no")

def answered(trajectory):
    return bool(trajectory.own_messages)

def better(outputs):
    return [out["good"] for out in outputs]
"""
EVAL = ("eval", "--data", "data.jsonl", "--target", "shop:target", "--call", "shop:good")


@pytest.fixture
def shop(oteval: Run, tmp_path: Path) -> Iterator[Run]:
    """Return the command in a folder with a target, evaluators and twelve examples."""
    import sys

    (tmp_path / "shop.py").write_text(MODULE)
    lines = [json.dumps({"id": f"e{n}", "inputs": {"n": n % 9}}) for n in range(40)]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    yield oteval
    sys.modules.pop("shop", None)


def test_eval_runs_a_target_and_keeps_it(shop: Run):
    """The experiment runs, appears as a table, and is stored and listed."""
    done = shop(*EVAL, "--name", "first")

    assert done.status == 0, done.err
    assert "good" in done.out
    assert "1.000" in done.out
    assert "experiment first: 40 runs, 0 failed" in done.err
    listed = shop("experiments", "--json").rows
    assert [(row["name"], row["runs"], row["dataset"]) for row in listed] == [("first", 40, "data")]
    assert "first" in shop("experiments").out


def test_eval_prints_rows_as_json(shop: Run):
    """With --json each run is an object with its outputs and feedback."""
    rows = shop(*EVAL, "--repetitions", "2", "--json").rows

    assert len(rows) == 80
    assert rows[1]["repetition"] == 1
    assert rows[0]["outputs"] == {"n": 0, "good": True}
    assert rows[0]["feedback"][0]["passed"] is True


def test_eval_goes_on_where_it_was(shop: Run, tmp_path: Path):
    """With --resume no example runs again; without it, the name is already in use."""
    shop(*EVAL, "--name", "x")

    assert shop(*EVAL, "--name", "x").status == 2
    assert shop(*EVAL, "--name", "x", "--resume").status == 0
    assert len((tmp_path / "calls.txt").read_text()) == 40


def test_a_regression_has_exit_status_1(shop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With a baseline, regressions appear in the output and the reports, and fail the command."""
    shop(*EVAL, "--name", "a")
    monkeypatch.setenv("GOOD", "5")

    done = shop(*EVAL, "--name", "b", "--baseline", "a", "--junit", "x.xml", "--md", "x.md")

    assert done.status == 1
    assert "good REGRESSED: 1.000 to 0.600" in done.err
    assert "regressed" in done.out
    assert "**regressed**" in (tmp_path / "x.md").read_text()
    suite = ElementTree.parse(tmp_path / "x.xml").getroot().find("testsuite[@name='good']")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("40", "16")


def test_compare_says_what_differs(shop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two stored experiments are compared in a table, as JSON and in files."""
    shop(*EVAL, "--name", "a")
    monkeypatch.setenv("GOOD", "5")
    shop(*EVAL, "--name", "b")

    done = shop("compare", "a", "b", "--junit", "x.xml", "--md", "x.md")
    *broke, counts, row = shop("compare", "a", "b", "--json").rows

    assert done.status == 1
    assert "regressed" in done.out
    assert done.out.startswith("✗ e5: ")
    assert "16 of 40 runs broke, 24 did not change." in done.out
    assert [change["row"] for change in broke] == ["broke"] * 16
    assert counts == {"row": "counts", "broke": 16, "better": 0, "same": 24, "not_evaluated": 0}
    assert (row["key"], row["verdict"], row["only_a"], row["only_b"]) == (
        "good",
        "regressed",
        16,
        0,
    )
    assert row["changed"][0] == {"example_id": "e5", "a": 1, "b": 0}
    assert "✗ e5: " in (tmp_path / "x.md").read_text()
    assert ElementTree.parse(tmp_path / "x.xml").find(".//failure") is not None
    assert shop("compare", "b", "a").status == 0
    assert shop("compare", "a", "a", "--lower-is-better", "good").status == 0
    assert (
        shop("compare", "a", "z").err
        == "oteval: no experiment 'z'; oteval experiments lists them\n"
    )


def test_pairwise_asks_which_is_better(shop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Win rate, flips and verdict are shown; the first being better fails the command."""
    shop(*EVAL, "--name", "a")
    monkeypatch.setenv("GOOD", "5")
    shop(*EVAL, "--name", "b")

    ask = ("pairwise", "a", "b", "--call", "shop:better")
    done = shop(*ask, "--junit", "x.xml", "--md", "x.md")
    rows = shop(*ask, "--json").rows

    assert done.status == 1
    assert "a is better" in done.out
    assert "40 examples, 0 answers failed" in done.err
    assert len(rows) == 41
    assert rows[0]["votes"][1]["shown"] == ["b", "a"]
    pair = rows[-1]["pairs"][0]
    assert (pair["wins_a"], pair["ties"], pair["flip_rate"]) == (16, 24, 0)
    assert "| a |" in (tmp_path / "x.md").read_text()
    assert ElementTree.parse(tmp_path / "x.xml").find(".//failure") is not None
    assert shop("pairwise", "b", "a", "--call", "shop:better", "--order", "fixed").status == 0


def test_a_model_is_asked_which_is_better(shop: Run, monkeypatch: pytest.MonkeyPatch):
    """A judge on a real socket prefers by content, and its answers are cached."""

    def prefers(body: dict[str, Any]) -> Reply:
        prompt = shown(body)
        return verdict(1 if prompt.index('"good":true') < prompt.index('"good":false') else 3)

    monkeypatch.setenv("GOOD", "0")
    shop(*EVAL, "--name", "a")
    monkeypatch.setenv("GOOD", "100")
    shop(*EVAL, "--name", "b")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    OUTPUT_MODE_MEMORY.known.clear()
    with serving(lambda body, _: prefers(body)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        done = shop("pairwise", "a", "b", "--judge", "openai:m")
        first_requests = len(server.requests)
        again = shop("pairwise", "a", "b", "--judge", "openai:m", "--json")

        assert len(server.requests) == first_requests == 18  # nine different inputs, in two orders

    assert (done.status, again.status) == (0, 0), done.err
    assert "b is better" in done.out
    pair = again.rows[-1]["pairs"][0]
    assert (pair["wins_b"], pair["flip_rate"], pair["errors"]) == (40, 0, 0)


def test_three_are_ranked(shop: Run, monkeypatch: pytest.MonkeyPatch):
    """Three experiments are ranked, and also compared in pairs."""
    for name, good in (("a", "2"), ("b", "5"), ("c", "8")):
        monkeypatch.setenv("GOOD", good)
        shop(*EVAL, "--name", name)

    done = shop("pairwise", "a", "b", "c", "--call", "shop:better", "--name", "all")

    assert done.status == 0
    assert "strength" in done.out
    assert shop("experiments", "--json").rows[-1]["compared"] == ["a", "b", "c"]


def test_stored_trajectories_are_judged(filled: Run, tmp_path: Path):
    """Without a target, the experiment evaluates the stored trajectories."""
    (tmp_path / "talk.py").write_text(MODULE)

    done = filled("eval", "--call", "talk:answered", "--name", "stored", "--json")

    assert done.status == 0, done.err
    assert len(done.rows) == 3
    assert all(row["trajectory_id"] for row in done.rows)


def test_gates_of_the_configuration_hold(shop: Run, tmp_path: Path):
    """A gate on an evaluator decides the exit status; runs that failed are its errors."""
    (tmp_path / "oteval.yaml").write_text(
        """
evaluators:
  - {name: good, type: python, call: "shop:good_text"}
gates:
  - {evaluator: good, min_pass_rate: 0.9}
"""
    )
    with (tmp_path / "shop.py").open("a") as module:
        module.write("def good_text(outputs): return 'True' in str(outputs)\n")
        module.write("def text_target(inputs): return str(target(inputs))\n")
    ask = ("eval", "--data", "data.jsonl", "--target", "shop:text_target")

    passed = shop(*ask)
    lines = [json.dumps({"inputs": {"n": 9 if n < 8 else 1, "m": n}}) for n in range(40)]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    failed = shop(*ask)

    assert passed.status == 0, passed.err
    assert "gate good: passed" in passed.err
    assert failed.status == 1
    assert "pass rate 0.800 (at least 0.9): not met" in failed.err
    assert "ValueError: nine" in failed.out


def test_a_score_without_a_verdict_is_no_success(
    shop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """An evaluator that no longer gives a verdict does not count as passing."""
    with (tmp_path / "shop.py").open("a") as module:
        module.write(
            "def kind(outputs): return True if os.environ.get('SEEN') else {'score': None}"
        )
    ask = (*EVAL, "--call", "shop:kind")
    monkeypatch.setenv("SEEN", "1")
    shop(*ask, "--name", "a")
    monkeypatch.delenv("SEEN")

    done = shop(*ask, "--name", "b", "--baseline", "a", "--md", "x.md", "--junit", "x.xml")
    again = shop("compare", "a", "b")

    assert (done.status, again.status) == (1, 1)
    assert "kind HAS NO VERDICT in b" in done.err
    assert "kind HAS NO VERDICT in b" in again.err
    assert "kind: no verdict in b" in (tmp_path / "x.md").read_text()
    assert shop("compare", "b", "a").status == 0


def test_failed_targets_fail_the_command(shop: Run, tmp_path: Path):
    """A failed run has no score, and is counted in every output format."""
    lines = [json.dumps({"inputs": {"n": 9 if n < 2 else 1, "m": n}}) for n in range(10)]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))

    done = shop(*EVAL, "--junit", "x.xml", "--md", "x.md")
    rows = shop(*EVAL, "--json").rows

    assert done.status == 1
    assert "targets failed: 2 of 10" in done.out
    assert "targets failed: 2 of 10" in (tmp_path / "x.md").read_text()
    assert [row["error"] for row in rows] == ["ValueError: nine"] * 2 + [None] * 8
    suites = ElementTree.parse(tmp_path / "x.xml").getroot()
    target = suites.find("testsuite[@name='target']")
    assert target is not None
    assert (target.get("tests"), target.get("errors"), suites.get("errors")) == ("10", "2", "2")


def test_nothing_evaluated_has_exit_status_3(shop: Run, tmp_path: Path):
    """If every run or every evaluation fails, the exit status is 3."""
    (tmp_path / "nines.jsonl").write_text('{"inputs": {"n": 9}}\n')

    all_broken = shop(
        "eval", "--data", "data.jsonl", "--target", "shop:target", "--call", "shop:broken"
    )
    all_failed = shop(
        "eval", "--data", "nines.jsonl", "--target", "shop:target", "--call", "shop:good"
    )

    assert (all_broken.status, all_failed.status) == (3, 3)
    assert "no evaluator gave a verdict" in all_broken.err
    assert "every run" in all_failed.err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("eval", "--target", "shop:target", "--call", "shop:good"), "data is missing"),
        (
            ("eval", "--data", "none.jsonl", "--target", "shop:target", "--call", "shop:good"),
            "no such",
        ),
        (
            ("eval", "--data", "data.jsonl", "--target", "shop:nobody", "--call", "shop:uses"),
            "no function 'nobody'",
        ),
        (("eval", "--data", "data.jsonl", "--target", "shop:target"), "oteval.yaml: no such file"),
        ((*EVAL, "--baseline", "z"), "no experiment 'z'"),
        (("pairwise", "a", "b"), "no such database"),
        (("pairwise", "a", "b", "--db", "x"), "give --judge openai:MODEL or --call"),
        (("dataset", "add", "d", "data.jsonl", "--references"), "not both"),
    ],
)
def test_what_is_wrong_is_one_line(shop: Run, arguments: tuple[str, ...], why: str):
    """Bad arguments give exit status 2 and one line with the remedy."""
    if "no such database" in why:
        arguments = (*arguments, "--call", "shop:better")

    done = shop(*arguments)

    assert done.status == 2
    assert why in done.err
    assert "Traceback" not in done.err


def test_datasets_are_kept_and_shown(shop: Run, tmp_path: Path):
    """A file becomes a dataset with versions; the output of show can be added again."""
    first = shop("dataset", "add", "sums", "data.jsonl")
    again = shop("dataset", "add", "sums", "data.jsonl")
    printed = shop("dataset", "show", "sums")
    (tmp_path / "copy.jsonl").write_text(printed.out)
    copied = shop("dataset", "add", "copy", "copy.jsonl")

    assert "40 examples, added" in first.out
    assert "exists already" in again.out
    version = first.out.split("@")[1].split(":")[0]
    assert f"copy@{version}" in copied.out
    listed = shop("dataset", "list", "--json").rows
    assert [(row["name"], row["version"]) for row in listed] == [
        ("copy", version),
        ("sums", version),
    ]
    assert "sums" in shop("dataset", "list").out
    run = ("--target", "shop:target", "--call", "shop:good")
    assert shop("eval", "--data", f"sums@{version}", *run).status == 0


def test_references_and_trajectories_become_datasets(filled: Run):
    """Stored references and filtered trajectories become examples."""
    ids = [row["trajectory_id"] for row in filled("trajectories", "--json").rows]
    filled("reference", "add", ids[0], "--name", "r")

    by_reference = filled("dataset", "add", "refs", "--references")
    by_name = filled("dataset", "add", "one", "--reference", "r")
    by_filter = filled("dataset", "add", "runs", "--limit", "2")

    assert "1 example," in by_reference.out
    assert "1 example," in by_name.out
    assert "2 examples" in by_filter.out
    rows = filled("dataset", "show", "refs").rows
    assert rows[0]["id"] == "r"
    assert rows[0]["reference_outputs"]
