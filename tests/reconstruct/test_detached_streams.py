"""Streamed calls that are written as two spans, each in a trace of its own."""

from __future__ import annotations

import itertools

from oteval.model import Span
from oteval.reconstruct import reconstruct

from .builders import brief, chat, codes, only, said, user


def streamed(question: str, start: int, answer: str, letters: str, **fields: str) -> list[Span]:
    """Return the request's span, which ends as the stream begins, and the answer's instant one."""
    first, second = (letter * 32 for letter in letters)
    sent = [user(question)]
    return [
        chat(f"{letters}r", start, sent, trace=first, **fields),
        chat(f"{letters}a", start + 9, sent, said(answer), trace=second, end=start + 9, **fields),
    ]


def test_a_streamed_call_outside_of_a_span_is_one_call():
    """Whatever comes first, the request and its answer are one run without a gap."""
    for spans in itertools.permutations(streamed("q", 1, "a", "ab")):
        found = only(*spans)

        assert brief(found.messages) == [("user", "q"), ("assistant", "a")]
        assert (found.usage.model_calls, codes(found)) == (1, [])
        assert set(found.trace_ids) == {"a" * 32, "b" * 32}


def test_the_traces_of_a_streamed_call_are_known_to_belong_together():
    """Either alone has a key that the other has as well, by which a store loads both."""
    request, answer = (only(span) for span in streamed("q", 1, "a", "ab"))

    assert set(request.call_keys) & set(answer.call_keys)


def test_equal_requests_have_their_answers_in_order():
    """Two users ask the same; each request has one answer."""
    spans = [*streamed("q", 1, "a1", "ab"), *streamed("q", 2, "a2", "cd")]

    found = reconstruct(spans)

    assert [brief(t.messages)[-1] for t in found] == [("assistant", "a1"), ("assistant", "a2")]


def test_answers_of_other_processes_and_requests_are_not_taken():
    """Only the same request of the same process waits for an answer."""
    request, _ = streamed("q", 1, "a", "ab")
    _, other = streamed("other", 1, "a", "ab")
    _, elsewhere = streamed("q", 1, "a", "ab", service="elsewhere")

    assert len(reconstruct([request, other])) == 2
    assert len(reconstruct([request, elsewhere])) == 2
