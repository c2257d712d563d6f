from __future__ import annotations

import functools
import json
import threading
from typing import Any

import pytest

from oteval.base.errors import ConfigError
from oteval.evaluators.functions import (
    FunctionEvaluator,
    call_with,
    code_version,
    load_function,
    load_target,
)

AVAILABLE = {"outputs": 1, "inputs": 2, "reference_outputs": 3}


class Checker:
    """An evaluator that is an object."""

    def __call__(self, outputs: Any) -> Any:
        """Return what it got."""
        return outputs

    def method(self, inputs: Any) -> Any:
        """Return what it got."""
        return inputs


def test_a_function_is_called_with_what_it_takes():
    """Only the keywords it names are passed, all of them where it takes any."""
    assert call_with(lambda outputs: outputs, AVAILABLE) == 1
    assert call_with(lambda inputs, outputs=0: (inputs, outputs), AVAILABLE) == (2, 1)
    assert call_with(lambda **rest: rest, AVAILABLE) == AVAILABLE
    assert call_with(lambda other=5: other, AVAILABLE) == 5


def test_objects_methods_and_partials_are_called_alike():
    """Whatever can be called can evaluate."""
    assert call_with(Checker(), AVAILABLE) == 1
    assert call_with(Checker().method, AVAILABLE) == 2
    assert call_with(
        functools.partial(lambda outputs, more: (outputs, more), more=9), AVAILABLE
    ) == (1, 9)


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_coroutine_function_is_awaited(timeout: float | None):
    """Asynchronous evaluators give their result, with and without a timeout."""

    async def check(outputs: Any) -> Any:
        return outputs

    assert call_with(check, AVAILABLE, timeout) == 1


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_what_a_function_raises_comes_through(timeout: float | None):
    """The exception is the function's own, also out of its thread."""

    def check() -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        call_with(check, AVAILABLE, timeout)


def test_a_function_that_hangs_is_given_up_on():
    """After the timeout there is an error, though the function goes on."""
    gate = threading.Event()

    with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
        call_with(gate.wait, {}, 0.01)

    gate.set()


def test_a_function_is_found_by_its_name():
    """Functions of modules, and what hangs on their classes and objects, are found."""
    assert load_function("json:dumps") is json.dumps
    assert load_function("json.decoder:JSONDecoder.decode") is json.JSONDecoder.decode


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("no_such_module_at_all:f", "cannot import no_such_module_at_all: ModuleNotFoundError"),
        ("json:none", "json has no function 'none'"),
        ("json:decoder.none", "json has no function 'decoder.none'"),
        ("json:__name__", "json has no function '__name__'"),
    ],
)
def test_what_is_not_there_is_named(reference: str, reason: str):
    """A module or function that cannot be had is a configuration error that names both."""
    with pytest.raises(ConfigError) as caught:
        load_function(reference)

    assert str(caught.value).startswith(f"call {reference!r}: {reason}")


def test_code_has_a_version():
    """The version is that of the source; objects go by their class, not by their address."""

    def one() -> int:
        return 1

    def other() -> int:
        return 2

    assert code_version(one) == code_version(one) != code_version(other)
    assert code_version(Checker()) == code_version(Checker())
    assert code_version(len) == code_version(len) != code_version(max)
    assert code_version(functools.partial(one)) == code_version(functools.partial(one))


def test_a_direct_call_passes_the_reference() -> None:
    """The function gets the expected messages, whoever calls the evaluator."""
    evaluator = FunctionEvaluator(
        call="m:f", function=lambda outputs, reference_outputs: outputs == reference_outputs
    )
    messages = [{"role": "assistant", "content": "yes"}]

    assert evaluator(outputs=messages, reference_outputs=messages)["score"] is True
    assert evaluator(outputs=messages, reference_outputs=[])["score"] is False


@pytest.mark.parametrize("reference", ["shop", ":ask", "shop:"])
def test_a_reference_without_a_module_or_a_function_shows_the_form(reference: str):
    """The message has the form to write, instead of a function with an empty name."""
    with pytest.raises(ConfigError, match="write MODULE:FUNCTION"):
        load_target(reference)
