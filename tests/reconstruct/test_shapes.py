"""Span shapes of real emitters: each small file gives the messages that `expected.json` names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Message, Trajectory
from oteval.reconstruct import reconstruct

from .builders import DATA, capture, codes, names

SHAPES = DATA / "shapes"
EXPECTED = json.loads((SHAPES / "expected.json").read_text())
ONE_SIDED = [name for name in EXPECTED if name.startswith(("input_only", "output_only"))]
NAMES = names(SHAPES, without="expected")


def shape(name: str) -> list[Trajectory]:
    return reconstruct(*capture(name, SHAPES))


def assert_message(found: Message, wanted: dict[str, Any]) -> None:
    """Compare a message with the fields that are expected of it ("*" is any text)."""
    assert found.role in wanted["role"].split("|")
    assert [[call.name, call.arguments] for call in found.tool_calls] == wanted.get("calls", [])
    if wanted.get("content") == "*":
        assert found.content
    elif "content" in wanted:
        assert compact(found.content) == compact(wanted["content"])


def compact(text: str | None) -> Any:
    """Return the value of JSON text, so that its white space does not count; else the text."""
    try:
        return json.loads(text or "")
    except ValueError:
        return text


def test_every_shape_is_expected():
    """Each file has its row in `expected.json`, and each row its file."""
    assert sorted(EXPECTED) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_shape_gives_its_messages_and_no_other_gap(name: str):
    """A shape gives exactly its trajectories, and only the gaps that are allowed."""
    expected = EXPECTED[name]

    found = shape(name)

    assert [len(t.messages) for t in found] == [len(ms) for ms in expected["trajectories"]]
    for trajectory, messages in zip(found, expected["trajectories"], strict=True):
        for message, wanted in zip(trajectory.messages, messages, strict=True):
            assert_message(message, wanted)
        if expected["gaps"] != "any":
            assert set(codes(trajectory)) <= set(expected["gaps"])


@pytest.mark.parametrize("name", ONE_SIDED)
def test_a_missing_side_of_a_model_call_is_named(name: str):
    """A model call without its question or its answer never passes for a whole one."""
    [found] = shape(name)

    side = "output" if name.startswith("input_only") else "input"
    assert any(gap.code in EXPECTED[name]["gaps"] and side in gap.detail for gap in found.gaps)


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_arrival_does_not_matter(name: str):
    """Spans and log records in the reverse order give equal trajectories."""
    spans, logs = capture(name, SHAPES)

    assert reconstruct(spans[::-1], logs[::-1]) == shape(name)
