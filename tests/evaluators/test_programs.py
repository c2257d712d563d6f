"""`type: command` evaluates runs with programs in other languages, within limits."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from oteval import ConfigError, Message, Score, Trajectory
from oteval.scoring import parse_config, prepare

from ..make import ROOT, asks, call, run

RUN = run(
    1,
    Message("user", "Refund order 7"),
    asks(call("refund", {"order": 7}, "c1")),
    Message("tool", "done", tool_call_id="c1"),
    Message("assistant", "Refunded: é."),
)


def settings(command: list[str], **options: Any) -> str:
    """The configuration of one evaluator."""
    return json.dumps(
        {"evaluators": [{"name": "e", "type": "command", "command": command, **options}]}
    )


def scored(folder: Path, script: str, trajectory: Trajectory = RUN, **options: Any) -> Score:
    """The score of a run by a script of sh, which is ``check.sh`` in a folder."""
    (folder / "check.sh").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "check.sh").chmod(0o755)
    (prepared,) = prepare(parse_config(settings(["./check.sh"], **options)), None, folder)
    return prepared.score(trajectory, 0)


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ('{"score": true}', (1.0, True, "pass", "")),
        ('{"score": false, "comment": "why"}', (0.0, False, "fail", "why")),
        ('{"score": 0.4, "passed": true, "comment": "é"}', (0.4, True, "", "é")),
        ('{"score": 3, "metadata": {"words": 3}}', (3.0, None, "", "")),
        ('{"score": "polite"}', (None, None, "polite", "")),
    ],
)
def test_a_line_of_json_is_the_verdict(tmp_path: Path, line: str, verdict: Any):
    """A bool passes or fails, a number is a score, and a text is a label."""
    score = scored(tmp_path, f"echo '{line}'")

    assert score.status == "ok"
    assert (score.score, score.passed, score.label, score.comment) == verdict


def test_the_program_gets_the_run_as_a_line_of_json(tmp_path: Path):
    """It has the messages, the reference, the question, and the run's usage, times and gaps."""
    (tmp_path / "wanted.json").write_text('[{"role": "user", "content": "x"}]')

    score = scored(tmp_path, "tee got.json >&2; echo '{\"score\": 1}'", reference="wanted.json")

    (line,) = (tmp_path / "got.json").read_text("utf-8").splitlines()
    request = json.loads(line)
    assert score.status == "ok"
    assert request["inputs"] == "Refund order 7"
    assert request["outputs"] == [message.as_dict() for message in RUN.messages]
    assert request["reference_outputs"] == [{"role": "user", "content": "x"}]
    assert request["trajectory"] == json.loads(json.dumps(RUN.as_dict()))


@pytest.mark.parametrize(
    ("script", "comment"),
    [
        ("echo no tool >&2; exit 3", "the program ended with exit status 3: no tool"),
        ("kill -9 $$", "the program ended with signal 9"),
        ("true", "the program wrote 0 lines"),
        ("echo 1; echo 2", "the program wrote 2 lines"),
        ("echo pass", "the program wrote no JSON: pass"),
        ("echo 1", "the program wrote no object with 'score': 1"),
        ("echo '{}'", "the program wrote no object with 'score': {}"),
        ("echo '{\"score\": [1]}'", "the program returned [1], which is not a score"),
        ('echo \'{"score": 1, "passed": 1}\'', "the program wrote 'passed' that is not a bool"),
        ('echo \'{"score": 1, "metadata": 1}\'', "metadata that is not a dict"),
        ("yes", "ValueError: wrote more than 1,000 bytes"),
    ],
)
def test_a_failure_is_an_error_and_never_a_0(tmp_path: Path, script: str, comment: str):
    """The exit status and the output must both be right."""
    score = scored(tmp_path, script, max_output=1000)

    assert (score.status, score.score, score.passed) == ("error", None, None)
    assert comment in score.comment


def test_a_score_of_null_is_no_verdict(tmp_path: Path):
    """The program may say that it cannot evaluate the run."""
    score = scored(tmp_path, 'echo \'{"score": null, "comment": "no order"}\'')

    assert (score.status, score.comment) == ("not_evaluated", "no order")


def test_a_run_without_messages_is_not_evaluated(tmp_path: Path):
    """The program is not asked about a run that it cannot see."""
    score = scored(tmp_path, "touch asked; echo '{\"score\": 1}'", run(2))

    assert score.status == "not_evaluated"
    assert not (tmp_path / "asked").exists()


def test_a_program_that_hangs_is_killed_with_the_processes_that_it_started(tmp_path: Path):
    """The timeout is an error, and nothing keeps running."""
    score = scored(tmp_path, "sleep 100 & echo $! > pid; wait", timeout=0.2)

    pid = int((tmp_path / "pid").read_text())
    assert (score.status, score.comment) == ("error", "TimeoutError: no answer within 0.2 s")
    assert _has_ended(pid)


def test_a_process_that_is_left_behind_is_killed(tmp_path: Path):
    """A program ends with its processes, also if it succeeds."""
    script = "sleep 100 >&- 2>&- & echo $! > pid; echo '{\"score\": 1}'"

    assert scored(tmp_path, script).status == "ok"
    assert _has_ended(int((tmp_path / "pid").read_text()))


def _has_ended(pid: int) -> bool:
    """Whether a process was killed; its parent may reap it a moment later."""
    for _ in range(200):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.01)
    return False


def test_the_environment_has_only_what_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Keys of models do not reach the program unless its evaluator names them."""
    monkeypatch.setenv("SECRET_KEY", "s")
    monkeypatch.setenv("SHOP_URL", "u")
    script = 'echo "{\\"score\\": \\"$SECRET_KEY-$SHOP_URL-${PATH:+path}\\"}"'

    assert scored(tmp_path, script, environment=["SHOP_URL"]).label == "-u-path"
    with pytest.raises(ConfigError, match="environment: MISSING is not set"):
        scored(tmp_path, script, environment=["MISSING"])


def test_a_program_that_does_not_exist_is_named(tmp_path: Path):
    """The error comes before any run is scored."""
    for name in ("./missing.sh", "no-such-program"):
        with pytest.raises(ConfigError, match=r"evaluator 'e': command: .* is not a program"):
            prepare(parse_config(settings([name])), None, tmp_path)
    with pytest.raises(ConfigError, match="give the program and its arguments"):
        parse_config(settings([]))


def test_arguments_are_passed_as_they_are(tmp_path: Path):
    """No shell expands them."""
    program = "import json, sys; print(json.dumps({'score': sys.argv[1]}))"
    config = parse_config(settings([sys.executable, "-c", program, "$HOME; *"]))

    (prepared,) = prepare(config, None, tmp_path)

    assert prepared.score(RUN, 0).label == "$HOME; *"


def test_a_changed_program_is_another_version(tmp_path: Path):
    """Its files beside the configuration are part of the evaluator's version."""
    first = scored(tmp_path, "echo '{\"score\": 1}'").version

    assert scored(tmp_path, "echo '{\"score\": 1}'").version == first
    assert scored(tmp_path, "echo '{\"score\": 2}'").version != first


def test_input_that_is_not_read_is_no_failure(tmp_path: Path):
    """A program may decide without reading a long run to its end."""
    long_run = run(3, Message("user", "x" * 1_000_000), Message("assistant", "y"))

    assert scored(tmp_path, "echo '{\"score\": 1}'", long_run).status == "ok"


@pytest.mark.parametrize(
    ("program", "file", "arguments"),
    [
        ("node", "few_calls.mjs", ["node", "few_calls.mjs", "3"]),
        ("jq", "polite.sh", ["./polite.sh"]),
    ],
)
def test_the_examples_of_the_page_work(
    tmp_path: Path, program: str, file: str, arguments: list[str]
):
    """Programs of Node and bash read the line, and write a verdict."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    page = (ROOT / "docs" / "reference" / "checks.md").read_text("utf-8")
    code = page.partition(f"`{file}`")[2].partition("```")[2].partition("\n")[2]
    (tmp_path / file).write_text(code.partition("```")[0])
    (tmp_path / file).chmod(0o755)
    polite = run(2, *RUN.messages[:-1], Message("assistant", "Thanks for waiting."))

    (prepared,) = prepare(parse_config(settings(arguments)), None, tmp_path)

    assert prepared.score(polite, 0).passed is True
    assert prepared.score(RUN, 0).passed is (program == "node")
