"""Collect the results of marked tests, print them, compare them with a baseline, and save them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ...base.errors import NotFound, OtevalError
from ...base.text import counted
from .baselines import (
    Baseline,
    Regression,
    load_experiment,
    make_baseline,
    read_file,
    regressions,
    save_experiment,
    write_file,
)
from .rows import Row, read_row, root_folder

__all__ = ["Results"]


def _failures_note(rows: list[Row]) -> str:
    """A warning if a baseline has failed tests, because later runs cannot be worse."""
    failing = {row.test for row in rows if row.outcome not in ("passed", "skipped")}
    if not failing:
        return ""
    count, total = len(failing), len({row.test for row in rows})
    names = ", ".join(sorted(failing)[:3]) + (", ..." if count > 3 else "")
    return f"; WARNING: {count} of {total} tests failed, and so they are in the baseline: {names}"


def _selects_all(config: pytest.Config) -> bool:
    """Whether all tests in the paths of the command line are selected to run."""
    options = ("lf", "keyword", "markexpr", "deselect", "stepwise", "maxfail")
    is_selection = any(config.getoption(name, default=None) for name in options)
    return not is_selection and not any("::" in argument for argument in config.args)


class Results:
    """The results of a run; registered as a plugin if an option uses them."""

    def __init__(self, config: pytest.Config) -> None:
        """Read the baseline.

        Raises:
            pytest.UsageError: It is missing or cannot be read.
        """
        self._config = config
        self._rows: dict[str, Row] = {}
        self._regressions: list[Regression] = []
        self._missing: list[str] = []
        self._notes: list[str] = []
        self._db: str | None = config.getoption("oteval_db")
        self._compared: str | None = config.getoption("oteval_baseline")
        self._saved: str | None = config.getoption("oteval_save_baseline")
        self._before: Baseline = {}
        if self._compared is not None:
            try:
                self._before = self._read(self._compared)
            except OtevalError as error:
                raise pytest.UsageError(f"--oteval-baseline: {error}") from error

    def _read(self, name: str) -> Baseline:
        hint = f"save one: pytest --oteval-save-baseline {name}"
        try:
            if self._db is None:
                return read_file(self._file(name))
            from ...store import Store

            with Store(self._db, create=False) as store:
                return load_experiment(store, name)
        except NotFound as error:
            where = f"in {self._db}: no experiment {name!r}" if self._db else str(error)
            raise NotFound(f"{where}; {hint}") from None

    def _file(self, name: str) -> Path:
        if name.endswith(".json"):
            return self._config.invocation_params.dir / name
        folder = root_folder(self._config) / str(self._config.getini("oteval_baselines"))
        return folder / f"{name}.json"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the row of a test; a failure in its teardown replaces it."""
        row = read_row(report)
        if row is None:
            return
        previous = self._rows.get(report.nodeid)
        if report.when == "teardown" and previous is not None:
            row.duration = previous.duration
        self._rows[report.nodeid] = row

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Compare with the baseline, fail the run on regressions, and save a new baseline."""
        if session.exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            if self._compared or self._saved:
                self._notes.append("the run did not finish: nothing was compared or saved")
            if self._compared and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
            return
        rows = list(self._rows.values())
        if self._compared is not None:
            self._compare(rows, session)
        if self._saved is not None:
            self._save(self._saved, rows, session)

    def _compare(self, rows: list[Row], session: pytest.Session) -> None:
        tolerance = float(self._config.getoption("oteval_tolerance"))
        self._regressions, self._missing = regressions(self._before, rows, tolerance)
        if self._before and len(self._missing) == len(self._before):
            self._notes.append("no test of the baseline ran: nothing was compared")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self._regressions:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _save(self, name: str, rows: list[Row], session: pytest.Session) -> None:
        if self._regressions:
            self._notes.append(f"{name} was not saved, because of the regressions")
            return
        if not rows:
            self._notes.append(f"{name} was not saved: no test with the mark ran")
            return
        try:
            not_run = self._kept(name, rows)
            note = (
                f"; {counted(len(not_run), 'test')} that did not run as before" if not_run else ""
            )
            saved = self._write(name, rows, not_run)
            self._notes.append(f"saved: {saved}{note}{_failures_note(rows)}")
        except OtevalError as error:
            self._notes.append(f"not saved: {error}")
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR

    def _kept(self, name: str, rows: list[Row]) -> Baseline:
        """The tests of a saved baseline that this run left out, such as with ``--lf``."""
        try:
            before = self._read(name)
        except OtevalError:  # there is none, or it is damaged
            return {}
        ran = {row.test for row in rows if row.outcome != "skipped"}
        skipped = {row.test for row in rows} - ran
        selects_all = _selects_all(self._config)
        return {
            test: figures
            for test, figures in before.items()
            if test not in ran and (test in skipped or self._is_left_out(test, selects_all))
        }

    def _is_left_out(self, test: str, selects_all: bool) -> bool:
        """Whether a test exists and was not selected."""
        path = root_folder(self._config) / test.partition("::")[0]
        folder = self._config.invocation_params.dir
        places = [(folder / arg.partition("::")[0]).resolve() for arg in self._config.args]
        was_collected = any(path.resolve().is_relative_to(root) for root in places)
        return path.exists() and not (selects_all and was_collected)

    def _write(self, name: str, rows: list[Row], not_run: Baseline) -> str:
        if self._db is None:
            path = self._file(name)
            write_file(path, {**not_run, **make_baseline(rows)})
            return str(path)
        from ...store import Store

        with Store(self._db) as store:
            return f"{save_experiment(store, name, rows, not_run)} in {self._db}"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table, the regressions and notes."""
        out = terminalreporter
        out.ensure_newline()
        if self._config.getoption("oteval_output"):
            from .table import table_text

            out.section("oteval")
            has_color = bool(getattr(out._tw, "hasmarkup", False))
            out.write(table_text(list(self._rows.values()), out._tw.fullwidth, has_color))
        if self._compared is not None:
            self._report_comparison(out)
        for note in self._notes:
            out.write_line(f"oteval: {note}")

    def _report_comparison(self, out: pytest.TerminalReporter) -> None:
        name = self._compared
        if self._regressions:
            out.section(f"regressions from baseline {name}", red=True, bold=True)
            for regression in self._regressions:
                out.write_line(
                    f"{regression.test}  {regression.key}: {regression.reason}", red=True
                )
        elif self._rows and len(self._missing) < len(self._before):
            out.write_line(f"oteval: no regression from baseline {name}")
        if self._missing:
            names = ", ".join(self._missing[:3]) + (", ..." if len(self._missing) > 3 else "")
            count = f"{len(self._missing)} of the {len(self._before)} tests of baseline {name}"
            out.write_line(f"oteval: {count} did not run: {names}")
