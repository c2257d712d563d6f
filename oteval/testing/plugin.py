"""The pytest plugin: tests of agents that log what was evaluated, and gate on a baseline.

A test with ``@pytest.mark.oteval`` logs inputs, outputs and feedback (`oteval.testing`); the
evaluators it calls log themselves. The fixtures `oteval_capture` and `oteval_trajectory` give it
what its agent did, from the agent's spans. Options print all of that as a table, save it as a
baseline, and fail the run where a later one is worse.

pytest imports this module in every project where oteval is installed. So nothing is imported
here but pytest itself and the small `oteval.testing`, and without a mark, a fixture or an option
nothing is done.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest

from .cases import switch

if TYPE_CHECKING:
    from oteval.live.capture import Capture
    from oteval.model import Trajectory
    from oteval.testing.cases import Case

__all__ = ["oteval_capture", "oteval_trajectory"]

_MARK = (
    "oteval(repetitions=1, output_keys=(), tolerance=None): log what the test's agent did and how "
    "it was evaluated; run it several times; name the parameters that say what was wanted; and "
    "how far a score may fall below the baseline's"
)
CASE: pytest.StashKey[Case] = pytest.StashKey()
CAPTURE: pytest.StashKey[Capture] = pytest.StashKey()
REPETITION = "_oteval_repetition"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("oteval", "what agents did, and how it was evaluated")
    group.addoption(
        "--oteval-output", action="store_true", help="Print what marked tests logged, as a table."
    )
    group.addoption(
        "--oteval-baseline",
        metavar="NAME",
        help="Fail if a marked test's feedback is worse than in the baseline NAME.",
    )
    group.addoption(
        "--oteval-save-baseline", metavar="NAME", help="Save what marked tests logged as NAME."
    )
    group.addoption(
        "--oteval-tolerance",
        metavar="AMOUNT",
        type=float,
        default=0.0,
        help="How far a test's mean score may fall below the baseline's (default: 0).",
    )
    group.addoption(
        "--oteval-db",
        metavar="FILE",
        help="Keep baselines as experiments in this database, not as JSON files.",
    )
    parser.addini(
        "oteval_baselines",
        "The folder of the JSON files of baselines, relative to the root folder.",
        default="oteval-baselines",
    )


def is_wanted(config: pytest.Config) -> bool:
    """Return whether an option asks for what tests log."""
    names = ("oteval_output", "oteval_baseline", "oteval_save_baseline")
    return any(config.getoption(name) for name in names)


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known, and collect results where they are asked for."""
    config.addinivalue_line("markers", _MARK)
    switch(True)
    # Under xdist the workers send their rows; only the controller has all of them.
    if is_wanted(config) and not hasattr(config, "workerinput"):
        from oteval.testing.results import Results

        config.pluginmanager.register(Results(config), "oteval-results")


def pytest_unconfigure() -> None:
    """Let the functions of `oteval.testing` do nothing again."""
    switch(False)


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test as often as its mark says."""
    mark = metafunc.definition.get_closest_marker("oteval")
    if mark is None:
        return
    from oteval.testing.rows import mark_options, repetition_id

    count = mark_options(mark, metafunc.definition.nodeid).repetitions
    if count > 1:
        ids = [repetition_id(number, count) for number in range(count)]
        metafunc.fixturenames.append(REPETITION)
        metafunc.parametrize(REPETITION, range(count), ids=ids, indirect=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None]:
    """Let a marked test be logged to while it runs."""
    if item.get_closest_marker("oteval") is None:
        yield
        return
    from oteval.evaluators.observed import listen
    from oteval.testing import cases

    case = item.stash[CASE] = cases.Case(item.nodeid)
    stop = listen(cases.hear)
    try:
        with cases.running(case):
            yield
    finally:
        stop()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Send what a marked test logged along with its report."""
    outcome = yield
    case = item.stash.get(CASE, None)
    if case is not None and is_wanted(item.config):
        from oteval.testing.rows import attach

        attach(outcome.get_result(), item, case, item.stash.get(CAPTURE, None))


@pytest.fixture(name=REPETITION)
def _repetition(request: pytest.FixtureRequest) -> int:
    """Which repetition of a marked test this is, from 0."""
    return int(getattr(request, "param", 0))


@pytest.fixture
def oteval_tracer_provider() -> Any:
    """Return the tracer provider of the agent under test; None is the global one. Override it."""
    return None


@pytest.fixture
def oteval_capture(
    request: pytest.FixtureRequest, oteval_tracer_provider: Any
) -> Generator[Capture]:
    """Record the spans of the agents that the test runs; see `oteval.capture`."""
    from oteval.live.capture import capture

    with capture(tracer_provider=oteval_tracer_provider) as run:
        request.node.stash[CAPTURE] = run
        yield run


@pytest.fixture
def oteval_trajectory(oteval_capture: Capture) -> Callable[[], Trajectory]:
    """Return a function; called after the agent ran, it returns the run's trajectory."""
    return lambda: oteval_capture.trajectory
