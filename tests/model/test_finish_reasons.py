"""Why models stopped: found wherever a trace tells, kept, and usable in filters and checks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval import create_final_answer_evaluator, create_finish_reason_evaluator
from oteval.model import Event, LogRecord, Span, Usage, normal_finish_reason
from oteval.model.selection import parse_condition
from oteval.reconstruct.recorded_answers import finish_reason_of
from oteval.store import Store

from ..evaluators.checks.helpers import says
from ..make import keep, run


@pytest.mark.parametrize(
    ("reason", "spellings"),
    [
        ("stop", "stop STOP end_turn stop_sequence FinishReason.STOP FINISH_REASON_STOP COMPLETE"),
        ("length", "length max_tokens MAX_TOKENS max_output_tokens FinishReason.MAX_TOKENS"),
        ("content_filter", "content_filter content-filter refusal SAFETY guardrail_intervened"),
        ("tool_call", "tool_calls tool_use tool-calls function_call toolUse"),
        ("error", "error MALFORMED_FUNCTION_CALL"),
        ("compaction", "compaction"),
        ("pause_turn", "pause_turn"),
        ("SomethingNew", "SomethingNew"),
    ],
)
def test_every_spelling_means_a_reason_of_the_conventions(reason: str, spellings: str):
    """Providers' spellings become the conventions' values; an unknown one stays as it is."""
    assert {normal_finish_reason(spelling) for spelling in spellings.split()} == {reason}


CHOICE = {"finish_reason": "length", "message": {"role": "assistant", "content": "a"}}


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.response.finish_reasons": ["length", "stop"]},
        {"gen_ai.response.finish_reasons": '["max_tokens"]'},
        {"ai.response.finishReason": "length"},
        {"llm.finish_reason": "max_tokens"},
        {"gen_ai.output.messages": json.dumps([{"role": "assistant", "finish_reason": "length"}])},
        {"output.value": json.dumps({"choices": [CHOICE]})},
        {"output.value": json.dumps({"candidates": [{"finishReason": "MAX_TOKENS"}]})},
        {"output.value": json.dumps({"stop_reason": "max_tokens", "type": "message"})},
        {
            "traceloop.entity.output": json.dumps(
                {"generations": [[{"generation_info": {"finish_reason": "length"}}]]}
            )
        },
        {
            "mlflow.spanOutputs": json.dumps(
                {"message": {"response_metadata": {"stopReason": "max_tokens"}}}
            )
        },
        {"langfuse.observation.output": {"response_metadata": {"finish_reason": "length"}}},
        {"langfuse.observation.metadata.finish_reason": '"length"'},
        {"haystack.component.output": '{"replies": [{"meta": {"finish_reason": "length"}}]}'},
    ],
)
def test_a_span_tells_the_reason(attributes: dict[str, Any]):
    """It is in an attribute, or inside of the recorded answer in any form."""
    span = Span("1" * 32, "1" * 16, attributes=attributes)

    assert finish_reason_of(span, ()) == "length"


def test_events_and_log_records_tell_the_reason():
    """Older instrumentations have it in the event of a choice."""
    event = Event("gen_ai.choice", attributes={"finish_reason": "length"})
    record = LogRecord(event_name="gen_ai.choice", body={"finish_reason": "max_tokens"})

    assert finish_reason_of(Span("1" * 32, "1" * 16, events=(event,)), ()) == "length"
    assert finish_reason_of(Span("1" * 32, "1" * 16), (record,)) == "length"


@pytest.mark.parametrize(
    "attributes",
    [
        {"output.value": "the finish_reason is length"},
        {"output.value": '{"tool_calls": [{"arguments": {"finish_reason": "length"}}]}'},
        {"input.value": json.dumps({"choices": [CHOICE]})},
        {"gen_ai.response.finish_reasons": []},
        {"output.value": "[" * 90 + '"finish_reason"'},
    ],
)
def test_what_only_looks_like_a_reason_is_none(attributes: dict[str, Any]):
    """Texts, arguments of tools and the input tell nothing about the answer."""
    assert finish_reason_of(Span("1" * 32, "1" * 16, attributes=attributes), ()) == ""


def ended(*reasons: str, calls: int = 0, text: str = "42") -> Any:
    """Return a run whose model calls ended for some reasons."""
    usage = Usage(1, 1, model_calls=calls or len(reasons))
    return run(1, says(text), finish_reasons=reasons, usage=usage)


@pytest.mark.database
def test_reasons_and_prompts_are_stored_and_found():
    """The JSON form has both, `--where` finds both, and a stored run is the same."""
    cut = run(1, says("a"), finish_reasons=("tool_call", "length"), prompts=("greet@3", "plan"))
    whole = run(2, says("b"), finish_reasons=("stop",))
    with Store() as store:
        keep(store, cut, whole)
        stored = list(store.trajectories.read())

    assert stored == [cut, whole]
    assert cut.as_dict()["finish_reasons"] == ["tool_call", "length"]
    for condition in ("finish_reason=length", "finish_reason!=stop", "prompt=greet", "prompt~3"):
        assert [t for t in stored if parse_condition(condition).holds(t)] == [cut]
    assert parse_condition("prompt=greet@3").holds(cut)
    assert not parse_condition("prompt=greet@4").holds(cut)


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        (("tool_call", "length"), "cut off at its limit of tokens (finish reason length)"),
        (("content_filter",), "a filter of the provider ended the answer"),
    ],
)
def test_a_cut_answer_is_not_the_final_one(reasons: tuple[str, ...], words: str):
    """A cut answer fails, and says so, even where its text is the expected one."""
    check = create_final_answer_evaluator(expected="42")

    result = check(outputs=ended(*reasons))

    assert result["score"] is False
    assert words in result["comment"]
    assert words in check(outputs=ended(*reasons, text="4"))["comment"]


def test_an_answer_that_was_continued_is_whole():
    """Only the last answer's reason counts, and only where the trace has it."""
    check = create_final_answer_evaluator(expected="42")

    assert check(outputs=ended("length", "stop"))["score"] is True
    assert check(outputs=ended("length", calls=2))["score"] is True


def test_a_check_names_the_reasons():
    """It fails on other reasons than the allowed ones, and passes only where all are known."""
    check = create_finish_reason_evaluator()

    assert check(outputs=ended("tool_call", "stop"))["score"] is True
    failed = check(outputs=ended("stop", "content_filter", "stop"))
    assert (failed["score"], "in 1 of 3 model calls" in failed["comment"]) == (False, True)
    assert check(outputs=ended("stop", calls=2))["score"] is None
    assert check(outputs=ended("Weird"))["score"] is False
    assert create_finish_reason_evaluator(allowed=["max_tokens"])(outputs=ended("length"))["score"]
