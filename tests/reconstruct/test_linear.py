"""Four times the spans are some four times the work, whatever their shape.

Work is counted in function calls, which no other load on the machine changes.
"""

from __future__ import annotations

import cProfile
import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from oteval.model import LogRecord, Span
from oteval.reconstruct import explain, reconstruct

from .builders import TRACE, agent, asks, chat, gives, said, span, system, tool, user

END = 10**9
Shape = Callable[[int], list[Span]]


def work(do: Callable[[], object]) -> int:
    """Return how many functions were called, and generators gone on with, to do something."""
    counter = cProfile.Profile(builtins=False)
    counter.enable()
    try:
        do()
    finally:
        counter.disable()
    return sum(entry.callcount for entry in counter.getstats())


def turn(number: int) -> str:
    return f"{number + 1:032x}"


def nested_agents(size: int) -> list[Span]:
    return [
        found
        for i in range(size)
        for found in (
            agent(f"a{i}", 2 * i, parent=f"a{i - 1}" if i else "", end=END - i),
            chat(f"c{i}", 2 * i + 1, [user("q")], said("a"), parent=f"a{i}"),
        )
    ]


def nested_tools(size: int) -> list[Span]:
    top = chat("c", 1, [user("q")], said("a"), end=END)
    return [top, *(tool(f"t{i}", i + 2, parent=f"t{i - 1}" if i else "c") for i in range(size))]


def nested_model_calls(size: int) -> list[Span]:
    return [
        chat(f"c{i}", i, [user("q")], said("a"), parent=f"c{i - 1}" if i else "", end=END - i)
        for i in range(size)
    ]


def siblings(size: int) -> list[Span]:
    return [agent("a", end=END), *(span(f"s{i}", i + 2, parent="a") for i in range(size))]


def sub_agents_of_one_message(size: int) -> list[Span]:
    calls = asks(*(("look", {"n": i}, f"k{i}") for i in range(size)))
    spans = [agent("a", end=END), chat("c", 2, [user("q")], calls, parent="a")]
    for i in range(size):
        spans.append(tool(f"t{i}", 3 * i + 4, end=3 * i + 7, id=f"k{i}", parent="a"))
        spans.append(agent(f"s{i}", 3 * i + 5, parent=f"t{i}"))
        spans.append(chat(f"d{i}", 3 * i + 5, [user("q")], said("r"), parent=f"s{i}"))
    return spans


def calls_of_one_id(size: int) -> list[Span]:
    calls = asks(*[("look", {}, "k")] * size)
    results = [gives("r", "k")] * size
    return [
        agent("a", end=END),
        chat("c", 2, [user("q")], calls, parent="a"),
        *(tool(f"t{i}", i + 4, id="k", parent="a", result="r") for i in range(size)),
        chat("d", END - 9, [user("q"), calls, *results], said("a"), parent="a"),
    ]


def calls_in_messages_of_their_own(size: int) -> list[Span]:
    calls = [asks(("look", {"n": i}, f"k{i}")) for i in range(size)]
    return [chat("c", 2, [user("q"), *calls], said("a"))]


def long_list_of_equal_messages(size: int) -> list[Span]:
    first = chat("c", 2, [user("q")] * size, said("a"), parent="a")
    later = [*[user("q")] * (size // 2), said("a"), user("p")]
    return [agent("a", end=99), first, chat("d", 5, later, said("b"), parent="a")]


def two_instrumentations(size: int) -> list[Span]:
    found = [agent("a", end=END)]
    for i in range(size):
        said_twice = ([user("q")], said("a"))
        at = 5 * i + 2
        found.append(chat(f"c{i}", at, *said_twice, parent="a", end=at + 4, scope="x"))
        found.append(chat(f"d{i}", at + 1, *said_twice, end=at + 3, scope="y", trace=turn(i)))
    return found


def nodes_of_a_graph(size: int) -> list[Span]:
    kind = {"openinference.span.kind": "CHAIN"}
    found = [span("g", end=END, attributes=kind)]
    for i in range(size):
        attributes = {**kind, "metadata": json.dumps({"langgraph_node": f"n{i}"})}
        found.append(span(f"n{i}", 2 * i + 2, parent="g", attributes=attributes))
        found.append(chat(f"c{i}", 2 * i + 2, [user(f"q{i}")], said("a"), parent=f"n{i}"))
    return found


def prompts_that_change_and_histories_too(size: int) -> list[Span]:
    found = [agent("a", end=END)]
    for i in range(size):
        prompt = system("s" if i < size // 2 else f"s{i}")
        sent = [prompt, user("q"), said(f"x{i}"), user("y")]
        found.append(chat(f"c{i}", 2 * i + 2, sent, said("z"), parent="a"))
    return found


def choices_that_were_not_shown(size: int) -> list[Span]:
    found = [agent("a", end=END)]
    for i in range(size):
        answers = [{**said(f"{name}{i}"), "finish_reason": "stop"} for name in "ab"]
        sent = [said(f"b{i - 1}"), user(f"q{i}")] if i else [user("q0")]
        call = chat(f"c{i}", 2 * i + 2, sent, parent="a")
        told = {**call.attributes, "gen_ai.output.messages": json.dumps(answers)}
        found.append(replace(call, attributes=told))
    return found


def turns_without_an_answer(size: int) -> list[Span]:
    found = []
    for i in range(size):
        fields = {"trace": turn(i), "status_code": 2}
        found.append(agent("a", 9 * i, end=9 * i + 8, session="s", trace=turn(i)))
        found.append(chat("c", 9 * i + 1, [user(f"q{i}")], parent="a", delta=True, **fields))
    return found


def results_brought_back_in_windows(size: int) -> list[Span]:
    found = []
    sent = [user("q")]
    for i in range(size):
        call = asks(("look", {"n": i}, f"k{i}"))
        found.append(chat(f"c{i}", 9 * i, sent, call, session="s", trace=turn(i)))
        found.append(tool(f"t{i}", 9 * i + 2, id=f"k{i}", parent=f"c{i}", trace=turn(i)))
        sent = [call, gives("r", f"k{i}")]
    return found


SHAPES: Sequence[Shape] = (
    *(nested_agents, nested_tools, nested_model_calls, siblings, sub_agents_of_one_message),
    *(calls_of_one_id, calls_in_messages_of_their_own, long_list_of_equal_messages),
    *(two_instrumentations, nodes_of_a_graph, prompts_that_change_and_histories_too),
    *(choices_that_were_not_shown, turns_without_an_answer, results_brought_back_in_windows),
)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_work_grows_as_the_spans_do(shape: Shape):
    """Four times the spans take some four times the calls, to reconstruct and to explain."""
    small, big = shape(50), shape(200)
    assert work(lambda: reconstruct(big)) < 4.2 * work(lambda: reconstruct(small))
    assert work(lambda: explain(TRACE, big)) < 4.2 * work(lambda: explain(TRACE, small))


def test_work_grows_as_the_log_records_do():
    """Four times the records of a span take some four times the calls."""
    call = span("c", attributes={"gen_ai.operation.name": "chat", "gen_ai.system": "openai"})

    def records(size: int) -> list[LogRecord]:
        message = {"role": "assistant", "tool_calls": [{"id": "k", "function": {"name": "f"}}]}
        body = {"index": 0, "message": message}
        return [LogRecord(TRACE, "c", i, i, "gen_ai.choice", body=body) for i in range(size)]

    small, big = records(50), records(200)
    assert work(lambda: reconstruct([call], big)) < 4.2 * work(lambda: reconstruct([call], small))
