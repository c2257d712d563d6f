"""Type checkers see the decorated functions as they were written."""

import subprocess
import sys
from pathlib import Path

import pytest

from ..make import ROOT

PROGRAM = """
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import assert_type

import oteval


@oteval.agent
def plain(question: str, /, *, limit: int = 3) -> list[str]:
    return [question] * limit


@oteval.tool(name="other", hide=["card"])
async def waits(order: int, card: str = "") -> float:
    return 1.0


@oteval.tool
def counts(until: int) -> Iterator[int]:
    yield from range(until)


@oteval.agent(conversation="thread")
async def streams(thread: str) -> AsyncIterator[str]:
    yield thread


class Shop:
    @oteval.agent
    def ask(self, question: str) -> str:
        return self.price(3) + self.fixed(4) + self.made(5)

    @oteval.tool
    def price(self, order: int) -> str:
        return str(order)

    @staticmethod
    @oteval.tool
    def fixed(order: int) -> str:
        return str(order)

    @classmethod
    @oteval.tool
    def made(cls, order: int) -> str:
        return str(order)


async def main() -> None:
    assert_type(plain("q", limit=1), list[str])
    assert_type(await waits(3), float)
    assert_type(counts(3), Iterator[int])
    assert_type(streams("t"), AsyncIterator[str])
    assert_type(Shop().ask("q"), str)
    with oteval.model_call(model="m", messages="hi", temperature=0) as call:
        assert_type(call.answer(3), int)
        assert_type(call.stream(["a"]), Iterator[str])
    with oteval.tool_call("c1") as request:
        assert_type(request.name, str)
    with oteval.conversation("c1"):
        pass
    plain(question="q")  # error: positional only
    await waits("3")  # error: a number
    Shop().price()  # error: missing
    oteval.agent(nmae="typo")  # error: unknown option
"""


@pytest.mark.slow
def test_type_checkers_see_the_functions_as_written(tmp_path: Path) -> None:
    """Parameters, results and kinds are kept, and wrong calls are reported."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", str(program)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    lines = PROGRAM.splitlines()
    expected = {number for number, line in enumerate(lines, 1) if "# error" in line}
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert found == expected, done.stdout
