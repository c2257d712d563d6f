"""Values and exceptions of tools come back from a recording as the types that they were."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import oteval
from oteval.base.errors import ReplayDiverged
from oteval.model import Recording
from oteval.replays.recording_files import load, save

from .recorded_tools import recorded_agent
from .typed_tools import ERRORS, VALUES

FORMS = [f"{kind} {declared}" for kind in ("sync", "async") for declared in ("annotated", "bare")]


def tools_of(act: Callable[[], Any], result: type = object) -> dict[str, Any]:
    """Return tools that do the same thing: functions and coroutine functions, annotated or not."""

    def tool(form: str) -> Any:
        def look_up() -> Any:
            return act()

        async def look_up_async() -> Any:
            await asyncio.sleep(0)
            return act()

        function = look_up_async if form.startswith("async") else look_up
        function.__annotations__ = {"return": result} if form.endswith("annotated") else {}
        return oteval.tool(name=form)(function)

    return {form: tool(form) for form in FORMS}


def called(tool: Any) -> Any:
    """Call a tool, and return its result or the exception that it raises."""
    try:
        result = tool()
        return asyncio.run(result) if inspect.iscoroutine(result) else result
    except ReplayDiverged:
        raise
    except BaseException as error:
        return Raised(error)


@dataclass
class Raised:
    """An exception that a tool raised."""

    error: BaseException


def recording_of_tools(tools: Mapping[str, Any], path: Path) -> Recording:
    """Return the recording of a call of each tool, written to a file and read again."""

    @oteval.agent
    def agent(question: str) -> str:
        for tool in tools.values():
            called(tool)
        return "done"

    save(recorded_agent(lambda: agent("Look up")), path)
    return load(path)


def replaced() -> Any:
    """Fail: a tool ran in a replay."""
    raise AssertionError("the tool ran")


def same(value: Any, restored_value: Any) -> bool:
    """Return whether values are equal in all their parts, and of the same types."""
    if type(value) is not type(restored_value):
        return False
    if isinstance(value, BaseException):
        return same_error(value, restored_value)
    if isinstance(value, (list, tuple)):
        return len(value) == len(restored_value) and all(map(same, value, restored_value))
    if isinstance(value, dict):
        return list(map(type, value)) == list(map(type, restored_value)) and all(
            same(value[key], restored_value[key]) for key in value
        )
    return (
        repr(value) == repr(restored_value)
        if isinstance(value, float)
        else bool(value == restored_value)
    )


def same_error(error: BaseException, restored_error: BaseException) -> bool:
    """Return whether exceptions have the same class, text, arguments and attributes."""
    native = ("errno", "filename", "name", "path", "start", "code", "detail")
    return (
        type(error) is type(restored_error)
        and str(error) == str(restored_error)
        and same(error.args, restored_error.args)
        and vars(error) == vars(restored_error)
        and all(getattr(error, key, None) == getattr(restored_error, key, None) for key in native)
        and (error.__cause__ is None) == (restored_error.__cause__ is None)
    )


@pytest.mark.parametrize("name", VALUES)
def test_a_value_comes_back_as_its_type(name: str, tmp_path: Path) -> None:
    """A replay returns an equal value of the same type, whatever the tool declares."""
    value = VALUES[name]
    tools = tools_of(lambda: value, type(value))
    recording = recording_of_tools(tools, tmp_path / "recording.jsonl")

    with oteval.replay(recording):
        restored = {form: called(tool) for form, tool in tools_of(replaced, type(value)).items()}

    assert {
        form: same(restored_value, value) for form, restored_value in restored.items()
    } == dict.fromkeys(FORMS, True)


@pytest.mark.parametrize("name", ERRORS)
def test_an_exception_comes_back_as_its_type(name: str, tmp_path: Path) -> None:
    """A replay raises the recorded class with the same text, arguments and attributes."""
    error = ERRORS[name]

    def fail() -> Any:
        raise error

    recording = recording_of_tools(tools_of(fail), tmp_path / "recording.jsonl")

    with oteval.replay(recording):
        raised = {form: called(tool) for form, tool in tools_of(replaced).items()}

    for form in FORMS:
        assert raised[form].error is not error
        assert same_error(raised[form].error, error), raised[form]
