"""An agent of the Vercel AI SDK in Node: its own traces are replayed by `oteval replay serve`.

`make test-node` installs the packages of `examples/node`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..commands import Run
from ..record.wire.web_server import Answer, answering

ROOT = Path(__file__).resolve().parents[2]
NODE = shutil.which("node")
MODULES = os.environ.get("OTEVAL_NODE_MODULES", "")
SECONDS = 120

sys.path.insert(0, str(ROOT / "examples"))
from model_server import running  # noqa: E402

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(NODE is None, reason="node is not installed"),
    pytest.mark.skipif(not MODULES, reason="OTEVAL_NODE_MODULES is not set: run make test-node"),
]


def record(oteval: Run, *options: str) -> str:
    """Run the agent in the current folder, load its spans, and return its trajectory's id."""
    shutil.copy(ROOT / "examples" / "node" / "agent.mjs", "agent.mjs")
    Path("node_modules").symlink_to(MODULES)
    with answering(lambda _request: Answer()) as receiver, running() as model:
        addresses = {"OPENAI_BASE_URL": model.url, "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
        subprocess.run(
            [str(NODE), "agent.mjs", *options],
            env={**os.environ, **addresses},
            check=True,
            timeout=SECONDS,
            stdout=subprocess.PIPE,
        )
    Path("spans.jsonl").write_bytes(b"\n".join(arrival.body for arrival in receiver.arrived))
    assert oteval("ingest", "spans.jsonl").status == 0
    (trajectory,) = oteval("trajectories", "--json").rows
    return str(trajectory["trajectory_id"])


def replay(oteval: Run, session: str, *options: str) -> tuple[int, dict[str, Any]]:
    """Replay a session with the agent; return the exit status and the result."""
    command = (str(NODE), "agent.mjs", *options)
    done = oteval("replay", "serve", session, "--json", "--", *command)
    assert done.out, done.err
    (result,) = done.rows
    return done.status, result


def edit(before: str, after: str) -> None:
    """Replace a text that occurs once in the agent."""
    path = Path("agent.mjs")
    source = path.read_text("utf-8")
    assert source.count(before) == 1
    path.write_text(source.replace(before, after), "utf-8")


@pytest.mark.parametrize(
    "options", [(), ("--stream",), ("--responses",), ("--responses", "--stream")], ids=" ".join
)
def test_a_session_of_the_vercel_ai_sdk_is_replayed(oteval: Run, options: tuple[str, ...]) -> None:
    """The agent asks the same with the model server stopped; one edit of its prompt is found."""
    session = record(oteval, *options)

    status, result = replay(oteval, session, *options)

    assert (status, result["status"], result["fidelity"]) == (0, "passed", "semconv")
    assert result["model_calls"] == {"recorded": 3, "served": 3}
    assert result["reasons"][0] == (
        "all model calls are rebuilt from spans (vercel-ai): no HTTP exchange was recorded"
    )

    edit("one sentence per order", "two sentences per order")
    status, result = replay(oteval, session, *options)

    assert status == 1
    (divergence,) = result["divergences"]
    assert (divergence["kind"], divergence["call"]) == ("prompt", 1)


def test_a_changed_tool_is_one_divergence(oteval: Run) -> None:
    """The tools run in the agent; their results are compared in the next request."""
    session = record(oteval)
    edit("arrives on Friday", "arrives on Monday")

    status, result = replay(oteval, session)

    assert status == 1
    (divergence,) = result["divergences"]
    assert (divergence["kind"], divergence["call"]) == ("tool_result", 2)


def test_a_session_is_replayed_through_another_api(oteval: Run) -> None:
    """A trace does not have the API: what was chat completions answers the Responses API too."""
    session = record(oteval)

    status, result = replay(oteval, session, "--responses", "--stream")

    assert (status, result["status"]) == (0, "passed")
