"""Tests of tool hooks: which hook answers a tool in which context."""

import contextlib
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from oteval.base.errors import ConfigError
from oteval.record.hooks import (
    ToolAnswer,
    current_tool_hook,
    reset_tool_hook,
    set_tool_hook,
    tool_hook,
)


class Fixed:
    """A hook that answers every tool with a fixed result."""

    def __init__(self, result=None):
        self.result = result

    def answer(self, *_):
        """Answer."""
        return ToolAnswer(self.result)

    def observe(self, *_):
        """Fail."""
        raise AssertionError("nothing runs")


def in_new_thread(function):
    """Return a function's result, called in a thread with an empty context."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(contextvars.Context().run, function).result()


def test_hooks_nest_and_end_with_their_block():
    """The innermost hook is in force, and none is after the blocks, even after an exception."""
    outer, inner = Fixed(), Fixed()
    with tool_hook(outer):
        with contextlib.suppress(KeyError), tool_hook(inner):
            assert current_tool_hook() is inner
            raise KeyError
        assert current_tool_hook() is outer
    assert current_tool_hook() is None


def test_a_thread_without_context_uses_the_only_hook():
    """A tool in a thread that was started without the context is not run for real."""
    with tool_hook(only := Fixed()):
        assert in_new_thread(current_tool_hook) is only


def test_a_thread_without_context_fails_when_two_replays_run():
    """With two hooks the thread's replay is unknown: running the tool would be a risk."""
    first = set_tool_hook(Fixed())
    second = contextvars.Context().run(set_tool_hook, Fixed())
    try:
        assert current_tool_hook() is first.hook
        with pytest.raises(ConfigError, match="one session at a time"):
            in_new_thread(current_tool_hook)
    finally:
        reset_tool_hook(second)
        reset_tool_hook(first)
    reset_tool_hook(first)
    assert current_tool_hook() is None


def test_parallel_replays_are_isolated():
    """Each thread that sets a hook is answered by it, while the other is in force too."""
    barrier = threading.Barrier(2, timeout=30)

    def replay(number):
        with tool_hook(hook := Fixed(number)):
            barrier.wait()
            found = current_tool_hook() is hook
            barrier.wait()
        return found

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(replay, range(2))) == [True, True]


def test_a_context_that_outlives_its_hook_uses_none():
    """A task that was started in a replay and goes on after it runs its tools."""
    with tool_hook(Fixed()):
        context = contextvars.copy_context()
    assert context.run(current_tool_hook) is None
