"""All that one ``oteval run`` recorded belongs together: its runs, and requests around them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ..model_server import Body, Reply, completion, serving
from .recorded import tool_request

pytestmark = pytest.mark.slow

AGENT = """
import json
import sys
from pathlib import Path

import httpx2

import oteval

URL = Path("url").read_text()
client = httpx2.Client(verify=False)
client.post(URL + "/config", json={"at": "import"})


def refund(order):
    with open("acted", "a") as file:
        file.write(f"{order}\\n")
    return "refunded"


@oteval.agent
def ask(question):
    messages = [{"role": "user", "content": question}]
    while True:
        body = {"model": "m", "messages": messages}
        reply = client.post(URL + "/chat/completions", json=body).json()
        message = reply["choices"][0]["message"]
        messages.append(message)
        if not message.get("tool_calls"):
            return message["content"]
        for call in message["tool_calls"]:
            content = refund(**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})


if __name__ == "__main__":
    print(ask("Refund 17"))
    client.post(URL + "/config", json={"at": "between"})
    print(ask("Refund 18"))
"""


class Shop(NamedTuple):
    """A folder in which an agent was recorded, and the function that calls oteval in it."""

    folder: Path
    oteval: Callable[..., subprocess.CompletedProcess[str]]

    def verify(self, *arguments: str) -> tuple[int, list[Any]]:
        """Verify the agent; return the exit status and the rows."""
        done = self.oteval("replay", "verify", "--json", *arguments)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def script(body: Body, _number: int) -> Reply:
    """Ask for a refund, then answer."""
    if "messages" not in body:
        return Reply({"config": 1})
    if body["messages"][-1]["role"] == "tool":
        return completion(f"{body['messages'][0]['content']}: done")
    number = body["messages"][0]["content"].split()[-1]
    return tool_request(("refund", json.dumps({"order": int(number)})), call_id=f"c{number}_")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """The agent's folder after one recorded run; its server has ended."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "agent.py").write_text(AGENT)

    def oteval(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "oteval", *arguments]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    with serving(script) as server:
        (folder / "url").write_text(server.url)
        done = oteval("run", "--quiet", "--", sys.executable, "agent.py")
    assert done.returncode == 0, done.stderr
    (folder / "acted").unlink()
    return Shop(folder, oteval)


def test_a_command_verifies_all_runs_of_its_invocation(shop: Shop) -> None:
    """Two runs and the requests around them are one session, whichever run is named."""
    ids = [
        json.loads(line)["trajectory_id"]
        for line in shop.oteval("trajectories", "--json").stdout.splitlines()
    ]
    assert len(ids) == 2

    for chosen_ids in ([], ids[:1], ids[1:], ids):
        status, rows = shop.verify(*chosen_ids, "--", sys.executable, "agent.py")

        assert (status, [row["status"] for row in rows]) == (0, ["passed"])
        assert rows[0]["model_calls"] == {"recorded": 4, "served": 4}
        assert "2 runs of one oteval run, verified together" in rows[0]["reasons"]
    assert not (shop.folder / "acted").exists()


def test_a_function_is_verified_run_by_run(shop: Shop) -> None:
    """The request at import is answered, since it belongs to the invocation."""
    status, rows = shop.verify("--target", "agent:ask")

    assert (status, [row["status"] for row in rows]) == (0, ["passed", "passed"])
    assert not (shop.folder / "acted").exists()


def test_a_run_that_is_left_out_is_missing(shop: Shop) -> None:
    """A program that makes only the first of its two runs differs."""
    (shop.folder / "half.py").write_text(AGENT.replace('    print(ask("Refund 18"))\n', ""))

    status, rows = shop.verify("--", sys.executable, "half.py")

    assert status == 1
    assert rows[0]["divergences"][0]["kind"] == "missing_call"
