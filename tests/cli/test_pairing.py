"""Runs are paired by the user's question, through the commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oteval import Store
from oteval.model import (
    Dataset,
    Example,
    Experiment,
    Feedback,
    Message,
    Run as ExperimentRun,
    Trajectory,
    example_id,
)

from ..make import keep, run
from .conftest import Run

CITIES = ("lima", "oslo", "rome", "paris", "quito", "tokyo", "accra", "delhi")
MODULE = """
import os

def answer(inputs):
    question = inputs["messages"][-1]["content"]
    return [{"role": "assistant", "content": question if BAD not in question else "?"}]

BAD = os.environ.get("BAD", "nothing")

def good(outputs):
    return outputs[-1]["content"] != "?"

def longer(outputs):
    return [len(out[-1]["content"]) for out in outputs]
"""


@pytest.fixture
def shop(oteval: Run, tmp_path: Path) -> Iterator[Run]:
    """Return the command in a folder with a target and evaluators."""
    (tmp_path / "shop.py").write_text(MODULE)
    yield oteval
    sys.modules.pop("shop", None)


def asked(number: int, city: str, version: str, **fields: Any) -> Trajectory:
    """Return a run whose system prompt and model are those of a version."""
    return run(
        number,
        Message("system", f"You are version {version}. Today is day {number}."),
        Message("user", fields.pop("question", f"weather in {city}?")),
        Message("assistant", "?" if (city, version) == ("oslo", "2") else f"fine in {city}"),
        version=version,
        models=(f"model-{version}",),
        **fields,
    )


def compared(shop: Run) -> tuple[Any, str]:
    """Evaluate the sessions of both versions; return the comparison and its text."""
    for version in ("1", "2"):
        evaluated = shop(
            *("eval", "--call", "shop:good", "--name", f"v{version}"),
            *("--where", f"version={version}"),
        )
        assert evaluated.status == 0, evaluated.err
    *_, row = shop("compare", "v1", "v2", "--json").rows
    return row, shop("compare", "v1", "v2").out


def test_sessions_pair_after_the_system_prompt_and_the_model_changed(shop: Run) -> None:
    """Every example has its counterpart, and the one run that got worse is named."""
    with Store("oteval.duckdb") as store:
        runs = [asked(at, city, "1") for at, city in enumerate(CITIES, 1)]
        keep(store, *runs, *(asked(at + 20, city, "2") for at, city in enumerate(CITIES, 1)))

    row, text = compared(shop)

    assert row["pairs"] == len(CITIES)
    assert [(each["a"], each["b"]) for each in row["changed"]] == [(1, 0)]
    assert "weather in oslo?" in text


def test_examples_of_messages_pair_by_the_users(
    shop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dataset of messages whose system prompt, white space and settings differ pairs as well."""
    for name, prompt, space in (("a", "Be brief.", " "), ("b", "Be kind.", "\n  ")):
        lines = [
            {
                "inputs": {
                    "model": f"model-{name}",
                    "messages": [
                        {"role": "system", "content": prompt},
                        {"role": "user", "content": f"weather{space}in {city}?"},
                    ],
                }
            }
            for city in CITIES
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
        monkeypatch.setenv("BAD", "oslo" if name == "b" else "nothing")
        sys.modules.pop("shop", None)
        shop(
            *("eval", "--data", f"{name}.jsonl", "--target", "shop:answer"),
            *("--call", "shop:good", "--name", name),
        )

    *_, row = shop("compare", "a", "b", "--json").rows
    pairwise = shop("pairwise", "a", "b", "--call", "shop:longer")

    assert row["pairs"] == len(CITIES)
    assert len(row["changed"]) == 1
    assert "weather in oslo?" in shop("compare", "a", "b").out
    assert f"{len(CITIES)} examples" in pairwise.err
    shop("report", "--experiments", "a", "--experiments", "b", "--html", "r.html")
    assert (tmp_path / "r.html").read_text().count('"left":') == len(CITIES)


def test_explicit_ids_with_one_question_stay_apart(shop: Run) -> None:
    """The id of a run's example counts before its question."""
    question = "which order?"
    with Store("oteval.duckdb") as store:
        for version, names in (("1", "xyz"), ("2", "yxw")):
            for at, name in enumerate(names, 10 * int(version)):
                attributes = {"oteval.example_id": name, "service.version": version}
                city = "oslo" if name == "y" else "rome"
                keep(store, asked(at, city, version, question=question, attributes=attributes))

    row, _ = compared(shop)

    assert row["pairs"] == 2
    assert row["changed"] == [{"example_id": "y", "a": 1, "b": 0}]


def test_a_repeated_question_is_averaged_and_later_turns_are_apart(shop: Run) -> None:
    """Sessions with one question are repetitions; the same words in a later turn are not."""
    with Store("oteval.duckdb") as store:
        for version in ("1", "2"):
            start = 20 * int(version)
            again = [asked(start + at, "oslo", version) for at in range(3)]
            later = asked(start + 9, "rome", version, question="weather in oslo?", turn=2)
            keep(store, *again, later)

    row, _ = compared(shop)

    assert row["pairs"] == 2
    assert [(each["a"], each["b"]) for each in row["changed"]] == [(1, 0)]


def test_a_session_belongs_to_the_example_with_its_prompt(shop: Run, tmp_path: Path) -> None:
    """Of examples with one question, the one with the same system prompt comes first."""
    sessions = [asked(1, "lima", "1"), asked(2, "lima", "2"), asked(3, "lima", "3")]
    with Store("oteval.duckdb") as store:
        keep(store, *sessions)
    lines = [
        {"inputs": {"messages": [message.as_dict() for message in session.own_messages[:2]]}}
        for session in sessions[:2]
    ]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, lines)))

    rows = shop("eval", "--data", "data.jsonl", "--call", "shop:good", "--json").rows

    prompts = [row["inputs"]["messages"][0]["content"] for row in rows]
    assert sorted(prompts) == [
        "You are version 1. Today is day 1.",
        "You are version 1. Today is day 1.",
        "You are version 2. Today is day 2.",
    ]


def test_stored_experiments_of_earlier_versions_pair(shop: Run) -> None:
    """Their ids are hashes of inputs with the system prompt."""
    with Store("oteval.duckdb") as store:
        for name in ("old", "new"):
            examples: list[Example] = []
            for city in ("lima", "oslo", "oslo"):
                system = f"{name} prompt {len(examples)}"
                messages = [Message("system", system), Message("user", f"weather in {city}?")]
                inputs = {"messages": [message.as_dict() for message in messages]}
                examples.append(Example(example_id(inputs), inputs))
            dataset = Dataset("sessions", tuple(examples))
            store.datasets.add(dataset)
            store.experiments.add(
                Experiment(name, name, dataset="sessions", dataset_version=dataset.version)
            )
            runs = [
                ExperimentRun(f"{name}-{at}", name, example.id, outputs="x")
                for at, example in enumerate(examples)
            ]
            passes = [True, name == "old", True]
            verdicts = [
                Feedback(each.id, "good", "", "good", score=float(passed), passed=passed)
                for each, passed in zip(runs, passes, strict=True)
            ]
            store.experiments.write(name, runs, verdicts)

    *_, row = shop("compare", "old", "new", "--json").rows

    assert row["pairs"] == 2
    assert [(each["a"], each["b"]) for each in row["changed"]] == [(1, 0.5)]
    assert "weather in oslo?" in shop("compare", "old", "new").out


def test_reports_of_stored_runs_pair_by_question_and_turn(shop: Run, tmp_path: Path) -> None:
    """White space does not count; the number of the turn does."""
    (tmp_path / "oteval.yaml").write_text("evaluators: [{name: loops, type: loops}]\n")
    with Store("oteval.duckdb") as store:
        keep(
            store,
            asked(1, "lima", "1", question="weather  in\nlima? "),
            asked(2, "lima", "2", question="weather in lima?"),
            asked(3, "rome", "1", question="and then?", turn=2),
            asked(4, "rome", "2", question="and then?", turn=2),
            asked(5, "rome", "2", question="and then?", turn=3),
        )
    shop("score")
    shop("report", "--by", "version", "--html", "r.html")

    page = (tmp_path / "r.html").read_text()

    assert page.count('"left":') == 2
