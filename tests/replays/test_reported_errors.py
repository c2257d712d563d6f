"""Exceptions that instrumentations of frameworks report are raised as their own classes."""

from __future__ import annotations

from typing import Any

import pytest

from oteval.model import RecordedToolCall, Span
from oteval.model.telemetry import Event
from oteval.reconstruct import reconstruct_with_runs
from oteval.record.hooks import ToolAnswer
from oteval.replays.recorded_executions import executions_of
from oteval.replays.typed_answers import reported_answer

from .typed_tools import ShopError


def span(kind: str, text: str, **more: Any) -> Span:
    """Return the span of a framework's tool that raised."""
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "refund"}
    event = Event("exception", 2, {"exception.type": kind, "exception.message": text})
    return Span(
        "a" * 32,
        "b" * 16,
        name="execute_tool refund",
        start_ns=1,
        end_ns=3,
        status_code=2,
        attributes=attributes,
        events=(event,),
        scope="framework",
        **more,
    )


def answer_of(kind: str, text: str) -> tuple[RecordedToolCall, ToolAnswer]:
    """Return the recorded execution of a tool that raised, and its answer."""
    (call,) = executions_of(reconstruct_with_runs([span(kind, text)], []))
    answer = reported_answer(call)
    assert answer is not None
    return call, answer


@pytest.mark.parametrize(
    ("kind", "text", "args"),
    [
        ("ValueError", "no order", ("no order",)),
        ("KeyError", "'order'", ("order",)),
        ("KeyError", "7", (7,)),
        ("json.decoder.JSONDecodeError", "bad", ("bad",)),
        (ShopError.__name__, "closed", ("closed",)),
        ("tests.replays.typed_tools.Stopless", "bad", None),
        ("tests.replays.typed_tools.ShopError", "closed", ("closed",)),
        ("tests.replays.typed_tools.KeywordError", "code 7", None),
        ("unknown.module.Error", "bad", None),
        ("SystemExit", "3", None),
        ("int", "3", None),
    ],
)
def test_a_reported_exception_is_its_own_class(
    kind: str, text: str, args: tuple[Any, ...] | None
) -> None:
    """The framework gets an exception with its text; one that cannot be found is not guessed."""
    call, answer = answer_of(kind, text)

    assert call.is_error
    assert (answer.result, answer.error) == (None, text)
    if args is None:
        assert answer.raised is None
        return
    assert answer.raised is not None
    assert kind.endswith(type(answer.raised).__name__)
    assert (answer.raised.args, str(answer.raised)) == (args, text)
