"""Shared fixtures: the spans of a test, and reading them as trajectories."""

from collections.abc import Iterator

import pytest

import oteval
from oteval.record import content
from oteval.record.context_carriers import uncarry_context
from oteval.record.span_capture import Capture


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Capture]:
    """The spans that end during the test; threads carry no context, and content is recorded."""
    uncarry_context()
    monkeypatch.setattr(content, "_is_off", False)
    monkeypatch.setattr(content, "_redactor", None)
    monkeypatch.delenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", raising=False)
    with oteval.capture() as captured:
        yield captured


@pytest.fixture(autouse=True)
def uncarried() -> Iterator[None]:
    """Tests that follow in this process start with threads that carry no context."""
    yield
    uncarry_context()


@pytest.fixture
def carried(run: Capture) -> Iterator[None]:
    """Threads and executors carry the context during the test."""
    oteval.carry_context()
    yield
    uncarry_context()


def story(trajectory: oteval.Trajectory) -> list[object]:
    """Return a trajectory as short tuples: texts, calls, results and errors, in order."""
    found: list[object] = []
    for message in trajectory.messages:
        calls = tuple((call.name, call.arguments) for call in message.tool_calls)
        if calls:
            found.append(("calls", *calls))
        elif message.role == "tool":
            found.append(("failed" if message.is_error else "result", message.content))
        else:
            found.append((message.role, message.content))
    return found
