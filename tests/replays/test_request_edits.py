"""Edits of model requests, for each API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.base.errors import InputError
from oteval.replays.request_edits import RequestEdits

USER = {"role": "user", "content": "Hi"}


def edited(edits: RequestEdits, api: str, **request: Any) -> dict[str, Any]:
    return json.loads(edits.apply(api, json.dumps(request).encode()))


def test_the_model_is_replaced():
    """The rest of the request stays as it is."""
    edits = RequestEdits(model="new")

    request = edited(edits, "chat_completions", model="old", messages=[USER])

    assert request == {"model": "new", "messages": [USER]}


@pytest.mark.parametrize(
    ("api", "request_", "place"),
    [
        (
            "chat_completions",
            {"messages": [{"role": "developer", "content": "Old"}, USER]},
            lambda body: body["messages"][0],
        ),
        (
            "chat_completions",
            {"messages": [{"role": "system", "content": [{"type": "text", "text": "Old"}]}, USER]},
            lambda body: body["messages"][0],
        ),
        (
            "responses",
            {"input": [{"role": "system", "content": "Old"}, USER]},
            lambda body: body["input"][0],
        ),
        (
            "responses",
            {"instructions": "Old", "input": "Hi"},
            lambda body: {"content": body["instructions"]},
        ),
        (
            "anthropic_messages",
            {"system": [{"type": "text", "text": "Old"}], "messages": [USER]},
            lambda body: {"content": body["system"]},
        ),
    ],
)
def test_the_system_prompt_is_replaced_where_each_api_has_it(api, request_, place):
    """Everything else stays as it is."""
    body = edited(RequestEdits(prompt="New"), api, **request_)

    assert place(body)["content"] == "New"
    assert body.keys() == request_.keys()
    assert len(body.get("messages") or body["input"]) == len(
        request_.get("messages") or request_["input"]
    )


@pytest.mark.parametrize("api", ["chat_completions", "responses", "anthropic_messages"])
def test_an_agent_without_a_system_prompt_gets_one(api):
    """The prompt is added where the API expects it."""
    request = {"input": "Hi"} if api == "responses" else {"messages": [USER]}

    body = edited(RequestEdits(prompt="New"), api, **request)

    prompt = body.get("system") or body.get("instructions") or body["messages"][0]["content"]
    assert prompt == "New"


def test_sub_agents_keep_their_prompts():
    """Only the prompt of the lead agent is replaced."""
    edits = RequestEdits(prompt="New")

    def system(prompt: str, *, is_lead: bool) -> str:
        request = {"messages": [{"role": "system", "content": prompt}, USER]}
        body = edits.apply("chat_completions", json.dumps(request).encode(), is_lead=is_lead)
        return json.loads(body)["messages"][0]["content"]

    assert (system("Lead", is_lead=True), system("Search", is_lead=False)) == ("New", "Search")


def test_a_continued_response_gets_no_second_prompt():
    """An agent that sends its instructions once relies on the provider for the rest."""
    edits = RequestEdits(prompt="New")
    first = edited(edits, "responses", instructions="Old", input="Hi")
    second = edited(edits, "responses", previous_response_id="r1", input="More")

    assert first["instructions"] == "New"
    assert "instructions" not in second


def test_azure_names_the_model_in_the_url():
    """The deployment is replaced; other URLs stay as they are."""
    url = "https://x.openai.azure.com/openai/deployments/old/chat/completions?api-version=1"

    assert RequestEdits(model="new").url(url) == url.replace("old", "new")
    assert RequestEdits(prompt="New").url(url) == url
    assert RequestEdits(model="m").url("https://api.openai.com/v1/responses").endswith("responses")


@pytest.mark.parametrize(
    ("url", "edited_url"),
    [
        ("https://g/v1beta/models/old:streamGenerateContent?alt=sse", "models/new:stream"),
        ("https://b/model/eu.old%3A0/converse-stream", "model/new/converse-stream"),
    ],
)
def test_gemini_and_bedrock_name_the_model_in_the_url(url, edited_url):
    """Their bodies do not have it."""
    assert edited_url in RequestEdits(model="new").url(url)


@pytest.mark.parametrize(
    ("api", "request_fields", "field", "prompt", "options"),
    [
        (
            "gemini",
            {"contents": []},
            "systemInstruction",
            {"parts": [{"text": "New"}]},
            "generation",
        ),
        ("bedrock_converse", {"messages": []}, "system", [{"text": "New"}], "inference"),
    ],
)
def test_gemini_and_bedrock_have_their_own_fields(api, request_fields, field, prompt, options):
    """The prompt and the options are set where these APIs read them."""
    body = edited(RequestEdits(prompt="New", settings={"temperature": 0}), api, **request_fields)

    assert body == {**request_fields, field: prompt, f"{options}Config": {"temperature": 0}}


def test_settings_are_set_and_removed():
    """None removes an option that a model does not accept."""
    edits = RequestEdits(settings={"temperature": 0, "seed": None})

    body = edited(edits, "chat_completions", messages=[USER], seed=1, top_p=0.5)

    assert body == {"messages": [USER], "top_p": 0.5, "temperature": 0}


@pytest.mark.parametrize("body", [b"no", b"[1]"])
def test_a_body_that_is_not_a_json_object_is_an_error(body):
    """It is not sent to the model as if it had been edited."""
    with pytest.raises(InputError, match="not"):
        RequestEdits(model="m").apply("chat_completions", body)
