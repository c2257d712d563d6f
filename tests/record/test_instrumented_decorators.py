"""Decorated agents under `oteval.instrument`, as programs whose traces are read back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from oteval.scoring import load, refresh
from oteval.store import Store
from tests.record.conftest import story
from tests.record.programs import ROOT, run_program

SETUP = """
import oteval
oteval.instrument({to!r}, service="shop", {options})
"""
AGENT = """
import asyncio
from concurrent.futures import ThreadPoolExecutor
from opentelemetry import trace

@oteval.tool
def pay(order: int, card_number: str) -> dict[str, object]:
    with trace.get_tracer("bank").start_as_current_span("request to the bank"):
        return {"order": order, "receipt": {"card_number": card_number, "text": "paid"}}

@oteval.agent
async def clerk(question: str) -> str:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda order: pay(order, card_number="card 4111"), [1]))
    await asyncio.to_thread(pay, 2, card_number="card 4111")
    return "paid"

with oteval.conversation("c7"):
    asyncio.run(clerk("Pay both"))
"""


def trajectories_of(*files: Path):
    """Return the trajectories of trace files."""
    with Store() as store:
        load(store, files)
        refresh(store)
        return list(store.trajectories.read())


def test_threads_conversations_and_redaction_need_only_instrument(tmp_path):
    """One call carries the context into threads and applies key rules inside of arguments."""
    file = tmp_path / "traces.jsonl"
    options = "redact=[{'keys': ['card_*'], 'replace': 'hidden'}]"

    done = run_program(SETUP.format(to=str(file), options=options) + AGENT)

    assert (done.returncode, done.stderr) == (0, "")
    assert "card 4111" not in file.read_text()
    (trajectory,) = trajectories_of(file)
    assert trajectory.conversation_id == "c7"
    result = '{"order":%d,"receipt":{"card_number":"hidden","text":"paid"}}'
    assert story(trajectory) == [
        ("user", "Pay both"),
        ("calls", ("pay", {"order": 1, "card_number": "hidden"})),
        ("result", result % 1),
        ("calls", ("pay", {"order": 2, "card_number": "hidden"})),
        ("result", result % 2),
        ("assistant", "paid"),
    ]
    assert file.read_text().count('"c7"') == 5, "the bank's spans belong to the conversation"


@pytest.mark.slow
def test_content_is_left_out_on_request(tmp_path):
    """`capture_content=False` also holds for decorated functions."""
    file = tmp_path / "traces.jsonl"

    done = run_program(SETUP.format(to=str(file), options="capture_content=False") + AGENT)

    assert (done.returncode, done.stderr) == (0, "")
    assert "execute_tool pay" in file.read_text()
    assert "card 4111" not in file.read_text()
    assert "Pay both" not in file.read_text()


CHILD = """
@oteval.tool
def look_up(order: int) -> str:
    return "open"

look_up(7)
"""
PARENT = """
import subprocess, sys

@oteval.agent
def clerk(question: str) -> str:
    subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
    return "It is open"

clerk("Is it open?")
"""


@pytest.mark.slow
def test_a_tool_in_a_child_process_belongs_to_the_agent(tmp_path):
    """Two programs that call `instrument` give one trajectory; nothing is passed by hand."""
    files = [tmp_path / "parent.jsonl", tmp_path / "child.jsonl"]
    parent, child = (SETUP.format(to=str(file), options="") for file in files)

    done = run_program(parent + PARENT, child + CHILD)

    assert (done.returncode, done.stderr) == (0, "")
    (trajectory,) = trajectories_of(*files)
    assert story(trajectory) == [
        ("user", "Is it open?"),
        ("calls", ("look_up", {"order": 7})),
        ("result", "open"),
        ("assistant", "It is open"),
    ]


def test_the_decorators_are_cheap_to_import():
    """An agent that uses them does not load the store, the web or pydantic."""
    used = "oteval.agent, oteval.tool, oteval.conversation, oteval.model_call"
    code = f"import sys, oteval; {used}; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)

    heavy = {"duckdb", "pyarrow", "grpc", "pydantic", "openai", "opentelemetry.sdk", "httpx"}
    assert not heavy & set(done.stdout.split())
