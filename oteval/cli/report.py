"""``oteval report``: what the store holds, as one file to look at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..config import DEFAULT_PATH, Gate, load_config
from ..errors import ConfigError, InputError
from ..evaluators.gates import Tally
from ..model import Score
from ..pipeline import check_gates
from ..selection import parse_condition
from ..show import markdown_report
from ..store import Store
from ..text import counted
from .common import db_option, filters, open_store, progress, select, time_of, warn

if TYPE_CHECKING:
    from ..show.html import ReportOptions, ReportRun

__all__ = ["report"]

_MEGABYTE = 1_000_000
_FAILURES = 100


@click.command()
@click.option("--html", metavar="FILE", help="Write one self-contained HTML file.")
@click.option("--md", metavar="FILE", help="Write Markdown: the counts, and what did not pass.")
@db_option
@filters
@click.option(
    "-c",
    "--config",
    "config_path",
    metavar="FILE",
    help=f"Show whether the gates of this file hold.  [default: {DEFAULT_PATH} if there is one]",
)
@click.option("--evaluator", multiple=True, help="Only this evaluator's scores; may be repeated.")
@click.option(
    "--by",
    metavar="FIELD",
    help="Compare runs by version, model, agent, service, dialect, day, week, hour or "
    "attributes.KEY: a column each.",
)
@click.option("--split", metavar="TIME", help="Compare the runs before a time with those after.")
@click.option(
    "--baseline",
    metavar="VALUE",
    help="What the others are compared with: a value of --by, an experiment, or by itself a "
    "condition as in --where. The earliest unless given.",
)
@click.option(
    "--case",
    metavar="attributes.KEY",
    help="The attribute that pairs runs; test.case.id or else what was asked unless given.",
)
@click.option(
    "--experiments",
    multiple=True,
    metavar="NAME",
    help="Report this experiment instead; repeated, compare them.",
)
@click.option("--title", default="oteval report", show_default=True, help="The heading.")
@click.option(
    "--max-rows",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="Show at most so many runs: those that did not pass, then the latest.",
)
@click.option(
    "--max-size",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="How many megabytes the runs' details may take.",
)
def report(
    html: str | None,
    md: str | None,
    db: str,
    config_path: str | None,
    evaluator: tuple[str, ...],
    title: str,
    max_rows: int,
    max_size: int,
    **given: Any,
) -> int:
    """Write a report to look at: figures, a matrix of runs and verdicts, every run in it.

    The HTML file asks for nothing from any network and can be mailed or kept as an artifact. With
    --by, --split, --baseline or --experiments it compares: what changed, regressions first, with
    the runs side by side. Exit status 3 when there is nothing to report.
    """
    if not html and not md:
        raise click.UsageError("give --html FILE or --md FILE")
    from ..show.html import ReportOptions

    options = ReportOptions(
        title=title,
        evaluators=evaluator,
        gates=_gates(config_path),
        most_rows=max_rows,
        most_bytes=max_size * _MEGABYTE,
    )
    with open_store(db) as store:
        made = _experiments(store, options, given) if given["experiments"] else None
        made = made or _stored(store, db, options, given)
        made.write(html, md)
    return 0


def _gates(config_path: str | None) -> tuple[Gate, ...]:
    """Return the gates of the configuration file named, or of the default file if it exists."""
    if config_path is None and not Path(DEFAULT_PATH).is_file():
        return ()
    return tuple(load_config(config_path or DEFAULT_PATH).gates)


class _Made:
    """Runs and how to report them; they can be read once for each file."""

    def __init__(self, items: Any, options: ReportOptions, pairwise: Any = ()) -> None:
        self._items = items
        self._options = options
        self._pairwise = pairwise

    def write(self, html: str | None, md: str | None) -> None:
        from ..show.html import build, render

        if html:
            made = build(self._items(), self._options, self._pairwise)
            text = render(made)
            _write(html, text)
            size = len(text.encode()) / _MEGABYTE
            rows, runs = counted(len(made.rows), "row"), counted(len(made.details), "run")
            warn(f"{html}: {rows}, {runs}, {size:.1f} MB")
            for note in made.notes:
                warn(note)
        if md:
            _write(md, _markdown(self._items(), self._options))
            warn(f"{md}: written")


def _stored(store: Store, db: str, options: ReportOptions, given: dict[str, Any]) -> _Made:
    """Return the stored trajectories that are meant, grouped as asked for."""
    from dataclasses import replace

    from ..show.html import from_store, sources

    by, split, baseline, case = (given[name] for name in ("by", "split", "baseline", "case"))
    if by and split:
        raise click.UsageError("--by and --split are two ways to compare; give one")
    group = None
    if by:
        group = sources.grouping(by)
    elif split:
        time_ns = time_of(split, "--split")
        assert time_ns is not None
        group = sources.split_at(time_ns, split)
        baseline = baseline or f"before {split}"
    elif baseline:
        group = sources.split_by(parse_condition(baseline), baseline)
    if case and not case.startswith("attributes."):
        raise ConfigError(f"--case {case!r}: write attributes.KEY")
    chosen = [("database", Path(db).name), *_chosen(given)]
    options = replace(
        options, selection=tuple(chosen), baseline=baseline or "", is_grouped=group is not None
    )
    selection = select(**given)
    attribute = case.removeprefix("attributes.") if case else ""

    def items() -> Iterator[ReportRun]:
        with progress("reading", " runs") as update:
            yield from from_store(
                store, selection, group, attribute, lambda done: update(done, None)
            )

    return _Made(items, options)


_SHOWN = (
    *("since", "until", "service", "agent", "conversation", "model", "where", "limit"),
    *("by", "split", "case"),
)


def _chosen(given: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the filters that were given, as the page shows them."""
    for name in _SHOWN:
        value = given.get(name)
        if value:
            yield name, ", ".join(value) if isinstance(value, tuple) else str(value)


def _experiments(store: Store, options: ReportOptions, given: dict[str, Any]) -> _Made:
    """Return the experiments that are meant, the baseline first."""
    from dataclasses import replace

    from ..show.html import from_experiments, pairwise_of

    names = list(given["experiments"])
    unfit = [name for name in _SHOWN if given.get(name)]
    if unfit:
        raise click.UsageError(f"--{unfit[0]} chooses stored runs; it does not go with experiments")
    if given["baseline"] and given["baseline"] not in names:
        names.insert(0, given["baseline"])
    elif given["baseline"]:
        names.sort(key=lambda name: name != given["baseline"])
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
    return _Made(lambda: items, options, pairwise_of(store, experiments))


def _markdown(items: Iterable[ReportRun], options: ReportOptions) -> str:
    tallies: dict[str, Tally] = {}
    failures: list[Score] = []
    for item in items:
        for verdict in item.verdicts:
            if options.evaluators and verdict.evaluator not in options.evaluators:
                continue
            found = verdict.as_score(item.id)
            tallies.setdefault(found.evaluator, Tally(found.evaluator)).add(found)
            bad = found.status != "ok" or found.passed is False
            if bad and len(failures) < _FAILURES:
                failures.append(found)
    gates = check_gates(options.shown_gates, tallies)
    return markdown_report(tallies, gates, failures)


def _write(path: str, text: str) -> None:
    """Write a file that appears whole or not at all."""
    target = Path(path)
    partial = target.with_name(f"{target.name}.partial")
    try:
        partial.write_text(text, "utf-8", newline="\n")
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
