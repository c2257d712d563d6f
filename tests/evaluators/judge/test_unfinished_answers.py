"""A draft or an unfinished answer is not a verdict, in any output mode, streamed or not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage

from oteval import create_llm_as_judge
from oteval.evaluators.judge import JudgeEvaluator

from ...model_server import Body, Reply, Server, asked_as, completion, error, streamed
from .chat_model import chat_model

GOOD = json.dumps({"reasoning": "It does.", "score": True})
MODES = ["json_schema", "tool", "json_object", "text"]
DRAFTS = {
    "unclosed reasoning": f"<think>Maybe {GOOD}",
    "only reasoning": f"<think>{GOOD}</think>",
    "another tag": f"<reasoning>{GOOD}",
    "square tag": f"[THINK]{GOOD}",
    "no opening tag": f"Maybe {GOOD}</think>",
    "quoted in prose": f"The agent wrote {GOOD}, which I doubt.",
    "fence in prose": f"Maybe:\n```json\n{GOOD}\n```\nBut no.",
    "duplicate keys": '{"reasoning": "x", "score": false, "score": true}',
    "two objects": f"{GOOD}\n{GOOD}",
}


@pytest.fixture
def made() -> Iterator[list[JudgeEvaluator]]:
    """Return a list of evaluators, which are closed at the end."""
    evaluators: list[JudgeEvaluator] = []
    yield evaluators
    for evaluator in evaluators:
        evaluator.close()


@pytest.fixture
def evaluator(server: Server, made: list[JudgeEvaluator]) -> Callable[..., JudgeEvaluator]:
    """Return a function that makes an evaluator that asks the scripted server."""

    def make(**options: Any) -> JudgeEvaluator:
        judge_options = {
            "prompt": "{outputs}",
            "model": "m",
            "base_url": server.url,
            "max_retries": 0,
        }
        made.append(create_llm_as_judge(**{**judge_options, **options}))
        return made[-1]

    return make


@pytest.fixture
def ask(evaluator: Callable[..., JudgeEvaluator]) -> Callable[..., Any]:
    """Return a function that asks the scripted server once."""
    return lambda **options: evaluator(**options)(outputs="x")


def saying(mode: str, text: str, finish: str = "stop") -> Callable[[Body, int], Reply]:
    """Return a script that takes one way of asking, and answers it with a text."""

    def script(body: Body, _number: int) -> Reply:
        if asked_as(body) != mode:
            return error(400, f"{asked_as(body)} is not supported here")
        if body.get("stream") and mode == "tool":
            return streamed_call(text, finish)
        if body.get("stream"):
            return streamed(text, finish=finish)
        if mode == "tool":
            return completion(arguments=text, finish=finish)
        return completion(text, finish=finish)

    return script


def streamed_call(arguments: str, finish: str) -> Reply:
    """Return a tool call as a stream."""
    reply = streamed(arguments, finish=finish)
    chunks = json.loads(json.dumps(reply.chunks))
    for chunk in chunks:
        for choice in chunk["choices"]:
            text = choice["delta"].pop("content", None)
            if text is not None:
                function = {"name": "verdict", "arguments": text}
                choice["delta"]["tool_calls"] = [{"index": 0, "function": function}]
    return replace(reply, chunks=tuple(chunks))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("mode", MODES)
def test_a_draft_is_an_error(
    evaluator: Callable[..., JudgeEvaluator], server: Server, mode: str, stream: bool
):
    """JSON in reasoning, in prose or with duplicate keys never gives a score."""
    evaluate = evaluator(stream=stream)

    for name, draft in DRAFTS.items():
        server.script = saying(mode, draft)

        score = evaluate(outputs="x")

        assert (score["score"], score["metadata"]["status"]) == (None, "error"), name


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("mode", MODES)
def test_an_answer_that_did_not_end_is_an_error(
    evaluator: Callable[..., JudgeEvaluator], server: Server, mode: str, stream: bool
):
    """Even text that is a whole verdict does not count: the model meant to go on."""
    evaluate = evaluator(stream=stream)

    for finish in ("length", "incomplete", "max_tokens", "MAX_TOKENS", "error", "pause_turn"):
        server.script, earlier_requests = saying(mode, GOOD, finish), len(server.requests)

        score = evaluate(outputs="x")

        assert score["score"] is None, finish
        assert "before its end" in score["metadata"]["error"]
        assert repr(finish) in score["metadata"]["error"]
        assert server.modes[earlier_requests:] == MODES[: MODES.index(mode) + 1]


@pytest.mark.parametrize("mode", MODES)
def test_a_streamed_answer_is_accepted_in_each_mode(
    ask: Callable[..., Any], server: Server, mode: str
):
    """Whole answers still count however they were asked for."""
    server.script = saying(mode, GOOD)

    assert ask(stream=True)["score"] is True


def test_a_stream_that_never_says_that_it_ended_is_an_error(
    ask: Callable[..., Any], server: Server
):
    """A proxy that closes a stream early leaves what may be a draft."""
    server.script = lambda _body, _number: streamed(GOOD, finish=None)

    assert ask(stream=True)["score"] is None


def test_a_stream_that_also_says_it_was_cut_off_is_an_error(
    ask: Callable[..., Any], server: Server
):
    """A later reason does not make up for it."""
    chunks = streamed(GOOD, finish="length").chunks + streamed("").chunks
    server.script = lambda _body, _number: Reply(chunks=chunks)

    assert "'length'" in ask(stream=True)["metadata"]["error"]


def test_a_chat_model_s_stream_that_breaks_off_is_an_error(server: Server):
    """LangChain would complete the arguments of the call."""
    cut = '{"reasoning": "It seems right, but", "score": true, "no'
    server.script = lambda body, _number: (
        Reply(chunks=streamed_call(cut, "stop").chunks[:-2])
        if asked_as(body) == "tool"
        else error(400, "tools only")
    )
    model = chat_model(server, streaming=True)

    score = create_llm_as_judge(prompt="{outputs}", judge=model)(outputs="x")

    assert score["score"] is None


def test_a_completion_that_says_it_is_incomplete_is_an_error(
    ask: Callable[..., Any], server: Server
):
    """Some servers say so beside the choices."""
    reply = completion(GOOD)
    server.script = lambda _body, _number: Reply(
        {**reply.body, "status": "incomplete", "incomplete_details": {"reason": "max_output"}}
    )

    assert "'max_output'" in ask()["metadata"]["error"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_several_tool_calls_are_not_a_verdict(
    ask: Callable[..., Any], server: Server, stream: bool
):
    """Nobody can tell which of two verdicts was meant."""
    calls = [
        {"index": n, "id": str(n), "type": "function", "function": {"name": "verdict", "arguments":
         json.dumps({"reasoning": "x", "score": n == 0})}}
        for n in range(2)
    ]  # fmt: skip

    def script(body: Body, _number: int) -> Reply:
        if asked_as(body) != "tool":
            return error(400, "tools only")
        if not stream:
            reply = completion(finish="tool_calls")
            reply.body["choices"][0]["message"]["tool_calls"] = calls
            return reply
        delta = {"index": 0, "delta": {"tool_calls": calls}, "finish_reason": "tool_calls"}
        return Reply(chunks=({"id": "c", "model": "m", "choices": [delta]},))

    server.script = script

    score = ask(stream=stream)

    assert score["score"] is None


def test_a_call_of_another_tool_is_not_a_verdict(ask: Callable[..., Any], server: Server):
    """Only a call of the forced tool is an answer."""
    reply = completion(arguments=GOOD)
    reply.body["choices"][0]["message"]["tool_calls"][0]["function"]["name"] = "give_up"
    server.script = lambda body, _number: (
        reply if asked_as(body) == "tool" else error(400, "tools only")
    )

    assert ask()["score"] is None


def test_several_answers_are_not_a_verdict(ask: Callable[..., Any], server: Server):
    """Two choices may disagree."""
    reply = completion(GOOD)
    reply.body["choices"].append({**reply.body["choices"][0], "index": 1})
    server.script = lambda _body, _number: reply

    score = ask()

    assert score["score"] is None
    assert "2 answers" in score["metadata"]["error"]


@pytest.mark.parametrize(
    ("content", "score"),
    [
        ([{"type": "text", "text": GOOD}], True),
        ([{"type": "text", "text": GOOD[:9]}, {"type": "text", "text": GOOD[9:]}], True),
        (
            [
                {"type": "thinking", "thinking": [{"type": "text", "text": "{}"}]},
                {"type": "output_text", "text": GOOD},
            ],
            True,
        ),
        ([{"type": "thinking", "thinking": GOOD}], None),
        ([{"type": "reasoning", "text": GOOD}], None),
        ([{"type": "text", "text": GOOD}, {"type": "text", "text": GOOD}], None),
        ([{"type": "refusal", "refusal": "no"}], None),
        ([{"type": "image_url", "image_url": {}}, {"type": "text", "text": GOOD}], None),
        ([], None),
        ({"score": True}, None),
    ],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_content_may_be_a_list_of_parts(
    ask: Callable[..., Any], server: Server, content: Any, score: Any, stream: bool
):
    """Its text is the answer; reasoning and refusals among the parts are not."""
    delta = {"index": 0, "delta": {"content": content}, "finish_reason": "stop"}
    chunk = {"id": "c", "model": "m", "choices": [delta]}
    server.script = lambda _body, _number: Reply(chunks=(chunk,)) if stream else completion(content)

    assert ask(stream=stream)["score"] is score


def test_reasoning_beside_the_content_is_not_the_answer(ask: Callable[..., Any], server: Server):
    """An empty answer is an error, even if the reasoning has a verdict."""
    reply = completion("")
    reply.body["choices"][0]["message"].update(reasoning_content=GOOD, reasoning=GOOD)
    server.script = lambda _body, _number: reply

    assert ask()["score"] is None


# LangChain models: its own parsers are lenient.


@pytest.mark.parametrize("mode", ["json_schema", "text"])
def test_a_draft_of_a_chat_model_is_an_error(server: Server, mode: str):
    """LangChain's parsed form of it does not count."""
    model = chat_model(server)
    evaluate = create_llm_as_judge(prompt="{outputs}", judge=model)

    for name, draft in DRAFTS.items():
        server.script = saying(mode, draft)

        assert evaluate(outputs="x")["score"] is None, name


@pytest.mark.parametrize(
    "message",
    [
        AIMessage(GOOD, response_metadata={"finish_reason": "length"}),
        AIMessage(GOOD, response_metadata={"stop_reason": "max_tokens"}),
        AIMessage(GOOD, response_metadata={"done_reason": "length"}),
        AIMessage(GOOD, response_metadata={"finish_reason": "MAX_TOKENS"}),
        AIMessage(GOOD, response_metadata={"status": "incomplete"}),
        AIMessage([{"type": "reasoning", "text": GOOD}]),
        AIMessage([{"type": "thinking", "thinking": GOOD}]),
        AIMessage(f"<think>{GOOD}"),
        AIMessage(
            GOOD, tool_calls=[{"name": "verdict", "args": {"reasoning": "", "score": False},
                               "id": "1"}]
        ),
    ],
)  # fmt: skip
def test_a_draft_of_any_chat_model_is_an_error(message: AIMessage):
    """Packages use different finish reasons for incomplete answers."""
    model = FakeMessagesListChatModel(responses=[message])

    score = create_llm_as_judge(prompt="{outputs}", judge=model)(outputs="x")

    assert score["score"] is None
