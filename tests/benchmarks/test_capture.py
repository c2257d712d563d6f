from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import capture
from benchmarks.fidelity.adapters.oteval_runs import read
from benchmarks.fidelity.compare import compare

AGENT = Path(__file__).with_name("captured_agent.py")


def test_one_command_writes_a_capture_and_its_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files hold the agent's spans and what it exchanged, and oteval reads them right."""
    command = ["capture", str(AGENT), "--name", "tiny", "--data", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", [*command, "--package", "opentelemetry-sdk"])

    capture.main()

    truth = json.loads((tmp_path / "truth.json").read_text("utf-8"))["tiny"]
    weather, order = truth["turns"]
    assert [message["role"] for message in weather] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    assert [message["raw"] for message in weather[2:4]] == ["Paris: fine", "Tokyo: fine"]
    assert (order[2]["raised"], order[2]["is_error"]) == ("order 9999 not found", True)
    assert truth["history_sent"]
    assert truth["system"] == "You are a support agent."
    assert list(truth["versions"]) == ["opentelemetry-sdk"]
    readings = list(read([str(tmp_path / "tiny.json")]))
    verdict = compare({"readings": readings, "crash": ""}, truth)
    assert (verdict.strict, verdict.lenient, verdict.failures, verdict.fault) == (
        True,
        True,
        True,
        "",
    )


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("raise SystemExit('no tools')", "exit status 1: no tools"),
        ("", "turn 1 took 0 of 2 replies"),
    ],
)
def test_an_agent_that_does_not_follow_the_script_is_no_capture(
    tmp_path: Path, code: str, complaint: str
) -> None:
    """Half a conversation would be a wrong truth, so nothing is written."""
    agent = tmp_path / "agent.py"
    agent.write_text(code, "utf-8")

    with pytest.raises(SystemExit, match=complaint):
        capture.capture(agent, sys.executable, json.loads(capture.SCRIPT.read_text("utf-8")))
