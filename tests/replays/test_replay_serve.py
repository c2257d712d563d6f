"""`oteval replay serve`: a command runs against the endpoint, and its result is the exit status."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from oteval.replays.recording_files import save

from ..commands import Run
from ..model_server import completion
from .agents import chat
from .recorded import record

# Any language would do: it knows the endpoint by its environment, and sends one request.
AGENT = """
import json, os, sys, urllib.request
messages = [{"role": "system", "content": sys.argv[1]}, {"role": "user", "content": "Refund 17"}]
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps({"model": "gpt-test", "messages": messages}).encode(),
    {"content-type": "application/json"},
)
answer = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
open("answer.txt", "w").write(answer)
"""


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A saved recording of one model call."""
    path = tmp_path / "one.jsonl"
    recorded = record(chat, lambda _body, _number: completion("Refunded."))
    save(replace(recorded, session="one"), path)
    return path


def test_an_agent_that_does_as_recorded_passes(oteval: Run, recording: Path):
    """The agent gets the recorded answer; the result is one line of JSON."""
    command = (sys.executable, "-c", AGENT, "You are a refund agent.")

    done = oteval("replay", "serve", str(recording), "--json", "--", *command)

    assert done.status == 0, done.err
    assert Path("answer.txt").read_text() == "Refunded."
    (result,) = done.rows
    assert (result["status"], result["fidelity"]) == ("passed", "wire")
    assert "fidelity wire" in done.err


def test_an_agent_that_asks_something_else_fails(oteval: Run, recording: Path):
    """The exit status is 1, and the divergence is shown."""
    command = (sys.executable, "-c", AGENT, "You are somebody else.")

    done = oteval("replay", "serve", str(recording), "--", *command)

    assert done.status == 1
    assert "diverged" in done.out
    assert "You are somebody else." in done.out


def test_a_request_to_another_api_says_which_are_answered(oteval: Run, recording: Path):
    """The endpoint has no network to let a request through to."""
    agent = AGENT.replace("/chat/completions", "/embeddings")

    done = oteval(
        "replay", "serve", str(recording), "--json", "--", sys.executable, "-c", agent, "x"
    )

    (result,) = done.rows
    (divergence,) = result["divergences"]
    assert divergence["kind"] == "extra_call"
    assert divergence["summary"].endswith("/v1/embeddings, which is not recorded")
    assert divergence["suggestion"].startswith("only requests to /chat/completions, /responses")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--", sys.executable, "-c", ""), 3, "the agent sent no request"),
        (("--", "no-such-command"), 2, "no-such-command: cannot be started"),
        (("--mcp", "--", "x"), 2, "--mcp serves one session, and takes no command"),
    ],
)
def test_problems_are_said(
    oteval: Run, recording: Path, arguments: tuple[str, ...], status: int, message: str
):
    """A command that asks nothing is not a pass."""
    done = oteval("replay", "serve", str(recording), *arguments)

    assert done.status == status
    assert message in done.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_a_signal_ends_the_endpoint_with_the_result(recording: Path, number: int):
    """An endpoint without a command says what diverged when it is stopped, as a failure."""
    command = (sys.executable, "-m", "oteval", "replay", "serve", str(recording))
    endpoint = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert endpoint.stdout is not None
        url = endpoint.stdout.readline().strip().partition("=")[2]
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{url}/chat/completions", b"{}", timeout=60)
        endpoint.send_signal(number)
        out, err = endpoint.communicate(timeout=60)
    finally:
        endpoint.kill()
        endpoint.wait()

    assert endpoint.returncode == 1
    assert "diverged" in out
    assert "1 session: 1 diverged" in err
