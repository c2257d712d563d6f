"""``oteval whatif`` with faults, from step k, and with samples: the command and its output."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oteval.model import RecordedAnswer
from oteval.replays.recording_files import save

from ..commands import Done, Run, oteval
from ..model_server import Body, Reply, Server, completion, serving
from .clerk import clerk, clerk_file, clerk_recording, write_clerk
from .recorded import tool_request

__all__ = ["oteval"]

HAPPY = """
evaluators:
  - {name: happy, type: required_text, texts: ["done"]}
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Return a live model; the current folder has the agent."""
    write_clerk(tmp_path)
    with serving(clerk) as model_server:
        monkeypatch.setenv("MODEL_URL", model_server.url)
        yield model_server


WhatIf = Callable[..., Done]


@pytest.fixture
def whatif(oteval: Run) -> WhatIf:
    """Return a function that runs the command with the agent ``clerk:target``."""

    def run(*arguments: Any) -> Done:
        return oteval("whatif", "--target", "clerk:target", "--workers", "1", *arguments)

    return run


def own_file(folder: Path, server: Server, question: str) -> Path:
    """Save the recording of a session that had the address of the live model."""
    recording = clerk_recording(question)
    calls = [
        replace(call, exchange=replace(call.exchange, url=f"{server.url}/chat/completions"))
        for call in recording.model_calls
        if call.exchange is not None
    ]
    path = folder / "own.jsonl"
    save(replace(recording, model_calls=tuple(calls)), path)
    return path


def handles(body: Body, _number: int) -> Reply:
    """Script: by the question, a model that tells of a failure, conceals it, or loops."""
    question = body["messages"][1]["content"]
    results = [m["content"] for m in body["messages"] if m["role"] == "tool"]
    if not results or (question == "loops" and len(results) < 5):
        return tool_request(("refund", json.dumps({"order": 17})), call_id=f"call_{len(results)}")
    texts = {"tells": "I could not refund it.", "conceals": "Your order was refunded."}
    return completion(texts.get(question, "The refund failed."))


def test_faults_show_who_recovers_loops_or_conceals(
    whatif: WhatIf, server: Server, tmp_path: Path
) -> None:
    """Without a configuration: the runs that did not recover come first, with their reasons."""
    server.script = handles
    files = [clerk_file(tmp_path, name) for name in ("tells", "conceals", "loops")]

    done = whatif(*files, "--fault", "refund=timeout")

    lines = done.out.splitlines()
    assert done.status == 1, done
    assert lines[0].startswith('✗ conceals: call 0 refund({"order":17}) failed')
    assert lines[1].startswith('✗ loops: call 0 refund({"order":17}) failed 5 times (at most 3)')
    assert "recovered: 1 of 3 runs recovered" in done.out
    assert "1 changed" in done.out
    assert not (tmp_path / "refunds").exists()


def test_an_agent_that_crashes_after_a_fault_has_not_recovered(
    whatif: WhatIf, server: Server, tmp_path: Path
) -> None:
    """The fault and the exception are named, although the run has no score."""
    source = (tmp_path / "clerk.py").read_text()
    (tmp_path / "clerk.py").write_text(source.replace("except Exception as", "except KeyError as"))

    done = whatif(clerk_file(tmp_path, "tells"), "--fault", "refund=error:503")

    assert done.status == 1
    assert "recovered: 0 of 1 run recovered" in done.out
    assert done.out.startswith("✗ tells: after the fault refund=error:503: ")
    assert "the agent raised RuntimeError: HTTP 503: Service Unavailable" in done.out


FAILING = """
from clerk import target
from oteval.record.decorators import agent


@agent(name="receipts")
def receipt(question):
    raise ValueError("no receipt")


@agent(name="refunds")
def fails(question):
    target(question)
    receipt(question)
"""

FAILURE = "ValueError: no receipt"


def ends(receipts: str, refunds: str) -> tuple[RecordedAnswer, ...]:
    """Return the recorded ends of both agents: their exceptions, or ""."""
    return (
        RecordedAnswer("refunds", error=refunds, is_decorated=True, start_ns=1),
        RecordedAnswer("receipts", error=receipts, is_decorated=True, start_ns=2),
    )


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        (ends(FAILURE, FAILURE), "the agent raised ValueError: no receipt, as recorded"),
        (ends(FAILURE, ""), f"no receipt; recorded: {FAILURE} [completed]"),
        (ends("", "OSError: full"), "no receipt; recorded: OSError: full [completed]"),
        (ends("", ""), "the agent raised ValueError: no receipt [completed]"),
        ((), "no receipt; the recording does not show whether the recorded run failed as well"),
    ],
    ids=["as recorded", "caught before", "another exception", "not before", "not recorded"],
)
def test_a_run_that_fails_as_recorded_is_not_broken(
    whatif: WhatIf, server: Server, tmp_path: Path, answers: tuple[RecordedAnswer, ...], text: str
) -> None:
    """The exception that ended the recorded run is no change; of any other, the reason tells."""
    (tmp_path / "failing.py").write_text(FAILING)
    save(replace(clerk_recording("Refund 17"), answers=answers), tmp_path / "own.jsonl")

    done = whatif("own.jsonl", "--target", "failing:fails")

    is_same = text.endswith("as recorded")
    assert text in " ".join(done.out.split())
    assert done.out.startswith("None of 1 run broke, 1 did not change.") == is_same
    assert done.status == (0 if is_same else 1)


def test_other_calls_before_a_recorded_failure_are_a_change(
    whatif: WhatIf, server: Server, tmp_path: Path
) -> None:
    """A run that fails as recorded is compared with the calls of the recorded run."""
    (tmp_path / "failing.py").write_text(FAILING)
    recording = replace(clerk_recording("loops"), answers=ends(FAILURE, FAILURE))
    save(recording, tmp_path / "own.jsonl")
    server.script = handles

    done = whatif("own.jsonl", "--target", "failing:fails")

    assert done.status == 1
    assert "5 times, recorded once [same_calls]" in done.out


def test_a_fault_that_no_call_gets_is_never_a_pass(
    whatif: WhatIf, server: Server, tmp_path: Path
) -> None:
    """A recorded run without the tool is left out, and a run without the call has failed."""
    file = clerk_file(tmp_path, "tells")

    unknown = whatif(file, "--fault", "pay=timeout")
    second = whatif(file, "--fault", "refund#2=timeout")

    assert (unknown.status, second.status) == (3, 3)
    assert "pay=timeout: the recorded run has no call of pay" in unknown.err
    assert "refund#2=timeout was not put in: the agent did not make call 2 of it" in second.err


def test_the_recording_answers_until_step_k(whatif: WhatIf, server: Server, tmp_path: Path) -> None:
    """Only the second model call is live, with the other result of the tool before it."""
    (tmp_path / "oteval.yaml").write_text(HAPPY)
    (tmp_path / "denied.txt").write_text("denied\n")
    file = own_file(tmp_path, server, "Refund 17")

    done = whatif(file, "--from-call", "2", "--tool-result", "refund=denied.txt", "--json")
    after = whatif(file, "--from-call", "3")

    (request,) = server.requests
    row = next(row for row in done.rows if "coverage" in row)
    assert request["messages"][-1]["content"] == "denied"
    assert (row["coverage"]["changed"], len(row["new"]["messages"])) == (["refund"], 5)
    assert after.status == 3
    assert "the recording has 2 model calls, none is live" in after.err


def test_an_agent_that_differs_before_step_k_has_failed(
    whatif: WhatIf, server: Server, tmp_path: Path
) -> None:
    """No request is sent to the model, and the reason names the difference."""
    (tmp_path / "oteval.yaml").write_text(HAPPY)
    source = (tmp_path / "clerk.py").read_text()
    (tmp_path / "clerk.py").write_text(source.replace("You refund orders.", "You refund all."))

    done = whatif(own_file(tmp_path, server, "Refund 17"), "--from-call", "2")

    assert done.status == 3
    assert "it differs before the first live model call: model call 1" in done.err
    assert server.requests == []


def test_samples_tell_chance_from_the_change(
    whatif: WhatIf, server: Server, tmp_path: Path
) -> None:
    """A change is compared with as many samples without it."""
    (tmp_path / "oteval.yaml").write_text(HAPPY)
    (tmp_path / "denied.txt").write_text("denied")
    turns = itertools.count()

    def varies(body: Body, number: int) -> Reply:
        if body["messages"][-1]["content"] == "denied":
            return completion("No.")
        return completion("sorry" if next(turns) == 2 else "done")

    server.script = varies
    file = own_file(tmp_path, server, "Refund 17")
    common = file, "--from-call", "2", "--samples", "6"

    changed = whatif(*common, "--tool-result", "refund=denied.txt")
    alone = whatif(*common)

    assert "without the change 5 of 6 samples" in changed.out
    assert "recorded passed; 0 of 6 samples (0% to 46%) pass" in changed.out
    assert "the change is the cause (p 0.03)" in changed.out
    assert len(server.requests) == 18
    assert "recorded passed; 6 of 6 samples" in alone.out
    assert "the recorded outcome repeats" in alone.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--fault", "refund=broken"), "'broken' is none of timeout"),
        (("--tool-result", "refund"), "write --tool-result TOOL[#N]=FILE"),
        (("--tool-result", "refund=nowhere.txt"), "nowhere.txt: cannot be read"),
        (("--from-call", "0"), "0 is not in the range"),
    ],
)
def test_wrong_options_are_one_line(
    whatif: WhatIf, server: Server, arguments: tuple[str, ...], message: str
) -> None:
    """The status is 2, and the line names the option."""
    done = whatif(*arguments)

    assert done.status == 2
    assert message in done.err
