from __future__ import annotations

import random
from typing import Any

import pytest

from oteval.model import Span
from oteval.reconstruct import reconstruct

from .builders import agent, asks, brief, capture, chat, codes, gives, only, said, tool, user

DUP = "dup_openinference_langchain_and_openai"
ASKED, ANSWER = [user("q")], said("a")


def recorded(name: str, start: int, end: int, scope: str, **fields: Any) -> Span:
    """Return a model call's span by an instrumentation."""
    return chat(name, start, fields.pop("sent", ASKED), fields.pop("got", ANSWER), end=end,
                scope=scope, **fields)  # fmt: skip


def test_every_call_of_a_capture_with_two_instrumentations_counts_once():
    """Each model call is in one trajectory, and so are its tokens and the calls it asked for."""
    spans, logs = capture(DUP)
    once = [s for s in spans if s.scope.endswith("langchain")]

    trajectories = reconstruct(spans, logs)

    alone = reconstruct(once, logs)
    assert [t.id for t in trajectories] == [t.id for t in alone]
    assert [t.messages for t in trajectories] == [t.messages for t in alone]
    assert [t.usage for t in trajectories] == [t.usage for t in alone]
    assert sum(t.usage.model_calls for t in trajectories) == 8
    ids = [call.id for t in trajectories for m in t.own_messages for call in m.tool_calls]
    assert len(ids) == len(set(ids)) == 6


def test_what_was_recorded_again_is_no_gap():
    """Nothing is missing; the trajectory holds the traces of the other instrumentation."""
    spans, logs = capture(DUP)

    trajectories = reconstruct(spans, logs)

    assert [codes(t) for t in trajectories] == [[]] * 4
    assert {trace for t in trajectories for trace in t.trace_ids} == {s.trace_id for s in spans}


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_two_recordings_does_not_matter(seed: int):
    """Whichever span comes first, the agent's recording is kept."""
    spans, logs = capture(DUP)
    whole = reconstruct(spans, logs)

    random.Random(seed).shuffle(spans)

    assert reconstruct(spans, logs) == whole


@pytest.mark.parametrize("nested", [True, False])
def test_a_client_inside_a_framework_counts_once(nested: bool):
    """A model client's span below the framework's, or beside it, is the same call."""
    spans = [
        agent("g", 1, end=100),
        recorded("outer", 10, 30, "framework", parent="g"),
        recorded("inner", 12, 28, "client", parent="outer" if nested else "g"),
    ]

    trajectory = only(*spans)

    assert brief(trajectory.messages) == [("user", "q"), ("assistant", "a")]
    assert trajectory.usage.model_calls == 1
    assert codes(trajectory) == []


def test_what_the_framework_did_not_capture_is_taken_from_the_client():
    """Where only the inner span has content, it is read, and no content is missing."""
    trajectory = only(
        agent("g", 1, end=100),
        chat("outer", 10, end=30, scope="framework", parent="g"),
        recorded("inner", 12, 28, "client", parent="outer"),
    )

    assert brief(trajectory.messages) == [("user", "q"), ("assistant", "a")]
    assert codes(trajectory) == []


def test_attempts_inside_a_call_are_no_calls_of_their_own():
    """A failed attempt and the one that succeeded, by the same instrumentation, are one call."""
    trajectory = only(
        recorded("outer", 1, 50, "router"),
        chat("first", 2, ASKED, end=10, scope="router", parent="outer", status_code=2),
        recorded("second", 11, 40, "router", parent="outer"),
    )

    assert brief(trajectory.messages) == [("user", "q"), ("assistant", "a")]
    assert (trajectory.usage.model_calls, codes(trajectory)) == (1, [])


def test_a_call_that_only_groups_others_is_left_out():
    """Where the spans inside say more than the one around them, they are the model calls."""
    trajectory = only(
        recorded("outer", 1, 90, "loop"),
        recorded("one", 2, 10, "client", got=asks(("look", {"x": 1}, "k")), parent="outer"),
        tool("t", 11, id="k", args={"x": 1}, result="r", parent="outer", end=12),
        recorded(
            "two",
            13,
            20,
            "client",
            sent=[user("q"), asks(("look", {"x": 1}, "k")), gives("r", "k")],
            parent="outer",
        ),
    )

    assert brief(trajectory.messages) == [
        ("user", "q"),
        ("assistant", [("look", {"x": 1})]),
        ("tool", "r"),
        ("assistant", "a"),
    ]
    assert trajectory.usage.model_calls == 2


def test_equal_calls_one_after_the_other_are_two():
    """The same words at another time, or at the same time by one instrumentation, are two calls."""
    parallel = [
        recorded("a", 1, 20, "client", trace="1" * 32),
        recorded("b", 2, 10, "client", trace="2" * 32),
    ]
    later = [
        recorded("a", 1, 9, "client", trace="1" * 32),
        recorded("b", 10, 20, "framework", trace="2" * 32),
    ]

    assert len(reconstruct(parallel)) == len(reconstruct(later)) == 2


def test_agents_in_different_traces_are_never_one():
    """Runs of agents at the same time with the same words and ids, as in tests, stay apart."""
    trajectories = reconstruct(
        [
            span
            for trace, scope in (("1" * 32, "one"), ("2" * 32, "two"))
            for span in (
                agent(f"g{trace[0]}", 1, end=100, trace=trace),
                recorded(f"c{trace[0]}", 10, 30, scope, parent=f"g{trace[0]}", trace=trace),
            )
        ]
    )

    assert [brief(t.messages) for t in trajectories] == [[("user", "q"), ("assistant", "a")]] * 2


def test_processes_do_not_record_each_others_calls():
    """The same words at the same time in two services are two calls."""
    trajectories = reconstruct(
        [
            recorded("a", 1, 20, "framework", trace="1" * 32, service="x"),
            recorded("b", 2, 10, "client", trace="2" * 32, service="y"),
        ]
    )

    assert len(trajectories) == 2


@pytest.mark.parametrize("key", ["response", "call"])
def test_ids_of_the_provider_tell_the_same_call_in_another_trace(key: str):
    """An answer's id, or a tool call's, joins two recordings that differ in their words."""
    got = asks(("look", {}, "k9")) if key == "call" else ANSWER
    extra = {"attributes": {"gen_ai.response.id": "r1"}} if key == "response" else {}

    trajectories = reconstruct(
        [
            agent("g", 1, end=100),
            recorded("outer", 10, 30, "framework", parent="g", got=got, **extra),
            recorded("inner", 12, 28, "client", trace="b" * 32, got=got,
                     sent=[user("Q?")], **extra),
        ]
    )  # fmt: skip

    assert [t.root_span.span_id for t in trajectories] == ["g"]
    assert trajectories[0].trace_ids == ("a" * 32, "b" * 32)


def test_a_tool_that_two_instrumentations_recorded_ran_once():
    """A second span of the same execution does not count as another execution."""
    call = ("look", {"x": 1}, "k")
    trajectory = only(
        agent("g", 1, end=100),
        recorded("outer", 2, 10, "framework", parent="g", got=asks(call)),
        recorded("inner", 3, 9, "client", parent="outer", got=asks(call)),
        tool("t1", 20, end=40, id="k", args={"x": 1}, result="r", parent="g", scope="framework"),
        tool("t2", 21, end=39, id="k", args={"x": 1}, result="r", parent="g", scope="other"),
    )

    assert brief(trajectory.messages)[1:] == [("assistant", [("look", {"x": 1})]), ("tool", "r")]
    assert codes(trajectory) == []


def test_many_calls_with_one_id_take_linear_time():
    """A call id that all of 3,000 calls share, as simulators give, does not compare all pairs."""
    got = asks(("look", {}, "call_1"))
    spans = [
        recorded(f"{n:016x}", 10 * n, 10 * n + 5, "client", got=got, trace=f"{n:032x}")
        for n in range(1, 3001)
    ]

    assert len(reconstruct(spans)) == 3000


def test_a_silent_call_beside_a_framework_s_is_the_same():
    """A client's span that says nothing, beside the agent's of that time, is not another call."""
    model = {"gen_ai.request.model": "m"}
    spans = [
        agent("g", 1, end=99),
        chat("c", 2, [user("q")], said("a"), end=20, parent="g", attributes=model, scope="one"),
        chat("d", 3, end=19, parent="g", attributes=model, scope="client"),
    ]
    trajectory = only(*spans)

    assert [m.content for m in trajectory.messages] == ["q", "a"]
    assert (trajectory.usage.model_calls, codes(trajectory)) == (1, [])


def test_tokens_and_the_reason_are_taken_from_the_call_inside():
    """The framework's span has the messages alone, its client's the rest (mlflow#24059)."""
    attributes = {
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.response.finish_reasons": ["length"],
        "gen_ai.response.model": "m",
    }
    run = only(
        chat("outer", 1, [user("q")], said("a"), end=9),
        chat("inner", 2, [user("q")], said("a"), parent="outer", attributes=attributes),
    )

    assert (run.usage.input_tokens, run.usage.output_tokens) == (100, 20)
    assert (run.usage.model_calls, run.finish_reasons, run.models) == (1, ("length",), ("m",))
