from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fidelity import __main__ as table
from benchmarks.fidelity.compare import Verdict, compare

Run = list[dict[str, Any]]

QUESTIONS = ("What is the weather in Paris and Tokyo?", "Where is my order 9999?")
ANSWERS = ("Paris is warm; Tokyo is cold.", "I could not find order 9999.")
ADAPTERS = Path(table.__file__).parent / "adapters"


def call(call_id: str, name: str, **args: Any) -> dict[str, Any]:
    """A call as truth.json has it."""
    return {"id": call_id, "name": name, "args": args}


TRUTH: dict[str, Any] = {
    "error_told_by": "flag",
    "lacks": [],
    "turns": [
        [
            {"role": "user", "content": QUESTIONS[0]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    call("1", "get_weather", city="Paris"),
                    call("2", "get_weather", city="Tokyo"),
                ],
            },
            {
                "role": "tool",
                "id": "1",
                "content": "Paris: 21 °C\nsunny",
                "raw": "Paris: 21 °C\nsunny",
            },
            {"role": "tool", "id": "2", "content": "Tokyo: 3 °C", "raw": "Tokyo: 3 °C"},
            {"role": "assistant", "content": ANSWERS[0]},
        ],
        [
            {"role": "user", "content": QUESTIONS[1]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [call("3", "lookup_order", order_id="9999")],
            },
            {
                "role": "tool",
                "id": "3",
                "content": "Error: not found",
                "raised": "not found",
                "is_error": True,
            },
            {"role": "assistant", "content": ANSWERS[1]},
        ],
    ],
}


def right_run() -> Run:
    """The two turns in one run, as a tool shows them that is right."""
    return [
        {"role": "user", "content": QUESTIONS[0]},
        {
            "role": "assistant",
            "content": None,
            "calls": [
                {"id": "1", "name": "get_weather", "arguments": {"city": "Paris"}},
                {"id": "2", "name": "get_weather", "arguments": {"city": "Tokyo"}},
            ],
        },
        {"role": "tool", "content": "Paris: 21 °C\nsunny", "call_id": "1"},
        {"role": "tool", "content": "Tokyo: 3 °C", "call_id": "2"},
        {"role": "assistant", "content": ANSWERS[0]},
        {"role": "user", "content": QUESTIONS[1]},
        {
            "role": "assistant",
            "content": None,
            "calls": [{"id": "3", "name": "lookup_order", "arguments": {"order_id": "9999"}}],
        },
        {"role": "tool", "content": "Error: not found", "call_id": "3", "is_error": True},
        {"role": "assistant", "content": ANSWERS[1]},
    ]


def verdict(*runs: Run, notes: tuple[str, ...] = (), **truth: Any) -> Verdict:
    """The verdict on a tool with one reading."""
    capture = {"readings": [{"runs": list(runs), "notes": list(notes)}], "crash": ""}
    return compare(capture, {**TRUTH, **truth})


def changed(change: Callable[[Run], Any]) -> Run:
    """The right run with a change."""
    run = copy.deepcopy(right_run())
    change(run)
    return run


def spans_named_after_operations(run: Run) -> None:
    """Tool spans have prefixes and suffixes."""
    run[1]["calls"][0]["name"] = "execute_tool get_weather"
    run[1]["calls"][1]["name"] = "get_weather.tool"


def json_texts(run: Run) -> None:
    """Arguments and results are JSON, one of them in JSON."""
    run[1]["calls"][0]["arguments"] = json.dumps(json.dumps({"city": "Paris"}))
    run[2]["content"] = json.dumps({"output": json.dumps("Paris: 21 °C\nsunny")})


def without_ids(run: Run) -> None:
    """Calls have no ids, and results follow in the same order."""
    for message in run:
        message.pop("call_id", None)
        for each in message.get("calls", ()):
            each["id"] = None


@pytest.mark.parametrize("change", [spans_named_after_operations, json_texts, without_ids, len])
def test_a_right_reading_is_strict_in_each_form(change: Callable[[Run], Any]) -> None:
    """How a tool writes names, values and ids does not count."""
    assert verdict(changed(change)) == Verdict(strict=True, lenient=True, failures=True)


def test_runs_may_be_turns_or_conversations() -> None:
    """A run for each turn, the whole history in the last one, and views beside them are right."""
    run = right_run()

    assert verdict(run[:5], run[5:]).strict
    assert verdict(run[:2], run).strict
    assert verdict([], [{"role": "user", "content": QUESTIONS[0]}], run).strict


def test_the_best_of_several_choices_counts() -> None:
    """Where a tool's user chooses an importer, the one that fits is the reading."""
    readings = [{"runs": [], "notes": ["unknown"]}, {"runs": [right_run()], "notes": []}]

    best = compare({"readings": readings, "crash": "the third importer raised"}, TRUTH)

    assert (best.strict, best.notes, best.crash) == (True, False, "")


def swap_results(run: Run) -> None:
    """Each result stands with the other call."""
    run[2]["call_id"], run[3]["call_id"] = "2", "1"


def both_results(run: Run) -> None:
    """One result holds another's as well."""
    run[2]["content"] += " " + run[3]["content"]


WRONG: dict[str, Callable[[Run], Any]] = {
    "missing result": lambda run: run.pop(2),
    "empty result": lambda run: run[3].update(content=None),
    "another call's result": swap_results,
    "another call's result as well": both_results,
    "missing call": lambda run: run[1]["calls"].pop(),
    "extra call": lambda run: run[1]["calls"].append({"name": "get_weather", "arguments": {}}),
    "call twice": lambda run: run[6]["calls"].append({**run[6]["calls"][0], "id": "4"}),
    "wrong arguments": lambda run: run[6]["calls"][0].update(arguments={"order_id": "1"}),
    "wrong name": lambda run: run[6]["calls"][0].update(name="lookup_orders"),
    "wrong answer": lambda run: run[-1].update(content="It is on its way."),
    "answer before the calls": lambda run: run.insert(6, run.pop()),
    "no answer": lambda run: run.pop(),
    "question twice": lambda run: run.insert(0, dict(run[0])),
    "question of nobody": lambda run: run[5].update(role="system"),
    "no messages": lambda run: run.clear(),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_each_kind_of_wrong_reading_is_not_strict(change: Callable[[Run], Any]) -> None:
    """It is silently wrong without a note, unless the tool shows nothing; with one it says so."""
    run = changed(change)

    assert not verdict(run).strict
    assert verdict(run).fault
    assert verdict(run).notes is not bool(run)
    assert verdict(run, notes=("a result is missing",)).notes


@pytest.mark.parametrize(
    ("change", "failures"),
    [
        (lambda run: run[7].update(is_error=False), False),
        (lambda run: run[2].update(is_error=True), False),
        (lambda run: run[6]["calls"][0].update(arguments=None), True),
    ],
    ids=["no flag", "a flag on another call", "the flagged call has no arguments"],
)
def test_failures_are_a_column_beside_strict(change: Callable[[Run], Any], failures: bool) -> None:
    """A flag is right when the failed calls have it, and no others."""
    assert verdict(changed(change)).failures is failures


def test_a_flag_counts_in_any_run() -> None:
    """A tool that shows messages, and spans with the status, flags the failure."""
    messages = changed(lambda run: run[7].pop("is_error"))

    assert verdict(messages, right_run()) == Verdict(strict=True, lenient=True, failures=True)


def test_what_the_spans_lack_is_not_asked_for() -> None:
    """Results that the spans do not hold, and flags that no span has, cost no tool anything."""
    run = changed(lambda run: [run.pop(place) for place in (7, 3, 2)])

    assert verdict(run, lacks=["results"], error_told_by="text") == Verdict(
        strict=True, lenient=True
    )


def test_lenient_asks_for_the_facts_as_text() -> None:
    """Calls and answers in one text are lenient; a call that is nowhere is not."""
    text = json.dumps(right_run())
    missing = text.replace("Tokyo", "Rome")

    assert verdict([{"role": "user", "content": text}]).lenient
    assert not verdict([{"role": "user", "content": missing}]).lenient


def test_a_crash_is_a_crash() -> None:
    """A tool that raises has no reading to compare."""
    crashed = compare({"readings": [], "crash": "KeyError: 'role'"}, TRUTH)

    assert crashed == Verdict(strict=False, lenient=False, failures=False, crash="KeyError: 'role'")


def test_adapters_are_short() -> None:
    """An adapter turns a tool's objects into messages, and reconstructs nothing itself."""
    lengths = {
        tool.adapter: (ADAPTERS / f"{tool.adapter}.py").read_text("utf-8").count("\n")
        for tool in table.TOOLS
    }

    assert max(lengths.values()) < 60, lengths


def test_the_table_has_a_row_for_oteval(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The command reads the captures of a folder in a process of their own."""
    truth = json.loads((table.DATA / "truth.json").read_text("utf-8"))
    name = "agno_openinference"
    (tmp_path / "truth.json").write_text(json.dumps({name: truth[name]}), "utf-8")
    (tmp_path / f"{name}.json").write_bytes((table.DATA / f"{name}.json").read_bytes())
    monkeypatch.setattr(sys, "argv", ["fidelity", "--data", str(tmp_path)])

    table.main()

    cells = capsys.readouterr().out.splitlines()[-1].split(" | ")
    assert cells[0].startswith("| oteval")
    assert cells[1:4] == ["1 of 1", "1 of 1", "1 of 1"]
