"""Written tests of traces that other instrumentations wrote, and tools' own results in traces."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from oteval.replays.recording_files import load

from ..commands import Run, oteval
from ..make import ROOT

__all__ = ["oteval"]

TRACES = ROOT / "tests" / "data" / "traces"

SUPPORT = """
import json
from pathlib import Path

import httpx2
import openai

SYSTEM = "You are a helpful support agent. Use tools when needed."
CITIES = {"Paris": 21, "Tokyo": 17}
conversations = {}


def get_weather(city):
    return json.dumps({"city": city, "temp_c": CITIES[city], "sky": "sunny"})


def lookup_order(order_id):
    return f"Error: order {order_id} not found"


def ask(text, *, session):
    messages = conversations.setdefault(session, [{"role": "system", "content": SYSTEM}])
    messages.append({"role": "user", "content": text})
    tools = json.loads(Path("tools.json").read_text())
    http = httpx2.Client(verify=False)
    with openai.OpenAI(max_retries=0, http_client=http) as client:
        while True:
            answered = client.chat.completions.create(
                model="gpt-4o-mini-2026-01-01", messages=messages, tools=tools, temperature=0
            )
            message = answered.choices[0].message
            messages.append(message.to_dict())
            if not message.tool_calls:
                return message.content
            for call in message.tool_calls:
                tool = globals()[call.function.name]
                text = tool(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
"""


@pytest.fixture
def written(oteval: Run) -> str:
    """Return the text of the test that was written for a conversation traced by OpenInference."""
    Path("support.py").write_text(SUPPORT)
    assert oteval("ingest", TRACES / "openinference_chat.json").status == 0
    done = oteval("replay", "make-test", "conv-001", "--target", "support:ask", "--no-run")
    assert done.status == 0, done.err
    recording = load("tests/recordings/what_is_the_weather_in_paris_and_tokyo.jsonl")
    tools = [dict(tool) for tool in recording.model_calls[0].request.tools]
    Path("tools.json").write_text(json.dumps(tools))
    return Path("tests/test_what_is_the_weather_in_paris_and_tokyo.py").read_text()


def replay(fixture: Any) -> None:
    """Run the written test."""
    sys.modules.pop("support", None)
    name = "test_what_is_the_weather_in_paris_and_tokyo"
    runpy.run_path(f"tests/{name}.py")[name](fixture)


def test_the_fidelity_is_in_the_docstring(written: str) -> None:
    """The reader learns that the answers are rebuilt, by which instrumentation, and the turns."""
    head = " ".join(written.split('"""')[1].split())

    assert 'The agent support_agent is asked: "What is the weather in Paris and Tokyo?".' in head
    assert "fidelity semconv: all model calls are rebuilt from spans (openinference)" in head
    assert '        ask("Where is my order 9999?", session="conv-001")\n' in written


def test_a_trace_of_another_instrumentation_becomes_a_test(
    written: str, oteval_replay: Any
) -> None:
    """The agent gets rebuilt answers, and its plain functions do not run."""
    replay(oteval_replay)

    assert '("lookup_order", {"order_id": "9999"})' in written


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("Use tools when needed.", "Use tools.", "prompt: "),
        ("in message.tool_calls:", "in reversed(message.tool_calls):", "tool_order: "),
    ],
)
def test_such_a_test_fails_when_the_agent_changes(
    written: str, oteval_replay: Any, old: str, new: str, shown: str
) -> None:
    """Rebuilt requests are compared as far as the trace has them."""
    Path("support.py").write_text(SUPPORT.replace(old, new))

    with pytest.raises(pytest.fail.Exception, match=shown):
        replay(oteval_replay)


def test_a_tools_own_result_is_kept_beside_the_models(oteval: Run) -> None:
    """The span has the value that the agent's code got; the model received a text made of it."""
    text = (TRACES / "genai_openai_chat.json").read_text()
    trace = json.loads(text)
    own = '{"temp_c":21}'
    for attribute in _attributes(trace, "gen_ai.tool.call.result"):
        attribute["value"] = {"stringValue": own}
    Path("trace.json").write_text(json.dumps(trace))
    assert oteval("ingest", "trace.json").status == 0
    conversation = oteval("trajectories", "--json").rows[0]["conversation_id"]
    assert oteval("replay", "cassette", conversation, "-o", "own.jsonl").status == 0

    weather = [call for call in load("own.jsonl").tool_calls if call.name == "get_weather"]

    assert [call.own_result for call in weather] == [own, own]
    assert all("Paris" in call.result or "Tokyo" in call.result for call in weather if call.result)


def _attributes(trace: Any, key: str) -> list[Any]:
    return [
        attribute
        for resource in trace["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
        for attribute in span["attributes"]
        if attribute["key"] == key
    ]
