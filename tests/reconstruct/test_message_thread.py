from __future__ import annotations

from typing import Any

import pytest

from oteval.model import Span

from .builders import agent, asks, brief, chat, codes, gives, only, said, system, texts, tool, user

Said = dict[str, Any]


def calls(*pairs: tuple[list[Said], Said | None], **fields: Any) -> list[Span]:
    """Return an agent with consecutive model calls, one for each input and answer."""
    spans = [agent("a", 1)]
    for i, (sent, got) in enumerate(pairs):
        spans.append(chat(f"c{i}", 10 * i + 10, sent, got, parent="a", **fields))
    return spans


def test_history_is_told_once():
    """Each call repeats the history; the trajectory has it once, the system prompt first."""
    ask, look, result = user("q"), asks(("look", {"x": 1}, "k1")), gives("r", "k1")

    trajectory = only(
        *calls(
            ([system("be good"), ask], look),
            ([system("be good"), ask, look, result], said("a1")),
            ([system("be good"), ask, look, result, said("a1"), user("q2")], said("a2")),
        )
    )

    assert brief(trajectory.messages) == [
        ("system", "be good"),
        ("user", "q"),
        ("assistant", [("look", {"x": 1})]),
        ("tool", "r"),
        ("assistant", "a1"),
        ("user", "q2"),
        ("assistant", "a2"),
    ]
    assert (trajectory.gaps, trajectory.rewrites, trajectory.usage.model_calls) == ((), (), 3)


def test_ids_and_encodings_do_not_tell_messages_apart():
    """An echo with another call id, spaced arguments or a re-encoded result is the same message."""
    trajectory = only(
        *calls(
            ([user("q")], asks(("look", '{"x":1,"y":2}', "fc_1"))),
            (
                [user("q "), asks(("look", {"y": 2, "x": 1.0}, "call_1")), gives('{"t": 1}', "c")],
                said("a"),
            ),
        )
    )

    assert [m.role for m in trajectory.messages] == ["user", "assistant", "tool", "assistant"]
    assert trajectory.gaps == ()


def test_the_reasoning_of_an_echo_may_be_missing():
    """Providers drop their reasoning from the history: the answer is still the same one."""
    thought = {"type": "reasoning", "content": "hm"}
    answer = {"role": "assistant", "parts": [thought, {"type": "text", "content": "a"}]}

    trajectory = only(*calls(([user("q")], answer), ([user("q"), said("a"), user("r")], said("b"))))

    assert texts(trajectory) == ["q", "a", "r", "b"]
    assert trajectory.messages[1].parts == (thought,)


@pytest.mark.parametrize(("id_", "is_same"), [("k1", True), ("k2", False)])
def test_the_text_beside_the_calls_of_an_echo_may_be_missing(id_: str, is_same: bool):
    """CrewAI's flows keep only the calls; their ids tell that the answer is the same."""
    answer, echo = asks(("look", {"x": 1}, "k1")), asks(("look", {"x": 1}, id_))
    answer["parts"].insert(0, {"type": "text", "content": "I look"})

    trajectory = only(
        *calls(([user("q")], answer), ([user("q"), echo, gives("r", id_)], said("a")))
    )

    assert texts(trajectory) == ["q", "I look" if is_same else None, "r", "a"]
    assert codes(trajectory) == ([] if is_same else ["history_rewritten"])


def test_a_retry_after_a_failed_call_is_told_once():
    """A call that failed and is made again with the same input leaves one question and the gap."""
    spans = calls(([user("q")], None), ([user("q")], said("a")))
    spans[1] = chat("c0", 10, [user("q")], parent="a", status_code=2, status_message="boom")

    trajectory = only(*spans)

    assert texts(trajectory) == ["q", "a"]
    assert [g.detail for g in trajectory.gaps] == ["the model call failed: boom"]


def test_only_what_is_new_is_appended():
    """Where the provider keeps the history, inputs that share nothing are appended."""
    trajectory = only(
        *calls(
            ([user("q")], asks(("look", {}, "k1"))),
            ([gives("r", "k1")], said("a")),
            ([user("q2")], said("a2")),
        )
    )

    assert texts(trajectory) == ["q", None, "r", "a", "q2", "a2"]
    assert trajectory.gaps == ()


def test_new_input_that_repeats_an_old_message_is_new():
    """With a previous response id, a user who says the same again is heard again."""
    trajectory = only(*calls(([user("q")], said("a")), ([user("q")], said("b")), delta=True))

    assert texts(trajectory) == ["q", "a", "q", "b"]
    assert trajectory.gaps == ()


def test_a_retry_of_new_input_is_told_once():
    """With a previous response id too, a failed call that is made again asks once."""
    spans = calls(([user("q")], None), ([user("q")], said("a")), delta=True)
    spans[1] = chat("c0", 10, [user("q")], parent="a", status_code=2, delta=True)

    trajectory = only(*spans)

    assert texts(trajectory) == ["q", "a"]


def test_a_sliding_window_keeps_what_left_it():
    """Inputs that hold only the last messages go on from them; nothing is lost or told twice."""
    trajectory = only(
        *calls(
            ([user("1")], said("a1")),
            ([user("1"), said("a1"), user("2")], said("a2")),
            ([user("2"), said("a2"), user("3")], said("a3")),
            ([said("a3"), user("4")], said("a4")),
        )
    )

    assert texts(trajectory) == ["1", "a1", "2", "a2", "3", "a3", "4", "a4"]
    assert (trajectory.gaps, trajectory.rewrites) == ((), ())


def test_a_compacted_history_is_kept_beside_the_new_one():
    """Messages missing from a later call are a rewrite: both versions, the index and the gap."""
    trajectory = only(
        *calls(
            ([user("1")], said("a1")),
            ([user("1"), said("a1"), user("2")], said("a2")),
            ([user("1"), said("summary"), user("3")], said("a3")),
        )
    )

    (rewrite,) = trajectory.rewrites
    assert texts(trajectory) == ["1", "summary", "3", "a3"]
    assert [m.content for m in rewrite.messages] == ["a1", "2", "a2"]
    assert (rewrite.at, rewrite.span_id) == (1, "c2")
    assert codes(trajectory) == ["history_rewritten"]
    assert "3 earlier messages" in trajectory.gaps[0].detail


def test_a_call_asked_again_replaces_its_answer():
    """The same input answered twice keeps the last answer, and the first as a rewrite."""
    trajectory = only(*calls(([user("q")], said("a")), ([user("q")], said("b"))))

    assert texts(trajectory) == ["q", "b"]
    assert [m.content for m in trajectory.rewrites[0].messages] == ["a"]
    assert codes(trajectory) == ["history_rewritten"]


def test_a_system_prompt_that_changes_is_shown_once_and_named():
    """A prompt with the time of day does not begin a new history; the change is reported once."""
    trajectory = only(
        *calls(
            ([system("it is 9"), user("1")], said("a1")),
            ([system("it is 10"), user("1"), said("a1"), user("2")], said("a2")),
            ([system("it is 11"), user("1"), said("a1"), user("2"), said("a2")], said("a3")),
        )
    )

    assert texts(trajectory)[:3] == ["it is 9", "1", "a1"]
    assert codes(trajectory) == ["system_prompt_changed"]
    assert trajectory.gaps[0].span_id == "c1"


def test_several_system_prompts_come_first():
    """System and developer prompts come first, in their order."""
    developer = {"role": "developer", "content": "d"}

    trajectory = only(*calls(([system("s"), developer, user("q")], said("a"))))

    assert [(m.role, m.content) for m in trajectory.messages[:3]] == [
        ("system", "s"),
        ("developer", "d"),
        ("user", "q"),
    ]


def test_a_call_that_is_not_whole_does_not_rewrite():
    """Cut input that does not fit is not evidence of a rewritten history."""
    spans = calls(([user("1")], said("a1")), ([user("1"), said("a1"), user("2")], said("a2")))
    cut = '[{"role":"user","content":"1"},{"role":"assistant","content":"odd"},{"role":"us'
    spans.append(
        chat("c9", 90, got=said("a3"), parent="a", attributes={"gen_ai.input.messages": cut})
    )

    trajectory = only(*spans)

    assert texts(trajectory) == ["1", "a1", "2", "a2", "a3"]
    assert (codes(trajectory), trajectory.rewrites) == (["content_truncated"], ())


def test_an_answer_that_was_not_captured_is_filled_in_by_the_next_input():
    """A call without content leaves an entry that the next call's input completes."""
    spans = calls(([user("q")], None), ([user("q"), said("a"), user("r")], said("b")))
    spans[1] = chat("c0", 10, parent="a")

    trajectory = only(*spans)

    assert texts(trajectory)[-3:] == ["a", "r", "b"]
    assert codes(trajectory) == ["content_not_captured"]


@pytest.mark.parametrize("key", ["gen_ai.input.messages_ref", "gen_ai.output.messages_ref"])
def test_content_that_was_uploaded_elsewhere_says_where(key: str):
    """A reference in place of content is a gap with the reference."""
    trajectory = only(chat("c", 1, attributes={key: "s3://bucket/1"}))

    assert codes(trajectory) == ["content_external"]
    assert "s3://bucket/1" in trajectory.gaps[0].detail


def test_a_window_of_equal_messages_is_found():
    """Histories of the same message again and again still go on at the right place."""
    again = [message for _ in range(100) for message in (user("more"), said("ok"))]

    trajectory = only(*calls((again[:-1], said("ok")), ([*again[-9:], user("end")], said("bye"))))

    assert texts(trajectory) == ["more", "ok"] * 100 + ["end", "bye"]


def test_a_models_run_keeps_its_tools_definitions():
    """The longest list of tools that any call was offered is kept."""
    offered = '[{"name": "look"}, {"name": "book"}]'
    spans = calls(([user("q")], said("a")), ([user("q"), said("a"), user("r")], said("b")))
    spans[1] = chat(
        "c0",
        10,
        [user("q")],
        said("a"),
        parent="a",
        attributes={"gen_ai.tool.definitions": offered, "gen_ai.response.model": "m1"},
    )

    trajectory = only(*spans)

    assert [t["name"] for t in trajectory.tools] == ["look", "book"]
    assert trajectory.models == ("m1",)


def test_tools_that_ran_are_no_part_of_what_is_compared():
    """A call completed from its tool's span is still recognised in the next input."""
    ask, look = user("q"), asks(("look", {"x": 1}))
    spans = calls(([ask], look), ([ask, look, gives("r")], said("a")))
    spans.append(tool("t", 15, args='{"x":1}', result="r", parent="a"))

    trajectory = only(*spans)

    assert [m.role for m in trajectory.messages] == ["user", "assistant", "tool", "assistant"]
    assert trajectory.messages[1].tool_calls[0].span_id == "t"
