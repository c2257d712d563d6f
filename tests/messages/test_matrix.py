"""Every form of messages gives the same messages at every entry point."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from oteval.evaluators import to_messages
from oteval.evaluators.calls import read as read_calls
from oteval.messages import NO_SOURCE
from oteval.messages.reader import from_messages
from oteval.model import Message
from oteval.reconstruct import reconstruct
from oteval.reconstruct.apis import api_named
from oteval.record.provider_messages import convention_messages

from ..reconstruct.builders import span
from .forms import CASES, EXPECTED, FORMS, HAYSTACK_OLD, REPRS, Items, brief

URL = "https://host/v1beta/models/m:generateContent"
# The end of each recorded conversation, which is not part of the case.
NEXT, ANSWER = {"role": "user", "content": "and then?"}, {"role": "assistant", "content": "done"}


class Thing(SimpleNamespace):
    """An object with fields, as client libraries return them."""


def _thing(value: Any) -> Any:
    """Return plain data as objects; the arguments of calls stay data, as in the libraries."""
    if isinstance(value, dict):
        data = ("args", "arguments", "input", "kwargs", "response", "tool_kwargs")
        fields = {key: item if key in data else _thing(item) for key, item in value.items()}
        return Thing(**fields)
    return tuple(map(_thing, value)) if isinstance(value, list) else value


def direct(items: Items) -> Sequence[Message]:
    """Return the messages that an evaluator reads when it is called with the items."""
    return to_messages(items)


def direct_objects(items: Items) -> Sequence[Message]:
    """Return the messages that an evaluator reads when it is called with objects."""
    return to_messages([_thing(item) for item in items])


def written_as_chat(items: Items) -> Sequence[Message]:
    """Return the messages after a round trip through the form that judges and exports get."""
    return to_messages(json.loads(json.dumps([m.as_dict() for m in to_messages(items)])))


def instrumented(items: Items) -> Sequence[Message]:
    """Return the messages after a round trip through our instrumentation."""
    return from_messages(json.loads(json.dumps(convention_messages(items))), NO_SOURCE)


def _recorded(attributes: dict[str, Any]) -> Sequence[Message]:
    [run] = reconstruct([span("a", 1, attributes=attributes)])
    assert {gap.code for gap in run.gaps} <= {"missing_tool_result"}
    assert brief(run.messages[-1]) == brief(Message("assistant", "done"))
    assert brief(run.messages[-2]) == brief(Message("user", "and then?"))
    return run.messages[:-2]


def genai_span(items: Items) -> Sequence[Message]:
    """Return the messages that are read from a span of the current conventions."""
    return _recorded(
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps([*items, NEXT]),
            "gen_ai.output.messages": json.dumps([ANSWER]),
        }
    )


def openinference_raw(items: Items) -> Sequence[Message]:
    """Return the messages that are read from the raw request in an OpenInference span."""
    return _recorded(
        {
            "openinference.span.kind": "LLM",
            "input.value": json.dumps({"messages": [*items, NEXT]}),
            "input.mime_type": "application/json",
            "output.value": json.dumps(ANSWER),
            "output.mime_type": "application/json",
        }
    )


ENTRIES: dict[str, Callable[[Items], Sequence[Message]]] = {
    "direct": direct,
    "direct, objects": direct_objects,
    "as chat": written_as_chat,
    "instrumentation": instrumented,
    "genai span": genai_span,
    "openinference": openinference_raw,
}


@pytest.mark.parametrize(("form", "case"), CASES)
def test_a_form_means_the_same_at_every_entry(form: str, case: str):
    """Roles, texts, calls, results, failures, reasoning and other parts are all there."""
    items = FORMS[form][case]

    for entry, read in ENTRIES.items():
        assert [*map(brief, read(items))] == EXPECTED[case], entry


@pytest.mark.parametrize(
    ("form", "case"), [(form, case) for form, case in CASES if case in ("result", "error")]
)
def test_a_result_names_its_call_at_every_entry(form: str, case: str):
    """A result has the id of its call, whichever field of the form holds it."""
    for entry, read in ENTRIES.items():
        _, request, result = read(FORMS[form][case])
        assert result.tool_call_id == request.tool_calls[0].id, entry


@pytest.mark.parametrize("case", HAYSTACK_OLD)
def test_haystacks_older_fields_mean_the_same(case: str):
    """Until version 2.12 the names of serialised fields begin with "_"; objects hide these."""
    for entry, read in ENTRIES.items():
        if entry != "direct, objects":
            assert [*map(brief, read(HAYSTACK_OLD[case]))] == EXPECTED[case], entry


REQUESTS: dict[str, tuple[str, str]] = {
    "openai chat": ("chat_completions", "messages"),
    "openai chat, a custom tool": ("chat_completions", "messages"),
    "openai chat, the old functions": ("chat_completions", "messages"),
    "responses": ("responses", "input"),
    "responses, a custom tool": ("responses", "input"),
    "anthropic": ("anthropic_messages", "messages"),
    "gemini": ("gemini", "contents"),
    "bedrock": ("bedrock_converse", "messages"),
}


@pytest.mark.parametrize(("form", "case"), [pair for pair in CASES if pair[0] in REQUESTS])
def test_a_request_of_a_replay_means_the_same(form: str, case: str):
    """A request to a model's API gives the same messages as the same items anywhere else."""
    name, key = REQUESTS[form]
    api = api_named(name)
    assert api is not None

    request = api.parse_request(json.dumps({key: FORMS[form][case]}).encode(), URL)

    assert [*map(brief, request.messages)] == EXPECTED[case]


@pytest.mark.parametrize("case", REPRS)
def test_reprs_of_objects_mean_the_same_in_every_span(case: str):
    """Objects that an emitter printed are read in spans; a caller passes the objects."""
    for entry in (genai_span, openinference_raw):
        assert [*map(brief, entry(REPRS[case]))] == EXPECTED[case]


@pytest.mark.parametrize(("form", "case"), CASES)
def test_matching_sees_the_calls_of_every_form(form: str, case: str):
    """The fast reader of calls for matches gives the same calls as the messages."""
    table = read_calls(FORMS[form][case], "outputs")

    calls = [call for message in to_messages(FORMS[form][case]) for call in message.tool_calls]
    assert table.names == [call.name for call in calls]
    assert [table.arguments(index) for index in range(len(calls))] == [c.arguments for c in calls]


@pytest.mark.parametrize(("form", "case"), CASES)
def test_the_short_way_to_write_texts_writes_the_same(
    form: str, case: str, monkeypatch: pytest.MonkeyPatch
):
    """Plain texts that the instrumentation writes directly are the same after reading."""
    items = [*FORMS[form][case], ANSWER, NEXT, *FORMS[form][case]]

    short = convention_messages(items)
    monkeypatch.setattr("oteval.record.provider_messages._is_text", lambda _: False)

    assert convention_messages(items) == short


def _response(form: str, items: Items) -> dict[str, Any]:
    """Return an answer of the API that has a form, with the last items of a conversation."""
    if form == "responses":
        return {"output": items[1:]}
    if form == "anthropic":
        return items[-1]
    if form == "gemini":
        return {"candidates": [{"content": items[-1]}]}
    if form == "bedrock":
        return {"output": {"message": items[-1]}}
    return {"choices": [{"message": items[-1]}]}


_ANSWERS = ("text", "call", "text and call", "reasoning", "refusal")


@pytest.mark.parametrize(
    ("form", "case"),
    [(form, case) for form, case in CASES if form in REQUESTS and case in _ANSWERS],
)
def test_an_answer_in_a_replay_means_the_same(form: str, case: str):
    """An answer of a model's API gives the same message as the same items anywhere else."""
    api = api_named(REQUESTS[form][0])
    assert api is not None

    answer = api.parse_response(json.dumps(_response(form, FORMS[form][case])).encode())

    assert answer.message is not None
    assert brief(answer.message) == EXPECTED[case][-1]
