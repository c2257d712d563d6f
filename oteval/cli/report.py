"""``oteval report``: a report on the stored runs and scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from ..base.errors import ConfigError
from ..base.text import counted
from ..evaluators import Tally
from ..model import Score, Selection, parse_condition
from ..scoring import Gate, check_gates
from ..store import RunExpression, RunFunction, RunGroups, Store, small_arrow, split_at, split_by
from ..views import markdown_report
from .common import (
    databases_option,
    filters,
    open_store,
    select,
    time_of,
    warn,
    write_report,
)
from .options import default_config, default_config_option

if TYPE_CHECKING:
    from ..scoring import Comparison
    from ..views import Report, ReportOptions, ReportRun, ShownComparison

__all__ = ["report"]

_MEGABYTE = 1_000_000
_FAILURES = 100
# DuckDB's memory: statistics need little; wide runs receive more.
_MEMORY_LIMIT = "84MB"


@click.command()
@click.option("--html", metavar="FILE", help="Write one self-contained HTML file.")
@click.option(
    "--md", metavar="FILE", help="Write Markdown: the counts, and the runs that did not pass."
)
@databases_option
@filters
@default_config_option("Show whether the gates of this file pass.")
@click.option(
    "--evaluator", multiple=True, help="Show only this evaluator's scores; may be repeated."
)
@click.option(
    "--by",
    metavar="FIELD",
    help="Compare runs by version, user, model, agent, service, dialect, day, week, hour or "
    "attributes.KEY, with a column for each value.",
)
@click.option("--split", metavar="TIME", help="Compare the runs before this time with those after.")
@click.option(
    "--baseline",
    metavar="VALUE",
    help="The baseline of the comparison: a value of --by, an experiment, or without these a "
    "condition as in --where.  [default: the earliest]",
)
@click.option(
    "--case",
    metavar="attributes.KEY",
    help="The attribute that pairs runs.  [default: test.case.id or the like, else the user's "
    "question and its turn]",
)
@click.option(
    "--experiments",
    multiple=True,
    metavar="NAME",
    help="Report this experiment instead; repeat to compare experiments.",
)
@click.option("--title", default="oteval report", show_default=True, help="The heading.")
@click.option(
    "--max-rows",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="The maximum number of runs: those that did not pass, then the latest.",
)
@click.option(
    "--max-size",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="The maximum size of the runs' details, in megabytes.",
)
def report(
    html: str | None,
    md: str | None,
    db: tuple[str, ...],
    config_path: str | None,
    evaluator: tuple[str, ...],
    title: str,
    max_rows: int,
    max_size: int,
    **command_options: Any,
) -> int:
    """Write a report on runs and scores: HTML or Markdown.

    It has figures, a matrix of runs and verdicts, and the details of each run. The HTML file needs
    no network and can be mailed or kept as an artifact. With --by, --split, --baseline or
    --experiments, the report shows the changes, regressions first, with the runs side by side. The
    exit status is 3 if there is nothing to report.
    """
    if not html and not md:
        raise click.UsageError("give --html FILE or --md FILE")
    from ..views import ReportOptions

    options = ReportOptions(
        title=title,
        evaluators=evaluator,
        gates=_gates(config_path),
        most_rows=max_rows,
        most_bytes=max_size * _MEGABYTE,
    )
    with open_store(db) as store:
        if command_options["experiments"]:
            source: _ReportSource = _from_experiments(store, options, command_options)
        else:
            source = _from_store(store, db, options, command_options)
        _write(source, html, md)
    return 0


def _gates(config_path: str | None) -> tuple[Gate, ...]:
    """Return the gates of the named configuration file, or of the default file if it exists."""
    config = default_config(config_path)
    return tuple(config.gates) if config else ()


class _ReportSource(Protocol):
    """The runs of a report."""

    def page(self) -> Report:
        """Return the page."""

    def markdown(self) -> str:
        """Return the Markdown."""


class _ExperimentRuns:
    """The runs of experiments."""

    def __init__(
        self,
        items: Sequence[ReportRun],
        options: ReportOptions,
        pairwise: Any,
        comparisons: Sequence[tuple[ShownComparison, Comparison | None]],
    ) -> None:
        self._items = items
        self._options = options
        self._pairwise = pairwise
        self._comparisons = comparisons

    def page(self) -> Report:
        from ..views import build

        comparisons = [shown for shown, _ in self._comparisons]
        return build(self._items, self._options, self._pairwise, comparisons=comparisons)

    def markdown(self) -> str:
        from ..views import comparison_markdown

        compared = [comparison for _, comparison in self._comparisons if comparison is not None]
        return "\n".join([*map(comparison_markdown, compared), self._counts()])

    def _counts(self) -> str:
        tallies: dict[str, Tally] = {}
        failures: list[Score] = []
        for item in self._items:
            for verdict in item.verdicts:
                if self._options.evaluators and verdict.evaluator not in self._options.evaluators:
                    continue
                score = verdict.as_score(item.id)
                tallies.setdefault(score.evaluator, Tally(score.evaluator)).add(score)
                if score.is_complaint and len(failures) < _FAILURES:
                    failures.append(score)
        return _markdown(tallies, failures, self._options)


class _StoredRuns:
    """Stored runs: counted in SQL; only the listed runs are read."""

    def __init__(
        self,
        store: Store,
        selection: Selection,
        options: ReportOptions,
        groups: RunGroups | None,
    ) -> None:
        self._store, self._options, self._groups = store, options, groups
        with store.reduced_memory(_MEMORY_LIMIT), small_arrow():
            self._runs = store.statistics.of(selection, options.evaluators, groups)

    def page(self) -> Report:
        from ..views import build_stored, from_keys

        with self._store.reduced_memory(_MEMORY_LIMIT), small_arrow():
            worst_keys = self._runs.worst(self._options.most_rows)
            items = from_keys(self._store, worst_keys, self._groups)
            return build_stored(self._runs, items, self._options)

    def markdown(self) -> str:
        from ..views import stored_tallies

        with self._store.reduced_memory(_MEMORY_LIMIT), small_arrow():
            tallies = stored_tallies(self._runs)
            return _markdown(tallies, self._runs.failures(_FAILURES), self._options)


def _write(source: _ReportSource, html: str | None, md: str | None) -> None:
    if html:
        _write_page(html, source.page())
    if md:
        write_report(md, source.markdown)
        warn(f"{md}: written")


def _write_page(html: str, page: Report) -> None:
    from ..views import render

    text = render(page)
    write_report(html, lambda: text)
    size = len(text.encode()) / _MEGABYTE
    rows, runs = counted(len(page.rows), "row"), counted(len(page.details), "run")
    warn(f"{html}: {rows}, {runs}, {size:.1f} MB")
    for note in page.notes:
        warn(note)


def _markdown(
    tallies: Mapping[str, Tally], failures: Sequence[Score], options: ReportOptions
) -> str:
    bad = sum(tally.failed + tally.errors + tally.not_evaluated for tally in tallies.values())
    gates = check_gates(options.shown_gates, tallies)
    return markdown_report(tallies, gates, failures, bad - len(failures))


def _from_store(
    store: Store, db: tuple[str, ...], options: ReportOptions, command_options: dict[str, Any]
) -> _ReportSource:
    """Return the selected trajectories, grouped by the options of the comparison."""
    from dataclasses import replace

    from ..views import grouping, run_groups

    names = ("by", "split", "baseline", "case")
    by, split, baseline, case = (command_options[name] for name in names)
    if by and split:
        raise click.UsageError("--by and --split exclude each other; give one")
    group: RunFunction | RunExpression | None = None
    if by:
        group = grouping(by)
    elif split:
        time_ns = time_of(split, "--split")
        assert time_ns is not None
        before = f"before {split}"
        group = split_at(time_ns, before, f"from {split}")
        baseline = baseline or before
    elif baseline:
        group = split_by(parse_condition(baseline), baseline, "others")
    if case and not case.startswith("attributes."):
        raise ConfigError(f"--case {case!r}: write attributes.KEY")
    databases = ", ".join(Path(path).name for path in db)
    chosen = [("database", databases), *_selection_rows(command_options)]
    options = replace(
        options, selection=tuple(chosen), baseline=baseline or "", is_grouped=group is not None
    )
    attribute = case.removeprefix("attributes.") if case else ""
    groups = run_groups(group, attribute) if group else None
    return _StoredRuns(store, select(**command_options), options, groups)


_SHOWN = (
    *("since", "until", "service", "agent", "conversation", "model", "where", "limit"),
    *("by", "split", "case"),
)


def _selection_rows(command_options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the options of the selection as the page shows them."""
    for name in _SHOWN:
        value = command_options.get(name)
        if value:
            yield name, ", ".join(value) if isinstance(value, tuple) else str(value)


def _from_experiments(
    store: Store, options: ReportOptions, command_options: dict[str, Any]
) -> _ReportSource:
    """Return the selected experiments, the baseline first."""
    from dataclasses import replace

    from ..views import comparisons_of, from_experiments, pairwise_of

    names = list(command_options["experiments"])
    unfit = [name for name in _SHOWN if command_options.get(name)]
    if unfit:
        raise click.UsageError(
            f"--{unfit[0]} selects stored runs; it does not apply to --experiments"
        )
    if command_options["baseline"] and command_options["baseline"] not in names:
        names.insert(0, command_options["baseline"])
    elif command_options["baseline"]:
        names.sort(key=lambda name: name != command_options["baseline"])
    experiments, items = from_experiments(store, names)
    first = experiments[0]
    chosen = [("experiments", ", ".join(experiment.name for experiment in experiments))]
    if first.dataset:
        chosen.append(("dataset", f"{first.dataset}@{first.dataset_version[:8]}"))
    options = replace(
        options,
        selection=tuple(chosen),
        baseline=first.name if len(names) > 1 else "",
        is_grouped=len(names) > 1,
    )
    comparisons = comparisons_of(store, experiments, options.evaluators)
    return _ExperimentRuns(items, options, pairwise_of(store, experiments), comparisons)
