"""Captures of today's frameworks, compared with the messages that were truly exchanged.

Each capture has two turns: two parallel calls, and a call that fails; some have images, thinking,
retries, hand-offs, sub-agents or an approval that interrupts them as well. `truth.json` holds the
messages that the model server and the tools exchanged, and the content that the spans lack.
"""

from __future__ import annotations

import json
import random

import pytest

from oteval.reconstruct import reconstruct

from .builders import DATA, capture, codes, names
from .exchanges import Exchange, faults

FRAMEWORKS = DATA / "frameworks"
TRUTH: dict[str, Exchange] = json.loads((FRAMEWORKS / "truth.json").read_text())
NAMES = names(FRAMEWORKS, without="truth")
# Gaps that report missing content.
MISSING = {
    "attributes_dropped",
    "content_external",
    "content_not_captured",
    "content_truncated",
    "missing_tool_result",
    "no_model_spans",
    "redacted",
}


def test_every_capture_has_its_truth():
    """Each capture has its row in `truth.json`, and each row its capture."""
    assert sorted(TRUTH) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_capture_gives_what_was_exchanged(name: str):
    """Questions, calls, results, errors and answers of both turns equal the exchanged ones."""
    trajectories = [t.as_dict() for t in reconstruct(*capture(name, FRAMEWORKS))]

    assert faults(trajectories, TRUTH[name]) == []


@pytest.mark.parametrize("name", [name for name in NAMES if TRUTH[name]["lacks"]])
def test_what_the_spans_lack_is_a_gap(name: str):
    """A capture whose spans do not hold everything says so."""
    trajectories = reconstruct(*capture(name, FRAMEWORKS))

    assert MISSING & {code for trajectory in trajectories for code in codes(trajectory)}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(2))
def test_the_order_of_arrival_does_not_matter(name: str, seed: int):
    """Spans and log records in any order give equal trajectories."""
    spans, logs = capture(name, FRAMEWORKS)
    whole = reconstruct(spans, logs)
    shuffle = random.Random(seed).shuffle

    shuffle(spans)
    shuffle(logs)

    assert reconstruct(spans, logs) == whole


@pytest.mark.parametrize("turns", [1, 2])
def test_the_note_on_an_output_tool_is_a_message_once_it_was_sent(turns: int):
    """The framework writes it into its history; only the next turn sends it to the model."""
    spans, logs = capture("pydantic_ai_output_plain", FRAMEWORKS)
    traces = list(dict.fromkeys(span.trace_id for span in spans))[:turns]

    trajectories = reconstruct([span for span in spans if span.trace_id in traces], logs)

    assert [codes(run) for run in trajectories] == [[]] * turns
    assert [run.messages[-1].content for run in trajectories] == ["Final result processed.", None][
        -turns:
    ]
    assert [call.name for call in trajectories[-1].messages[-1].tool_calls] == ["final_result"]
