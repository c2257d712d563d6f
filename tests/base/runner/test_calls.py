"""Single calls with a timeout."""

from __future__ import annotations

import contextvars
import threading
from functools import partial
from typing import Any

import pytest

from oteval.base.runner import call, describe_error
from oteval.base.runner.calls import as_exception, is_async_function

HERE = contextvars.ContextVar("here", default="")


async def _async_double(x: int) -> int:
    return 2 * x


class _Callable:
    async def __call__(self, x: int) -> int:
        return 2 * x


@pytest.mark.parametrize("timeout", [None, 60.0])
@pytest.mark.parametrize("function", [lambda: 42, partial(_async_double, 21)])
def test_a_function_is_called_and_a_coroutine_awaited(function: Any, timeout: float | None):
    """Both kinds of functions give their result, with and without a timeout."""
    assert call(function, timeout) == 42


@pytest.mark.parametrize("timeout", [None, 60.0])
@pytest.mark.parametrize("error", [LookupError("mine"), SystemExit(3)])
def test_an_exception_is_the_functions_own(error: BaseException, timeout: float | None):
    """Whatever the function raises reaches the caller unchanged."""

    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        call(fail, timeout)

    assert caught.value is error


def test_a_function_that_hangs_is_abandoned():
    """After the timeout there is an error, although the function goes on."""
    gate = threading.Event()

    with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
        call(gate.wait, 0.01)

    gate.set()


def test_a_thread_has_the_callers_context():
    """Context variables, such as the current span, are set on the thread, which is a daemon."""
    HERE.set("span")

    assert call(lambda: (HERE.get(), threading.current_thread().daemon), 60.0) == ("span", True)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (_async_double, True),
        (_Callable(), True),
        (partial(_async_double, 1), True),
        (partial(_Callable(), 1), True),
        (len, False),
        (partial(len, ""), False),
    ],
)
def test_asynchronous_functions_are_recognised(function: Any, expected: bool):
    """Coroutine functions, objects called like them, and partials of either."""
    assert is_async_function(function) is expected


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration()])
def test_what_would_end_the_caller_becomes_an_exception(error: BaseException):
    """Its name and text are kept."""
    found = as_exception(error)

    assert isinstance(found, RuntimeError)
    assert type(error).__name__ in str(found)
    assert as_exception(found) is found


def test_an_error_is_described_in_one_short_line():
    """Errors of many lines are shown in one, cut off."""
    text = describe_error(ValueError("a\nb" + "c" * 1000))

    assert text.startswith("ValueError: a bccc")
    assert len(text) == 500
