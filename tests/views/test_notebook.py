"""Objects in notebooks: safe, small, and in the look of the report."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import oteval
from oteval import ConfigError, InputError, NothingEvaluated
from oteval.model import Message
from oteval.store import Store

from ..make import asks, call, keep, run

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(1)">'
SELECTOR = re.compile(r"([^{}]+)\{[^{}]*\}")


def calls(name: str, amount: int) -> list[dict[str, Any]]:
    """Return the messages of a run with one call."""
    function = {"name": name, "arguments": f'{{"amount": {amount}}}'}
    call = {"id": "1", "type": "function", "function": function}
    return [
        {"role": "user", "content": HOSTILE},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]


MATCH = oteval.create_trajectory_match_evaluator(trajectory_match_mode="superset")
EXAMPLES = [
    {"inputs": {"q": f"{HOSTILE} {n}"}, "reference_outputs": calls("refund", 2)} for n in range(3)
]


def results(name: str, amount: int, store: Path) -> oteval.ExperimentResults:
    """Run an experiment whose runs refund an amount."""
    return oteval.evaluate(
        lambda inputs: calls("refund", amount),  # noqa: ARG005
        EXAMPLES,
        evaluators=[MATCH],
        name=name,
        store=store,
    )


@pytest.fixture
def pieces(tmp_path: Path) -> dict[str, str]:
    """Return the HTML of one object of each kind, with hostile texts."""
    path = tmp_path / "x.duckdb"
    result = MATCH(outputs=calls(HOSTILE, 1), reference_outputs=calls("refund", 2))
    before, after = results("before", 2, path), results("after", 1, path)
    comparison = oteval.compare_experiments(before, after)
    spoken = run(1, Message("user", HOSTILE), asks(call(HOSTILE, {"a": HOSTILE})), agent=HOSTILE)
    with Store(path) as store:
        keep(store, spoken)
    verdict = oteval.compare(
        calls(HOSTILE, 1), calls("refund", 2), oteval.make_spec(trajectory_match_mode="strict")
    )
    return {
        "match": result._repr_html_(),
        "verdict": verdict._repr_html_(),
        "results": after._repr_html_(),
        "comparison": comparison._repr_html_(),
        "plot": comparison.plot()._repr_html_(),
        "one plot": after.plot()._repr_html_(),
        "run": spoken._repr_html_(),
        "frame": oteval.open(path).messages()._repr_html_(),
        "histogram": oteval.open(path).runs().plot("calls", by="agent")._repr_html_(),
    }


def test_every_object_is_escaped_and_its_style_stays_inside(pieces: dict[str, str]) -> None:
    """No text of a trace is markup, nothing is requested, and each rule is for the piece alone."""
    for name, piece in pieces.items():
        assert "<script" not in piece, name
        assert "<img" not in piece, name
        assert not re.search(r"(src|href|url\()\s*=?\s*[\"'(]?\s*(https?:|//)", piece), name
        assert len(piece) < 40_000, name
        style = re.search(r"<style>(.*?)</style>", piece, re.DOTALL)
        assert style is not None
        for selectors in SELECTOR.findall(style[1]):
            for selector in selectors.split(","):
                assert ".oteval" in selector, (name, selector)


def test_a_verdict_leads_with_its_reason(pieces: dict[str, str]) -> None:
    """A failed match says why, and so does each case of an experiment."""
    for name in ("match", "results", "comparison"):
        assert "missing 1 call" in pieces[name], name
        assert 'class="state fail"' in pieces[name], name
    assert pieces["comparison"].index("3 of 3 runs broke") < pieces["comparison"].index("pass rate")
    assert pieces["comparison"].count("broke</span>") == 3


def test_a_result_is_still_a_dict() -> None:
    """It equals a plain dict, and its type in a notebook costs its callers nothing."""
    result = MATCH(outputs=calls("refund", 2), reference_outputs=calls("refund", 2))

    assert result == {**result}
    assert isinstance(result, dict)
    assert list(result) == ["key", "score", "comment", "metadata"]


def test_a_long_run_is_cut() -> None:
    """The piece of a run with many long messages stays below a megabyte, and says what is left."""
    piece = run(1, *(Message("user", "x" * 10_000) for _ in range(300)))._repr_html_()

    assert len(piece) < 400_000
    assert "200 more messages: oteval show" in piece


def test_a_plot_is_a_drawing_of_its_own(tmp_path: Path) -> None:
    """The file is well-formed, has the rules of the chart, and the bars of both experiments."""
    path = tmp_path / "x.duckdb"
    before, after = results("before", 2, path), results("after", 1, path)

    oteval.compare_experiments(before, after).plot().save(tmp_path / "x.svg")

    root = ET.parse(tmp_path / "x.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(root.findall(".//{*}g")) == 2
    with pytest.raises(InputError, match="cannot be written"):
        after.plot().save(tmp_path)


def test_what_cannot_be_plotted_says_why(tmp_path: Path) -> None:
    """A column of texts, a column without values, and an experiment without verdicts."""
    with Store(tmp_path / "x.duckdb") as store:
        keep(store, run(1, start_ns=0, end_ns=0))
    db = oteval.open(tmp_path / "x.duckdb")

    with pytest.raises(ConfigError, match="'agent' is not a column of numbers"):
        db.runs().plot("agent")
    with pytest.raises(ConfigError, match="no run has a value in 'seconds'"):
        db.runs().plot()
    unscored = oteval.evaluate(lambda inputs: inputs, EXAMPLES, store=tmp_path / "x.duckdb")
    with pytest.raises(NothingEvaluated, match="no run passed or failed"):
        unscored.plot()
