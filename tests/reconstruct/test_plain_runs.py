"""Runs of the simplest shape are built in one pass, with the same result."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings, strategies as st

from oteval.model import Span, Trajectory
from oteval.reconstruct import conversation, reconstruct, tool_results
from oteval.reconstruct.plain_runs import plain_builder

from .builders import NAMES, agent, asks, capture, chat, gives, said, system, tool, user


def step_by_step(spans: list[Span], logs: Any = ()) -> list[Trajectory]:
    """Return the trajectories, each input laid over the earlier messages."""
    with (
        patch.object(conversation, "plain_builder", lambda _: None),
        patch.object(tool_results, "_paired_by_ids", lambda *_: None),
    ):
        return reconstruct(spans, logs)


@pytest.mark.parametrize("name", NAMES)
def test_captures_give_the_same_trajectories(name: str) -> None:
    """Real captures give the same trajectories either way."""
    spans, logs = capture(name)
    assert reconstruct(spans, logs) == step_by_step(spans, logs)


CHANGES = (
    *("none", "none", "none", "drop", "double", "other text", "other prompt", "no prompt"),
    *("no id", "other id", "other arguments", "no arguments", "early answer", "error", "shuffle"),
    *("part", "cut", "swap tools", "same id", "no tool", "no output", "placeholder", "late tool"),
    *("other conversation", "delta", "no conversation", "only new", "only new", "only last"),
)
steps = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(CHANGES)), min_size=1, max_size=4)


def changed(history: list[Any], change: str, seed: int) -> list[Any]:
    """Return the history that a call sends, with one change to its messages, if any."""
    at = seed % len(history)
    sent = list(history)
    if change == "drop":
        del sent[at]
    elif change == "double":
        sent.insert(at, sent[at])
    elif change == "other text":
        sent[at] = user("other")
    elif change == "other prompt":
        sent[0] = system("another")
    elif change == "no prompt":
        sent = [item for item in sent if item["role"] != "system"]
    elif change == "early answer":
        sent.insert(1, said("before"))
    elif change == "only new":
        sent = [*(sent[:1] if seed % 2 else []), user(f"new {at}" if seed % 3 else "new")]
    elif change == "only last":
        sent = sent[-1:]
    elif change == "shuffle":
        random.Random(seed).shuffle(sent)
    elif change == "part":
        sent[at] = {**sent[at], "parts": [{"type": "image", "uri": "x"}, *sent[at]["parts"]]}
    elif change == "placeholder":
        sent[at] = user("<elided>")
    elif change in ("no id", "other id", "other arguments", "no arguments"):
        sent = json.loads(json.dumps(sent))
        for part in (part for item in sent for part in item["parts"] if "id" in part):
            if change in ("no id", "other id"):
                part["id"] = "" if change == "no id" else "else"
            elif "arguments" in part:
                part["arguments"] = {} if change == "no arguments" else {"n": True}
    return sent


def run_of(trace: str, steps: list[tuple[int, str]], seed: int) -> list[Span]:
    """Return the spans of a run, most of whose calls send the whole history."""
    history: list[Any] = [system("be brief"), user("q")]
    spans = [agent("a", 1, end=999, trace=trace)]
    for number, (count, change) in enumerate(steps):
        at = 10 * number + 3
        ids = ["k" if change == "same id" else f"k{number}{index}" for index in range(count)]
        arguments = {} if change == "no arguments" and seed % 2 else {"n": 1.0}
        answer = asks(*(("look", arguments, name) for name in ids)) if count else said(f"x{number}")
        call = chat(
            *(f"c{number}", at, changed(history, change, seed), answer),
            parent="a",
            trace=trace,
        )
        if change == "no output":
            rest = {k: v for k, v in call.attributes.items() if "output" not in k}
            call = replace(call, attributes=rest)
        if change == "delta":
            more = {"gen_ai.request.previous_response.id": "r"}
            call = replace(call, attributes={**call.attributes, **more})
        if change == "error":
            call = replace(call, status_code=2)
        spans.append(call)
        results = []
        for index, name in enumerate(reversed(ids) if change == "swap tools" else ids):
            start = at + (-2 if change == "late tool" else 2 + index)
            tool_span = tool(f"t{number}{index}", start, id=name, parent="a", trace=trace)
            if change != "no tool":
                spans.append(tool_span)
            results.append(gives(None if change == "cut" else f"r{index}", name))
        history = [*history, answer, *results]
    if steps[0][1] not in ("no conversation", "none"):
        name = "other" if steps[-1][1] == "other conversation" else "one"
        more = {"gen_ai.conversation.id": name}
        spans = [replace(span, attributes={**span.attributes, **more}) for span in spans]
    return spans


@settings(max_examples=200, deadline=None)
@given(runs=st.lists(steps, min_size=1, max_size=3), seed=st.integers(0, 20))
def test_any_runs_give_the_same_trajectories(runs: list[list[tuple[int, str]]], seed: int) -> None:
    """Runs of one or several conversations, whose calls send the history or something else."""
    spans = [
        replace(span, start_ns=span.start_ns + 1000 * number, end_ns=span.end_ns + 1000 * number)
        for number, run in enumerate(runs)
        for span in run_of(f"{number}" * 32, run, seed)
    ]

    assert repr(reconstruct(spans)) == repr(step_by_step(spans))  # 1 is not True


def test_a_usual_run_is_plain() -> None:
    """A run that asks for two tools and answers is built in one pass."""
    spans = run_of("1" * 32, [(2, "none"), (1, "none"), (0, "none")], 0)
    is_plain: list[bool] = []

    def noted(run: Any) -> Any:
        built = plain_builder(run)
        is_plain.append(built is not None)
        return built

    with patch.object(conversation, "plain_builder", noted):
        (trajectory,) = reconstruct(spans)

    assert is_plain == [True]
    roles = [message.role for message in trajectory.messages]
    tool_steps = ["assistant", "tool", "tool", "assistant", "tool"]
    assert roles == ["system", "user", *tool_steps, "assistant"]
    assert not trajectory.gaps
