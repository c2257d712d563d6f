"""Errors of model servers inside of answers, and refused parameters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from oteval import JudgeError, create_async_llm_as_judge, create_llm_as_judge
from oteval.evaluators.judge import openai_backend
from oteval.evaluators.judge.completions import ServerError, error_in_answer
from oteval.evaluators.judge.output_modes import OutputModeRefused

from ...model_server import Body, Reply, Server, streamed, verdict
from .chat_model import chat_model

Judge = Callable[..., Any]
LIMITED = {"error": {"message": "Provider returned error", "code": 429}, "choices": None}
CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat requests at once."""
    monkeypatch.setattr(openai_backend, "_FIRST_DELAY", 0.0)


@pytest.fixture(params=["sync", "async", "blocking client"])
def judge(request: pytest.FixtureRequest, server: Server) -> Iterator[Judge]:
    """Return a function that asks about "x" in each way of sending requests."""
    opened: list[Any] = []

    def ask(**options: Any) -> Any:
        options = {"prompt": "Is it so? {outputs}", **options}
        if request.param == "blocking client":
            client = openai.OpenAI(base_url=server.url, api_key="k")
            opened.append(client)
            evaluator = create_llm_as_judge(judge=client, model="openai:m", **options)
            return evaluator(outputs="x")
        options = {"model": "openai:m", "base_url": server.url, **options}
        if request.param == "async":
            return asyncio.run(create_async_llm_as_judge(**options)(outputs="x"))
        evaluator = create_llm_as_judge(**options)
        opened.append(evaluator)
        return evaluator(outputs="x")

    yield ask
    for closable in opened:
        closable.close()


@pytest.mark.parametrize("code", [429, "429", "rate_limit_exceeded", 503, "overloaded_error"])
def test_a_temporary_error_in_an_answer_is_asked_again(judge: Judge, server: Server, code: Any):
    """It counts as the status that it names, though the HTTP status is 200."""
    limited = {"error": {"message": "busy", "code": code}, "choices": None}
    server.script = lambda _body, number: Reply(limited) if number == 1 else verdict()

    assert judge(max_retries=2)["score"] is True
    assert len(server.requests) == 2


BUSY = {"message": "busy", "code": 429}


@pytest.mark.parametrize(
    "body",
    [
        {"error": "rate limit"},
        {"error": {"message": "Rate limit reached"}},
        {"errors": [BUSY]},
        [{"error": BUSY}],
        {"object": "error", **BUSY},
        {"detail": "the model is overloaded"},
        {"choices": [{"index": 0, "error": BUSY}]},
        {"choices": [{"index": 0, "finish_reason": "error", "error": BUSY, "message": {}}]},
    ],
    ids=str,
)
def test_an_error_is_found_wherever_a_gateway_puts_it(judge: Judge, server: Server, body: Any):
    """Beside the choices, in the first of them, or in place of a completion."""
    server.script = lambda _body, number: Reply(body) if number == 1 else verdict()

    assert judge(max_retries=1)["score"] is True
    assert len(server.requests) == 2


def test_its_message_is_the_comment_in_the_end(judge: Judge, server: Server):
    """Retries are bounded by `max_retries`, and the error has the server's words."""
    server.script = lambda _body, _number: Reply(LIMITED)

    verdict = judge(max_retries=1)

    assert verdict["score"] is None
    assert "answered 429: Provider returned error" in verdict["metadata"]["error"]
    assert len(server.requests) == 2


@pytest.mark.parametrize("event", [LIMITED, {**CHUNK, "error": LIMITED["error"]}])
def test_an_error_in_a_stream_is_asked_again(judge: Judge, server: Server, event: Body):
    """It may come after the beginning of the answer."""
    good = streamed('{"reasoning": "r", "score": true}')
    server.script = lambda _body, number: Reply(chunks=(CHUNK, event)) if number == 1 else good

    assert judge(stream=True, max_retries=1)["score"] is True
    assert len(server.requests) == 2


def test_a_final_error_in_an_answer_is_asked_once(judge: Judge, server: Server):
    """A key that is wrong stays wrong."""
    wrong = {"error": {"message": "No auth credentials found", "code": 401}}
    server.script = lambda _body, _number: Reply(wrong)

    verdict = judge(max_retries=3)

    assert "answered 401: No auth credentials found" in verdict["metadata"]["error"]
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"message": "Unsupported value: 'temperature'", "param": "temperature"},
        {"message": "`temperature` is deprecated for this model."},
        {"message": "Unsupported parameter: 'temperature' does not go with tools or a schema."},
    ],
    ids=["named", "in the message", "among words about formats"],
)
def test_a_refused_parameter_is_refused_once(judge: Judge, server: Server, body: Body):
    """It is the same in every form of answer; the error says what to leave out."""
    server.script = lambda request, _number: (
        Reply({"error": body}, 400) if "temperature" in request else verdict()
    )

    refused = judge(temperature=0.0, max_retries=0)

    assert "leave temperature out of the evaluator's options" in refused["metadata"]["error"]
    assert len(server.requests) == 1

    again = judge(temperature=0.0, max_retries=0)

    assert again["metadata"]["error"] == refused["metadata"]["error"]
    assert again["metadata"]["requests"] == 0
    assert len(server.requests) == 1  # this process remembers it
    assert judge(max_retries=0)["score"] is True


def test_a_chat_model_s_refused_parameter_is_refused_once(server: Server):
    """LangChain's models are asked once as well, and an error in an answer keeps its words."""
    server.script = lambda _body, number: (
        Reply({"error": {"message": "temperature is deprecated"}}, 400)
        if number == 1
        else Reply({"error": {"message": "slow down", "code": 429}})
    )

    def ask(temperature: float) -> Any:
        model = chat_model(server, temperature=temperature)
        return create_llm_as_judge(prompt="{outputs}", judge=model)(outputs="x")

    refused, again, limited = ask(0.5), ask(0.5), ask(1)

    assert "leave temperature out" in refused["comment"]
    assert again["comment"] == refused["comment"]
    assert "answered 429: slow down" in limited["comment"]
    assert server.modes == ["json_schema", "json_schema", "tool"]  # the last two for `limited`


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ServerError(400, "response_format is not supported", param="response_format"), True),
        (ServerError(400, "bad tools", param="tools[0].function"), True),
        (ServerError(400, "json_schema is not supported"), True),
        (ServerError(400, "no such thing", param="top_p"), False),
        (ServerError(400, "seed: not with a schema"), True),
        (ServerError(500, "seed"), True),
        (ServerError(400, "too long", code="context_length_exceeded"), False),
        (ServerError(403, "no"), False),
    ],
)
def test_only_what_depends_on_the_form_of_the_answer_is_tried_in_others(
    error: ServerError, kind: bool
):
    """A refusal of the form leads to the next form; every other one ends the question."""
    explained = error.explained("server", ["seed"])

    assert isinstance(explained, JudgeError)
    assert isinstance(explained, OutputModeRefused) is kind


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"error": {"message": "m", "code": 429}}, 429),
        ({"error": {"message": "m", "status": 503}}, 503),
        ({"error": {"message": "m", "type": "server_error"}}, 500),
        ({"error": {"message": "m", "code": "insufficient_quota"}}, 429),
        ({"error": "rate limit exceeded"}, 429),
        ({"error": {"message": "m", "code": 7}}, 0),
        ({"error": {}}, None),
        ({"error": None}, None),
        ({"choices": []}, None),
    ],
)
def test_an_error_names_a_status(answer: Body, status: int | None):
    """By a number, or by the words of its code or type; an empty one is none."""
    error = error_in_answer(answer)

    assert (None if error is None else error.status) == status
