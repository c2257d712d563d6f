"""The pytest plugin: log the evaluation of agents in tests, and compare it with a baseline.

A test with ``@pytest.mark.oteval`` logs inputs, outputs and feedback (`oteval.replays.testing`);
evaluators that it calls log their results. The fixtures `oteval_capture` and `oteval_trajectory`
capture the trajectory of its agent from spans. The fixture `oteval_replay` and
``@pytest.mark.oteval_replay`` answer the agent from a recording. Options print the log as a table,
save it as a baseline, and fail the run on regressions from a baseline.

pytest imports this module in every project where oteval is installed. It therefore imports only
pytest and the small `replays.testing`, and does nothing without a mark, a fixture or an option.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from .cases import set_plugin_active

if TYPE_CHECKING:
    from oteval.model import Trajectory
    from oteval.record import Capture
    from oteval.replays.replay_result import ReplayResult
    from oteval.replays.testing.cases import Case
    from oteval.replays.testing.replayed_tests import ReplayedTest

__all__ = ["oteval_capture", "oteval_replay", "oteval_replay_command", "oteval_trajectory"]

_MARK = (
    "oteval(repetitions=1, output_keys=(), tolerance=None): log the agent's inputs, outputs and "
    "feedback; run the test several times; name the parameters that are reference outputs; and "
    "set how far a score may fall below the baseline's"
)
_REPLAY_MARK = (
    "oteval_replay(recording, **options): answer the agent's models and tools from a recording "
    "while the test runs; options as for oteval.replay"
)
CASE: pytest.StashKey[Case] = pytest.StashKey()
CAPTURE: pytest.StashKey[Capture | None] = pytest.StashKey()
REPETITION = "_oteval_repetition"
_running: dict[str, pytest.Item] = {}  # the marked tests of this process, by id


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("oteval", "evaluation of agents")
    group.addoption(
        "--oteval-output", action="store_true", help="Print the log of marked tests as a table."
    )
    group.addoption(
        "--oteval-baseline",
        metavar="NAME",
        help="Fail if the feedback of a marked test is worse than in the baseline NAME.",
    )
    group.addoption(
        "--oteval-save-baseline", metavar="NAME", help="Save the log of marked tests as NAME."
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
        help="Store baselines as experiments in this database instead of JSON files.",
    )
    parser.addini(
        "oteval_baselines",
        "The folder for baselines as JSON files, relative to the root folder.",
        default="oteval-baselines",
    )


def needs_results(config: pytest.Config) -> bool:
    """Whether an option uses the log of tests."""
    names = ("oteval_output", "oteval_baseline", "oteval_save_baseline")
    return any(config.getoption(name) for name in names)


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and collect results if an option uses them."""
    config.addinivalue_line("markers", _MARK)
    config.addinivalue_line("markers", _REPLAY_MARK)
    set_plugin_active(is_active=True)
    # Under xdist only the controller has the results of all workers.
    if needs_results(config) and not hasattr(config, "workerinput"):
        from oteval.replays.testing.results import Results

        config.pluginmanager.register(Results(config), "oteval-results")


def pytest_unconfigure() -> None:
    """Turn the functions of `oteval.replays.testing` off."""
    set_plugin_active(is_active=False)


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat a test as often as its mark requires."""
    mark = metafunc.definition.get_closest_marker("oteval")
    if mark is None:
        return
    from oteval.replays.testing.rows import mark_options, repetition_id

    count = mark_options(mark, metafunc.definition.nodeid).repetitions
    if count > 1:
        ids = [repetition_id(number, count) for number in range(count)]
        metafunc.fixturenames.append(REPETITION)
        metafunc.parametrize(REPETITION, range(count), ids=ids, indirect=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None]:
    """Open the log of a marked test while it runs."""
    if item.get_closest_marker("oteval") is None:
        yield
        return
    from oteval.evaluators import listen
    from oteval.replays.testing import cases

    case = item.stash[CASE] = cases.Case(item.nodeid)
    stop = listen(cases.log_result)
    _running[item.nodeid] = item
    try:
        with cases.running(case):
            yield
    finally:
        _running.pop(item.nodeid, None)
        stop()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin the log of a marked test anew: plugins run a failed test again within one protocol."""
    case = item.stash.get(CASE, None)
    if case is not None:
        case.restart()
        item.stash[CAPTURE] = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Replay the recording that a test's mark names."""
    mark = item.get_closest_marker("oteval_replay")
    if mark is None:
        return (yield)
    from oteval.replays.testing.replayed_tests import replayed_test

    with replayed_test(item, *mark.args, **mark.kwargs):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Attach the log of a marked test to its report, before other plugins read it.

    Plugins that run a test again may change a report before this hook, and log the result of the
    last attempt with the report of the first attempt. In xdist's controller no test is running.
    """
    item = _running.get(report.nodeid)
    if item is not None and needs_results(item.config):
        from oteval.replays.testing.rows import attach_row

        attach_row(report, item, item.stash[CASE], item.stash.get(CAPTURE, None))


@pytest.fixture(name=REPETITION)
def _repetition(request: pytest.FixtureRequest) -> int:
    """The number of the repetition of a marked test, from 0."""
    return int(getattr(request, "param", 0))


@pytest.fixture
def oteval_tracer_provider() -> Any:
    """The tracer provider of the agent under test; None means the global one.

    Projects override this fixture.
    """
    return None


@pytest.fixture
def oteval_capture(
    request: pytest.FixtureRequest, oteval_tracer_provider: Any
) -> Generator[Capture]:
    """Capture the spans of agents that the test runs; see `oteval.capture`."""
    from oteval.record import capture

    with capture(tracer_provider=oteval_tracer_provider) as run:
        request.node.stash[CAPTURE] = run
        yield run


@pytest.fixture
def oteval_trajectory(oteval_capture: Capture) -> Callable[[], Trajectory]:
    """A function that returns the trajectory of the agent's run."""
    return lambda: oteval_capture.trajectory


@pytest.fixture
def oteval_replay(request: pytest.FixtureRequest) -> Callable[..., ReplayedTest]:
    """A function that opens a replay; a divergence fails the test.

    It takes the file of a recording, relative to the test's folder, or the id of a session, and the
    options of `oteval.replay`.
    """
    from oteval.replays.testing.replayed_tests import replayed_test

    return partial(replayed_test, request.node)


@pytest.fixture
def oteval_replay_command(request: pytest.FixtureRequest) -> Callable[..., ReplayResult]:
    """A function that replays a recording with a command, and fails if the run differs."""
    from oteval.replays.testing.replayed_tests import replayed_command

    return partial(replayed_command, request.node)
