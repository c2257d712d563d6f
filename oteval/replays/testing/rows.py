"""The result of one test as a row; its report carries it from a worker to the controller."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ...base.errors import NotFound, OtevalError
from ...base.jsontext import dumps, restore

if TYPE_CHECKING:
    from ...record import Capture
    from .cases import Case

__all__ = [
    "MarkOptions",
    "Row",
    "attach_row",
    "mark_options",
    "read_row",
    "repetition_id",
    "root_folder",
]

# An attribute of reports; xdist transfers all attributes.
_ROW_ATTRIBUTE = "oteval_row"
_MAX_LENGTH = 100_000


class MarkOptions(NamedTuple):
    """The arguments of ``@pytest.mark.oteval(...)``.

    Attributes:
        repetitions: How often to run the test.
        output_keys: The parameters of the test that are reference outputs.
        tolerance: How far a mean score may fall below the baseline's; None means the value of the
            option.
    """

    repetitions: int = 1
    output_keys: tuple[str, ...] = ()
    tolerance: float | None = None


@dataclass
class Row:
    """The result of one run of a test.

    Attributes:
        test: The test's id, without the repetition.
        repetition: The number of the repetition, from 0.
        outcome: ``passed``, ``failed``, ``skipped`` or ``error`` (outside the test itself).
        duration: The duration of the test itself, in seconds.
        error: The reason of a failure, in one line.
        inputs: The logged inputs, or the test's parameters.
        outputs: The logged outputs, or the last answer of the captured agent.
        reference_outputs: The logged reference outputs, or the parameters in `output_keys`.
        feedback: The logged feedback; see `feedback_record`.
        tolerance: The mark's tolerance.
    """

    test: str
    repetition: int = 0
    outcome: str = "passed"
    duration: float = 0.0
    error: str = ""
    inputs: Any = None
    outputs: Any = None
    reference_outputs: Any = None
    feedback: list[dict[str, Any]] = field(default_factory=list)
    tolerance: float | None = None


def mark_options(mark: pytest.Mark, test: str) -> MarkOptions:
    """Check the arguments of a mark; wrong arguments fail the collection with one line."""
    arguments = ", ".join(MarkOptions._fields)
    unknown = [name for name in mark.kwargs if name not in MarkOptions._fields]
    if mark.args or unknown:
        wrong = repr(unknown[0] if unknown else mark.args[0])
        pytest.fail(f"{test}: pytest.mark.oteval takes {arguments}, not {wrong}", pytrace=False)
    options = MarkOptions(**mark.kwargs)
    count, keys, tolerance = options
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        pytest.fail(f"{test}: pytest.mark.oteval: repetitions must be 1 or more", pytrace=False)
    if isinstance(keys, str) or not all(isinstance(key, str) for key in keys):
        pytest.fail(f"{test}: pytest.mark.oteval: output_keys must be a list", pytrace=False)
    if tolerance is not None and not isinstance(tolerance, (int, float)):
        pytest.fail(f"{test}: pytest.mark.oteval: tolerance must be a number", pytrace=False)
    return options._replace(output_keys=tuple(keys))


def repetition_id(number: int, count: int) -> str:
    """The name of a repetition in a test's id, such as ``run1of3``."""
    return f"run{number + 1}of{count}"


def attach_row(
    report: pytest.TestReport, item: pytest.Item, case: Case, run: Capture | None
) -> None:
    """Attach a test's row to the report of one of its phases."""
    if report.when != "call" and report.passed:
        return
    mark = item.get_closest_marker("oteval")
    options = mark_options(mark, item.nodeid) if mark else MarkOptions()
    params = dict(getattr(getattr(item, "callspec", None), "params", {}))
    repetition = params.pop("_oteval_repetition", 0)
    references = {key: params.pop(key) for key in options.output_keys if key in params}
    row = Row(
        test=_base_id(_stable_id(item), repetition, options.repetitions),
        repetition=repetition,
        outcome="error" if report.failed and report.when != "call" else report.outcome,
        duration=report.duration if report.when == "call" else 0.0,
        error=_reason(report),
        inputs=_json(case.inputs if case.inputs is not None else params or None),
        outputs=_json(case.outputs if case.outputs is not None else _last_answer(run)),
        reference_outputs=_json(
            case.reference_outputs if case.reference_outputs is not None else references or None
        ),
        feedback=case.feedback,
        tolerance=options.tolerance,
    )
    setattr(report, _ROW_ATTRIBUTE, dumps(asdict(row)))


def read_row(report: pytest.TestReport) -> Row | None:
    """The row that a report carries, or None."""
    text = getattr(report, _ROW_ATTRIBUTE, None)
    return None if text is None else Row(**restore(text))


def root_folder(config: pytest.Config) -> Path:
    """The folder of relative ids of tests and names of baselines.

    It is pytest's root folder. If no file marks the root folder, pytest guesses it from all paths
    among the arguments, such as the path of a baseline; then the result is the folder that pytest
    was called in.
    """
    is_marked = config.inipath is not None or (config.rootpath / "setup.py").exists()
    return config.rootpath if is_marked else config.invocation_params.dir


def _stable_id(item: pytest.Item) -> str:
    """A test's id, relative to `root_folder`."""
    folder = root_folder(item.config)
    if folder == item.config.rootpath or not item.path.is_relative_to(folder):
        return item.nodeid
    _, separator, name = item.nodeid.partition("::")
    return f"{item.path.relative_to(folder).as_posix()}{separator}{name}"


def _base_id(nodeid: str, repetition: int, count: int) -> str:
    """A test's id without the repetition in its brackets."""
    if count == 1:
        return nodeid
    before, bracket, inside = nodeid.partition("[")
    name = re.escape(repetition_id(repetition, count))
    parameters = re.sub(rf"(?:^|-){name}(?=-|\]$)", "", bracket and inside, count=1).lstrip("-")
    return before if parameters == "]" else f"{before}[{parameters}"


def _reason(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message).partition("\n")[0]
    if isinstance(report.longrepr, tuple):  # a skip: file, line, reason
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    text = str(report.longrepr) if report.longrepr is not None else ""
    return text.strip().rpartition("\n")[2]


def _last_answer(run: Capture | None) -> str | None:
    """The last answer of the captured agent."""
    with suppress(NotFound, OtevalError):
        messages = run.trajectory.own_messages if run is not None else ()
        texts = [
            message.content
            for message in messages
            if message.role == "assistant" and message.content
        ]
        return texts[-1] if texts else None
    return None


def _json(value: Any) -> Any:
    """Make a value JSON; a long one becomes shortened text."""
    try:
        text = dumps(_plain(value))
        return restore(text) if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 3]}..."
    except (TypeError, ValueError, RecursionError):
        return f"{type(value).__name__} that cannot be written as JSON"


def _plain(value: Any) -> Any:
    if hasattr(value, "as_dict"):
        return value.as_dict()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return [_plain(item) for item in value]
    return value
