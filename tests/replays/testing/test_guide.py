"""The worked example of docs/how-to/testing.md: recorded from a server, played back without it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from ...loopback import LoopbackServer, serving
from ...make import ROOT
from .conftest import Project

pytestmark = pytest.mark.slow

pytest.importorskip("pytest_recording")
pytest.importorskip("openai")

SECRET = "sk-very-secret-5309"
GUIDE = (ROOT / "docs" / "how-to" / "testing.md").read_text()


class _Model(BaseHTTPRequestHandler):
    """Answers chat completions: looks the order up, refunds it, says so; and repeats secrets.

    It calls tools only where they are offered, and answers a judge's question with a verdict.
    """

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        done = sum(message["role"] == "tool" for message in body["messages"])
        offered = [tool["function"]["name"] for tool in body.get("tools", [])]
        answers = [
            _call("look_up_order", {"order": 17}),
            _call("refund", {"order": 17, "amount": 40}),
            {"role": "assistant", "content": f"Refunded 40. (key {SECRET})"},
        ]
        answer = answers[done] if offered == ["look_up_order", "refund"] else _VERDICT
        choice = {"index": 0, "finish_reason": "stop", "message": answer}
        value = {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [choice],
        }
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Set-Cookie", f"session={SECRET}")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


_VERDICT = {"role": "assistant", "content": '{"reasoning": "It is done.", "score": true}'}


def _call(name: str, arguments: dict[str, int]) -> dict[str, object]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    calls = [{"id": f"call_{name}", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


@pytest.fixture
def model() -> Iterator[LoopbackServer]:
    """Return a running model server, which the test may stop."""
    with serving(_Model) as server:
        yield server


@pytest.fixture
def example(project: Project) -> Project:
    """Return the project that the guide's files make."""
    files = re.findall(r"```python\n# (\w+)\.py\n(.*?)```", GUIDE, re.DOTALL)
    assert [name for name, _ in files] == ["agent", "conftest", "test_refunds"]
    project.write(**dict(files))
    return project


def commands() -> list[list[str]]:
    """Return the options of the commands of the worked example."""
    section = GUIDE.partition("## A worked example")[2].partition("## LangSmith")[0]
    return [line.split()[1:] for line in re.findall(r"^    (pytest .*)$", section, re.MULTILINE)]


def test_the_example_is_recorded_once_and_played_back(example: Project, model: LoopbackServer):
    """After recording, the model server is stopped, and the guide's other commands pass."""
    url = f"{model.url}/v1"
    record, *commands_after = commands()

    printed = example.run(*record, env={"OPENAI_BASE_URL": url, "OPENAI_API_KEY": SECRET})
    assert example.status == 0, printed
    model.shutdown()
    model.server_close()
    for options in commands_after:
        printed = example.run(*options, env={"OPENAI_BASE_URL": url})
        assert example.status == 0, printed

    assert len(commands_after) == 2
    assert "no regression from baseline main" in printed


def test_no_secret_is_recorded(example: Project, model: LoopbackServer):
    """Neither the key nor a cookie is in the cassette, wherever the server repeated them."""
    url = f"{model.url}/v1"

    example.run("--record-mode=once", env={"OPENAI_BASE_URL": url, "OPENAI_API_KEY": SECRET})

    cassettes = list(example.path.glob("cassettes/**/*.yaml"))
    text = "".join(cassette.read_text() for cassette in cassettes)
    assert len(cassettes) == 2
    assert "look_up_order" in text
    assert "Refunded 40" in text
    assert SECRET not in text
    for header in ("authorization", "set-cookie"):
        assert header not in text.lower()


def test_a_changed_prompt_is_not_answered_from_the_record(example: Project, model: LoopbackServer):
    """What the agent now asks was never recorded: an error, not the old answer."""
    url = f"{model.url}/v1"
    example.run("--record-mode=once", env={"OPENAI_BASE_URL": url, "OPENAI_API_KEY": SECRET})
    changed = (example.path / "test_refunds.py").read_text()
    changed = changed.replace('agent.ask("Refund order 17")', 'agent.ask("Refund it")')
    (example.path / "test_refunds.py").write_text(changed)

    printed = example.run("--block-network", env={"OPENAI_BASE_URL": url})

    assert example.status == 1
    assert "2 failed" in printed


def test_a_judge_is_played_back_by_its_whole_prompt(example: Project, model: LoopbackServer):
    """The number of a call is left out of the record; another task is not answered from it."""
    url = f"{model.url}/v1"
    example.run("--record-mode=once", env={"OPENAI_BASE_URL": url, "OPENAI_API_KEY": SECRET})
    (cassette,) = example.path.glob("cassettes/**/test_refund_is_done.yaml")
    recorded = cassette.read_text()

    changed = (example.path / "test_refunds.py").read_text()
    changed = changed.replace("prompt=TASK_COMPLETION_PROMPT", 'prompt="Is it done? {outputs}"')
    (example.path / "test_refunds.py").write_text(changed)
    printed = example.run("--block-network", "-k", "is_done", env={"OPENAI_BASE_URL": url})

    assert "outputs 0000000000000000]]" in recorded
    assert example.status == 1
    assert "1 failed" in printed


def test_the_guide_names_what_there_is():
    """The guide names the options that there are, and every fixture."""
    plugin = (ROOT / "oteval" / "replays" / "testing" / "plugin.py").read_text()
    options = set(re.findall(r'"(--oteval-[\w-]+)"', plugin))
    fixtures = set(re.findall(r"def (oteval_\w+)\(", plugin))

    assert set(re.findall(r"--oteval-[\w-]+", GUIDE)) == options
    assert fixtures <= set(re.findall(r"oteval_\w+", GUIDE))
