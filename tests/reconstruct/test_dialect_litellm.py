"""LiteLLM's own OpenTelemetry callback."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from oteval.model import Event, Span
from oteval.reconstruct import reconstruct

from .builders import brief, capture, codes, only, said, span, system, texts, user
from .test_captures import GOLD, assert_gold, assert_joined, trajectories

CALL = {"id": "k1", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}
ASKED = {"role": "assistant", "parts": [{"type": "text", "content": ""}], "tool_calls": [CALL]}
GAVE = {"role": "tool", "parts": [{"type": "text", "content": "r"}], "tool_call_id": "k1"}


def request(
    name: str,
    start: int,
    sent: Any = None,
    got: Any = None,
    *,
    calls: tuple[tuple[str, str], ...] = (),
    kind: str = "completion",
    **fields: Any,
) -> Span:
    """Return a call's span: what was sent and received, and the calls that stand beside it."""
    attributes: dict[str, Any] = {"llm.request.type": kind, "gen_ai.system": "openai"}
    if sent is not None:
        attributes["gen_ai.input.messages"] = json.dumps(sent)
    if got is not None:
        attributes["gen_ai.output.messages"] = json.dumps(got)
    for index, (tool, arguments) in enumerate(calls):
        prefix = f"gen_ai.completion.{index}.function_call."
        attributes[f"{prefix}name"] = tool
        if arguments:
            attributes[f"{prefix}arguments"] = arguments
    attributes.update(fields.pop("attributes", {}))
    fields.setdefault("scope", "litellm")
    fields.setdefault("title", "litellm_request")
    return span(name, start, attributes=attributes, **fields)


BARE = [{"role": "assistant", "parts": [], "finish_reason": "tool_calls"}]


def test_the_capture_holds_golds_turns():
    """Calls, results, ids and errors come out, with two model calls a turn and nothing missing."""
    first, second = trajectories("litellm_otel")

    assert_gold(first.messages, GOLD[:6])
    assert_gold(second.messages, GOLD)
    for found in (first, second):
        assert_joined(found.messages)
        assert (found.gaps, found.dialects) == ((), ("litellm",))
        assert (len(found.trace_ids), found.usage.model_calls) == (2, 2)
        assert found.models == ("gpt-4o-mini-2026-01-01",)
    assert (second.turn, second.new_from, second.history) == (2, 6, first)
    assert (first.usage.input_tokens, first.usage.output_tokens) == (170, 34)
    assert first.usage.cached_tokens == 16
    assert first.tools[1] == {
        "type": "function",
        "name": "lookup_order",
        "description": "Look up an order.",
        "parameters": {
            "type": "object",
            "properties": {"order_id": {"type": "string"}},
            "required": ["order_id"],
        },
    }


def test_the_raw_request_adds_nothing():
    """Without the raw spans, which say everything twice, the trajectories are the same."""
    spans, _ = capture("litellm_otel")
    whole = reconstruct(spans)

    thin = reconstruct([s for s in spans if s.name != "raw_gen_ai_request"])

    assert [t.messages for t in thin] == [t.messages for t in whole]


def test_raw_requests_are_no_calls_whatever_they_hold():
    """Earlier versions wrote the call's attributes on both spans, under any tracer's name."""
    asked = request(
        "a", 1, [user("q")], [said("a")], scope="x", attributes={"litellm.call_id": "1"}
    )
    raw = replace(
        asked,
        span_id="raw",
        parent_id="a",
        name="raw_gen_ai_request",
        attributes={
            key: value for key, value in asked.attributes.items() if key != "litellm.call_id"
        },
    )

    found = only(asked, raw)

    assert (texts(found), found.usage.model_calls) == (["q", "a"], 1)
    assert found.dialects == ("litellm",)
    assert reconstruct([raw]) == []


def test_several_choices_are_told_apart():
    """The first choice goes on, and calls beside the answers are of the first."""
    first, second = {**said("a"), "finish_reason": "stop"}, {**said("b"), "finish_reason": "stop"}

    found = only(request("a", 1, [user("q")], [first, second], calls=(("look", "{}"),)))

    assert texts(found) == ["q", "a"]
    assert found.messages[1].tool_calls[0].name == "look"


def test_ids_come_from_the_next_call_even_when_results_are_out_of_order():
    """The next input says which id is whose; results are joined by it."""
    second = {**CALL, "id": "k2", "function": {"name": "find", "arguments": "{}"}}
    sent = [
        user("q"),
        {**ASKED, "tool_calls": [CALL, second]},
        {**GAVE, "tool_call_id": "k2", "parts": [{"type": "text", "content": "found"}]},
        GAVE,
    ]
    found = only(
        request("a", 1, [user("q")], BARE, calls=(("look", '{"x": 1}'), ("find", ""))),
        request("b", 3, sent, [said("done")]),
    )

    assert [(c.name, c.arguments, c.id) for c in found.messages[1].tool_calls] == [
        ("look", {"x": 1}, "k1"),
        ("find", {}, "k2"),
    ]
    answers = {m.tool_call_id: m.content for m in found.messages if m.role == "tool"}
    assert answers == {"k1": "r", "k2": "found"}
    assert found.gaps == ()


def test_calls_of_the_last_answer_have_no_ids():
    """Where no further call follows, the calls are known and their ids and results are not."""
    found = only(request("a", 1, [user("q")], BARE, calls=(("look", "{}"),)))

    (made,) = found.messages[1].tool_calls
    assert (made.name, made.arguments, made.id) == ("look", {}, "")
    assert codes(found) == ["missing_tool_result"]


def test_text_beside_calls_is_kept():
    """An answer may say something and ask for tools; an empty text is none."""
    found = only(request("a", 1, [user("q"), ASKED, GAVE], [said("hm")], calls=(("look", "{}"),)))

    assert found.messages[1].content is None
    assert (found.messages[3].content, len(found.messages[3].tool_calls)) == ("hm", 1)


def test_images_are_kept_as_parts():
    """A part that is not text stays as it was written."""
    image = {"type": "image_url", "image_url": {"url": "https://x/y.png"}}
    sent = {"role": "user", "parts": [{"type": "text", "text": "look"}, image]}

    found = only(request("a", 1, [sent], [said("ok")]))

    assert (found.messages[0].content, found.messages[0].parts) == ("look", (image,))


def test_the_system_prompt_may_stand_apart():
    """System instructions come before the messages."""
    apart = {"gen_ai.system_instructions": json.dumps([system("s")])}

    found = only(request("a", 1, [user("q")], [said("a")], attributes=apart))

    assert brief(found.messages) == [("system", "s"), ("user", "q"), ("assistant", "a")]


@pytest.mark.parametrize(
    "kind",
    ["completion", "acompletion", "atext_completion", "aresponses", "anthropic_messages", ""],
)
def test_kinds_that_are_model_calls(kind: str):
    """Calls that answer messages are model calls, asynchronous ones as well."""
    found = only(request("a", 1, [user("q")], [said("a")], kind=kind))

    assert (texts(found), found.usage.model_calls) == (["q", "a"], 1)


@pytest.mark.parametrize(
    "kind", ["embedding", "aembedding", "arerank", "transcription", "amoderation"]
)
def test_kinds_that_are_none(kind: str):
    """Embeddings and their like have no conversation."""
    assert reconstruct([request("a", 1, [user("q")], kind=kind)]) == []


@pytest.mark.parametrize("mark", ["litellm.call_id", "metadata.user_api_key_hash"])
def test_the_proxy_writes_on_the_span_of_the_request(mark: str):
    """A server's span that LiteLLM wrote its call on is that call, whatever its name and scope."""
    spans = [
        request(
            "p",
            1,
            [user("q")],
            [said("a")],
            title="POST /",
            scope="fastapi",
            attributes={mark: "x"},
        ),
        span("auth", 1, parent="p", scope="litellm"),
        span("raw", 2, parent="p", title="raw_gen_ai_request", attributes={"llm.openai.id": "1"}),
    ]

    found = only(*spans)

    assert (texts(found), found.usage.model_calls, found.gaps) == (["q", "a"], 1, ())
    assert found.dialects == ("litellm",)


def test_versions_before_1_81_are_flat():
    """Indexed keys hold roles and texts; of earlier answers the calls are missing, and named so."""
    flat = {
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "q",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.finish_reason": "stop",
        "gen_ai.completion.0.content": "a",
        "gen_ai.usage.prompt_tokens": 5,
    }
    later = {
        "gen_ai.prompt.1.role": "assistant",
        "gen_ai.prompt.2.role": "tool",
        "gen_ai.prompt.2.content": "r",
    }

    found = only(request("a", 1, attributes=flat))
    cut = only(request("b", 2, attributes={**flat, **later}))

    assert (texts(found), found.gaps, found.usage.input_tokens) == (["q", "a"], (), 5)
    assert [m.role for m in cut.messages] == ["user", "assistant", "tool", "assistant"]
    assert codes(cut) == ["content_not_captured"]
    assert "upgrade LiteLLM" in cut.gaps[0].detail


def test_without_content_the_switch_is_named():
    """With message logging off, the call is known and what turns content on is said."""
    found = only(request("a", 1))

    assert codes(found) == ["content_not_captured"]
    assert "litellm.turn_off_message_logging" in found.gaps[0].detail


def test_answers_that_are_never_written_are_a_gap():
    """Of the kinds whose answers LiteLLM leaves out, the question is had and the gap says so."""
    found = only(request("a", 1, [user("q")], kind="aresponses"))

    assert [m.role for m in found.messages] == ["user", "assistant"]
    assert codes(found) == ["content_not_captured"]
    assert "aresponses" in found.gaps[0].detail


def test_redacted_messages_are_missing_content():
    """LiteLLM's placeholder is never taken for a text."""
    found = only(request("a", 1, [user("redacted-by-litellm")], [said("redacted-by-litellm")]))

    assert texts(found) == [None, None]
    assert codes(found) == ["redacted"]


def test_a_failed_call_says_why():
    """A refused call keeps its question, and its exception is the reason."""
    events = (Event("exception", 2, {"exception.message": "429"}),)

    found = only(request("a", 1, [user("q")], status_code=2, events=events))

    assert texts(found) == ["q"]
    assert codes(found) == ["model_call_failed"]
    assert "429" in found.gaps[0].detail


def test_cut_values_name_the_limit():
    """A value that is no whole JSON any more gives what precedes the cut."""
    whole = request("a", 1, [user("q"), user("r")], [said("a")])
    text = whole.attributes["gen_ai.input.messages"]
    cut = replace(whole, attributes={**whole.attributes, "gen_ai.input.messages": text[:-9]})

    found = only(cut)

    assert texts(found) == ["q", "a"]
    assert codes(found) == ["content_truncated"]


@pytest.mark.parametrize("odd", [None, 5, True, [], [None, 3], {}, "", "{", "['", "x", {"a": 1}])
def test_odd_values_are_survived(odd: Any):
    """Whatever an attribute holds, something comes out and nothing is raised."""
    keys = (
        *("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions"),
        *("gen_ai.prompt.0", "gen_ai.prompt.0.role", "gen_ai.completion.0.function_call"),
        *("gen_ai.completion.1.function_call.name", "llm.request.functions.0.parameters"),
        *("llm.request.functions.1", "metadata.usage_object", "gen_ai.usage.input_tokens"),
    )

    found = only(request("a", 1, attributes=dict.fromkeys(keys, odd)))

    assert found.usage.model_calls == 1
    json.dumps(found.as_dict(), default=str)


@pytest.mark.parametrize("usage", ["{'prompt_tokens_details': None}", "None", "x", "{'a'", "[1]"])
def test_odd_usage_counts_nothing(usage: str):
    """The Python repr of the usage may lack the cached tokens."""
    found = only(
        request("a", 1, [user("q")], [said("a")], attributes={"metadata.usage_object": usage})
    )

    assert found.usage.cached_tokens == 0


LOOK = {"city": "Paris"}
QUESTION = {"role": "user", "content": "q"}
OPENAI_ASKED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "k1",
            "type": "function",
            "function": {"name": "look", "arguments": '{"city": "Paris"}'},
        }
    ],
}
# Of each provider's API: the request and the response of two calls, the second with a result.
RAW_CALLS: dict[str, list[dict[str, Any]]] = {
    "openai": [
        {"messages": [QUESTION], "choices": [{"index": 0, "message": OPENAI_ASKED}], "id": "r1"},
        {
            "messages": [
                QUESTION,
                OPENAI_ASKED,
                {"role": "tool", "tool_call_id": "k1", "content": "21 C"},
            ],
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "a"}}],
            "id": "r2",
        },
    ],
    "anthropic": [
        {
            "messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]}],
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "k1", "name": "look", "input": LOOK}],
        },
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "q"}]},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "k1", "name": "look", "input": LOOK}],
                },
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "k1", "content": "21 C"}],
                },
            ],
            "role": "assistant",
            "content": [{"type": "text", "text": "a"}],
        },
    ],
}


@pytest.mark.parametrize("provider", RAW_CALLS)
@pytest.mark.parametrize("write", [repr, json.dumps], ids=["repr", "json"])
def test_calls_written_over_one_span_are_read_from_the_raw_requests(
    provider: str, write: Callable[[Any], str]
):
    """LiteLLM writes each call on the application's span, over the one before; no call is lost."""
    last = {
        "gen_ai.completion.0.function_call.name": "look",
        "gen_ai.completion.0.function_call.arguments": '{"city": "Paris"}',
        "litellm.call_id": "2",
    }
    spans = [
        request("turn", 1, [user("q")], [said("")], scope="app", attributes=last),
        *(
            span(
                f"raw{at}",
                at,
                parent="turn",
                title="raw_gen_ai_request",
                scope="litellm",
                attributes={
                    f"llm.{provider}.{key}": value if isinstance(value, str) else write(value)
                    for key, value in call.items()
                },
            )
            for at, call in zip((2, 5), RAW_CALLS[provider], strict=True)
        ),
    ]
    spans[0] = replace(spans[0], end_ns=9)

    found = only(*spans)

    assert texts(found) == ["q", None, "21 C", "a"]
    assert [call.arguments for m in found.messages for call in m.tool_calls] == [LOOK]
    assert (found.usage.model_calls, codes(found)) == (2, [])


@pytest.mark.parametrize(
    ("counts", "tokens"),
    [
        ({"input_tokens": 85, "output_tokens": 17, "cache_read_input_tokens": 40}, (125, 17, 40)),
        ({"prompt_tokens": 85, "prompt_tokens_details": {"cached_tokens": 40}}, (85, 0, 40)),
        ("none", (0, 0, 0)),
    ],
)
def test_the_tokens_of_a_raw_request_count_cached_ones_once(counts: Any, tokens: tuple[int, ...]):
    """Anthropic counts cached tokens beside the input, OpenAI within it."""
    fields = {**RAW_CALLS["openai"][1], "usage": counts}
    raw = {f"llm.openai.{key}": repr(value) for key, value in fields.items()}

    used = only(span("r", 1, title="raw_gen_ai_request", scope="litellm", attributes=raw)).usage

    assert (used.input_tokens, used.output_tokens, used.cached_tokens) == tokens
