"""An answer is one whole JSON object; nothing is guessed from a draft."""

from __future__ import annotations

import re
import time
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from oteval.evaluators.judge.answer_schema import InvalidAnswer, parse_answer

GOOD = '{"reasoning": "r", "score": true}'


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"  {GOOD}\n",
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```",
        f"<think>is {{it}} {{}}?</think>\n{GOOD}",
        f"<THINK>a</think>\n<reflection>b</reflection>```json\n{GOOD}```",
        f"[THINK]a[/THINK]{GOOD}",
        f"◁think▷a◁/think▷{GOOD}",
        f"<seed:think>a</seed:think>{GOOD}",
        '{\n  "reasoning": "r",\n  "score": true\n}',
    ],
)
def test_an_object_is_found_where_models_put_it(text: str):
    """Alone, in a code fence, or after closed reasoning."""
    assert parse_answer(text) == {"reasoning": "r", "score": True}


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", "   ", "true", "[]", GOOD * 2, f"{GOOD} or {{}}", "{", '{"a": '),
        f"Here it is: {GOOD} Done.",
        f"Here it is:\n```\n{GOOD}\n```\nDone.",
        f"Here it is:\n```json\n{GOOD}\n```",
        f"```json\n{GOOD}\n```\nBut on reflection it fails.",
        f"```json\n{GOOD}\n```\n```json\n{GOOD}\n```",
        f"The agent wrote {GOOD}",
        f"<think>{GOOD}",
        f"<think>{GOOD}</think>",
        f"<think>draft {GOOD}</thinking>",
        f"<think>it says </think>{GOOD} so I doubt it",
        f"<think>a</think><think>{GOOD}",
        f"<thought>{GOOD}",
        f"<reasoning>{GOOD}",
        f"<scratchpad>\n{GOOD}\n",
        f"[THINK]{GOOD}",
        f"◁think▷{GOOD}",
        f"a draft</think>{GOOD}",
        f"{GOOD}</think>",
        f"<|channel|>analysis<|message|>{GOOD}<|end|>",
        f"<antThinking>{GOOD}</antThinking>",
        '{"reasoning": "r", "score": false, "score": true}',
        '{"reasoning": {"a": 1, "a": 2}, "score": true}',
        "1" * 5000,
        "[" * 100_000,
    ],
    ids=lambda text: str(text)[:40],
)
def test_anything_but_one_object_is_invalid(text: str | None):
    """Nothing is guessed, such as which of two objects counts."""
    with pytest.raises(InvalidAnswer):
        parse_answer(text)


NOISE = st.sampled_from(
    [
        *("I think ", "</think>", "<think>", "```", "```json\n", "\n```", "so: ", ".", "{", "["),
        *("\ufeff", "<answer>", "</answer>", "<|im_end|>", "[/THINK]", "[THINK]", "◁think▷"),
        *("\u200b", "//", "null"),
    ]
)
CLOSED = re.compile(
    r"(<think>(?:(?!</think>).)*</think>|\[THINK\](?:(?!\[/THINK\]).)*\[/THINK\])*", re.DOTALL
)


@given(st.lists(NOISE, max_size=4).map("".join), st.lists(NOISE, max_size=4).map("".join))
def test_a_verdict_in_noise_is_not_accepted(before: str, after: str):
    """Only closed reasoning may precede it, and only a code fence may surround it."""
    text = f"{before}{GOOD}{after}"
    rest = CLOSED.sub("", text, count=1)
    is_whole = rest in (GOOD, f"```json\n{GOOD}```", f"```json\n{GOOD}\n```")

    try:
        found = parse_answer(text)
    except InvalidAnswer:
        found = None

    assert (found is not None) is is_whole


def test_a_very_long_answer_is_parsed_quickly():
    """Some models write white space until they are stopped."""
    start = time.process_time()
    for begin, more in (
        ("```json\n", " "),
        ("<think>", " "),
        ("", "{"),
        ("", "`"),
        ("", "<think>"),
    ):
        with pytest.raises(InvalidAnswer):
            parse_answer(begin + more * 100_000)

    assert time.process_time() - start < 5


@given(st.text())
def test_any_text_is_an_object_or_invalid(text: str):
    """No text raises any other exception."""
    with suppress(InvalidAnswer):
        assert isinstance(parse_answer(text), dict)
