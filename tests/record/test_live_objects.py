"""Objects of a type are found among all, and no thread notices the search."""

from __future__ import annotations

import gc
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator
from types import FunctionType

import pytest

from oteval.record.tool_functions import live_objects


class Derived(OrderedDict[str, int]):
    """A dict of another type, which must not be asked for its class."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise AssertionError("the object was asked")


def test_objects_of_derived_types_are_found_and_not_asked() -> None:
    """Functions and dicts of any kind; only their types are looked at."""

    def function() -> None:
        """Do nothing."""

    table = Derived(a=1)

    assert any(item is function for item in live_objects(FunctionType))
    assert any(item is table for item in live_objects(dict, FunctionType))
    assert not any(item is table for item in live_objects(FunctionType))


def test_the_collector_goes_on_as_before() -> None:
    """Whether it was on or off."""
    live_objects(FunctionType)
    assert gc.isenabled()
    gc.disable()
    try:
        live_objects(FunctionType)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_tuple_that_is_being_made_is_left_alone() -> None:
    """It cannot grow while anyone else has it: ``tuple`` would raise SystemError."""

    def numbers() -> Iterator[int]:
        for number in range(300):
            if number == 150:
                assert live_objects(FunctionType, dict)
            yield number

    assert len(tuple(numbers())) == 300


@pytest.mark.slow
def test_another_thread_can_make_tuples_meanwhile() -> None:
    """No other thread runs while the list of all objects exists."""
    stopped = threading.Event()
    errors: list[BaseException] = []

    def make_tuples() -> None:
        try:
            while not stopped.is_set():
                tuple(number for number in range(300))
        except SystemError as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=make_tuples)
    thread.start()
    try:
        for _ in range(30):
            live_objects(FunctionType)
    finally:
        stopped.set()
        thread.join()
        sys.setswitchinterval(interval)

    assert not errors
