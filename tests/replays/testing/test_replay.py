"""The fixture and the mark that replay recordings in tests, under a pytest of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from oteval.base.errors import ReplayDiverged
from oteval.replays.testing.replayed_tests import replayed_test

from ..shop import recording_file, write_shop
from .conftest import Project

TESTS = """
import asyncio
import pathlib

import pytest

import oteval
import shop


def test_passes(oteval_replay):
    with oteval_replay("recordings/Refund_17.jsonl") as replay:
        assert shop.answer("Refund 17") == "Refund 17: done"
    assert replay.result.fidelity == "wire"


def test_diverges(oteval_replay):
    with oteval_replay("recordings/Refund_17.jsonl"):
        shop.target("hidden")


def test_stops_early(oteval_replay):
    with oteval_replay(pathlib.Path("recordings/Refund_17.jsonl")):
        pass


async def test_passes_async(oteval_replay):
    async with oteval_replay("recordings/Refund_17.jsonl"):
        await shop.in_turns("Refund 17", session="s", turn=1)


async def test_diverges_in_a_task(oteval_replay):
    with oteval_replay("recordings/Refund_17.jsonl"):
        await asyncio.create_task(shop.in_turns("Refund 18", session="t", turn=1))


@pytest.mark.oteval_replay("recordings/Refund_17.jsonl")
def test_marked():
    assert shop.answer("Refund 17") == "Refund 17: done"


@pytest.mark.oteval_replay("recordings/Refund_17.jsonl")
async def test_marked_diverges():
    await shop.in_turns("Refund 18", session="u", turn=1)


@pytest.mark.oteval_replay("recordings/Refund_17.jsonl", normalize=["1[78]"])
def test_marked_with_options():
    shop.answer("Refund 18")


def test_missing(oteval_replay):
    with oteval_replay("recordings/none.jsonl"):
        pass


def test_next():
    assert True
"""


@pytest.fixture
def shop(project: Project) -> Project:
    """Return a project with the agent, a recording and tests."""
    write_shop(project.path)
    folder = project.path / "recordings"
    folder.mkdir()
    recording_file(folder, "Refund 17")
    project.write(test_shop=TESTS)
    return project


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_divergences_fail_tests_and_nothing_else(shop: Project, options: tuple[str, ...]) -> None:
    """The message is the difference; other tests run on, also in processes of pytest-xdist."""
    printed = shop.run("-q", "-rA", *options)

    assert shop.status == 1, printed
    assert "5 failed, 5 passed" in printed, printed
    assert "INTERNALERROR" not in printed
    passed = ("passes", "passes_async", "marked", "marked_with_options", "next")
    for name in passed:
        assert f"PASSED test_shop.py::test_{name}\n" in printed, printed
    assert "the agent differs from its recording Refund_17 (fidelity wire)" in printed
    assert "recorded: You refund orders." in printed
    assert "actual:   You refund nothing." in printed
    assert "at shop.py:" in printed
    assert "the agent did not make model call 1" in printed
    assert "recordings/none.jsonl: not found in" in printed
    assert "Traceback" not in printed
    assert "During handling" not in printed


def test_a_divergence_becomes_a_failure(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """`ReplayDiverged` is a `BaseException`, which would end some of pytest's plugins."""
    path = recording_file(tmp_path, "Refund 17")

    with (
        pytest.raises(pytest.fail.Exception, match="the agent did not make model call 1") as failed,
        replayed_test(request.node, path),
    ):
        pass

    assert not isinstance(failed.value, ReplayDiverged)
    assert "Refund_17 (fidelity wire)" in str(failed.value)


async def test_other_exceptions_stay(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """A test that fails by itself shows its own assertion."""
    path = recording_file(tmp_path, "Refund 17")

    with pytest.raises(ZeroDivisionError):
        async with replayed_test(request.node, str(path)):
            raise ZeroDivisionError
    with pytest.raises(pytest.fail.Exception, match=r"none.jsonl: not found in"):
        replayed_test(request.node, "none.jsonl")
