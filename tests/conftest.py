"""Fixtures and settings that tests of several packages share."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import duckdb
import pytest
from hypothesis import HealthCheck, settings

from oteval.model import identities
from oteval.store import Store

from .commands import oteval, prepare, prepared_folders
from .prepared_schema import CONNECT_IN_MEMORY, prepared_schema
from .reconstruct.summary import pytest_terminal_summary

__all__ = [
    "oteval",
    "prepare",
    "prepared_folders",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_runtest_protocol",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
    "store",
]

# Captures and agents; some are named like tests.
collect_ignore = ["data"]

# Properties use the same examples in every run, however busy the machine is.
settings.register_profile(
    "oteval", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("oteval")


# A shell starts background jobs with SIGINT ignored, and the commands that tests interrupt would
# inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Each HTTP client reads the certificates of all authorities, for 20 ms, though tests ask no server
# outside this machine. They get one authority, whose key nobody has.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "authority.pem")


# The folders of what knows no database: `make test-duckdb-1.5` leaves out their tests, except those
# with the marker `database`. All other tests have that marker, also those of a new folder. A test
# without it that opens a database fails, so that none is left out by mistake.
TESTS = Path(__file__).parent
WITHOUT_DATABASE = [
    TESTS / name for name in ("base", "evaluators", "ingest", "messages", "model", "reconstruct")
]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give all tests that may open a database their marker, before the markers choose tests."""
    for item in items:
        if not any(item.path.is_relative_to(place) for place in WITHOUT_DATABASE):
            item.add_marker("database")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let a test without the marker `database` open none."""
    if item.get_closest_marker("database"):
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duckdb, "connect", _refused)
        patch.setattr(CONNECT_IN_MEMORY, _refused)
        return (yield)


def _refused(*_: object, **__: object) -> NoReturn:
    raise AssertionError("a test in this folder opens a database: mark it, see WITHOUT_DATABASE")


# Nothing that is made while tests are collected is garbage.
gc.disable()


def pytest_collection_finish() -> None:
    """Leave the tests and modules, which stay until the end, out of garbage collections.

    Some 13,000 tests and the libraries of all agents make a full collection slow.

    From now on no module is compiled to a file: a test that swaps two lines of an agent leaves its
    size, and within a second its time of change, as they were, and Python would run the old code.
    """
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


def pytest_sessionfinish() -> None:
    """Let the interpreter free everything at its end, or extension modules report leaks."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def _prepared_schema(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Copy the schema of new databases, and share a DuckDB between those in memory."""
    with prepared_schema(lambda: tmp_path_factory.mktemp("schema")):
        yield


@pytest.fixture(autouse=True)
def _modules_of_a_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Forget the modules of a test's own folder, or the next test gets them under the same name."""
    if "tmp_path" not in request.fixturenames:
        yield
        return
    folder = str(request.getfixturevalue("tmp_path"))
    before = set(sys.modules)
    yield
    for name in sys.modules.keys() - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(folder):
            del sys.modules[name]


@pytest.fixture
def store() -> Iterator[Store]:
    """Return an empty store in memory."""
    with Store() as opened:
        yield opened


@pytest.fixture
def own_attribute_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the application's attributes for identities unset, before and after."""
    monkeypatch.setattr(identities, "_own", {})
    monkeypatch.setattr(identities, "_fixed", set())
    for about in identities.IDENTITIES.values():
        monkeypatch.setenv(about.variable, "")
        monkeypatch.delenv(about.variable)
